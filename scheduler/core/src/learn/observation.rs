//! Measured speed of a job or of a family of jobs on one placement.

use serde::{Deserialize, Serialize};

/// Workers and PS shards.
pub type Size = (u32, u32);

/// Mean speed of a job, or of the jobs of a family, on one GPU kind and placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Model of the workers' GPUs, as [`SnapshotNode::gpu_model`] names it.
    ///
    /// [`SnapshotNode::gpu_model`]: crate::snapshot::SnapshotNode::gpu_model
    pub gpu_kind: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Number of nodes on which the workers were.
    pub nodes: u32,
    /// Updates per second. An update is one step with a constant batch.
    pub steps_per_s: f64,
    /// Weight in samples; older samples count less.
    pub samples: f64,
    /// Batch of these updates, where the coordinator chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<ObservedBatch>,
}

/// Batch that the coordinator has chosen, and the exchange of its updates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedBatch {
    /// Examples of an update over all workers.
    pub examples: u32,
    /// Seconds of an update that the exchange adds to the computation.
    pub exchange_s: f64,
}

impl Observation {
    /// Whether the values are finite and above 0.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_measured = self.steps_per_s.is_finite() && self.samples.is_finite();
        is_measured && self.steps_per_s > 0.0 && self.samples > 0.0 && self.workers > 0
    }

    #[must_use]
    pub fn size(&self) -> Size {
        (self.workers, self.ps_shards)
    }

    /// Returns whether the workers were on one node or on several.
    #[must_use]
    pub fn spread(&self) -> Spread {
        if self.nodes > 1 {
            Spread::Nodes
        } else {
            Spread::OneNode
        }
    }
}

/// Gradient noise of a family in a part of the course of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CourseNoise {
    /// Number of the part, as of [`muster_model::progress::course_part`].
    pub part: u32,
    /// Gradient noise scale in examples.
    pub noise_scale: f64,
}

/// Whether the workers of a job are on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    OneNode,
    Nodes,
}
