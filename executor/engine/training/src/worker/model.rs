//! The computing part of a worker: its network, its examples, and the passes over its part of a
//! step.

mod device;
pub(super) mod residency;

use super::batches::{self, Batches, Buffers, UpdateSize};
use super::context::WorkerContext;
use super::error::WorkerError;
use super::pacer::Pacer;
use super::progress::StepTimes;
use crate::checkpoint::NamedBlock;
use crate::document;
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_compute::cuda::{Device, DeviceTrainer};
use muster_compute::data::DatasetSplits;
use muster_compute::loss::StepLoss;
use muster_compute::model::{Network, RandomKey, Workspace};
use muster_compute::pages;
use muster_model::assignment::TaskLaunch;
use muster_model::pace::Doing;
use muster_model::spec::{Algorithm, Averaging, BatchRule, JobSpec};
use std::ops::Range;
use std::time::Duration;

/// Maximum number of examples in one pass. A larger part runs in several passes, so that memory
/// does not grow with the batch.
const MAX_PASS: usize = 256;

/// Network, examples and memory of a worker.
pub(super) struct WorkerModel {
    pub network: Network,
    pub data: DatasetSplits,
    pub batches: Batches,
    room: PassMemory,
    device: Device,
    threads: usize,
    /// Minimum number of passes for a worker's part of a batch.
    passes: usize,
    /// Maximum number of examples in one pass: [`MAX_PASS`], or fewer where the device has no room
    /// for more.
    most: usize,
    /// Step whose forward pass is done already, in the present workspace and on the present batch.
    begun: Option<u64>,
    /// Step whose examples were loaded last, while the device computed the previous step.
    loaded: Option<u64>,
    /// Parameters for the next pass. Where training stays on the device, the device has newer ones.
    pub parameters: Vec<f32>,
    /// Records when this worker computes and when it waits.
    pub pacer: Pacer,
}

/// Memory that a worker's passes use.
enum PassMemory {
    /// Gradients leave it, and parameters are sent to it.
    Passes(Workspace),
    /// All of training stays on the device.
    Whole(Box<DeviceTrainer>),
}

