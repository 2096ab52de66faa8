//! What a running job tells of itself: training samples and evaluations.

use serde::{Deserialize, Serialize};

/// One point of the training series, sent by the chief worker. Rates and times are means since the point before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Sample {
    /// Optimizer steps done, over the whole life of the job.
    pub step: u64,
    /// Epochs done, fractional.
    pub epoch: f64,
    /// Mean training loss per example since the sample before.
    pub loss: f64,
    /// Share of training examples classified rightly since the sample before, 0 to 1.
    pub accuracy: f64,
    /// Of the whole job, all workers together.
    pub examples_per_s: f64,
    pub steps_per_s: f64,
    /// Per update, which is a step unless `gain` says otherwise: forward and backward.
    pub compute_ms: f64,
    /// Per update: pushing gradients and waiting for new parameters.
    pub exchange_ms: f64,
    /// Per update: preparing the batch.
    pub data_ms: f64,
    pub workers: u32,
    pub ps_shards: u32,
    /// The gradient noise scale in examples (McCandlish et al., 2018), where several workers sum gradients: batches well below it gain
    /// from more examples, those well above do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// Steps that an update was worth, where the batch grows with the workers (`batch_rule: adascale`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
}

impl Sample {
    /// Updates of the parameters: steps, where nothing says that an update is worth more.
    #[must_use]
    pub fn updates_per_s(&self) -> f64 {
        match self.gain {
            Some(gain) if gain > 0.0 => self.steps_per_s / gain,
            _ => self.steps_per_s,
        }
    }
}

/// One pass over the test split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Evaluation {
    pub step: u64,
    pub epoch: f64,
    pub loss: f64,
    /// Share of test examples classified rightly, 0 to 1.
    pub accuracy: f64,
}
