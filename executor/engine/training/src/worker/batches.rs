//! A worker's own examples of each step.

use muster_compute::data::{
    BatchSizeError, BatchTargetsMut, DatasetSplits, ExampleShard, Examples, GlobalBatches,
    LearningTask, slice,
};
use muster_compute::model::{Batch, BatchTargets, Network, RandomKey};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Smallest number of values in a batch for which a prefetch thread pays. Filling them takes about
/// as long as handing a batch to the thread and back.
const FILLED_AT_ONCE: usize = 1 << 17;

/// Memory for some examples and their targets.
#[derive(Debug, Clone)]
pub struct Buffers {
    inputs: Vec<f32>,
    answers: BufferTargets,
    /// Values per example.
    input_len: usize,
    target_len: usize,
}

#[derive(Debug, Clone)]
enum BufferTargets {
    Classes(Vec<u32>),
    Values(Vec<f32>),
    /// The inputs themselves, because the network is an autoencoder.
    Inputs,
}

impl Buffers {
    /// Creates buffers for up to `examples` examples of `data`, in the form that `network` reads.
    #[must_use]
    pub fn new(network: &Network, data: &DatasetSplits, examples: usize) -> Self {
        let (input_len, target_len) = (data.input.len(), network.targets());
        let answers = match data.task {
            _ if network.wants_classes() => BufferTargets::Classes(vec![0; examples * target_len]),
            LearningTask::Classify { .. } => BufferTargets::Inputs,
            LearningTask::Regress { .. } => BufferTargets::Values(vec![0.0; examples * target_len]),
        };
        Self {
            inputs: vec![0.0; examples * input_len],
            answers,
            input_len,
            target_len,
        }
    }

    /// Loads the examples at `indices` for the network.
    pub fn load(&mut self, examples: &Examples, indices: &[u32], draw: RandomKey) -> Batch<'_> {
        self.fill(examples, indices, draw);
        self.batch(0..indices.len(), draw)
    }

    fn fill(&mut self, examples: &Examples, indices: &[u32], draw: RandomKey) {
        let count = indices.len();
        let inputs = &mut self.inputs[..count * self.input_len];
        let len = count * self.target_len;
        match &mut self.answers {
            BufferTargets::Classes(classes) => examples.fill(indices, inputs, &mut classes[..len]),
            BufferTargets::Values(values) => {
                examples.fill(indices, inputs, BatchTargetsMut::Values(&mut values[..len]));
            }
            BufferTargets::Inputs => examples.fill_inputs(indices, inputs),
        }
        examples.augment(inputs, draw);
    }

    /// Returns these examples of the last fill, whose first example has `draw`.
    fn batch(&self, range: Range<usize>, draw: RandomKey) -> Batch<'_> {
        let inputs = &self.inputs[range.start * self.input_len..range.end * self.input_len];
        let own = range.start * self.target_len..range.end * self.target_len;
        let targets = match &self.answers {
            BufferTargets::Classes(classes) => BatchTargets::Classes(&classes[own]),
            BufferTargets::Values(values) => BatchTargets::Values(&values[own]),
            BufferTargets::Inputs => BatchTargets::Values(inputs),
        };
        let first = draw.first + range.start as u64;
        Batch {
            inputs,
            targets,
            draw: RandomKey { first, ..draw },
        }
    }
}

/// Rule for the number of examples of an update over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateSize {
    /// One batch.
    Batch,
    /// One batch for `base` workers, and more in proportion to the workers beyond them.
    Growing { base: usize },
    /// This number of examples, with any number of workers.
    Chosen { examples: usize },
}

impl UpdateSize {
    /// Whether the place of an update in the data is the number of examples before it. Otherwise it
    /// is the step.
    fn counts_examples(self) -> bool {
        self != Self::Batch
    }
}

