//! Eager reads under SSP (ESSP, Dai et al., AAAI 2015). A worker computes its next step on its
//! present parameters while its last gradients travel, if the staleness bound allows it. The answer
//! replaces the parameters when it arrives.
//!
//! Every answer names the clock of the slowest worker: it contains all pushes of earlier steps. So
//! a worker that begins step c knows whether its parameters are recent enough (c - s). It waits for
//! the answer only if they are not. Its own last push is not in the parameters that it reads.

use super::super::link::{Reply, WaitCondition};
use super::{ShardFailure, Shards};
use muster_comm::wire::metadata::StepStats;
use std::thread;

/// Gradients of one worker that are not answered yet.
#[derive(Debug)]
pub struct Eager {
    staleness: u64,
    /// Step and counts of the gradients that are not pushed yet, if any.
    waiting: Option<(u64, StepStats)>,
    gradients: Vec<f32>,
    /// Gradients of the step in computation.
    next: Vec<f32>,
    /// Whether the last pushed gradients are in `next`, where the following step overwrites them.
    has_turned: bool,
    /// Parameters of the newest answer.
    fresh: Vec<f32>,
}

impl Eager {
    /// Creates the buffers for `parameters` values, under the bound `staleness`.
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

    /// Returns the parameters of the last answer.
    #[must_use]
    pub fn fresh(&self) -> &[f32] {
        &self.fresh
    }

    /// Returns the gradients that were pushed last.
    #[must_use]
    pub fn pushed(&self) -> &[f32] {
        if self.has_turned {
            &self.next
        } else {
            &self.gradients
        }
    }

    /// Discards gradients that are not pushed yet, because their view has ended.
    pub fn forget(&mut self) {
        self.waiting = None;
    }

    /// Returns the step of the gradients that are not pushed yet.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        self.waiting.map(|(step, _)| step)
    }

    /// Pushes the waiting gradients and waits for the answer; `None` if there are none.
    ///
    /// # Errors
    /// As [`Shards::join`].
    pub fn flush(
        &mut self,
        shards: &mut Shards,
        patience: WaitCondition<'_>,
    ) -> Result<Option<Reply>, ShardFailure> {
        let Some((step, stats)) = self.waiting.take() else {
            return Ok(None);
        };
        self.has_turned = false;
        let (gradients, fresh) = (&self.gradients, &mut self.fresh);
        let reply = shards.push_pull(step, stats, gradients, fresh, patience)?;
        Ok(Some(reply))
    }

    /// Like [`Self::flush`], while `compute` fills the gradients of `step`, which wait from then
    /// on.
    ///
    /// # Errors
    /// As [`Shards::join`].
    pub fn overlap<T>(
        &mut self,
        shards: &mut Shards,
        step: u64,
        patience: WaitCondition<'_>,
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
