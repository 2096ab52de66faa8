//! How a step's gradients go to the shards: as a whole after the computation, or in partitions
//! during it. The module also decides which jobs use partitions.

use super::super::exchange::WorkerStepError;
use super::super::link::{Reply, WaitCondition};
use super::super::model::WorkerModel;
use super::super::progress::StepTimes;
use super::super::shards::{GradientSink, ParameterFetch, PartitionedPass, ShardFailure};
use super::Servers;
use crate::document;
use muster_comm::partitions::{PartitionOrder, WORTH_CUTTING};
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::model::Network;
use muster_compute::optimizer::UpdateRule;
use muster_model::assignment::TaskLaunch;
use std::time::{Duration, Instant};

/// Returns the order of partitions of this job's steps; `None` where steps go as a whole.
/// Partitions need that all workers are waited for, and that the update of a value depends on no
/// other value. All workers come to the same result.
pub(super) fn order(launch: &TaskLaunch, network: &Network) -> Option<PartitionOrder> {
    let (engine, exchange) = (launch.spec.engine(), &launch.spec.exchange);
    let waits_for_all =
        exchange.consistency.is_bulk_synchronous() && exchange.consistency.backup() == 0;
    let looks_at_whole_tensors =
        matches!(document::optimizer(engine).rule, UpdateRule::Lars { .. });
    let is_plain = exchange.compression.codecs().is_none()
        && engine.clip_norm.is_none()
        && exchange.shard_replicas == 0
        && !exchange.local_aggregation
        && !looks_at_whole_tensors;
    let is_worth_it = network.parameter_count() >= WORTH_CUTTING;
    (waits_for_all && is_plain && is_worth_it).then(PartitionOrder::default)
}

/// Passes of one step.
struct PartitionPasses<'a> {
    model: &'a mut WorkerModel,
    gradients: &'a mut [f32],
    step: u64,
    hold: u64,
    times: StepTimes,
    /// Time at which the gradients were complete.
    computed: Instant,
    /// Duration of the next step's forward pass so far, without waiting for parameters.
    ahead: Duration,
}

impl PartitionedPass for PartitionPasses<'_> {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepStats {
        let (stats, times) = self.model.gradient(self.step, self.gradients, ready);
        (self.times, self.computed) = (times, clock::now());
        StepStats {
            hold: self.hold,
            ..stats
        }
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        self.ahead = self.model.begin(self.step + 1, fetch);
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.model.parameters
    }
}

/// Result of a step's exchange.
pub(super) struct ExchangeOutcome {
    pub reply: Reply,
    pub times: StepTimes,
    /// Time at which the computation of this step had ended.
    pub computed: Instant,
    /// Duration of the next step's computation since then.
    pub ahead: Duration,
}

impl Servers<'_> {
    /// Computes `step` while its gradients are sent, and begins the next step while its parameters
    /// arrive.
    pub(super) fn exchange(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        patience: WaitCondition<'_>,
    ) -> Result<ExchangeOutcome, ShardFailure> {
        let mut passes = PartitionPasses {
            model,
            gradients: &mut self.gradients,
            step,
            hold: self.hold,
            times: StepTimes::default(),
            computed: clock::now(),
            ahead: Duration::ZERO,
        };
        let reply = self.shards.exchange(step, &mut passes, patience)?;
        Ok(ExchangeOutcome {
            reply,
            times: passes.times,
            computed: passes.computed,
            ahead: passes.ahead,
        })
    }

    /// Returns the number of workers of the present view.
    pub(super) fn workers(&self) -> usize {
        self.shards.view().map_or(1, |view| view.workers.len())
    }

    /// Computes `step`, then pushes its gradients and waits for the answer.
    pub(super) fn exchange_at_once(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
        patience: WaitCondition<'_>,
    ) -> Result<ExchangeOutcome, WorkerStepError> {
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
        Ok(ExchangeOutcome {
            reply,
            times,
            computed,
            ahead: Duration::ZERO,
        })
    }
}