/// A worker's examples of each update, and their random draws.
#[derive(Debug, Clone)]
struct WorkerShare {
    global: GlobalBatches,
    rank: usize,
    workers: usize,
    size: UpdateSize,
    seed: u64,
    /// Set where each worker trains on a data shard of its own instead of a part of one batch.
    skew: Option<Skew>,
}

/// Data shards skewed by class, and this worker's shard.
#[derive(Debug, Clone)]
struct Skew {
    labels: Arc<[u32]>,
    alpha: f64,
    own: ExampleShard,
}

impl WorkerShare {
    /// Returns the number of examples of an update over all workers.
    fn update(&self) -> usize {
        let batch = self.global.batch();
        match self.size {
            UpdateSize::Batch => batch,
            UpdateSize::Growing { base } => batch * self.workers.max(base) / base.max(1),
            UpdateSize::Chosen { examples } => examples,
        }
    }

    /// Returns this worker's range of an update's examples.
    fn part(&self) -> Range<usize> {
        slice(self.update(), self.rank, self.workers)
    }

    /// Returns the place that follows `place`.
    fn after(&self, place: u64) -> u64 {
        if self.size.counts_examples() {
            place + self.update() as u64
        } else {
            place + 1
        }
    }

    fn draw(&self, place: u64) -> RandomKey {
        let batch = self.global.batch() as u64;
        let (step, within) = if self.size.counts_examples() {
            (place / batch, place % batch)
        } else {
            (place, 0)
        };
        RandomKey {
            seed: self.seed,
            step,
            first: within + self.part().start as u64,
        }
    }

    fn fill(&mut self, buffers: &mut Buffers, examples: &Examples, place: u64) {
        let (draw, part) = (self.draw(place), self.part());
        if let Some(skew) = &mut self.skew {
            buffers.fill(examples, skew.own.indices(place), draw);
        } else if self.size.counts_examples() {
            let own = self.global.span(place + part.start as u64, part.len());
            buffers.fill(examples, &own, draw);
        } else {
            buffers.fill(examples, &self.global.indices(place)[part], draw);
        }
    }
}

/// One worker's part of each update's examples. A thread fills the next part while the present one
/// is in use, where filling takes longer than the handover. The bits do not depend on the thread.
///
/// The place of an update in the data is its step. Where the size of updates changes, the place is
/// the number of examples before the update.
#[derive(Debug)]
pub struct Batches {
    share: WorkerShare,
    buffers: Buffers,
    ahead: Option<BatchPrefetcher>,
}

impl Batches {
    /// Creates the batches of worker `rank` of `workers`.
    #[must_use]
    pub fn new(
        global: GlobalBatches,
        seed: u64,
        rank: usize,
        workers: usize,
        buffers: impl FnOnce(usize) -> Buffers,
    ) -> Self {
        let share = WorkerShare {
            global,
            rank,
            workers,
            size: UpdateSize::Batch,
            seed,
            skew: None,
        };
        Self {
            buffers: buffers(share.part().len()),
            share,
            ahead: None,
        }
    }

    /// Gives updates another size than one batch.
    #[must_use]
    pub fn sized(mut self, size: UpdateSize, buffers: impl FnOnce(usize) -> Buffers) -> Self {
        self.share.size = size;
        self.buffers = buffers(self.examples());
        self
    }

    /// Gives each worker a data shard of its own, with classes skewed by the concentration `alpha`.
    /// `labels` are those of all examples; this is worker `rank` of `workers`.
    #[must_use]
    pub fn skewed(mut self, labels: &[u32], alpha: f64, rank: usize, workers: usize) -> Self {
        let share = &mut self.share;
        let part = share.part().len();
        let own = ExampleShard::new(labels, alpha, share.seed, (rank, workers), part);
        share.skew = Some(Skew {
            labels: labels.into(),
            alpha,
            own,
        });
        self
    }

