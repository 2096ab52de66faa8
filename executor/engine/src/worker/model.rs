//! The computing part of a worker: its network, its examples, and one pass over its part of a step.

mod device;

use super::alone;
use super::batches::{self, Batches, Buffers};
use super::error::WorkerError;
use super::pacer::Pacer;
use super::progress::StepTimes;
use super::train::Surroundings;
use crate::clock;
use crate::cuda::{Device, Resident};
use crate::data::Dataset;
use crate::document;
use crate::log;
use crate::loss::StepLoss;
use crate::model::{Draw, Network, Workspace};
use crate::pages;
use crate::wire::hello::StepStats;
use muster_model::assignment::TaskLaunch;
use muster_model::pace::Doing;
use muster_model::spec::{Algorithm, Averaging, BatchRule, JobSpec};
use std::ops::Range;
use std::time::Duration;

/// Examples that go through the network at once; more run in parts, so that memory does not grow with the batch.
const MAX_PASS: usize = 256;

/// What a worker computes with.
pub(super) struct Model {
    pub network: Network,
    pub data: Dataset,
    pub batches: Batches,
    room: Room,
    device: Device,
    threads: usize,
    /// In so many at least a worker's part of a batch is computed.
    passes: usize,
    /// The step whose pass has gone forward already, in the workspace and on the batch that are there.
    begun: Option<u64>,
    /// The step whose examples were loaded last, while the device was at the one before.
    loaded: Option<u64>,
    /// Those to compute with, but where training stays on the device: then its own are newer.
    pub parameters: Vec<f32>,
    /// Is told when its part of a step begins and ends.
    pub pacer: Pacer,
}

/// What a worker's passes go through.
enum Room {
    /// Gradients come out of it, and parameters are sent to it.
    Passes(Workspace),
    /// All of training stays on the device.
    Whole(Box<Resident>),
}

impl Room {
    fn of(
        launch: &TaskLaunch,
        network: &Network,
        (examples, largest_pass): (usize, usize),
        around: &Surroundings<'_>,
    ) -> Result<Self, WorkerError> {
        if !around.device.is_cpu() {
            let why_not = alone::why_not(launch);
            match why_not {
                None => log::line("all of a step stays on the GPU"),
                // What becomes of them the workers agree on.
                Some(_) if launch.spec.exchange.algorithm == Algorithm::Nccl => {}
                Some(why) => log::line(format_args!(
                    "gradients leave the GPU in every step, because {why}"
                )),
            }
            if why_not.is_none()
                && let Some(queue) = around.device.queue()?
            {
                let engine = launch.spec.engine();
                let optimizer = document::optimizer(engine);
                // What training starts from is not known yet.
                let parameters = pages::zeros(network.parameter_count());
                let room = (largest_pass, examples);
                let resident = Resident::on(queue, network, optimizer, room, &parameters)?;
                let resident = resident.clipping(engine.clip_norm);
                return Ok(Self::Whole(Box::new(resident)));
            }
        }
        let workspace = network.workspace_on(around.device, largest_pass, around.threads)?;
        Ok(Self::Passes(workspace))
    }

    fn workspace(&mut self) -> &mut Workspace {
        match self {
            Self::Passes(workspace) => workspace,
            Self::Whole(_) => panic!("gradients stay on the device"),
        }
    }

    fn max_batch(&self) -> usize {
        match self {
            Self::Passes(workspace) => workspace.max_batch(),
            Self::Whole(resident) => resident.max_batch(),
        }
    }

    /// Whether a step of so many examples can be laid out: of those that leave the device the parts are, one after another.
    fn holds(&self, examples: usize) -> bool {
        match self {
            Self::Passes(_) => true,
            Self::Whole(resident) => examples <= resident.max_step(),
        }
    }
}

/// Examples that go through the network at once, when so many are to be computed in at least so many passes.
fn largest_pass(examples: usize, passes: usize) -> usize {
    examples.div_ceil(passes).clamp(1, MAX_PASS)
}

/// The concentration of the classes of workers' own shards.
fn skew(spec: &JobSpec) -> Option<f64> {
    match spec.exchange.averaging? {
        Averaging::Fedavg { alpha, .. } => alpha,
        _ => None,
    }
}

