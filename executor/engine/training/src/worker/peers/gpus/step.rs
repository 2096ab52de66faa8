//! A step whose gradients are summed on the workers' GPUs.

use super::super::AllReduce;
use super::super::membership_role::MembershipRole;
use super::{FAILURES, SumDevice, patience};
use crate::worker::error::WorkerError;
use crate::worker::exchange::{ExchangeAnswer, WorkerStepError};
use crate::worker::head::StepMetadata;
use crate::worker::model::WorkerModel;
use crate::worker::progress::StepTimes;
use muster_comm::collective::Reduced;
use muster_comm::fabric::Coordinator;
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::cuda::AllReduceError;

/// Result of an attempt at a step.
enum GpuSumResult {
    Done(ExchangeAnswer, StepTimes),
    /// All workers try again.
    Again,
    /// All workers do the step through the host.
    OnHost,
}

impl AllReduce<'_> {
    /// Does a step with sums on GPUs; `None` where gradients are summed on the host.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    pub(in crate::worker::peers) fn step_on_gpus(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<Option<(ExchangeAnswer, StepTimes)>, WorkerStepError> {
        loop {
            match self.try_step(model, step) {
                Ok(GpuSumResult::Done(answer, times)) => return Ok(Some((answer, times))),
                Ok(GpuSumResult::Again) => {}
                Ok(GpuSumResult::OnHost) => return Ok(None),
                Err(WorkerError::Peers(error)) => {
                    return Ok(Some((self.parted(error)?, StepTimes::default())));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn try_step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<GpuSumResult, WorkerError> {
        self.meet(model)?;
        let SumDevice::Gpus { view } = self.meeting() else {
            return Ok(GpuSumResult::OnHost);
        };
        let regroup = match &self.role {
            MembershipRole::Chief(chair) => chair.someone_waits(),
            MembershipRole::Member(_) => false,
        };
        let began = clock::now();
        let (mut stats, mut times) = (StepStats::default(), StepTimes::default());
        let mut summed = Err(AllReduceError::GivenUp);
        // In another view a member of the communicator is gone, and a sum would wait for it.
        if self.group.view().number == view {
            (stats, times, summed) =
                model.sum(step, &self.buckets, &mut patience(&mut self.group))?;
            self.tell_of_failure(&summed);
        }
        stats.hold = self.hold;
        let head = StepMetadata {
            stats,
            regroup,
            summed: say(&summed),
            ..StepMetadata::default()
        };
        let (head, reduced) = self.vote(head)?;
        times.exchange = began.elapsed().saturating_sub(times.data + times.compute);
        if !head.is_unanimous(reduced.contributions) {
            self.broken_off(model, reduced)?;
            return Ok(GpuSumResult::Again);
        }
        if head.finish {
            if let MembershipRole::Member(remote) = &self.role {
                remote.wait_for_the_end();
            }
            return Ok(GpuSumResult::Done(ExchangeAnswer::Finished, times));
        }
        let resident = model.resident().expect("gradients meet on the GPUs");
        resident.apply(self.cut.whole());
        self.replica.updates += 1;
        self.step = step + 1;
        self.held = head.stats.hold;
        self.after_sums(model, view, (head, reduced))?;
        let answer = ExchangeAnswer::Parameters {
            step: self.step,
            stats: head.stats,
        };
        Ok(GpuSumResult::Done(answer, times))
    }

    /// Withdraws after a failure, because the others may wait for this worker's part of the sums.
    fn tell_of_failure(&mut self, summed: &Result<(), AllReduceError>) {
        if summed.is_err() {
            self.group.withdraw();
        }
    }

    /// Acts on the decisions of the vote between this step and the next.
    fn after_sums(
        &mut self,
        model: &mut WorkerModel,
        view: u64,
        (head, reduced): (StepMetadata, Reduced),
    ) -> Result<(), WorkerError> {
        // A suspended worker releases the whole GPU, with NCCL's memory.
        let is_over = head.regroup || self.held > 0 || reduced.view != view;
        if let (true, Some(gpus)) = (is_over, &mut self.gpus) {
            model.part()?;
            gpus.reopen();
        } else if let Some(gpus) = &mut self.gpus {
            gpus.failures = 0;
        }
        if head.regroup {
            // Joining workers get the host's copy of the state.
            model.come_down(&mut self.replica.state)?;
        }
        Ok(self.between(model, head.regroup)?)
    }

    /// Ends the communicator after a rejected step; no worker uses its sums.
    fn broken_off(&mut self, model: &mut WorkerModel, reduced: Reduced) -> Result<(), WorkerError> {
        model.part()?;
        self.note_the_dead();
        self.set_meeting(SumDevice::Open);
        let as_before = self.are_as_before(reduced);
        let Some(gpus) = &mut self.gpus else {
            return Ok(());
        };
        gpus.failures = if as_before { gpus.failures + 1 } else { 0 };
        if gpus.failures < FAILURES {
            return Ok(());
        }
        gpus.failures = 0;
        model.come_down(&mut self.replica.state)?;
        self.stay_on_host(model, "sums on the GPUs failed again and again")
    }

    /// Coordinator: announces the end of training. Returns `false` where gradients are summed on
    /// the host.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub(in crate::worker::peers) fn conclude_on_gpus(
        &mut self,
        model: &mut WorkerModel,
    ) -> Result<bool, WorkerError> {
        loop {
            self.meet(model)?;
            let SumDevice::Gpus { view } = self.meeting() else {
                return Ok(false);
            };
            let mut summed = Err(AllReduceError::GivenUp);
            if self.group.view().number == view {
                let resident = model.resident().expect("gradients meet on the GPUs");
                resident.participate_in_all_reduce(&self.buckets, &mut patience(&mut self.group));
                summed = resident.await_all_reduce(&mut patience(&mut self.group));
                self.tell_of_failure(&summed);
            }
            let head = StepMetadata {
                finish: true,
                summed: say(&summed),
                ..StepMetadata::default()
            };
            let (head, reduced) = self.vote(head)?;
            if head.is_unanimous(reduced.contributions) {
                model.part()?;
                return Ok(true);
            }
            self.broken_off(model, reduced)?;
        }
    }
}

/// Returns this worker's vote.
fn say(summed: &Result<(), AllReduceError>) -> f32 {
    if let Err(why) = summed {
        log::line(format_args!("a step without its sums: {why}"));
    }
    f32::from(u8::from(summed.is_ok()))
}