    /// Continues the same data as worker `rank` of another number of workers. Where the size of an
    /// update is chosen, it is `chosen` from now on, if given.
    pub fn recut(
        &mut self,
        (rank, workers): (usize, usize),
        chosen: Option<usize>,
        buffers: impl FnOnce(usize) -> Buffers,
    ) {
        let share = &mut self.share;
        let before = share.part().len();
        (share.rank, share.workers) = (rank, workers);
        if let (UpdateSize::Chosen { examples }, Some(chosen)) = (&mut share.size, chosen) {
            *examples = chosen;
        }
        let part = share.part().len();
        if part != before {
            self.buffers = buffers(part);
        }
        if let Some(skew) = &mut share.skew {
            let place = (rank, workers);
            skew.own = ExampleShard::new(&skew.labels, skew.alpha, share.seed, place, part);
        }
        // The thread fills the old part; the next step starts a new one.
        self.ahead = None;
    }

    /// Returns the number of this worker's examples per update.
    #[must_use]
    pub fn examples(&self) -> usize {
        self.share.part().len()
    }

    /// Returns the number of all workers' examples per update.
    #[must_use]
    pub fn update(&self) -> usize {
        self.share.update()
    }

    /// Loads this worker's part of the update at `place`. All calls must pass the same examples.
    pub fn load(&mut self, examples: &Examples, place: u64) -> Batch<'_> {
        let loaded = match &mut self.ahead {
            Some(ahead) => ahead.take(place, &mut self.buffers),
            None => false,
        };
        if !loaded {
            self.share.fill(&mut self.buffers, examples, place);
        }
        if self.ahead.is_none() && self.is_worth_a_thread(examples) {
            self.ahead = BatchPrefetcher::start(&self.share, &self.buffers, examples);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.begin(self.share.after(place));
        }
        self.buffers
            .batch(0..self.examples(), self.share.draw(place))
    }

    /// Copies the batches for another thread, which takes updates in its own order: see
    /// [`Self::load_now`].
    #[must_use]
    pub fn twin(&self) -> Self {
        Self {
            share: self.share.clone(),
            buffers: self.buffers.clone(),
            ahead: None,
        }
    }

    /// Loads this worker's part of the update at `place` without prefetching the next one, whose
    /// place is not known.
    pub fn load_now(&mut self, examples: &Examples, place: u64) -> Batch<'_> {
        self.share.fill(&mut self.buffers, examples, place);
        self.loaded(place)
    }

    /// Returns the part of `step`, which must be the last one loaded, once more.
    #[must_use]
    pub fn loaded(&self, step: u64) -> Batch<'_> {
        self.loaded_part(step, 0..self.examples())
    }

    /// Like [`Self::loaded`], for these examples of the part.
    #[must_use]
    pub fn loaded_part(&self, step: u64, range: Range<usize>) -> Batch<'_> {
        self.buffers.batch(range, self.share.draw(step))
    }

    /// Returns the number of whole batches in an epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.share.global.steps_per_epoch()
    }

    fn is_worth_a_thread(&self, examples: &Examples) -> bool {
        examples.is_augmented() || self.buffers.inputs.len() >= FILLED_AT_ONCE
    }
}

/// A thread that fills the next batch.
#[derive(Debug)]
struct BatchPrefetcher {
    /// `None` only while the thread ends.
    places: Option<SyncSender<(u64, Buffers)>>,
    filled: Receiver<(u64, Buffers)>,
    /// Memory for the next batch; `None` while the thread has it.
    spare: Option<Buffers>,
    thread: Option<JoinHandle<()>>,
}

impl BatchPrefetcher {
    /// Returns `None` if no thread can be started. Training works without it.
    fn start(share: &WorkerShare, buffers: &Buffers, examples: &Examples) -> Option<Self> {
        let (places, asked) = sync_channel::<(u64, Buffers)>(1);
        let (done, filled) = sync_channel(1);
        let (mut share, examples) = (share.clone(), examples.clone());
        let thread = thread::Builder::new()
            .name("prefetch".to_owned())
            .spawn(move || {
                for (place, mut buffers) in asked {
                    share.fill(&mut buffers, &examples, place);
                    if done.send((place, buffers)).is_err() {
                        return;
                    }
                }
            })
            .ok()?;
        Some(Self {
            places: Some(places),
            filled,
            spare: Some(buffers.clone()),
            thread: Some(thread),
        })
    }