impl PassMemory {
    fn of(
        launch: &TaskLaunch,
        network: &Network,
        (examples, largest_pass): (usize, usize),
        ctx: &WorkerContext<'_>,
    ) -> Result<Self, WorkerError> {
        if !ctx.device.is_cpu() {
            let why_not = residency::why_not(launch);
            match why_not {
                None => log::line("all of a step stays on the GPU"),
                // With NCCL the workers decide together whether gradients leave the GPU.
                Some(_) if launch.spec.exchange.algorithm == Algorithm::Nccl => {}
                Some(why) => log::line(format_args!(
                    "gradients leave the GPU in every step, because {why}"
                )),
            }
            if why_not.is_none() {
                let engine = launch.spec.engine();
                let optimizer = document::optimizer(engine);
                // The initial parameters are not known yet.
                let parameters = pages::zeros(network.parameter_count());
                let room = (largest_pass, examples);
                let resident =
                    DeviceTrainer::on(ctx.device, network, optimizer, room, &parameters)?;
                let resident = resident.expect("not the CPU").clipping(engine.clip_norm);
                return Ok(Self::Whole(Box::new(resident)));
            }
        }
        let workspace = network.workspace_on(ctx.device, largest_pass, ctx.threads)?;
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

    /// Whether there is room for a step of `examples` examples. If gradients leave the device, its
    /// passes run one after another and always have room.
    fn holds(&self, examples: usize) -> bool {
        match self {
            Self::Passes(_) => true,
            Self::Whole(resident) => examples <= resident.max_step(),
        }
    }
}

/// Returns the number of examples of the largest pass, for `examples` examples in at least `passes`
/// passes of at most `most` examples.
fn largest_pass(examples: usize, passes: usize, most: usize) -> usize {
    examples.div_ceil(passes).clamp(1, most)
}

/// Allocates memory for passes of `wanted` examples. If that fails, allocates it for `before`
/// examples, for which there was room, so that a larger part takes more passes. Returns the memory
/// with its number of examples.
fn room_for<T, E>(
    (wanted, before): (usize, usize),
    mut allocate: impl FnMut(usize) -> Result<T, E>,
) -> Result<(T, usize), E> {
    match allocate(wanted) {
        Ok(room) => Ok((room, wanted)),
        Err(_) if before < wanted => Ok((allocate(before)?, before)),
        Err(error) => Err(error),
    }
}

/// Returns the class concentration of the workers' data shards, where workers have their own.
fn skew(spec: &JobSpec) -> Option<f64> {
    match spec.exchange.averaging? {
        Averaging::Fedavg { alpha, .. } => alpha,
        _ => None,
    }
}

/// Returns the size of the first update, where it is not that of a constant batch.
fn update_size(spec: &JobSpec) -> Option<UpdateSize> {
    match spec.engine().batch_rule {
        BatchRule::Constant => None,
        BatchRule::AdaScale => Some(UpdateSize::Growing {
            base: spec.scale.workers.min as usize,
        }),
        BatchRule::Goodput => Some(UpdateSize::Chosen {
            examples: spec.engine().batch as usize,
        }),
    }
}

/// Returns the loss and the number of correct answers in units of examples. A text counts with the
/// mean over its positions, several answers with the mean over all of them.
pub(super) fn by_example(network: &Network, loss: StepLoss) -> (f64, f64) {
    let targets = network.targets() as f64;
    let loss_sum = if network.wants_classes() {
        loss.loss_sum / targets
    } else {
        // The loss of an example is already the mean over its values.
        loss.loss_sum
    };
    (loss_sum, loss.correct as f64 / targets)
}

/// Returns the counts of a pass over `examples` examples, as other workers receive them.
fn counts(network: &Network, loss: StepLoss, examples: usize) -> StepStats {
    let (loss_sum, correct) = by_example(network, loss);
    StepStats {
        loss_sum,
        correct: correct.round() as u64,
        examples: examples as u64,
        ..StepStats::default()
    }
}

impl WorkerModel {
    /// Reads the data set and allocates the memory of worker `rank` of the launch.
    ///
    /// # Errors
    /// When the document's data set cannot be loaded or its network cannot be built.
    pub fn load(
        launch: &TaskLaunch,
        rank: u32,
        ctx: &WorkerContext<'_>,
    ) -> Result<Self, WorkerError> {
        let engine = launch.spec.engine();
        let network = document::network(engine)?;
        let data = document::dataset(engine, ctx.dataset_root)?;
        let batch = engine.batch as usize;
        let global = batches::global(engine.seed, data.train.len(), batch)?;
        let workers = launch.workers as usize;
        // A worker that replaces one still present has a rank beyond the number of workers. It uses
        // the last part until it joins and learns its own ([`Self::recut`]).
        let rank = (rank as usize).min(workers.saturating_sub(1));
        let mut batches = Batches::new(global, engine.seed, rank, workers, |examples| {
            Buffers::new(&network, &data, examples)
        });
        if let (Some(alpha), Some(labels)) = (skew(&launch.spec), data.train.classes()) {
            batches = batches.skewed(labels, alpha, rank, workers);
        }
        if let Some(size) = update_size(&launch.spec) {
            batches = batches.sized(size, |examples| Buffers::new(&network, &data, examples));
        }
        let passes = engine.accumulate.unwrap_or(1).max(1) as usize;
        let largest_pass = largest_pass(batches.examples(), passes, MAX_PASS);
        log::line(format_args!(
            "{} training and {} test examples, {} parameters, batch {batch} of which {} here",
            data.train.len(),
            data.test.len(),
            network.parameter_count(),
            batches.examples(),
        ));
        Ok(Self {
            room: PassMemory::of(launch, &network, (batches.examples(), largest_pass), ctx)?,
            device: ctx.device.clone(),
            threads: ctx.threads,
            passes,
            most: MAX_PASS,
            begun: None,
            loaded: None,
            parameters: pages::zeros(network.parameter_count()),
            pacer: Pacer::default(),
            network,
            data,
            batches,
        })
    }

