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
    /// Per step: forward and backward.
    pub compute_ms: f64,
    /// Per step: pushing gradients and waiting for new parameters.
    pub exchange_ms: f64,
    /// Per step: preparing the batch.
    pub data_ms: f64,
    pub workers: u32,
    pub ps_shards: u32,
    /// The gradient noise scale in examples (McCandlish et al., 2018), where several workers sum gradients: batches well below it gain
    /// from more examples, those well above do not. Of the newest sample; a series does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
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
