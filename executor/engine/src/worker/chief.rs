//! The chief's duties at step boundaries: progress, evaluation, checkpoints, the end of training.
//!
//! Under BSP a snapshot at a step boundary is exact: no PS shard can apply the next step before the chief itself has pushed it. Under
//! SSP and ASP other workers go on meanwhile; then a checkpoint's step is the chief's clock, its parameters hold the others'
//! pushes up to the moment each shard was read, and resuming means that every worker begins anew at that clock. Work is neither
//! lost nor repeated by more than the workers are apart.

use super::error::WorkerError;
use super::exchange::{Exchange, Trouble};
use super::model::Model;
use super::progress::{Meter, Noise, StepTimes};
use super::resume::Start;
use super::saver::Saver;
use super::shards::Snapshot;
use super::stop_rules::{Standing, reached};
use super::train::{Ending, Surroundings};
use crate::checkpoint::{
    Curve, DEFAULT_PART_BYTES, Depot, Kind, Layout, Manifest, NamedBlock, Position, RANDOMNESS,
};
use crate::clock;
use crate::document;
use crate::log;
use crate::wire::hello::StepStats;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::progress::{Evaluation, Sample, Split};
use muster_model::spec::BatchRule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the log has a line on progress.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What only rank 0 does.
pub(super) struct Chief<'a> {
    launch: &'a TaskLaunch,
    around: &'a Surroundings<'a>,
    saver: Saver<'a>,
    steps_per_epoch: u64,
    train_examples: u64,
    blocks: Vec<NamedBlock>,
    curve: Curve,
    meter: Meter,
    began: Instant,
    logged_at: Instant,
    /// Step after which the counts stand.
    step: u64,
    /// Who took part in that step.
    layout: Layout,
    evaluation: Option<Evaluation>,
    /// As the exchange has measured it.
    noise_scale: Option<f64>,
    /// The step at whose beginning a snapshot was announced.
    noticed: Option<u64>,
    /// The state that was measured last, where training is over with it.
    measured: Option<Snapshot>,
}

impl<'a> Chief<'a> {
    pub fn new(
        launch: &'a TaskLaunch,
        depot: Depot,
        model: &Model,
        start: Start,
        around: &'a Surroundings<'a>,
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
        let peers = Arc::clone(&around.peers);
        let spared = Arc::new(move || peers().map(|peers| peers.spared));
        let saver = Saver::start(depot, policy, spared, size, saved, around.reporter)?;
        Ok(Self {
            launch,
            around,
            saver,
            steps_per_epoch: model.batches.steps_per_epoch(),
            train_examples: model.data.train.len() as u64,
            blocks: blocks.collect(),
            curve: start.curve,
            meter: Meter::start(),
            began: now,
            logged_at: now,
            step: start.step,
            layout: Layout {
                workers: launch.workers,
                ps_shards: launch.ps_shards,
            },
            evaluation: None,
            noise_scale: None,
            noticed: None,
            measured: None,
        })
    }

    /// Tells that the job trains from here.
    pub fn ready(&mut self, step: u64, layout: Layout) -> Result<(), WorkerError> {
        self.layout = layout;
        log::line(format_args!(
            "training from step {step} (epoch {:.2}) with {} workers and {} PS shards",
            self.position(step).epochs(),
            layout.workers,
            layout.ps_shards
        ));
        self.report(&TaskReport::Ready { from_step: step })
    }

    /// Of a job that begins from another's checkpoint: measures what it has taken over, so that its curve begins where it does.
    pub fn measure_origin(&mut self, model: &mut Model) -> Result<(), WorkerError> {
        self.evaluate(model)?;
        self.meter = Meter::start();
        Ok(())
    }

    /// Why training is over at `step`, if it is.
    pub fn over(&self, step: u64) -> Option<String> {
        let standing = Standing {
            step,
            steps_per_epoch: self.steps_per_epoch,
            epoch_losses: &self.curve.epoch_losses,
            evaluation: self.evaluation.as_ref(),
            trained_s: self.launch.trained_s + self.began.elapsed().as_secs_f64(),
        };
        reached(&self.launch.spec.stop, standing)
    }

