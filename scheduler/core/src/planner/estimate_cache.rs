//! Estimates of the last round, kept for the next one: a job without new reports is not estimated
//! again.
//!
//! A plan never depends on them. All inputs of an estimate are stored with it and compared. So a
//! round with and without memory gives the same bytes, and stored rounds are replayed without it.

use super::gang::GangShape;
use super::scaling_model::{JobScaling, Kinds, ScalingCurves};
use crate::estimate::{Estimate, EstimateMemo, Evidence, Gains};
use crate::policy::Policy;
use crate::snapshot::SnapshotJob;
use muster_model::id::JobId;
use std::collections::BTreeMap;

/// Estimates of the jobs of the last round.
#[derive(Debug, Clone, Default)]
pub struct EstimateCache {
    rounds: u64,
    policy: Option<Policy>,
    jobs: BTreeMap<JobId, CachedEstimates>,
}

#[derive(Debug, Clone)]
struct CachedEstimates {
    /// Last round that used the entry.
    round: u64,
    estimates: EstimateMemo,
    sizes: Option<(ScalingInputs, ScalingCurves)>,
}

/// Inputs of the speeds at all sizes, besides the estimate itself.
#[derive(Debug, Clone, PartialEq)]
struct ScalingInputs {
    shape: GangShape,
    present_workers: u32,
    kinds: Kinds,
    most: (u32, u32),
    gains: Gains,
}

impl EstimateCache {
    /// Starts a round. Other policy settings invalidate all estimates.
    pub(crate) fn begin(&mut self, policy: &Policy) {
        if self.policy.as_ref() != Some(policy) {
            self.policy = Some(policy.clone());
            self.jobs.clear();
        }
        self.rounds += 1;
    }

    /// Ends a round and drops jobs that it did not use, because these have ended.
    pub(crate) fn end(&mut self) {
        let round = self.rounds;
        self.jobs.retain(|_, known| known.round == round);
    }

    /// Estimate and sizing of a job; only changed parts are computed again.
    pub(crate) fn recall(
        &mut self,
        (job, evidence): (&SnapshotJob, Option<Evidence>),
        policy: &Policy,
        shape: &GangShape,
        present_workers: u32,
        kinds: &Kinds,
    ) -> (Estimate, JobScaling) {
        let known = self.jobs.entry(job.id).or_insert_with(|| CachedEstimates {
            round: 0,
            estimates: EstimateMemo::default(),
            sizes: None,
        });
        known.round = self.rounds;
        let (estimate, is_new) = known.estimates.estimate(job, evidence, policy);
        let shown = ScalingInputs {
            shape: shape.clone(),
            present_workers,
            kinds: kinds.clone(),
            most: estimate.most,
            gains: estimate.gains,
        };
        let kept = known.sizes.take();
        let sizes = kept
            .filter(|(of, _)| !is_new && *of == shown)
            .map(|(_, sizes)| sizes)
            .unwrap_or_else(|| ScalingCurves::of(&estimate, shape, present_workers, kinds));
        known.sizes = Some((shown, sizes.clone()));
        let sizing = JobScaling::with(&estimate, shape, job.progress.step, sizes);
        (estimate, sizing)
    }
}
