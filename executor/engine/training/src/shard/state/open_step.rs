//! The present step, under BSP.

use muster_comm::wire::metadata::NoisePart;
use muster_model::id::TaskId;

/// Gradients of the present step, beside those that each worker has pushed.
#[derive(Debug, Default)]
pub enum OpenStep {
    /// Pushes are collected, and applied together.
    #[default]
    Collecting,
    /// The step is in partitions.
    InPartitions(PartitionedStep),
    /// The step is complete and waits for the clip factor.
    Summed(UnclippedSum),
}

/// State of a step in partitions.
#[derive(Debug, Default)]
pub struct PartitionedStep {
    /// Whether each partition is applied.
    pub applied: Vec<bool>,
    /// Norms of each partition, where the noise is measured.
    pub noise: Vec<PartitionNorms>,
}

/// Squared norms of a partition of a step.
#[derive(Debug, Default, Clone)]
pub struct PartitionNorms {
    /// Norms of the workers' sums, in the order of ranks.
    pub pushes: Vec<f64>,
    /// Norm of the mean of all.
    pub whole: f64,
}

/// A step's sum of gradients, which waits for the clip factor.
#[derive(Debug)]
pub struct UnclippedSum {
    /// Worker whose push buffer contains the sum.
    pub of: TaskId,
    pub gradients: Vec<f32>,
    pub scale: f32,
    /// Squared norm of the sum times its scale.
    pub square: f64,
}

impl OpenStep {
    pub fn partitions(&self) -> Option<&PartitionedStep> {
        match self {
            Self::InPartitions(step) => Some(step),
            Self::Collecting | Self::Summed(_) => None,
        }
    }

    pub fn partitions_mut(&mut self) -> Option<&mut PartitionedStep> {
        match self {
            Self::InPartitions(step) => Some(step),
            Self::Collecting | Self::Summed(_) => None,
        }
    }

    pub fn sum(&self) -> Option<&UnclippedSum> {
        match self {
            Self::Summed(sum) => Some(sum),
            Self::Collecting | Self::InPartitions(_) => None,
        }
    }

    /// Takes the sum, if the step waits for the clip factor.
    pub fn take_sum(&mut self) -> Option<UnclippedSum> {
        match std::mem::take(self) {
            Self::Summed(sum) => Some(sum),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Ends a step in partitions and returns it, if all of them are applied.
    pub fn take_applied_partitions(&mut self) -> Option<PartitionedStep> {
        match std::mem::take(self) {
            Self::InPartitions(step) if step.applied.iter().all(|&applied| applied) => Some(step),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Whether some parameters are those after the present step and others are not.
    pub fn is_half_done(&self) -> bool {
        self.partitions()
            .is_some_and(|step| step.applied.contains(&true))
    }
}

impl PartitionedStep {
    /// Returns the noise measurement of a step whose pushes have these targets, if all partitions
    /// of all pushes were measured.
    pub fn measure(&self, targets: &[u64]) -> Option<NoisePart> {
        let mut norms = self.noise.iter();
        if self.noise.is_empty() || !norms.all(|norms| norms.pushes.len() == targets.len()) {
            return None;
        }
        let inverses: Vec<f64> = targets.iter().map(|&count| 1.0 / count as f64).collect();
        let squares = inverses.iter().enumerate().map(|(rank, inverse)| {
            let of_sum: f64 = self.noise.iter().map(|norms| norms.pushes[rank]).sum();
            of_sum * inverse.powi(2)
        });
        Some(NoisePart {
            squares: squares.sum(),
            inverses: inverses.iter().sum(),
            whole: self.noise.iter().map(|norms| norms.whole).sum(),
            pushes: targets.len() as u64,
        })
    }
}
