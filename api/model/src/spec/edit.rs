//! Changes of a submitted job: its size range and its priority.
//!
//! All other fields describe what is trained and how; running tasks were started with them.

use super::{BatchRule, FieldError, JobSpec};
use crate::view::JobChange;

impl JobSpec {
    /// Returns the document after the change.
    ///
    /// # Errors
    /// One [`FieldError`] per broken rule. Fields of the change are named as in the change.
    pub fn changed(&self, change: &JobChange) -> Result<Self, Vec<FieldError>> {
        let mut spec = self.clone();
        if let Some(workers) = change.workers {
            spec.scale.workers = workers;
        }
        if change.ps_shards.is_some() {
            spec.scale.ps_shards = change.ps_shards;
        }
        if change.priority.is_some() {
            spec.priority = change.priority;
        }
        if let Some(class) = &change.priority_class {
            spec.priority_class = Some(class.clone());
            // Without a number the job gets the default of its new class.
            spec.priority = change.priority;
        }
        let mut checked = spec.clone();
        if checked.command.is_some() {
            // The scheduler sets it for trials of population-based training.
            checked.from = None;
        }
        let mut errors = checked.validate().err().unwrap_or_default();
        for error in &mut errors {
            if let Some(field) = error.field.strip_prefix("scale.") {
                error.field = field.to_owned();
            }
        }
        errors.extend(self.moves_its_base(&spec));
        if errors.is_empty() {
            Ok(spec)
        } else {
            Err(errors)
        }
    }

    /// With `batch_rule: adascale` the batch is relative to the smallest number of workers. Another
    /// minimum would be another training.
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