    /// Everything that is due once `step` steps are done. The reason when training is over.
    pub fn after_step(
        &mut self,
        model: &mut Model,
        exchange: &mut (dyn Exchange + '_),
        step: u64,
        stats: StepStats,
        times: StepTimes,
    ) -> Result<Option<String>, Trouble> {
        // One step, or with a batch that grows with the workers several.
        let before = std::mem::replace(&mut self.step, step);
        self.noise_scale = exchange.noise_scale();
        self.curve.add(stats);
        self.meter.add(step.saturating_sub(before), stats, times);
        for _ in 0..self.epochs_between(before, step) {
            self.curve.end_epoch();
        }
        // Told to stop, it leaves with what was announced.
        let is_noticed = self.noticed == Some(step) && !self.around.stop.is_set();
        let mut snapshot = None;
        if self.evaluates(before, step) {
            // Before the evaluation, lest its time count as training.
            self.sample(true)?;
            snapshot = self.measure(model, exchange, is_noticed)?;
            self.meter = Meter::start();
        }
        self.sample(false)?;
        self.layout = exchange.layout();
        let over = self.over(step);
        self.saver.settle()?;
        let stops = self.around.stop.is_set();
        if over.is_some() || stops {
            self.measured = snapshot.filter(|_| over.is_some());
            return Ok(over);
        }
        let may = is_noticed || !exchange.needs_notice();
        // The measures of what cannot be copied now are no reason to copy what comes after it.
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
            self.meter = Meter::start();
        } else if let Some(snapshot) = snapshot {
            self.saver.take_back(snapshot.contents);
        }
        self.foresee(exchange, step, is_due && !may);
        Ok(None)
    }

