//! How a step's gradients go to the shards: at once when they are all computed, or in parts while they are; and which jobs' do which.

use super::super::exchange::Trouble;
use super::super::link::{Patience, Reply};
use super::super::model::Model;
use super::super::progress::StepTimes;
use super::super::shards::{Fetch, Pass, Ready, ShardFailure};
use super::Servers;
use crate::clock;
use crate::document;
use crate::model::Network;
use crate::optimizer::Rule;
use crate::parts::{Order, WORTH_CUTTING};
use crate::wire::hello::StepStats;
use muster_model::assignment::TaskLaunch;
use std::time::{Duration, Instant};

/// In which order parts of this job's steps go, where they do not have to go at once: everyone is waited for, and no number's update
/// hangs on another's. All workers come to the same answer.
pub(super) fn order(launch: &TaskLaunch, network: &Network) -> Option<Order> {
    let (engine, exchange) = (launch.spec.engine(), &launch.spec.exchange);
    let waits_for_all =
        exchange.consistency.is_bulk_synchronous() && exchange.consistency.backup() == 0;
    let looks_at_whole_tensors = matches!(document::optimizer(engine).rule, Rule::Lars { .. });
    let is_plain = exchange.compression.codecs().is_none()
        && engine.clip_norm.is_none()
        && exchange.shard_replicas == 0
        && !exchange.local_aggregation
        && !looks_at_whole_tensors;
    let is_worth_it = network.parameter_count() >= WORTH_CUTTING;
    (waits_for_all && is_plain && is_worth_it).then(Order::default)
}

/// One step's passes.
struct Passes<'a> {
    model: &'a mut Model,
    gradients: &'a mut [f32],
    step: u64,
    hold: u64,
    times: StepTimes,
    /// When the gradients were there.
    computed: Instant,
    /// What the next step has taken already without waiting for parameters.
    ahead: Duration,
}

impl Pass for Passes<'_> {
    fn compute(&mut self, ready: Ready<'_>) -> StepStats {
        let (stats, times) = self.model.gradient(self.step, self.gradients, ready);
        (self.times, self.computed) = (times, clock::now());
        StepStats {
            hold: self.hold,
            ..stats
        }
    }

    fn go_ahead(&mut self, fetch: Fetch<'_>) {
        self.ahead = self.model.begin(self.step + 1, fetch);
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.model.parameters
    }
}

/// What a step in parts came to.
pub(super) struct Exchanged {
    pub reply: Reply,
    pub times: StepTimes,
    /// Since when nothing of this step was computed.
    pub computed: Instant,
    /// Since then, what the next one has taken.
    pub ahead: Duration,
}

impl Servers<'_> {
    /// Computes `step` while its gradients travel, and begins the next one while parameters do.
    pub(super) fn exchange(
        &mut self,
        model: &mut Model,
        step: u64,
        patience: Patience<'_>,
    ) -> Result<Exchanged, ShardFailure> {
        let mut passes = Passes {
            model,
            gradients: &mut self.gradients,
            step,
            hold: self.hold,
            times: StepTimes::default(),
            computed: clock::now(),
            ahead: Duration::ZERO,
        };
        let reply = self.shards.exchange(step, &mut passes, patience)?;
        Ok(Exchanged {
            reply,
            times: passes.times,
            computed: passes.computed,
            ahead: passes.ahead,
        })
    }

    /// Of the view that is worked by.
    pub(super) fn workers(&self) -> usize {
        self.shards.view().map_or(1, |view| view.workers.len())
    }

    /// Computes `step`, then gives its gradients and waits for the answer.
    pub(super) fn exchange_at_once(
        &mut self,
        model: &mut Model,
        step: u64,
        patience: Patience<'_>,
    ) -> Result<Exchanged, Trouble> {
        let (mut stats, times) = model.gradient(step, &mut self.gradients, &mut |_, _| {});
        stats.hold = self.hold;
        if let Some(clip) = self.clip_own {
            let targets = stats.examples * model.network.targets() as u64;
            let workers = self.workers();
            clip.apply(&model.network, &mut self.gradients, targets, workers);
        }
        let computed = clock::now();
        if self.noticed == Some(step + 1) {
            self.shards.keep(step + 1)?;
        }
        let (gradients, parameters) = (&self.gradients, &mut model.parameters);
        let reply = self
            .shards
            .push_pull(step, stats, gradients, parameters, patience)?;
        Ok(Exchanged {
            reply,
            times,
            computed,
            ahead: Duration::ZERO,
        })
    }
}