    /// Asks the thread to fill the batch of the update at `place`.
    fn begin(&mut self, place: u64) {
        if let (Some(places), Some(buffers)) = (&self.places, self.spare.take()) {
            // The thread ends only when this value is dropped.
            places
                .send((place, buffers))
                .expect("the prefetching thread");
        }
    }

    /// Moves the batch of the update at `place` into `buffers`. Returns `false` if the thread was
    /// asked for another one.
    fn take(&mut self, place: u64, buffers: &mut Buffers) -> bool {
        if self.spare.is_some() {
            return false;
        }
        let (filled, mut ready) = self.filled.recv().expect("the prefetching thread");
        if filled == place {
            mem::swap(buffers, &mut ready);
        }
        self.spare = Some(ready);
        filled == place
    }
}

impl Drop for BatchPrefetcher {
    fn drop(&mut self) {
        self.places = None;
        if let Some(thread) = self.thread.take() {
            // A thread that fails has already reported its panic.
            drop(thread.join());
        }
    }
}

/// Returns the batches of a run over `examples` training examples.
///
/// # Errors
/// When `examples` is less than one whole batch.
pub fn global(seed: u64, examples: usize, batch: usize) -> Result<GlobalBatches, BatchSizeError> {
    GlobalBatches::new(seed, examples, batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_compute::data;
    use muster_compute::model::{ExampleShape, zoo};

    const COLUMNS: usize = FILLED_AT_ONCE / 8;

    fn dataset() -> DatasetSplits {
        let inputs: Vec<f32> = (0..30 * COLUMNS).map(|i| i as f32).collect();
        let targets = data::ExampleTargets::Classes((0..30).map(|i| i % 3).collect());
        let examples = Examples::numbers(30, inputs, targets);
        DatasetSplits {
            input: ExampleShape::Row { columns: COLUMNS },
            task: LearningTask::Classify { classes: 3 },
            train: examples.clone(),
            test: examples,
        }
    }

    /// Returns the first value of each example, its class, and the draw.
    fn seen(batch: &Batch<'_>) -> (Vec<f32>, Vec<u32>, RandomKey) {
        let BatchTargets::Classes(classes) = batch.targets else {
            panic!("classes");
        };
        let firsts = batch.inputs.iter().step_by(COLUMNS).copied();
        (firsts.collect(), classes.to_vec(), batch.draw)
    }

    /// Batches of `batch` examples of one data set.
    struct BatchSource {
        data: DatasetSplits,
        network: Network,
        batch: usize,
    }

    impl BatchSource {
        fn of(batch: usize) -> Self {
            let data = dataset();
            let network = zoo::mlp(data.input, &[], 3).unwrap();
            Self {
                data,
                network,
                batch,
            }
        }

        fn buffers(&self, examples: usize) -> Buffers {
            Buffers::new(&self.network, &self.data, examples)
        }

        fn batches(&self, rank: usize, workers: usize) -> Batches {
            let global = global(5, 30, self.batch).unwrap();
            Batches::new(global, 5, rank, workers, |examples| self.buffers(examples))
        }

        /// Returns a batch that a new worker fills on demand.
        fn fresh(&self, step: u64, rank: usize, workers: usize) -> (Vec<f32>, Vec<u32>, RandomKey) {
            let mut batches = self.batches(rank, workers);
            seen(&batches.load(&self.data.train, step))
        }
    }

    #[test]
    fn prefetched_batch_equals_batch_filled_on_demand() {
        let source = BatchSource::of(8);
        let data = &source.data;
        let mut batches = source.batches(0, 1);
        // Across the end of an epoch, backwards after a resume, forwards, and as another worker.
        for step in [0, 1, 2, 3, 4, 1, 2, 9] {
            let batch = seen(&batches.load(&data.train, step));
            assert_eq!(batch, source.fresh(step, 0, 1), "step {step}");
            assert!(batches.ahead.is_some(), "large batches are filled ahead");
        }
        batches.recut((1, 2), None, |examples| source.buffers(examples));
        for step in [10, 11] {
            let batch = seen(&batches.load(&data.train, step));
            assert_eq!(batch, source.fresh(step, 1, 2));
        }
        batches.recut((0, 1), None, |examples| source.buffers(examples));
        let batch = seen(&batches.load(&data.train, 12));
        assert_eq!(batch, source.fresh(12, 0, 1));
    }

    /// Across a resize and the ends of epochs. The parts of the workers are consecutive; with the
    /// base number of workers they are the batches.
    #[test]
    fn growing_updates_use_every_example_in_order() {
        let source = BatchSource::of(6);
        let data = &source.data;
        let mut plain = source.batches(0, 1);
        let expected: Vec<f32> = (0..12)
            .flat_map(|step| seen(&plain.load(&data.train, step)).0)
            .collect();
        let mut taken = Vec::new();
        for workers in [2, 3, 3, 5, 2, 1] {
            let place = taken.len();
            let mut update = 0;
            for rank in 0..workers {
                let grown = source.batches(rank, workers);
                let size = UpdateSize::Growing { base: 2 };
                let mut grown = grown.sized(size, |examples| source.buffers(examples));
                update = grown.update();
                let batch = grown.load(&data.train, place as u64);
                taken.extend(seen(&batch).0);
            }
            assert_eq!(update, 3 * workers.max(2));
            assert_eq!(taken.len(), place + update);
        }
        assert_eq!(taken, expected[..taken.len()]);
        // Each example has the random draw that it has in a single batch.
        let grown = source.batches(1, 2);
        let size = UpdateSize::Growing { base: 2 };
        let mut grown = grown.sized(size, |examples| source.buffers(examples));
        let mut plain = source.batches(1, 2);
        for step in [0, 4, 5] {
            let batch = seen(&grown.load(&data.train, 6 * step));
            assert_eq!(batch, seen(&plain.load(&data.train, step)));
        }
    }

    /// Two workers train with chosen sizes, of which one spans two epochs. Their parts tile the
    /// data, for any sizes, and with or without a prefetched part of the old size.
    #[test]
    fn chosen_updates_use_every_example_in_order() {
        let source = BatchSource::of(6);
        let data = &source.data;
        let mut plain = source.batches(0, 1);
        let expected: Vec<f32> = (0..15)
            .flat_map(|step| seen(&plain.load(&data.train, step)).0)
            .collect();
        let size = UpdateSize::Chosen { examples: 6 };
        let mut workers: Vec<Batches> = (0..2)
            .map(|rank| {
                let batches = source.batches(rank, 2);
                batches.sized(size, |examples| source.buffers(examples))
            })
            .collect();
        let mut taken = Vec::new();
        for chosen in [6, 6, 17, 29, 29, 3] {
            let place = taken.len();
            for (rank, own) in workers.iter_mut().enumerate() {
                if own.update() != chosen {
                    own.recut((rank, 2), Some(chosen), |examples| source.buffers(examples));
                }
                assert_eq!(own.update(), chosen);
                taken.extend(seen(&own.load(&data.train, place as u64)).0);
            }
            assert_eq!(taken.len(), place + chosen);
        }
        assert_eq!(taken, expected[..taken.len()]);
    }

    /// The size is that of the rule where no size is chosen.
    #[test]
    fn only_chosen_sizes_change() {
        let source = BatchSource::of(6);
        let mut batches = source.batches(0, 1);
        batches.recut((0, 2), Some(12), |examples| source.buffers(examples));
        assert_eq!((batches.update(), batches.examples()), (6, 3));
    }
}
