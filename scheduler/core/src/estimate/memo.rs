//! Estimates of one job together with their inputs.

use super::convergence::{self, LastEpoch};
use super::{Estimate, Speed};
use crate::policy::Policy;
use crate::snapshot::{SnapshotJob, SpeedPoint};
use muster_model::spec::{Consistency, Convergence, Range};
use std::sync::Arc;

/// Kept estimates of a job and their inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct EstimateMemo {
    speed: Option<(SpeedInputs, Arc<Speed>)>,
    converged: Option<ConvergenceMemo>,
}

/// Convergence estimate of a job and its inputs.
#[derive(Debug, Clone)]
struct ConvergenceMemo {
    rule: Convergence,
    epoch_losses: Vec<(u64, f64)>,
    last: Option<LastEpoch>,
}

/// Inputs that [`Speed::of`] reads from a job.
#[derive(Debug, Clone, PartialEq)]
struct SpeedInputs {
    consistency: Consistency,
    batch: u32,
    grows: bool,
    workers: Range,
    ps_shards: Range,
    speeds: Vec<SpeedPoint>,
}

impl SpeedInputs {
    fn of(job: &SnapshotJob) -> Self {
        Self {
            consistency: job.consistency,
            batch: job.batch,
            grows: job.adaptive.is_some(),
            workers: job.workers,
            ps_shards: job.ps_shards,
            speeds: job.speeds.clone(),
        }
    }

    fn is_of(&self, job: &SnapshotJob) -> bool {
        self.consistency == job.consistency
            && self.batch == job.batch
            && self.grows == job.adaptive.is_some()
            && self.workers == job.workers
            && self.ps_shards == job.ps_shards
            && self.speeds == job.speeds
    }
}

impl EstimateMemo {
    /// Returns the job's estimate, and whether its speed was computed anew. `policy` must be the
    /// same in all calls.
    pub(crate) fn estimate(&mut self, job: &SnapshotJob, policy: &Policy) -> (Estimate, bool) {
        let kept = self.speed.take().filter(|(of, _)| of.is_of(job));
        let is_new = kept.is_none();
        let (of, speed) =
            kept.unwrap_or_else(|| (SpeedInputs::of(job), Arc::new(Speed::of(job, policy))));
        self.speed = Some((of, Arc::clone(&speed)));
        let converged = self.converged(job);
        (Estimate::with(job, policy, speed, converged), is_new)
    }

    fn converged(&mut self, job: &SnapshotJob) -> Option<LastEpoch> {
        let (rule, losses) = (job.progress.convergence?, &job.progress.epoch_losses);
        let kept = self.converged.as_ref();
        let same = kept.filter(|kept| kept.rule == rule && kept.epoch_losses == *losses);
        if let Some(kept) = same {
            return kept.last;
        }
        let last = convergence::last_epoch(losses, rule);
        self.converged = Some(ConvergenceMemo {
            rule,
            epoch_losses: losses.clone(),
            last,
        });
        last
    }
}
