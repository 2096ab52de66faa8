//! A step of averaging workers: each updates its parameters by its own gradients, and they exchange
//! at the end of a round.

use super::averaging::mean;
use super::replica::GradientRange;
use super::{AllReduce, MembershipRole};
use crate::worker::exchange::{ExchangeAnswer, WorkerStepError};
use crate::worker::head::{HEAD, StepMetadata};
use crate::worker::model::WorkerModel;
use crate::worker::progress::StepTimes;
use muster_comm::fabric::{Coordinator, FabricError};
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;

impl AllReduce<'_> {
    /// Does one step on this worker alone, and the end of the round when it is due.
    pub(super) fn averaged_step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        let mut times = StepTimes::default();
        let rank = self.group.rank();
        let averaging = self.averaging.as_ref().expect("an averaging exchange");
        if averaging.trains(step, rank, self.cut.workers.len()) {
            times = self.train_alone(model, step);
        }
        self.step = step + 1;
        self.replica.updates = self.step;
        let due = self.averaging.as_ref().is_some_and(|a| a.is_due(self.step));
        // The counts of the other workers are known at the end of the round.
        let mut stats = StepStats::default();
        if due {
            let began = clock::now();
            let ended = self.end_round(model, false);
            times.exchange = began.elapsed();
            let head = match ended {
                Ok(head) => head,
                Err(error) => return Ok((self.parted(error)?, times)),
            };
            if head.finish {
                if let MembershipRole::Member(remote) = &self.role {
                    remote.wait_for_the_end();
                }
                return Ok((ExchangeAnswer::Finished, times));
            }
            stats = head.stats;
            self.held = head.stats.hold;
            if let Err(error) = self.between(model, head.regroup) {
                return Ok((self.parted(error)?, times));
            }
            self.recut_after(model, head.regroup)?;
        }
        let step = self.step;
        Ok((ExchangeAnswer::Parameters { step, stats }, times))
    }

    fn train_alone(&mut self, model: &mut WorkerModel, step: u64) -> StepTimes {
        let (stats, times) = model.gradient(step, &mut self.gradients, &mut |_, _| {});
        self.round.add(stats);
        if stats.examples > 0 {
            let whole = GradientRange {
                range: 0..self.gradients.len(),
                scale: 1.0 / (stats.examples as f32 * self.cut.targets.max(1) as f32),
            };
            let gradients = &self.gradients;
            self.replica
                .update(&mut model.parameters, gradients, &[whole]);
        }
        times
    }

    /// Averages the parameters of all workers. Returns the sum of the heads of the round.
    pub(super) fn end_round(
        &mut self,
        model: &mut WorkerModel,
        finish: bool,
    ) -> Result<StepMetadata, FabricError> {
        let averaging = self.averaging.as_mut().expect("an averaging exchange");
        let regroup = match &self.role {
            MembershipRole::Chief(chair) => !finish && chair.someone_waits(),
            MembershipRole::Member(_) => false,
        };
        let mut stats = std::mem::take(&mut self.round);
        stats.hold = self.hold;
        let len = model.parameters.len();
        let weight = averaging.weight(stats.examples);
        let head = StepMetadata {
            stats,
            regroup,
            finish,
            weight,
            ..StepMetadata::default()
        };
        let arena = self.group.gradients_mut();
        head.write(arena);
        let values = std::iter::once(&model.parameters).chain(&self.replica.state);
        for (out, values) in arena[HEAD..].chunks_mut(len).zip(values) {
            for (out, value) in out.iter_mut().zip(values) {
                *out = weight * value;
            }
        }
        if !averaging.is_global() {
            return self.meet_partner(model);
        }
        let whole = 0..self.group.gradients_mut().len();
        self.group.all_reduce(whole)?;
        let sums = self.group.sums();
        let head = StepMetadata::read(sums);
        if head.weight > 0.0 {
            let factor = 1.0 / head.weight;
            let (parameters, planes) = sums[HEAD..].split_at(len);
            averaging.apply(
                &mut model.parameters,
                parameters,
                factor,
                self.cut.workers.len(),
            );
            for (plane, sum) in self.replica.state.iter_mut().zip(planes.chunks(len)) {
                mean(plane, sum, factor);
            }
        }
        Ok(head)
    }

    /// Gossip: the counts are summed over all workers, the parameters are exchanged in pairs.
    fn meet_partner(&mut self, model: &mut WorkerModel) -> Result<StepMetadata, FabricError> {
        let reduced = self.group.all_reduce(0..HEAD)?;
        let head = StepMetadata::read(self.group.sums());
        // A worker that received the counts after a death has no partner: the pairs met in the
        // earlier view.
        if head.finish || reduced.view != self.group.view().number {
            return Ok(head);
        }
        let averaging = self.averaging.as_ref().expect("an averaging exchange");
        let (rank, workers) = (self.group.rank(), self.group.view().members.len());
        let Some(partner) = averaging.partner(self.step, rank, workers) else {
            return Ok(head);
        };
        let range = HEAD..HEAD + model.parameters.len();
        if let Some(theirs) = self.group.swap(partner, range)? {
            for (own, theirs) in model.parameters.iter_mut().zip(theirs) {
                // The same bits on both sides.
                *own = 0.5 * (*own + theirs);
            }
        }
        Ok(head)
    }
}
