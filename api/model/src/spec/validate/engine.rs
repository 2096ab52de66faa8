//! What the parts of an engine have in common.

use super::Errors;
use crate::spec::{Engine, JobSpec};

/// Of a text in one step.
const MOST_TOKENS: u32 = 1 << 24;

impl JobSpec {
    pub(super) fn check_engine(&self, errors: &mut Errors, engine: &Engine) {
        let before = errors.count();
        errors.dataset(&engine.dataset, engine.batch);
        // What a network reads must be right before it can be said what becomes of it.
        if errors.count() == before {
            errors.model(&engine.model, &engine.dataset);
        }
        errors.optimizer(&engine.optimizer);
        errors.schedule(&engine.schedule);
        if let Some(norm) = engine.clip_norm {
            let right = norm > 0.0 && norm.is_finite();
            errors.check("engine.clip_norm", &norm, right, "above 0");
        }
        if let Some(passes) = engine.accumulate {
            let right = (1..=1024).contains(&passes);
            errors.check("engine.accumulate", &passes, right, "1 to 1024 passes");
        }
        let (batch, examples) = (engine.batch, engine.dataset.all_train_examples());
        errors.check(
            "engine.batch",
            &batch,
            (1..=65_536).contains(&batch) && batch <= examples,
            &format!("1 to {} examples", examples.min(65_536)),
        );
        let tokens = engine.targets_per_step();
        errors.check(
            "engine.batch",
            &batch,
            tokens <= MOST_TOKENS || batch > 65_536,
            &format!("so many pieces that they have at most {MOST_TOKENS} bytes together"),
        );
    }
}