    /// Whether `blocks` are those of the network, in the same order.
    pub fn has_blocks(&self, blocks: &[NamedBlock]) -> bool {
        let own = self.network.blocks();
        own.len() == blocks.len()
            && own.iter().zip(blocks).all(|(a, b)| {
                (&a.name, a.offset, a.len, &a.shape) == (&b.name, b.offset, b.len, &b.shape)
            })
    }

    /// Makes this worker `rank` of `workers` from the next step on, with updates of `chosen`
    /// examples where their size is chosen. A part with more examples than the memory holds takes
    /// several passes.
    ///
    /// # Errors
    /// When the device has not even room for passes of the present size.
    pub fn recut(
        &mut self,
        (rank, workers): (usize, usize),
        chosen: Option<usize>,
    ) -> Result<(), WorkerError> {
        self.begun = None;
        let (network, data) = (&self.network, &self.data);
        self.batches.recut((rank, workers), chosen, |examples| {
            Buffers::new(network, data, examples)
        });
        let largest_pass = largest_pass(self.batches.examples(), self.passes, self.most);
        let room = self.room.max_batch();
        let is_other = largest_pass > room || self.passes > 1 && largest_pass < room;
        if is_other || !self.room.holds(self.batches.examples()) {
            self.clear_room(largest_pass)?;
        }
        self.loaded = None;
        Ok(())
    }

    /// Replaces the memory by a workspace for passes of `largest_pass` examples, or of the present
    /// number if the device has no room for more.
    fn clear_room(&mut self, largest_pass: usize) -> Result<(), WorkerError> {
        let before = self.room.max_batch();
        // The old memory is released first, because a device may not hold both.
        self.room = PassMemory::Passes(self.network.workspace(1, 1));
        let (network, device, threads) = (&self.network, &self.device, self.threads);
        let (workspace, room) = room_for((largest_pass, before), |examples| {
            network.workspace_on(device, examples, threads)
        })?;
        if room < largest_pass {
            log::line(format_args!(
                "the device has no room for passes of {largest_pass} examples: they stay at {room}"
            ));
            self.most = room;
        }
        self.room = PassMemory::Passes(workspace);
        Ok(())
    }

