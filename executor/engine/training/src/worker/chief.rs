//! The coordinator's duties at step boundaries: progress, evaluation, checkpoints, the end of
//! training.
//!
//! Under BSP a snapshot at a step boundary is exact: no PS shard can apply the next step before the
//! coordinator has pushed it. Under SSP and ASP the other workers continue meanwhile. A
//! checkpoint's step is then the coordinator's clock. Its parameters contain the other workers'
//! pushes up to the moment at which each shard was read. After a resume every worker begins at that
//! clock. The work that is lost or repeated is at most the distance between the workers.

use super::context::{ExitReason, WorkerContext};
use super::error::WorkerError;
use super::exchange::{ExchangeStart, WorkerExchange, WorkerStepError};
use super::model::WorkerModel;
use super::progress::{NoiseReport, ProgressMeter, StepTimes};
use super::saver::Saver;
use super::shards::ShardSnapshot;
use super::stop_rules::{TrainingProgress, reached};
use crate::checkpoint::{
    CheckpointStore, DEFAULT_PART_BYTES, DataPosition, LossProgress, Manifest, NamedBlock,
    RANDOMNESS, TaskCounts, WriteKind,
};
use crate::document;
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::progress::{Evaluation, Sample, Split};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between log lines on progress.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Duties of rank 0.
pub(super) struct Chief<'a> {
    launch: &'a TaskLaunch,
    ctx: &'a WorkerContext<'a>,
    saver: Saver<'a>,
    steps_per_epoch: u64,
    train_examples: u64,
    blocks: Vec<NamedBlock>,
    curve: LossProgress,
    meter: ProgressMeter,
    began: Instant,
    logged_at: Instant,
    /// Number of completed steps, to which the counts refer.
    step: u64,
    /// Workers and shards of the last completed step.
    layout: TaskCounts,
    evaluation: Option<Evaluation>,
    /// Gradient noise scale in examples, as the exchange measured it.
    noise_scale: Option<f64>,
    /// Step at whose beginning an announced snapshot is due.
    noticed: Option<u64>,
    /// State of the last evaluation, if training ends with it.
    measured: Option<ShardSnapshot>,
}

impl<'a> Chief<'a> {
    pub fn new(
        launch: &'a TaskLaunch,
        store: CheckpointStore,
        model: &WorkerModel,
        start: ExchangeStart,
        ctx: &'a WorkerContext<'a>,
    ) -> Result<Self, WorkerError> {
        let now = clock::now();
        let blocks = model.network.blocks().iter().map(|block| NamedBlock {
            name: block.name.clone(),
            shape: block.shape.clone(),
            offset: block.offset,
            len: block.len,
        });
        let saved = start.on_disk.then_some(start.step);
        let size = (start.contents.parameters.len(), start.contents.state.len());
        let policy = launch.spec.checkpoint.clone();
        let peers = Arc::clone(&ctx.peers);
        let spared = Arc::new(move || peers().map(|peers| peers.spared));
        let saver = Saver::start(store, policy, spared, size, saved, ctx.reporter)?;
        Ok(Self {
            launch,
            ctx,
            saver,
            steps_per_epoch: model.batches.steps_per_epoch(),
            train_examples: model.data.train.len() as u64,
            blocks: blocks.collect(),
            curve: start.curve,
            meter: ProgressMeter::start(),
            began: now,
            logged_at: now,
            step: start.step,
            layout: TaskCounts {
                workers: launch.workers,
                ps_shards: launch.ps_shards,
            },
            evaluation: None,
            noise_scale: None,
            noticed: None,
            measured: None,
        })
    }

    /// Reports that training begins at `step`.
    pub fn ready(&mut self, step: u64, layout: TaskCounts) -> Result<(), WorkerError> {
        self.layout = layout;
        log::line(format_args!(
            "training from step {step} (epoch {:.2}) with {} workers and {} PS shards",
            self.position(step).epochs(),
            layout.workers,
            layout.ps_shards
        ));
        self.report(&TaskReport::Ready { from_step: step })
    }

    /// Evaluates the checkpoint of another job from which this job starts, so that its curve begins
    /// there.
    pub fn measure_origin(&mut self, model: &mut WorkerModel) -> Result<(), WorkerError> {
        self.evaluate(model)?;
        self.meter = ProgressMeter::start();
        Ok(())
    }

