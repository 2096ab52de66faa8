//! Eager reads under SSP: a worker computes its next step on the parameters that it has while its last gradients travel, as long as those
//! parameters are no older than the bound allows; the answer refreshes them when it comes (ESSP, Dai et al., AAAI 2015).
//!
//! Every answer says how far the slowest worker was: all pushes of steps before that are in it. So whoever begins step c knows whether what it
//! has is recent enough (c - s), and waits for the answer only if it is not. A worker's own last push is not in what it reads.

use super::super::link::{Patience, Reply};
use super::{ShardFailure, Shards};
use crate::wire::hello::StepStats;
use std::thread;

/// One worker's gradients on their way.
#[derive(Debug)]
pub struct Eager {
    staleness: u64,
    /// What has not been pushed yet, if anything.
    waiting: Option<(u64, StepStats)>,
    gradients: Vec<f32>,
    /// Of the step that is computed.
    next: Vec<f32>,
    /// Whether those that were pushed last lie in `next`, where the step to come will overwrite them.
    has_turned: bool,
    /// The newest answer.
    fresh: Vec<f32>,
}

impl Eager {
    /// Of `parameters` numbers, under this bound.
    #[must_use]
    pub fn new(staleness: u32, parameters: usize) -> Self {
        Self {
            staleness: staleness.into(),
            waiting: None,
            gradients: vec![0.0; parameters],
            next: vec![0.0; parameters],
            has_turned: false,
            fresh: vec![0.0; parameters],
        }
    }

    /// Whether step `step` may be computed on the parameters of the last answer.
    #[must_use]
    pub fn may_read(&self, shards: &Shards, step: u64) -> bool {
        shards.slowest().saturating_add(self.staleness) >= step
    }

    /// The parameters of the last answer.
    #[must_use]
    pub fn fresh(&self) -> &[f32] {
        &self.fresh
    }

    /// The gradients that were pushed last.
    #[must_use]
    pub fn pushed(&self) -> &[f32] {
        match self.has_turned {
            true => &self.next,
            false => &self.gradients,
        }
    }

    /// Forgets what has not been pushed: the view that it was computed under is over.
    pub fn forget(&mut self) {
        self.waiting = None;
    }

    /// Of the gradients that have not been pushed yet, the step.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        self.waiting.map(|(step, _)| step)
    }

    /// Pushes what has not been pushed yet, and waits for the answer; nothing without any.
    ///
    /// # Errors
    /// As [`Shards::join`].
    pub fn flush(
        &mut self,
        shards: &mut Shards,
        patience: Patience<'_>,
    ) -> Result<Option<Reply>, ShardFailure> {
        let Some((step, stats)) = self.waiting.take() else {
            return Ok(None);
        };
        self.has_turned = false;
        let (gradients, fresh) = (&self.gradients, &mut self.fresh);
        let reply = shards.push_pull(step, stats, gradients, fresh, patience)?;
        Ok(Some(reply))
    }

    /// The same while `compute` fills the gradients of `step`, which wait from then on.
    ///
    /// # Errors
    /// As [`Shards::join`].
    pub fn overlap<T>(
        &mut self,
        shards: &mut Shards,
        step: u64,
        patience: Patience<'_>,
        compute: impl FnOnce(&mut [f32]) -> (StepStats, T),
    ) -> Result<(T, Option<Reply>), ShardFailure> {
        let mut next = std::mem::take(&mut self.next);
        let (computed, reply) = thread::scope(|scope| {
            let pushing = self
                .waiting
                .is_some()
                .then(|| scope.spawn(|| self.flush(shards, patience)));
            let computed = compute(&mut next);
            let reply = pushing.map(|thread| thread.join().expect("a link does not panic"));
            (computed, reply.transpose())
        });
        let (stats, rest) = computed;
        self.next = std::mem::replace(&mut self.gradients, next);
        self.has_turned = true;
        self.waiting = Some((step, stats));
        Ok((rest, reply?.flatten()))
    }
}
