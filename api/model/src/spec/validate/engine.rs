//! Rules that concern several parts of an engine.

use super::Errors;
use crate::spec::{BatchRule, Compression, Engine, JobSpec, Optimizer, Topology};

/// Maximum number of tokens of a text in one step.
const MOST_TOKENS: u32 = 1 << 24;

impl JobSpec {
    pub(super) fn check_engine(&self, errors: &mut Errors, engine: &Engine) {
        let before = errors.count();
        errors.dataset(&engine.dataset, engine.batch);
        // A wrong input would cause further errors in the model.
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
        self.check_batch_rule(errors, engine);
        if let Some(threads) = engine.hogwild_threads {
            self.check_hogwild(errors, engine, threads);
        }
        let tokens = engine.targets_per_step();
        errors.check(
            "engine.batch",
            &batch,
            tokens <= MOST_TOKENS || batch > 65_536,
            &format!("few enough pieces to have at most {MOST_TOKENS} bytes together"),
        );
    }

    /// Threads that share parameters have no sum to wait for, and the optimizer must keep no state
    /// per parameter.
    fn check_hogwild(&self, errors: &mut Errors, engine: &Engine, threads: u32) {
        let (exchange, workers) = (&self.exchange, self.scale.workers);
        let is_alone = exchange.topology == Topology::AllReduce && exchange.averaging.is_none();
        let is_plain =
            matches!(engine.optimizer, Optimizer::Sgd { momentum, .. } if momentum == 0.0);
        let is_whole = engine.clip_norm.is_none() && engine.accumulate.is_none();
        for (right, expected) in [
            ((1..=64).contains(&threads), "1 to 64 threads"),
            (
                is_alone && exchange.compression == Compression::None,
                "left out, or exchange.topology all_reduce without averaging and compression: its threads exchange nothing but parameters in memory",
            ),
            (
                workers.min == 1 && workers.max == 1,
                "left out, or scale.workers 1 to 1: its threads are those of one worker",
            ),
            (
                is_plain,
                "left out, or engine.optimizer sgd without momentum: what other rules keep of a parameter would not fit together",
            ),
            (
                is_whole && engine.batch_rule == BatchRule::Constant,
                "left out, or no clip_norm, accumulate and batch_rule: each thread's step is one pass over a batch of its own",
            ),
        ] {
            errors.check("engine.hogwild_threads", &threads, right, expected);
        }
    }

    /// AdaScale's gain is derived for SGD on the plain mean of gradients, and needs their noise
    /// measured in every update.
    fn check_batch_rule(&self, errors: &mut Errors, engine: &Engine) {
        let rule = engine.batch_rule;
        if rule != BatchRule::Goodput {
            errors.check(
                "engine.max_batch",
                &shown(engine.max_batch),
                engine.max_batch.is_none(),
                &format!("left out, or batch_rule goodput: with {rule} nothing reads it"),
            );
        }
        if !rule.counts_gains() {
            return;
        }
        let sums =
            self.exchange.topology == Topology::AllReduce && self.exchange.averaging.is_none();
        let plain = self.exchange.compression == Compression::None;
        let sgd = matches!(engine.optimizer, Optimizer::Sgd { .. });
        for (right, expected) in [
            (
                sums,
                "constant: only all_reduce without averaging measures the noise of every update's gradients",
            ),
            (
                plain,
                "constant, or exchange.compression none: of what codecs make of gradients the noise says nothing",
            ),
            (
                sgd,
                "constant, or engine.optimizer sgd: the gain is that of an update whose rate is the gradient's factor",
            ),
        ] {
            errors.check("engine.batch_rule", &rule, right, expected);
        }
        self.check_largest_batch(errors, engine);
    }

    /// The largest batch must not exceed an epoch, nor the memory for its targets.
    fn check_largest_batch(&self, errors: &mut Errors, engine: &Engine) {
        let (rule, workers) = (engine.batch_rule, self.scale.workers);
        let most_examples = engine.dataset.all_train_examples().min(65_536);
        let is_small = |batch: u32| {
            let targets = batch.saturating_mul(engine.targets_per_example());
            batch <= most_examples && targets <= MOST_TOKENS
        };
        if rule == BatchRule::Goodput {
            let most = engine.max_batch.unwrap_or(0);
            errors.check(
                "engine.max_batch",
                &shown(engine.max_batch),
                most > engine.batch && is_small(most),
                &format!(
                    "with batch_rule goodput, more than engine.batch ({}) and at most {most_examples} examples with {MOST_TOKENS} targets together",
                    engine.batch
                ),
            );
            return;
        }
        let most = rule.examples(engine.batch, workers.min, workers.max);
        errors.check(
            "scale.workers.max",
            &workers.max,
            is_small(most),
            &format!(
                "few enough that the batch of all workers ({most} with adascale) has at most {most_examples} examples and {MOST_TOKENS} targets"
            ),
        );
    }
}

fn shown(max_batch: Option<u32>) -> String {
    max_batch.map_or_else(|| "left out".to_owned(), |most| most.to_string())
}
