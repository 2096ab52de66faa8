//! What is known of a job's future: the work left and the speed at every size. Made by the estimators from what was measured and
//! declared, never from what only an oracle knows.

use std::sync::Arc;

/// A job's future as far as it can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Work done, in steps of the job's own batch size (its unit of progress).
    pub work_done: f64,
    /// Work left, in the same unit; more than 0.
    pub work_left: f64,
    /// Relative standard error of the time left: how sure all this is.
    pub uncertainty: f64,
    /// Of every GPU kind; shared between jobs of which the same is known.
    pub curves: Arc<[Curve]>,
    /// The largest number of GPUs at which the job, or one of its kind, was measured.
    pub largest_gpus: u32,
    /// The training loss as it goes, for policies that share by quality.
    pub loss: Option<Loss>,
}

/// Speed on one GPU kind, work per second. Entry `n - 1` is that of `n` GPUs, 0 where the job cannot run so.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// All on one node.
    pub local: Vec<f64>,
    /// On the fewest nodes that hold them, more than one.
    pub spread: Vec<f64>,
}

/// The fitted loss `1 / (b0 k + b1) + b2` after `k` units of work (Optimus, EuroSys 2018, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    pub b0: f64,
    pub b1: f64,
    pub b2: f64,
    /// The largest loss seen, by which jobs are compared.
    pub first: f64,
}

impl Outlook {
    /// Work per second on `gpus` GPUs of a kind on `nodes` nodes; 0 when it cannot run so.
    #[must_use]
    pub fn speed(&self, kind: u16, gpus: u32, nodes: u32) -> f64 {
        self.curves
            .get(usize::from(kind))
            .map_or(0.0, |curve| curve.speed(gpus, nodes))
    }

    /// Seconds to the end at that speed; infinite where it cannot run.
    #[must_use]
    pub fn time_left_s(&self, kind: u16, gpus: u32, nodes: u32) -> f64 {
        self.work_left / self.speed(kind, gpus, nodes)
    }
}

impl Curve {
    /// Work per second on `gpus` GPUs on `nodes` nodes; 0 when it cannot run so.
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

    /// Work per second on the fewest nodes of `node_gpus` GPUs each that hold `gpus`.
    #[must_use]
    pub fn packed(&self, gpus: u32, node_gpus: u32) -> f64 {
        self.speed(gpus, gpus.div_ceil(node_gpus.max(1)))
    }
}

impl Loss {
    /// The loss after `work` units of work.
    #[must_use]
    pub fn at(&self, work: f64) -> f64 {
        1.0 / (self.b0 * work + self.b1).max(1e-12) + self.b2
    }
}