    /// Where a checkpoint needs notice: gives it, if after the step that follows `step` one will be due, or is already.
    pub fn foresee(&mut self, exchange: &mut (dyn Exchange + '_), step: u64, is_owed: bool) {
        let next = step + 1;
        let is_one = || {
            let measured = self.saver.keeps_best() && self.evaluates(step, next);
            // The end's is written however long the one before takes.
            let may_begin = || self.saver.may_begin() || self.over(next).is_some();
            is_owed || self.saver.will_be_due(next) || measured && may_begin()
        };
        if exchange.needs_notice() && is_one() {
            self.announce(exchange, next);
        }
    }

    fn epochs_between(&self, before: u64, step: u64) -> u64 {
        (step / self.steps_per_epoch).saturating_sub(before / self.steps_per_epoch)
    }

    /// Whether to evaluate at `step`, the first that training stands at after `before`.
    fn evaluates(&self, before: u64, step: u64) -> bool {
        self.epochs_between(before, step) > 0 || self.launch.spec.evaluate.due(before, step)
    }

    /// Evaluates. Where the best are kept and a snapshot of this step was announced, it is of the parameters of the snapshot: what workers
    /// have may lack what an encoded answer has lost, or be older.
    fn measure(
        &mut self,
        model: &mut Model,
        exchange: &mut (dyn Exchange + '_),
        is_noticed: bool,
    ) -> Result<Option<Snapshot>, Trouble> {
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

    /// The state as it is now.
    fn copy(
        &mut self,
        model: &mut Model,
        exchange: &mut (dyn Exchange + '_),
    ) -> Result<Snapshot, Trouble> {
        let snapshot = exchange.snapshot(model, self.saver.spare())?;
        Ok(self.copied(snapshot)?)
    }

    /// What was announced for a snapshot others have said once: whoever leaves at this step announces another one.
    fn copied(&mut self, snapshot: Snapshot) -> Result<Snapshot, WorkerError> {
        self.noticed = None;
        self.count(snapshot.counted)?;
        Ok(snapshot)
    }

    /// What a snapshot has counted belongs to the curve that it is kept with.
    fn count(&mut self, stats: StepStats) -> Result<(), WorkerError> {
        if !stats.loss_sum.is_finite() {
            return Err(WorkerError::Diverged { step: self.step });
        }
        self.curve.add(stats);
        Ok(())
    }

    fn announce(&mut self, exchange: &mut (dyn Exchange + '_), step: u64) {
        self.noticed = Some(step);
        exchange.notice(step);
    }

    /// Told to stop before `step`: whether one step more is done, whose end is announced first.
    pub fn gives_notice(&mut self, exchange: &mut (dyn Exchange + '_), step: u64) -> bool {
        let is_late = self.noticed == Some(step) || self.around.stop.must_hurry();
        if is_late || !exchange.needs_notice() {
            return false;
        }
        self.announce(exchange, step + 1);
        true
    }

    /// All stand still now: what was counted is told before.
    pub fn stand_still(&mut self) -> Result<(), WorkerError> {
        self.sample(true)
    }

    /// They went on after so long, which is no time of training.
    pub fn go_on(&mut self, stood: Duration) {
        self.began += stood;
        self.meter = Meter::start();
    }

    /// Training is over: evaluates, writes the last checkpoint and the model, and tells everyone.
    pub fn finish(
        mut self,
        model: &mut Model,
        mut exchange: Box<dyn Exchange + '_>,
        reason: String,
    ) -> Result<Ending, Trouble> {
        self.sample(true)?;
        exchange.conclude(model)?;
        let (snapshot, is_measured) = match self.measured.take() {
            Some(measured) => (measured, true),
            None => (self.copy(model, exchange.as_mut())?, false),
        };
        // Where nobody foresaw that this step would be the last: what workers have lacks what an encoded answer has lost.
        let kept = &snapshot.contents.parameters;
        let is_another = !is_measured && exchange.needs_notice() && model.parameters != *kept;
        model.parameters.copy_from_slice(kept);
        if is_another || self.evaluation_now().is_none() {
            self.evaluate(model)?;
        }
        let manifest = self.manifest(self.step, &snapshot);
        let mut contents = snapshot.contents;
        // Training is done: however long the store fails, there is nothing better to do than to try again.
        let stop = &self.around.stop;
        if self.saver.saved() != Some(self.step) {
            let kind = Kind::Checkpoint;
            self.saver
                .write_through(kind, &manifest, contents, stop, None)?;
            contents = self.saver.spare();
        }
        let path = self
            .saver
            .write_through(Kind::Final, &manifest, contents, stop, None)?;
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
        Ok(Ending::Finished)
    }

    /// Stops before the end, told so or because a worker has left: keeps the work in a checkpoint if all of it is of one version.
    pub fn leave(
        mut self,
        model: &mut Model,
        mut exchange: Box<dyn Exchange + '_>,
        lost: bool,
    ) -> Result<Ending, Trouble> {
        let ending = if lost {
            Ending::PeerLost
        } else {
            Ending::Interrupted
        };
        self.sample(true)?;
        let snapshot = self.copy(model, exchange.as_mut())?;
        let Some(step) = snapshot.version() else {
            // A worker was lost between two shards; whatever is on the disk is the newest whole state.
            log::line(format_args!(
                "the PS shards stand at different steps {:?}; the older checkpoint stays the newest",
                snapshot.versions
            ));
            exchange.goodbye();
            return Ok(Ending::PeerLost);
        };
        self.step = step;
        if self.saver.saved() != Some(step) {
            let manifest = self.manifest(step, &snapshot);
            let limit = if lost { Saver::last_stand() } else { None };
            let stop = &self.around.stop;
            let contents = snapshot.contents;
            self.saver
                .write_through(Kind::Checkpoint, &manifest, contents, stop, limit)?;
        }
        log::line(format_args!("stopped at step {step}"));
        model.pacer.end();
        self.report(&TaskReport::Interrupted { step })?;
        exchange.goodbye();
        Ok(ending)
    }

    /// Of this very step.
    fn evaluation_now(&self) -> Option<&Evaluation> {
        self.evaluation
            .as_ref()
            .filter(|evaluation| evaluation.step == self.step)
    }

    fn manifest(&self, step: u64, snapshot: &Snapshot) -> Manifest {
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

    fn evaluate(&mut self, model: &mut Model) -> Result<(), WorkerError> {
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

    /// Reports a progress sample if one is due, or at once.
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

    /// What the exchange has measured of gradients, and whether updates are worth what it says.
    fn noise(&self) -> Noise {
        Noise {
            scale: self.noise_scale,
            gains: self.launch.spec.engine().batch_rule == BatchRule::AdaScale,
        }
    }

    fn position(&self, step: u64) -> Position {
        Position::at(step, self.steps_per_epoch, self.train_examples)
    }

    fn report(&self, report: &TaskReport) -> Result<(), WorkerError> {
        Ok(self.around.reporter.report(report)?)
    }
}

fn log_sample(sample: &Sample) {
    let measured = |value: Option<f64>| value.unwrap_or(f64::NAN);
    log::line(format_args!(
        "step {}, epoch {:.2}: loss {:.4}, accuracy {:.4}, {:.0} examples/s (per step {:.1} ms computing, {:.1} ms exchanging)",
        sample.step,
        sample.epoch,
        sample.loss,
        measured(sample.accuracy),
        measured(sample.examples_per_s),
        measured(sample.compute_ms),
        measured(sample.exchange_ms)
    ));
}