    /// Computes the gradients of this worker's part of the update at `place` (see [`Batches`]) and
    /// writes their sum over its examples into `gradients`. Calls `ready` with each range that is
    /// final while the backward pass continues.
    pub fn gradient(
        &mut self,
        place: u64,
        gradients: &mut [f32],
        ready: &mut (dyn FnMut(Range<usize>, &[f32]) + Send),
    ) -> (StepStats, StepTimes) {
        self.pacer.doing(Doing::Working);
        let began = clock::now();
        let is_begun = self.begun.take() == Some(place);
        let batch = if is_begun {
            self.batches.loaded(place)
        } else {
            self.batches.load(&self.data.train, place)
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

    /// Like [`Self::gradient`], with a pass over each half of the examples: the sum over the first
    /// half goes into `first`, the sum over the second into `gradients`.
    pub fn gradient_in_halves(
        &mut self,
        place: u64,
        first: &mut [f32],
        gradients: &mut [f32],
    ) -> ([StepStats; 2], StepTimes) {
        self.pacer.doing(Doing::Working);
        let began = clock::now();
        self.batches.load(&self.data.train, place);
        let loaded = clock::now();
        let (examples, network) = (self.batches.examples(), &self.network);
        let halves = [0..examples / 2, examples / 2..examples];
        let stats = [(first, &halves[0]), (gradients, &halves[1])].map(|(gradients, half)| {
            let batch = self.batches.loaded_part(place, half.clone());
            let workspace = self.room.workspace();
            let loss = network.loss_and_grad(workspace, &self.parameters, &batch, gradients);
            counts(network, loss, half.len())
        });
        let times = StepTimes {
            data: loaded - began,
            compute: loaded.elapsed(),
            exchange: Duration::ZERO,
        };
        self.pacer.doing(Doing::Waiting);
        (stats, times)
    }

    /// Runs the forward pass of `step` while its parameters arrive. `fetch` waits for a range of
    /// them and writes it; it returns `false` if the pass must not continue. If no other call comes
    /// between, [`Self::gradient`] of the same step continues from this pass. Returns the time
    /// without waiting.
    pub fn begin(
        &mut self,
        step: u64,
        fetch: &mut (dyn FnMut(Range<usize>, &mut [f32]) -> bool + Send),
    ) -> Duration {
        self.begun = None;
        if !self.device.is_cpu() {
            // A device needs all parameters at once.
            return Duration::ZERO;
        }
        let (began, mut waited) = (clock::now(), Duration::ZERO);
        let pacer = &self.pacer;
        pacer.doing(Doing::Working);
        let batch = self.batches.load(&self.data.train, step);
        let (workspace, parameters) = (self.room.workspace(), &mut self.parameters);
        let is_forward_done = self.network.begin_fetching(
            workspace,
            parameters,
            &batch,
            &mut |range: Range<usize>, parameters: &mut [f32]| {
                // A worker that waits for parameters does not delay the others.
                pacer.doing(Doing::Waiting);
                let asked = clock::now();
                let are_there = fetch(range, parameters);
                waited += asked.elapsed();
                pacer.doing(Doing::Working);
                are_there
            },
        );
        pacer.doing(Doing::Waiting);
        self.begun = is_forward_done.then_some(step);
        began.elapsed().saturating_sub(waited)
    }

    /// Releases the device's memory. Between two steps it holds nothing of a step.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn give_memory(&mut self) -> Result<(), WorkerError> {
        let done = match &mut self.room {
            PassMemory::Passes(workspace) => workspace.give_memory(),
            PassMemory::Whole(resident) => resident.suspend(),
        };
        Ok(done?)
    }

    /// Allocates the device's memory again.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn take_memory(&mut self) -> Result<(), WorkerError> {
        let done = match &mut self.room {
            PassMemory::Passes(workspace) => workspace.take_memory(),
            PassMemory::Whole(resident) => resident.resume(),
        };
        Ok(done?)
    }

    /// Returns the maximum number of examples in one pass.
    pub fn largest_pass(&self) -> usize {
        self.room.max_batch()
    }

    /// Evaluates the present parameters on the test split. Returns the mean loss and the accuracy.
    ///
    /// # Errors
    /// Errors of the device, where all of training stays on it.
    pub fn evaluate(&mut self) -> Result<(f64, f64), WorkerError> {
        self.begun = None;
        let part = self.room.max_batch();
        let mut buffers = Buffers::new(&self.network, &self.data, part);
        let indices: Vec<u32> = (0..self.data.test.len() as u32).collect();
        let (mut loss_sum, mut correct) = (0.0, 0.0);
        for indices in indices.chunks(part) {
            let batch = buffers.load(&self.data.test, indices, RandomKey::default());
            let loss = match &mut self.room {
                PassMemory::Passes(workspace) => {
                    self.network.evaluate(workspace, &self.parameters, &batch)
                }
                PassMemory::Whole(resident) => resident.evaluate(std::iter::once(batch))?,
            };
            let (loss, right) = by_example(&self.network, loss);
            loss_sum += loss;
            correct += right;
        }
        let examples = self.data.test.len().max(1) as f64;
        Ok((loss_sum / examples, correct / examples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_part_takes_more_passes_where_memory_ends() {
        let allocate = |examples: usize| (examples <= 48).then_some(examples).ok_or("full");
        assert_eq!(room_for((40, 32), allocate), Ok((40, 40)));
        assert_eq!(room_for((64, 32), allocate), Ok((32, 32)));
        assert_eq!(room_for((64, 64), allocate), Err("full"));
        assert_eq!(room_for((64, 60), allocate), Err("full"));
        // 100 examples in passes of 32 from then on.
        assert_eq!(largest_pass(100, 1, 32), 32);
        assert_eq!(largest_pass(100, 1, MAX_PASS), 100);
        assert_eq!(largest_pass(100, 8, 32), 13);
        assert_eq!(largest_pass(1_000, 2, MAX_PASS), MAX_PASS);
    }
}
