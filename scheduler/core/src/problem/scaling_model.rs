//! Scaling model of a job: the remaining work and the speed at every size. Estimators compute it
//! from measured and declared values. It never contains values that only the simulated truth has.

use std::sync::Arc;

/// Estimate of a job's future.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingModel {
    /// Work done, in steps of the job's own batch size. This is the unit of progress.
    pub work_done: f64,
    /// Work left, in the same unit. Always above 0.
    pub work_left: f64,
    /// Relative standard error of the time left.
    pub uncertainty: f64,
    /// Speed curve by GPU kind. Jobs with equal curves share them.
    pub curves: Arc<[KindSpeedCurve]>,
    /// Largest number of GPUs at which the job, or a job of its family, was measured.
    pub largest_gpus: u32,
    /// Fitted training loss, for policies that share by quality.
    pub loss: Option<FittedLoss>,
}

/// Speed on one GPU kind, in work per second. Entry `n - 1` is the speed on `n` GPUs, or 0 where
/// the job cannot run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KindSpeedCurve {
    /// Speeds on one node.
    pub local: Vec<f64>,
    /// Speeds on several nodes: the fewest that hold the GPUs.
    pub spread: Vec<f64>,
}

/// Fitted loss `1 / (b0 k + b1) + b2` after `k` units of work (Optimus, EuroSys 2018, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedLoss {
    pub b0: f64,
    pub b1: f64,
    pub b2: f64,
    /// Largest loss seen. It normalises losses for the comparison of jobs.
    pub first: f64,
}

impl ScalingModel {
    /// Returns the work per second on `gpus` GPUs of a kind on `nodes` nodes; 0 where the job
    /// cannot run.
    #[must_use]
    pub fn speed(&self, kind: u16, gpus: u32, nodes: u32) -> f64 {
        self.curves
            .get(usize::from(kind))
            .map_or(0.0, |curve| curve.speed(gpus, nodes))
    }

    /// Returns the seconds until the end at that speed; infinite where the job cannot run.
    #[must_use]
    pub fn time_left_s(&self, kind: u16, gpus: u32, nodes: u32) -> f64 {
        self.work_left / self.speed(kind, gpus, nodes)
    }
}

impl KindSpeedCurve {
    /// Returns the work per second on `gpus` GPUs on `nodes` nodes; 0 where the job cannot run.
    #[must_use]
    pub fn speed(&self, gpus: u32, nodes: u32) -> f64 {
        let speeds = if nodes <= 1 {
            &self.local
        } else {
            &self.spread
        };
        gpus.checked_sub(1)
            .and_then(|index| speeds.get(index as usize))
            .copied()
            .unwrap_or(0.0)
    }

    /// Returns the work per second of `gpus` GPUs on the fewest nodes of `node_gpus` GPUs each.
    #[must_use]
    pub fn packed(&self, gpus: u32, node_gpus: u32) -> f64 {
        self.speed(gpus, gpus.div_ceil(node_gpus.max(1)))
    }
}

impl FittedLoss {
    /// Returns the loss after `work` units of work.
    #[must_use]
    pub fn at(&self, work: f64) -> f64 {
        1.0 / (self.b0 * work + self.b1).max(1e-12) + self.b2
    }
}
