//! Hogwild (Recht, Ré, Wright and Niu, NIPS 2011): threads of one worker train the same parameters
//! without locks. Each thread takes the number of the next step, reads the parameters, computes the
//! gradients of that step and changes the parameters. No thread waits for another.
//!
//! After each round all threads complete the steps that they have begun and wait. So evaluations
//! and checkpoints see the result of whole steps. With one thread the result equals that of the
//! plain loop, bit by bit.

mod lane;
mod shared;

use super::context::WorkerContext;
use super::error::WorkerError;
use super::exchange::{ExchangeAnswer, ExchangeStart, WorkerExchange, WorkerStepError};
use super::model::WorkerModel;
use super::progress::StepTimes;
use super::shards::ShardSnapshot;
use super::stop_rules;
use crate::checkpoint::{Contents, TaskCounts};
use crate::document;
use crate::stop::StopFlag;
use lane::{HogwildShared, HogwildThread};
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::model::Network;
use muster_compute::optimizer::OptimizerConfig;
use muster_model::assignment::TaskLaunch;
use muster_model::pace::Doing;
use muster_model::spec::JobSpec;
use shared::AtomicArena;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Duration of a round. It is long compared to the wait at its end, and short enough for signals
/// and samples.
const ROUND: Duration = Duration::from_millis(200);

/// A worker with several lock-free threads.
pub(super) struct Hogwild<'a> {
    ctx: &'a WorkerContext<'a>,
    spec: &'a JobSpec,
    threads: u32,
    optimizer: OptimizerConfig,
    /// 1 over the targets of a step.
    scale: f32,
    shared: AtomicArena,
    lanes: Vec<HogwildThread>,
    /// Next step, and the number of optimizer updates before it.
    step: u64,
    updates: u64,
    /// Slice number to name in the next steps; 0 for none.
    hold: u64,
}

/// One round, shared by its threads.
struct HogwildRound<'a> {
    field: HogwildShared<'a>,
    /// First step of the round.
    first: u64,
    /// Next step that no thread has taken.
    next: AtomicU64,
    /// The steps end before this one.
    until: u64,
    /// Number of optimizer updates before the round.
    updates: u64,
    began: Instant,
    stop: &'a StopFlag,
}

impl HogwildRound<'_> {
    /// Does steps until the round ends. Returns their counts.
    fn work(&self, lane: &mut HogwildThread) -> StepStats {
        let mut counted = StepStats::default();
        loop {
            let own = self.next.fetch_add(1, Ordering::Relaxed);
            if own >= self.until {
                return counted;
            }
            let update = self.updates + (own - self.first);
            counted.add(lane.step(&self.field, own, update));
            if self.began.elapsed() >= ROUND || self.stop.is_set() {
                return counted;
            }
        }
    }
}

impl<'a> Hogwild<'a> {
    /// Joins as the launch's only worker; `threads` is the number in the job's document.
    ///
    /// # Errors
    /// [`WorkerError::NotOnTheCpu`].
    pub fn join(
        launch: &'a TaskLaunch,
        threads: u32,
        network: &Network,
        ctx: &'a WorkerContext<'a>,
    ) -> Result<Self, WorkerError> {
        if !ctx.device.is_cpu() {
            return Err(WorkerError::NotOnTheCpu {
                threads,
                device: ctx.device.to_string(),
            });
        }
        let engine = launch.spec.engine();
        log::line(format_args!(
            "{threads} threads share the parameters without locks"
        ));
        Ok(Self {
            ctx,
            spec: &launch.spec,
            threads,
            optimizer: document::optimizer(engine),
            scale: 1.0 / engine.targets_per_step() as f32,
            shared: AtomicArena::new(network.parameter_count()),
            lanes: Vec::new(),
            step: 0,
            updates: 0,
            hold: 0,
        })
    }
}

impl WorkerExchange for Hogwild<'_> {
    fn begin(
        &mut self,
        model: &mut WorkerModel,
        start: &ExchangeStart,
    ) -> Result<(), WorkerStepError> {
        model.parameters.copy_from_slice(&start.contents.parameters);
        self.shared.write(&start.contents.parameters);
        (self.step, self.updates) = (start.step, start.updates);
        self.lanes = (0..self.threads.max(1))
            .map(|_| HogwildThread::of(model))
            .collect();
        Ok(())
    }

    fn receive(&mut self, _: &mut WorkerModel) -> Result<ExchangeAnswer, WorkerStepError> {
        // The document's validation admits only one worker, the coordinator.
        Ok(ExchangeAnswer::Interrupted { lost: false })
    }

    fn step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError> {
        let until = stop_rules::stops_before(self.spec, model.batches.steps_per_epoch(), step);
        let round = HogwildRound {
            field: HogwildShared {
                network: &model.network,
                train: &model.data.train,
                shared: &self.shared,
                optimizer: &self.optimizer,
                scale: self.scale,
            },
            first: step,
            next: AtomicU64::new(step),
            until,
            updates: self.updates,
            began: clock::now(),
            stop: &self.ctx.stop,
        };
        model.pacer.doing(Doing::Working);
        let mut stats = StepStats {
            hold: self.hold,
            ..StepStats::default()
        };
        thread::scope(|scope| {
            let round = &round;
            let (first, others) = self.lanes.split_first_mut().expect("there is a thread");
            let others: Vec<_> = others
                .iter_mut()
                .map(|lane| scope.spawn(move || round.work(lane)))
                .collect();
            stats.add(round.work(first));
            for other in others {
                stats.add(other.join().expect("a pass does not panic"));
            }
        });
        model.pacer.doing(Doing::Waiting);
        // A thread took each smaller number and has completed its step.
        let done = round.next.into_inner().min(until);
        let steps = done - step;
        (self.step, self.updates) = (done, round.updates + steps);
        self.shared.read(&mut model.parameters);
        let times = StepTimes {
            compute: round.began.elapsed() / u32::try_from(steps).unwrap_or(u32::MAX).max(1),
            ..StepTimes::default()
        };
        Ok((ExchangeAnswer::Parameters { step: done, stats }, times))
    }

    fn snapshot(
        &mut self,
        model: &mut WorkerModel,
        mut into: Contents,
    ) -> Result<ShardSnapshot, WorkerStepError> {
        into.fit(model.parameters.len(), 0);
        into.parameters.copy_from_slice(&model.parameters);
        Ok(ShardSnapshot {
            versions: vec![self.step],
            updates: self.updates,
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