    /// Returns the reason why training ends at `step`, if a stop rule is met.
    pub fn over(&self, step: u64) -> Option<String> {
        let standing = TrainingProgress {
            step,
            steps_per_epoch: self.steps_per_epoch,
            epoch_losses: &self.curve.epoch_losses,
            evaluation: self.evaluation.as_ref(),
            trained_s: self.launch.trained_s + self.began.elapsed().as_secs_f64(),
        };
        reached(&self.launch.spec.stop, standing)
    }

    /// Does what is due after `step` steps. Returns the reason if training ends.
    pub fn after_step(
        &mut self,
        model: &mut WorkerModel,
        exchange: &mut (dyn WorkerExchange + '_),
        step: u64,
        stats: StepStats,
        times: StepTimes,
    ) -> Result<Option<String>, WorkerStepError> {
        // One step, or several where the batch grows with the workers.
        let before = std::mem::replace(&mut self.step, step);
        self.noise_scale = exchange.noise_scale();
        self.curve.add(stats);
        self.meter.add(step.saturating_sub(before), stats, times);
        for _ in 0..self.epochs_between(before, step) {
            self.curve.end_epoch();
        }
        // A coordinator that must stop uses the announced snapshot when it leaves.
        let is_noticed = self.noticed == Some(step) && !self.ctx.stop.is_set();
        let mut snapshot = None;
        if self.evaluates(before, step) {
            // Before the evaluation, because its time is not training time.
            self.sample(true)?;
            snapshot = self.measure(model, exchange, is_noticed)?;
            self.meter = ProgressMeter::start();
        }
        self.sample(false)?;
        self.layout = exchange.layout();
        let over = self.over(step);
        self.saver.settle()?;
        let stops = self.ctx.stop.is_set();
        if over.is_some() || stops {
            self.measured = snapshot.filter(|_| over.is_some());
            return Ok(over);
        }
        let may = is_noticed || !exchange.needs_notice();
        // If no copy can be made now, the evaluation of this step does not make a later checkpoint
        // due.
        let evaluation = self.evaluation_now().filter(|_| may).cloned();
        let is_due = self.saver.due((before, step), evaluation.as_ref())?;
        if is_due && may {
            let (snapshot, source) = match snapshot {
                Some(snapshot) => (snapshot, None),
                None => {
                    let (snapshot, source) = exchange.snapshot_from(model, self.saver.spare())?;
                    (self.copied(snapshot)?, source)
                }
            };
            let manifest = self.manifest(step, &snapshot);
            self.saver.begin(manifest, snapshot.contents, source);
            self.meter = ProgressMeter::start();
        } else if let Some(snapshot) = snapshot {
            self.saver.take_back(snapshot.contents);
        }
        self.foresee(exchange, step, is_due && !may);
        Ok(None)
    }

    /// Announces a checkpoint one step ahead, where the exchange needs notice. A checkpoint is due
    /// after the step that follows `step`, or is overdue (`is_owed`).
    pub fn foresee(&mut self, exchange: &mut (dyn WorkerExchange + '_), step: u64, is_owed: bool) {
        let next = step + 1;
        if exchange.needs_notice() && (is_owed || self.foresees_checkpoint(step)) {
            self.announce(exchange, next);
        }
    }

    /// Whether a checkpoint is due after the step that follows `step`.
    fn foresees_checkpoint(&self, step: u64) -> bool {
        let next = step + 1;
        if self.saver.will_be_due(next) {
            return true;
        }
        // The checkpoint of the last step is written even if the one before is still being written.
        self.saver.keeps_best()
            && self.evaluates(step, next)
            && (self.saver.may_begin() || self.over(next).is_some())
    }

    fn epochs_between(&self, before: u64, step: u64) -> u64 {
        (step / self.steps_per_epoch).saturating_sub(before / self.steps_per_epoch)
    }

    /// Whether to evaluate at `step`; `before` is the step of the previous call.
    fn evaluates(&self, before: u64, step: u64) -> bool {
        self.epochs_between(before, step) > 0 || self.launch.spec.evaluate.due(before, step)
    }

    /// Evaluates. If the best checkpoints are kept and a snapshot of this step was announced,
    /// evaluates the parameters of the snapshot. Those of the workers may be older, or lack the
    /// loss of an encoded answer.
    fn measure(
        &mut self,
        model: &mut WorkerModel,
        exchange: &mut (dyn WorkerExchange + '_),
        is_noticed: bool,
    ) -> Result<Option<ShardSnapshot>, WorkerStepError> {
        if !is_noticed || !self.saver.keeps_best() {
            self.evaluate(model)?;
            return Ok(None);
        }
        let mut snapshot = self.copy(model, exchange)?;
        std::mem::swap(&mut model.parameters, &mut snapshot.contents.parameters);
        let evaluated = self.evaluate(model);
        std::mem::swap(&mut model.parameters, &mut snapshot.contents.parameters);
        evaluated?;
        Ok(Some(snapshot))
    }

    /// Copies the present state.
    fn copy(
        &mut self,
        model: &mut WorkerModel,
        exchange: &mut (dyn WorkerExchange + '_),
    ) -> Result<ShardSnapshot, WorkerStepError> {
        let snapshot = exchange.snapshot(model, self.saver.spare())?;
        Ok(self.copied(snapshot)?)
    }

    /// Clears the announcement, because the other workers send their residuals once per
    /// announcement. A coordinator that leaves at this step announces another snapshot.
    fn copied(&mut self, snapshot: ShardSnapshot) -> Result<ShardSnapshot, WorkerError> {
        self.noticed = None;
        self.count(snapshot.counted)?;
        Ok(snapshot)
    }

    /// Adds the counts of a snapshot to the curve that is stored with it.
    fn count(&mut self, stats: StepStats) -> Result<(), WorkerError> {
        if !stats.loss_sum.is_finite() {
            return Err(WorkerError::Diverged { step: self.step });
        }
        self.curve.add(stats);
        Ok(())
    }

    fn announce(&mut self, exchange: &mut (dyn WorkerExchange + '_), step: u64) {
        self.noticed = Some(step);
        exchange.notice(step);
    }

    /// Whether a coordinator that must stop before `step` does one more step. If so, announces the
    /// snapshot after it.
    pub fn gives_notice(&mut self, exchange: &mut (dyn WorkerExchange + '_), step: u64) -> bool {
        let is_late = self.noticed == Some(step) || self.ctx.stop.must_hurry();
        if is_late || !exchange.needs_notice() {
            return false;
        }
        self.announce(exchange, step + 1);
        true
    }

    /// Reports the counts so far before all workers suspend.
    pub fn stand_still(&mut self) -> Result<(), WorkerError> {
        self.sample(true)
    }

    /// Excludes the suspension, of length `stood`, from the training time.
    pub fn go_on(&mut self, stood: Duration) {
        self.began += stood;
        self.meter = ProgressMeter::start();
    }

    /// Ends training: evaluates, writes the last checkpoint and the model, and ends the exchange.
    pub fn finish(
        mut self,
        model: &mut WorkerModel,
        mut exchange: Box<dyn WorkerExchange + '_>,
        reason: String,
    ) -> Result<ExitReason, WorkerStepError> {
        self.sample(true)?;
        exchange.conclude(model)?;
        let (snapshot, is_measured) = match self.measured.take() {
            Some(measured) => (measured, true),
            None => (self.copy(model, exchange.as_mut())?, false),
        };
        // If the last step was not announced, the workers' parameters lack the loss of an encoded
        // answer.
        let kept = &snapshot.contents.parameters;
        let is_another = !is_measured && exchange.needs_notice() && model.parameters != *kept;
        model.parameters.copy_from_slice(kept);
        if is_another || self.evaluation_now().is_none() {
            self.evaluate(model)?;
        }
        let manifest = self.manifest(self.step, &snapshot);
        let mut contents = snapshot.contents;
        // Training has ended, so the write is retried for as long as the store fails.
        let stop = &self.ctx.stop;
        if self.saver.saved() != Some(self.step) {
            let kind = WriteKind::Checkpoint;
            self.saver
                .write_through(kind, &manifest, contents, stop, None)?;
            contents = self.saver.spare();
        }
        let path = self
            .saver
            .write_through(WriteKind::Final, &manifest, contents, stop, None)?;
        let model_path = path.expect("a model has a path");
        log::line(format_args!(
            "finished at step {}: {reason}; model in {model_path}",
            self.step
        ));
        model.pacer.end();
        self.report(&TaskReport::Finished {
            step: self.step,
            reason,
            model_path,
        })?;
        exchange.done();
        Ok(ExitReason::Finished)
    }

    /// Stops before the end of training, on request or because a worker has left. Writes a
    /// checkpoint if the whole state has one version.
    pub fn leave(
        mut self,
        model: &mut WorkerModel,
        mut exchange: Box<dyn WorkerExchange + '_>,
        lost: bool,
    ) -> Result<ExitReason, WorkerStepError> {
        let ending = if lost {
            ExitReason::PeerLost
        } else {
            ExitReason::Interrupted
        };
        self.sample(true)?;
        let snapshot = self.copy(model, exchange.as_mut())?;
        let Some(step) = snapshot.version() else {
            // A worker was lost after only some shards had its push. The newest stored checkpoint
            // is the newest complete state.
            log::line(format_args!(
                "the PS shards stand at different steps {:?}; the older checkpoint stays the newest",
                snapshot.versions
            ));
            exchange.goodbye();
            return Ok(ExitReason::PeerLost);
        };
        self.step = step;
        if self.saver.saved() != Some(step) {
            let manifest = self.manifest(step, &snapshot);
            let limit = if lost { Saver::last_stand() } else { None };
            let stop = &self.ctx.stop;
            let contents = snapshot.contents;
            self.saver
                .write_through(WriteKind::Checkpoint, &manifest, contents, stop, limit)?;
        }
        log::line(format_args!("stopped at step {step}"));
        model.pacer.end();
        self.report(&TaskReport::Interrupted { step })?;
        exchange.goodbye();
        Ok(ending)
    }

    /// Returns the evaluation of the present step, if there is one.
    fn evaluation_now(&self) -> Option<&Evaluation> {
        self.evaluation
            .as_ref()
            .filter(|evaluation| evaluation.step == self.step)
    }

    fn manifest(&self, step: u64, snapshot: &ShardSnapshot) -> Manifest {
        let spec = &self.launch.spec;
        Manifest {
            format: Manifest::FORMAT,
            job_id: self.launch.job_id,
            revision: self.launch.revision,
            step,
            position: self.position(step),
            engine: spec.engine().clone(),
            consistency: spec.exchange.consistency,
            randomness: RANDOMNESS.to_owned(),
            optimizer_updates: snapshot.updates,
            layout: self.layout,
            curve: self.curve.clone(),
            blocks: self.blocks.clone(),
            state_planes: document::state_planes(&spec.engine().optimizer)
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            extras: snapshot
                .contents
                .extras
                .iter()
                .map(|(name, values)| (name.clone(), values.len()))
                .collect(),
            evaluation: self.evaluation_now().cloned(),
            part_bytes: DEFAULT_PART_BYTES,
            files: BTreeMap::new(),
        }
    }

    fn evaluate(&mut self, model: &mut WorkerModel) -> Result<(), WorkerError> {
        let (loss, accuracy) = model.evaluate()?;
        let evaluation = Evaluation {
            step: self.step,
            epoch: self.position(self.step).epochs(),
            split: Split::Test,
            loss: Some(loss),
            accuracy: Some(accuracy),
        };
        log::line(format_args!(
            "epoch {:.2}: test loss {loss:.4}, test accuracy {accuracy:.4}",
            evaluation.epoch
        ));
        if !loss.is_finite() {
            return Err(WorkerError::Diverged { step: self.step });
        }
        self.report(&TaskReport::Evaluated {
            evaluation: evaluation.clone(),
        })?;
        self.evaluation = Some(evaluation);
        Ok(())
    }

    /// Reports a progress sample if one is due, or if `at_once` is set.
    fn sample(&mut self, at_once: bool) -> Result<(), WorkerError> {
        if !at_once && !self.meter.is_due() {
            return Ok(());
        }
        let epoch = self.position(self.step).epochs();
        let place = (self.step, epoch);
        let Some(sample) = self.meter.take(place, self.layout, self.noise()) else {
            return Ok(());
        };
        if self.logged_at.elapsed() >= LOG_EVERY {
            self.logged_at = clock::now();
            log_sample(&sample);
        }
        self.report(&TaskReport::Progress { sample })
    }

    /// Returns the exchange's noise scale, and whether updates gain from it (AdaScale).
    fn noise(&self) -> NoiseReport {
        NoiseReport {
            scale: self.noise_scale,
            gains: self.launch.spec.engine().batch_rule.counts_gains(),
        }
    }

    fn position(&self, step: u64) -> DataPosition {
        DataPosition::at(step, self.steps_per_epoch, self.train_examples)
    }

    fn report(&self, report: &TaskReport) -> Result<(), WorkerError> {
        Ok(self.ctx.reporter.report(report)?)
    }
}

fn log_sample(sample: &Sample) {
    log::line(format_args!(
        "step {}, epoch {:.2}: loss {:.4}, accuracy {:.4}, {:.0} examples/s (per step {:.1} ms computing, {:.1} ms exchanging)",
        sample.step,
        sample.epoch,
        sample.loss,
        sample.accuracy.unwrap_or(f64::NAN),
        sample.examples_per_s.unwrap_or(f64::NAN),
        sample.compute_ms.unwrap_or(f64::NAN),
        sample.exchange_ms.unwrap_or(f64::NAN)
    ));
}
