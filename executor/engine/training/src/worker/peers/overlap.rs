//! Steps in priority order among workers: the next step begins while the last sums travel. The
//! module also decides which jobs use them.

use super::AllReduce;
use super::buckets::{BatchDivision, BucketStep};
use super::membership_role::MembershipRole;
use super::priority_allreduce::{MeanScale, PriorityAllReduce, PriorityStepWork, RangeSum};
use super::ranges::GradientRanges;
use super::replica::GradientRange;
use crate::document;
use crate::worker::exchange::{ExchangeAnswer, WorkerStepError};
use crate::worker::head::StepMetadata;
use crate::worker::model::WorkerModel;
use crate::worker::progress::StepTimes;
use crate::worker::shards::{GradientSink, ParameterFetch};
use muster_comm::collective::{CollectiveGroup, Reduced};
use muster_comm::partitions::{PartitionOrder, WORTH_CUTTING};
use muster_compute::clock;
use muster_compute::model::Network;
use muster_compute::optimizer::UpdateRule;
use muster_model::assignment::TaskLaunch;
use muster_model::spec::{Algorithm, BatchRule};
use std::time::{Duration, Instant};

/// Returns the priority exchange of this job. `None` where the network is small, or where a step
/// must be summed as a whole. An update then needs other values or the result of the whole step.
/// All workers come to the same result.
pub(super) fn by_need(launch: &TaskLaunch, network: &Network) -> Option<PriorityAllReduce> {
    let (engine, exchange) = (launch.spec.engine(), &launch.spec.exchange);
    let looks_at_whole_tensors =
        matches!(document::optimizer(engine).rule, UpdateRule::Lars { .. });
    let is_plain = exchange.compression.codecs().is_none()
        && exchange.averaging.is_none()
        && exchange.algorithm != Algorithm::Nccl
        && engine.clip_norm.is_none()
        && engine.batch_rule == BatchRule::Constant
        && !looks_at_whole_tensors;
    let parameters = network.parameter_count();
    let is_worth_it = parameters >= WORTH_CUTTING;
    (is_plain && is_worth_it)
        .then(|| PriorityAllReduce::new(GradientRanges::new(parameters), PartitionOrder::default()))
}

/// Passes of one step.
struct OverlapPasses<'a> {
    model: &'a mut WorkerModel,
    gradients: &'a mut [f32],
    step: &'a BucketStep<'a>,
    times: StepTimes,
    /// Time at which the gradients were complete.
    computed: Instant,
    /// Duration of the next step's forward pass so far, without waiting for parameters.
    ahead: Duration,
}

impl PriorityStepWork for OverlapPasses<'_> {
    fn compute(&mut self, ready: GradientSink<'_>) -> StepMetadata {
        let (stats, times) = self.model.gradient(self.step.place, self.gradients, ready);
        (self.times, self.computed) = (times, clock::now());
        self.step.head(stats, self.gradients)
    }

    fn go_ahead(&mut self, fetch: ParameterFetch<'_>) {
        self.ahead = self.model.begin(self.step.number + 1, fetch);
    }

    fn parameters(&mut self) -> &mut [f32] {
        &mut self.model.parameters
    }
}

impl MeanScale for BatchDivision {
    fn of_sum(&self, group: &CollectiveGroup, reduced: Reduced) -> f32 {
        self.scale(group, reduced)
    }

    fn of_own(&self, head: &StepMetadata) -> f32 {
        let targets = self.targets.max(1) as usize;
        1.0 / (head.stats.examples.max(1) as usize * targets) as f32
    }
}

impl AllReduce<'_> {
    /// Whether the steps of the present workers use the priority order; the same on all of them.
    pub(super) fn goes_by_need(&self) -> bool {
        self.by_need.is_some() && self.cut.workers.len() > 1
    }

    pub(super) fn step_by_need(
        &mut self,
        model: &mut WorkerModel,
        number: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        let head = self.own_head(number);
        let measures = self.measures(number);
        let step = BucketStep {
            number,
            place: number,
            cut: &self.cut,
            head,
            measured_by: measures.then(|| self.replica.norms()),
            in_halves: false,
            clip: None,
        };
        let mut passes = OverlapPasses {
            model,
            gradients: &mut self.gradients,
            step: &step,
            times: StepTimes::default(),
            computed: clock::now(),
            ahead: Duration::ZERO,
        };
        let (replica, whole) = (&mut self.replica, &mut self.sums);
        let mut parts = Vec::new();
        let by_need = self.by_need.as_ref().expect("steps go by need");
        let outcome = by_need.exchange(
            &mut self.group,
            &mut passes,
            &self.cut,
            &mut |parameters: &mut [f32], sums: &[RangeSum]| {
                replica.update_ranges(parameters, sums);
                for RangeSum {
                    range,
                    scale,
                    floats,
                } in sums.iter().filter(|_| measures)
                {
                    whole[range.clone()].copy_from_slice(floats);
                    let (range, scale) = (range.clone(), *scale);
                    parts.push(GradientRange { range, scale });
                }
            },
        );
        let (mut times, computed, ahead) = (passes.times, passes.computed, passes.ahead);
        times.exchange = computed.elapsed().saturating_sub(ahead);
        times.compute += ahead;
        if let Some(head) = outcome.head.filter(|head| !head.finish) {
            self.replica.end_update();
            self.step = number + 1;
            self.held = head.stats.hold;
        }
        if let Err(error) = outcome.ended {
            return Ok((self.parted(error)?, times));
        }
        let head = outcome.head.expect("everything was summed");
        if head.finish {
            if let MembershipRole::Member(remote) = &self.role {
                remote.wait_for_the_end();
            }
            return Ok((ExchangeAnswer::Finished, times));
        }
        self.observe(head, &parts);
        Ok((self.after_step(model, head)?, times))
    }

    /// Adds the norms of a step's sums and of its parts to the noise estimate.
    fn observe(&mut self, head: StepMetadata, parts: &[GradientRange]) {
        let whole = self.cut.whole();
        if head.parts.workers > 1.0 && parts.iter().all(|part| part.scale == whole) {
            let square = self.replica.square_norm(&self.sums, parts);
            self.noise.observe(head.parts, square, self.cut.batch);
        }
    }
}