/// Loss, and how much of the examples was right: a text's is the mean over its positions, several answers' over all of them.
pub(super) fn by_example(network: &Network, loss: StepLoss) -> (f64, f64) {
    let targets = network.targets() as f64;
    let loss_sum = match network.wants_classes() {
        true => loss.loss_sum / targets,
        // The mean of an example's numbers is its loss already.
        false => loss.loss_sum,
    };
    (loss_sum, loss.correct as f64 / targets)
}

/// What others are told of so many examples' pass.
fn counts(network: &Network, loss: StepLoss, examples: usize) -> StepStats {
    let (loss_sum, correct) = by_example(network, loss);
    StepStats {
        loss_sum,
        correct: correct.round() as u64,
        examples: examples as u64,
        ..StepStats::default()
    }
}

impl Model {
    /// Reads the data set and makes room, as worker `rank` of the launch's.
    ///
    /// # Errors
    /// When the data set or the network of the job's document cannot be had.
    pub fn load(
        launch: &TaskLaunch,
        rank: u32,
        around: &Surroundings<'_>,
    ) -> Result<Self, WorkerError> {
        let engine = launch.spec.engine();
        let network = document::network(engine)?;
        let data = document::dataset(engine, around.dataset_root)?;
        let batch = engine.batch as usize;
        let global = batches::global(engine.seed, data.train.len(), batch)?;
        let workers = launch.workers as usize;
        // Who replaces another that has not left yet has a rank beyond the number of workers: until it is let in and told which part is
        // its own ([`Self::recut`]) it has the last.
        let rank = (rank as usize).min(workers.saturating_sub(1));
        let mut batches = Batches::new(global, engine.seed, rank, workers, |examples| {
            Buffers::new(&network, &data, examples)
        });
        if let (Some(alpha), Some(labels)) = (skew(&launch.spec), data.train.classes()) {
            batches = batches.skewed(labels, alpha, rank, workers);
        }
        if engine.batch_rule == BatchRule::AdaScale {
            let base = launch.spec.scale.workers.min as usize;
            batches = batches.growing(base, |examples| Buffers::new(&network, &data, examples));
        }
        let passes = engine.accumulate.unwrap_or(1).max(1) as usize;
        let largest_pass = largest_pass(batches.examples(), passes);
        log::line(format_args!(
            "{} training and {} test examples, {} parameters, batch {batch} of which {} here",
            data.train.len(),
            data.test.len(),
            network.parameter_count(),
            batches.examples(),
        ));
        Ok(Self {
            room: Room::of(launch, &network, (batches.examples(), largest_pass), around)?,
            device: around.device.clone(),
            threads: around.threads,
            passes,
            begun: None,
            loaded: None,
            parameters: pages::zeros(network.parameter_count()),
            pacer: Pacer::default(),
            network,
            data,
            batches,
        })
    }

    /// From the next step on this is worker `rank` of `workers`.
    ///
    /// # Errors
    /// When the device has no room for a larger part.
    pub fn recut(&mut self, rank: usize, workers: usize) -> Result<(), WorkerError> {
        self.begun = None;
        let (network, data) = (&self.network, &self.data);
        self.batches.recut(rank, workers, |examples| {
            Buffers::new(network, data, examples)
        });
        let largest_pass = largest_pass(self.batches.examples(), self.passes);
        let room = self.room.max_batch();
        let is_other = largest_pass > room || self.passes > 1 && largest_pass < room;
        if is_other || !self.room.holds(self.batches.examples()) {
            self.clear_room(largest_pass)?;
        }
        self.loaded = None;
        Ok(())
    }

    /// Room for passes of so many examples in place of what there is.
    fn clear_room(&mut self, largest_pass: usize) -> Result<(), WorkerError> {
        // The old one goes first: a device may not hold both.
        self.room = Room::Passes(self.network.workspace(1, 1));
        let workspace = self
            .network
            .workspace_on(&self.device, largest_pass, self.threads)?;
        self.room = Room::Passes(workspace);
        Ok(())
    }

