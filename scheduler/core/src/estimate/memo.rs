//! Estimates of one job together with their inputs.

use super::convergence::{self, LastEpoch};
use super::goodput::goodput_of;
use super::{Estimate, Evidence, KindEstimates, Speed};
use crate::learn::GoodputModel;
use crate::policy::Policy;
use crate::problem::FittedLoss;
use crate::snapshot::{SnapshotJob, SpeedPoint};
use muster_model::spec::{Consistency, Convergence, Range};
use std::sync::Arc;

/// Kept estimates of a job and their inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct EstimateMemo {
    speed: Option<(SpeedInputs, Speeds)>,
    converged: Option<ConvergenceMemo>,
    loss: Option<LossMemo>,
}

/// Speed of a job, and its speeds by kind.
type Speeds = (Arc<Speed>, Option<Arc<KindEstimates>>);

/// Convergence estimate of a job and its inputs.
#[derive(Debug, Clone)]
struct ConvergenceMemo {
    rule: Convergence,
    epoch_losses: Vec<(u64, f64)>,
    last: Option<LastEpoch>,
}

/// Fitted loss of a job and its inputs.
#[derive(Debug, Clone)]
struct LossMemo {
    epoch_losses: Vec<(u64, f64)>,
    fitted: Option<FittedLoss>,
}

/// Inputs that [`Speed::of`] reads from a job.
#[derive(Debug, Clone, PartialEq)]
struct SpeedInputs {
    consistency: Consistency,
    batch: u32,
    grows: bool,
    goodput: Option<GoodputModel>,
    workers: Range,
    ps_shards: Range,
    speeds: Vec<SpeedPoint>,
    evidence: Option<Evidence>,
}

impl SpeedInputs {
    fn of(job: &SnapshotJob, evidence: Option<Evidence>) -> Self {
        Self {
            consistency: job.consistency,
            batch: job.batch,
            grows: job.batch_grows_with_workers(),
            goodput: goodput_with(job, evidence.as_ref()),
            workers: job.workers,
            ps_shards: job.ps_shards,
            speeds: job.speeds.clone(),
            evidence,
        }
    }

    fn is_of(&self, job: &SnapshotJob, evidence: Option<&Evidence>) -> bool {
        self.consistency == job.consistency
            && self.batch == job.batch
            && self.grows == job.batch_grows_with_workers()
            && self.goodput == goodput_with(job, evidence)
            && self.workers == job.workers
            && self.ps_shards == job.ps_shards
            && self.speeds == job.speeds
            && self.evidence.as_ref() == evidence
    }

    /// Computes the speeds of the job that these inputs are of.
    fn speeds(&self, job: &SnapshotJob, policy: &Policy) -> Speeds {
        let Some(evidence) = &self.evidence else {
            return (Arc::new(Speed::of(job, policy)), None);
        };
        let Some(goodput) = &self.goodput else {
            let (speed, kinds) = KindEstimates::of(job, evidence, policy);
            return (speed, Some(Arc::new(kinds)));
        };
        let (speed, kinds) = KindEstimates::of_goodput(job, evidence, goodput, policy);
        (speed, Some(Arc::new(kinds)))
    }
}

fn goodput_with(job: &SnapshotJob, evidence: Option<&Evidence>) -> Option<GoodputModel> {
    let family = evidence.map(|evidence| &*evidence.family.noises);
    goodput_of(job, family.unwrap_or_default())
}

impl EstimateMemo {
    /// Returns the job's estimate, and whether its speed was computed anew. `policy` must be the
    /// same in all calls.
    pub(crate) fn estimate(
        &mut self,
        job: &SnapshotJob,
        evidence: Option<Evidence>,
        policy: &Policy,
    ) -> (Estimate, bool) {
        let kept = self.speed.take();
        let kept = kept.filter(|(of, _)| of.is_of(job, evidence.as_ref()));
        let is_new = kept.is_none();
        let (of, speeds) = match kept {
            Some(kept) => kept,
            None => {
                let of = SpeedInputs::of(job, evidence);
                let speeds = of.speeds(job, policy);
                (of, speeds)
            }
        };
        self.speed = Some((of, speeds.clone()));
        let converged = self.converged(job);
        let loss = if policy.fits_losses {
            self.loss(job)
        } else {
            None
        };
        let estimate = Estimate {
            loss,
            ..Estimate::with(job, policy, speeds, converged)
        };
        (estimate, is_new)
    }

    fn loss(&mut self, job: &SnapshotJob) -> Option<FittedLoss> {
        let losses = &job.progress.epoch_losses;
        let kept = self.loss.as_ref();
        if let Some(kept) = kept.filter(|kept| kept.epoch_losses == *losses) {
            return kept.fitted;
        }
        let fitted = convergence::fitted_loss(losses, job.progress.steps_per_epoch);
        self.loss = Some(LossMemo {
            epoch_losses: losses.clone(),
            fitted,
        });
        fitted
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
