//! The only worker of a job, on a GPU. It has no peer to exchange with, so parameters, optimizer
//! state and gradients stay on the device. A step is one request to the device. The state is copied
//! to the host for checkpoints and when training ends.

#[cfg(test)]
pub(super) mod trial;

use super::context::WorkerContext;
use super::error::WorkerError;
use super::exchange::{ExchangeAnswer, ExchangeStart, WorkerExchange, WorkerStepError};
use super::model::WorkerModel;
use super::progress::StepTimes;
use super::shards::ShardSnapshot;
use super::stop_rules;
use crate::checkpoint::{Contents, TaskCounts};
use crate::document;
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::cuda::DeviceTrainer;
use muster_model::assignment::TaskLaunch;
use muster_model::pace::Doing;
use muster_model::spec::JobSpec;
use std::time::Duration;

/// Duration of a round of steps on the device. The checks between rounds cost little in comparison,
/// and a suspension request waits for at most one round.
const ROUND: Duration = Duration::from_millis(20);

/// A worker without peers.
pub(super) struct SingleDevice<'a> {
    ctx: &'a WorkerContext<'a>,
    launch: &'a TaskLaunch,
    spec: &'a JobSpec,
    /// Number of planes of the optimizer's state.
    planes: usize,
    /// 1 over the targets of a step.
    scale: f32,
    /// Next step.
    step: u64,
    /// Slice number to name in the next steps; 0 for none.
    hold: u64,
}

impl<'a> SingleDevice<'a> {
    /// Joins as the launch's only worker; the model's training must stay on its device.
    pub fn join(launch: &'a TaskLaunch, ctx: &'a WorkerContext<'a>) -> Self {
        let engine = launch.spec.engine();
        Self {
            ctx,
            launch,
            spec: &launch.spec,
            planes: document::optimizer(engine).state_len_per_param(),
            scale: 1.0 / engine.targets_per_step() as f32,
            step: 0,
            hold: 0,
        }
    }

    /// Whether the job has been given more workers: its owner may resize it at run time.
    fn has_company(&self) -> bool {
        (self.ctx.peers)()
            .is_some_and(|peers| peers.revision > self.launch.revision && peers.workers.len() > 1)
    }
}

/// Returns the model's state on the device. This exchange is only chosen if there is one.
fn resident(model: &mut WorkerModel) -> &mut DeviceTrainer {
    model.resident().expect("training stays on the device")
}

impl WorkerExchange for SingleDevice<'_> {
    fn begin(
        &mut self,
        model: &mut WorkerModel,
        start: &ExchangeStart,
    ) -> Result<(), WorkerStepError> {
        let contents = &start.contents;
        resident(model).fill(start.updates, &contents.parameters, &contents.state)?;
        self.step = start.step;
        Ok(())
    }

    fn receive(&mut self, _: &mut WorkerModel) -> Result<ExchangeAnswer, WorkerStepError> {
        // The only worker is the coordinator.
        Ok(ExchangeAnswer::Interrupted { lost: false })
    }

    fn step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        if self.has_company() {
            // All workers start from the checkpoint written now; the gradients of this worker then
            // leave the GPU.
            log::line(
                "the job has more workers now, and they cannot join a worker that keeps all state on its GPU",
            );
            return Ok((
                ExchangeAnswer::Interrupted { lost: false },
                StepTimes::default(),
            ));
        }
        let steps_per_epoch = model.batches.steps_per_epoch();
        let until = stop_rules::stops_before(self.spec, steps_per_epoch, step);
        let began = clock::now();
        let mut times = StepTimes::default();
        let mut stats = StepStats {
            hold: self.hold,
            ..StepStats::default()
        };
        self.step = step;
        model.pacer.doing(Doing::Working);
        while self.step < until {
            let (counted, took) = model.train(self.step, self.scale)?;
            if !counted.loss_sum.is_finite() {
                return Err(WorkerError::Diverged { step: self.step }.into());
            }
            stats.add(counted);
            times.data += took.data;
            times.compute += took.compute;
            self.step += 1;
            if began.elapsed() >= ROUND || self.ctx.stop.is_set() {
                break;
            }
        }
        model.pacer.doing(Doing::Waiting);
        let steps = u32::try_from(self.step - step).unwrap_or(u32::MAX).max(1);
        times.data /= steps;
        times.compute /= steps;
        let step = self.step;
        Ok((ExchangeAnswer::Parameters { step, stats }, times))
    }

    fn snapshot(
        &mut self,
        model: &mut WorkerModel,
        mut into: Contents,
    ) -> Result<ShardSnapshot, WorkerStepError> {
        into.fit(model.parameters.len(), self.planes);
        let resident = resident(model);
        resident.read(&mut into.parameters, &mut into.state)?;
        Ok(ShardSnapshot {
            versions: vec![self.step],
            updates: resident.steps(),
            counted: StepStats::default(),
            contents: into,
        })
    }

    fn hold(&mut self, turn: u64) {
        self.hold = turn;
    }

    fn layout(&self) -> TaskCounts {
        TaskCounts {
            workers: 1,
            ps_shards: 0,
        }
    }

    fn done(self: Box<Self>) {}

    fn goodbye(self: Box<Self>) {}
}
