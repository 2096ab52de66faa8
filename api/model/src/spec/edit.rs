//! What of a job can be changed once it was submitted: between which sizes the scheduler may choose, and what comes first.
//!
//! Everything else is what is trained and how, which a running task was started with.

use super::{BatchRule, FieldError, JobSpec};
use crate::view::JobChange;

impl JobSpec {
    /// The document after a change.
    ///
    /// # Errors
    /// What would be wrong with it, fields named as in the change where they stand there.
    pub fn changed(&self, change: &JobChange) -> Result<Self, Vec<FieldError>> {
        let mut spec = self.clone();
        if let Some(workers) = change.workers {
            spec.scale.workers = workers;
        }
        if change.ps_shards.is_some() {
            spec.scale.ps_shards = change.ps_shards;
        }
        if let Some(priority) = change.priority {
            spec.priority = priority;
        }
        let mut errors = spec.validate().err().unwrap_or_default();
        for error in &mut errors {
            if let Some(field) = error.field.strip_prefix("scale.") {
                error.field = field.to_owned();
            }
        }
        errors.extend(self.moves_its_base(&spec));
        match errors.is_empty() {
            true => Ok(spec),
            false => Err(errors),
        }
    }

    /// A batch that grows with the workers is counted from the fewest: another number there would be another training.
    fn moves_its_base(&self, changed: &Self) -> Option<FieldError> {
        let engine = self.engine.as_ref()?;
        let (was, is) = (self.scale.workers.min, changed.scale.workers.min);
        (engine.batch_rule == BatchRule::AdaScale && was != is).then(|| FieldError {
            field: "workers.min".to_owned(),
            value: is.to_string(),
            expected: format!("{was} as before, from which batch_rule adascale counts the batch"),
        })
    }
}