    /// Computes the gradients of this worker's part of the update at `place` in the data (see [`Batches`]), summed over its examples,
    /// into `gradients`; `ready` is told which of them are final while the backward pass goes on.
    pub fn gradient(
        &mut self,
        place: u64,
        gradients: &mut [f32],
        ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send),
    ) -> (StepStats, StepTimes) {
        self.pacer.doing(Doing::Working);
        let began = clock::now();
        let is_begun = self.begun.take() == Some(place);
        let batch = match is_begun {
            true => self.batches.loaded(place),
            false => self.batches.load(&self.data.train, place),
        };
        let loaded = clock::now();
        let loss = self.network.loss_and_grad_after(
            is_begun,
            self.room.workspace(),
            &self.parameters,
            &batch,
            gradients,
            ready,
        );
        let stats = counts(&self.network, loss, self.batches.examples());
        let times = StepTimes {
            data: loaded - began,
            compute: loaded.elapsed(),
            exchange: Duration::ZERO,
        };
        self.pacer.doing(Doing::Waiting);
        (stats, times)
    }

    /// Goes forward through `step` as its parameters arrive: `fetch` waits for a range of them and puts it in place, or says that this
    /// step is not to be computed like this. The gradients of the same step go on from there, if nothing comes between. How long it took,
    /// without waiting.
    pub fn begin(
        &mut self,
        step: u64,
        fetch: &mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send),
    ) -> Duration {
        self.begun = None;
        if !self.device.is_cpu() {
            // It needs all of them at once.
            return Duration::ZERO;
        }
        let (began, mut waited) = (clock::now(), Duration::ZERO);
        let pacer = &self.pacer;
        pacer.doing(Doing::Working);
        let batch = self.batches.load(&self.data.train, step);
        let (workspace, parameters) = (self.room.workspace(), &mut self.parameters);
        // Who waits for parameters holds nobody up.
        let mut wait = |range: Range<usize>, parameters: &mut [f32]| {
            pacer.doing(Doing::Waiting);
            let asked = clock::now();
            let are_there = fetch(range, parameters);
            waited += asked.elapsed();
            pacer.doing(Doing::Working);
            are_there
        };
        let is_forward_done = self
            .network
            .begin_fetching(workspace, parameters, &batch, &mut wait);
        pacer.doing(Doing::Waiting);
        self.begun = is_forward_done.then_some(step);
        began.elapsed().saturating_sub(waited)
    }

    /// Gives the device's memory back; nothing of a step is there between two.
    ///
    /// # Errors
    /// What the device complained of.
    pub fn give_memory(&mut self) -> Result<(), WorkerError> {
        let done = match &mut self.room {
            Room::Passes(workspace) => workspace.give_memory(),
            Room::Whole(resident) => resident.suspend(),
        };
        Ok(done?)
    }

    /// Takes it again.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn take_memory(&mut self) -> Result<(), WorkerError> {
        let done = match &mut self.room {
            Room::Passes(workspace) => workspace.take_memory(),
            Room::Whole(resident) => resident.resume(),
        };
        Ok(done?)
    }

    /// Examples that go through the network at once.
    pub fn largest_pass(&self) -> usize {
        self.room.max_batch()
    }

    /// One pass over the test split with the present parameters: mean loss and share classified rightly.
    ///
    /// # Errors
    /// What the device complained of, where all of training stays on it.
    pub fn evaluate(&mut self) -> Result<(f64, f64), WorkerError> {
        self.begun = None;
        let part = self.room.max_batch();
        let mut buffers = Buffers::new(&self.network, &self.data, part);
        let indices: Vec<u32> = (0..self.data.test.len() as u32).collect();
        let (mut loss_sum, mut correct) = (0.0, 0.0);
        for indices in indices.chunks(part) {
            let batch = buffers.load(&self.data.test, indices, Draw::default());
            let loss = match &mut self.room {
                Room::Passes(workspace) => {
                    self.network.evaluate(workspace, &self.parameters, &batch)
                }
                Room::Whole(resident) => resident.evaluate(std::iter::once(batch))?,
            };
            let (loss, right) = by_example(&self.network, loss);
            loss_sum += loss;
            correct += right;
        }
        let examples = self.data.test.len().max(1) as f64;
        Ok((loss_sum / examples, correct / examples))
    }
}
