//! Time that a job still needs at any size: remaining steps over steps per second.
//!
//! An estimate covers one job and does not depend on the cluster.

mod convergence;
mod evidence;
mod gains;
mod goodput;
mod kinds;
mod loss_curve;
mod memo;
mod nnls;
#[cfg(test)]
mod probe;
mod remaining_steps;
mod speed;
mod surface;
mod trend;

use crate::policy::Policy;
use crate::problem::FittedLoss;
use crate::report::Length;
use crate::snapshot::SnapshotJob;
use convergence::LastEpoch;
pub(crate) use evidence::{Evidence, FamilyEvidence};
pub(crate) use gains::Gains;
pub(crate) use goodput::predicted_batch;
pub(crate) use kinds::{ASSUMED_SPREAD, KindEstimates};
pub(crate) use memo::EstimateMemo;
use muster_model::spec::Range;
use remaining_steps::StepsLeft;
pub(crate) use speed::Speed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Estimate of a job's future.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    pub steps_left: f64,
    /// 80 % interval of the remaining steps. Both ends equal `steps_left` if the end does not
    /// depend on an estimate.
    pub steps_left_between: (f64, f64),
    /// Source of the remaining steps.
    pub length: Length,
    /// Speed in updates per second. With `kinds`: on the kind on which the job runs, or of which
    /// most is known.
    pub speed: Arc<Speed>,
    /// Speeds by GPU kind and placement; `None` without such measurements, when all kinds are
    /// equal.
    pub kinds: Option<Arc<KindEstimates>>,
    pub gains: Gains,
    /// Fitted training loss by steps; `None` unless the policy asks for it and the losses determine
    /// it.
    pub loss: Option<FittedLoss>,
    /// Largest numbers of workers and shards that the job may get now, within its range and the
    /// bound of exploration.
    pub most: (u32, u32),
}

impl Estimate {
    pub(crate) fn of(job: &SnapshotJob, evidence: Option<Evidence>, policy: &Policy) -> Self {
        let mut memo = EstimateMemo::default();
        memo.estimate(job, evidence, policy).0
    }

    fn with(
        job: &SnapshotJob,
        policy: &Policy,
        (speed, kinds): (Arc<Speed>, Option<Arc<KindEstimates>>),
        converged: Option<LastEpoch>,
    ) -> Self {
        let most = speed.largest_measured().map_or(
            (job.workers.max, job.ps_shards.max),
            |(workers, ps_shards)| {
                (
                    largest_explored(policy, workers, job.workers),
                    largest_explored(policy, ps_shards, job.ps_shards),
                )
            },
        );
        let gains = Gains::of(job);
        let left = StepsLeft::of(job, policy, converged, || {
            let (workers, ps_shards) = match job.size() {
                (0, _) => (job.workers.min, job.ps_shards.min),
                size => size,
            };
            speed.steps_per_s(workers, ps_shards) * gains.at(workers)
        });
        Self {
            steps_left: left.expected,
            steps_left_between: (left.low, left.high),
            length: left.length,
            speed,
            kinds,
            gains,
            loss: None,
            most,
        }
    }

    /// Returns the seconds until the end with `w` workers and `p` shards.
    pub(crate) fn time_s(&self, (workers, ps_shards): (u32, u32)) -> f64 {
        self.steps_left / self.steps_per_s(workers, ps_shards)
    }

    /// Returns the progress per second at a size: updates per second times their gain. If the batch
    /// grows, this is the goodput of Pollux.
    pub(crate) fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        self.speed.steps_per_s(workers, ps_shards) * self.gains.at(workers)
    }

    /// Returns the speed at a size on one node of each GPU kind, relative to
    /// [`Self::steps_per_s`]. Empty if all kinds are equal.
    pub(crate) fn relative_speeds(&self, size: (u32, u32)) -> BTreeMap<String, f64> {
        let kinds = self.kinds.as_ref();
        kinds.map_or_else(BTreeMap::new, |kinds| kinds.relative(&self.speed, size))
    }

    /// Returns the progress per second at a size on one node of a GPU kind, and on several.
    pub(crate) fn speeds_on(&self, kind: &str, (workers, ps_shards): (u32, u32)) -> SpeedsOnKind {
        let size = (workers, ps_shards);
        let Some(kinds) = &self.kinds else {
            let local = self.steps_per_s(workers, ps_shards);
            return SpeedsOnKind {
                local,
                spread: local * ASSUMED_SPREAD,
            };
        };
        let local = kinds.steps_per_s(kind, &self.speed, size) * self.gains.at(workers);
        SpeedsOnKind {
            local,
            spread: local * kinds.spread_factor(kind, size),
        }
    }
}

/// Progress per second at one size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpeedsOnKind {
    /// On one node.
    pub local: f64,
    /// On several nodes.
    pub spread: f64,
}

/// Returns the largest number of workers or shards that a job may get, when `measured` is the
/// largest measured one.
fn largest_explored(policy: &Policy, measured: u32, range: Range) -> u32 {
    let explored = (f64::from(measured) * policy.explore_factor).floor();
    // A cast of a float saturates.
    (explored as u32)
        .max(measured)
        .max(range.min)
        .min(range.max)
}
