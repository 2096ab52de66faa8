//! A worker's own examples of each step.

use crate::data::{Dataset, Examples, GlobalBatches, OrderError, Shard, TargetsMut, Task, slice};
use crate::model::{Batch, Draw, Network, Targets};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Numbers of a batch that are filled in about as long as it takes to hand a batch to a thread and back.
const FILLED_AT_ONCE: usize = 1 << 17;

/// Memory for some examples and what the network should say of them.
#[derive(Debug, Clone)]
pub struct Buffers {
    inputs: Vec<f32>,
    answers: Answers,
    /// Numbers per example.
    input_len: usize,
    target_len: usize,
}

#[derive(Debug, Clone)]
enum Answers {
    Classes(Vec<u32>),
    Values(Vec<f32>),
    /// The inputs themselves: the network is an autoencoder.
    Inputs,
}

impl Buffers {
    /// For up to `examples` examples of `data`, as `network` reads them.
    #[must_use]
    pub fn new(network: &Network, data: &Dataset, examples: usize) -> Self {
        let (input_len, target_len) = (data.input.len(), network.targets());
        let answers = match data.task {
            _ if network.wants_classes() => Answers::Classes(vec![0; examples * target_len]),
            Task::Classify { .. } => Answers::Inputs,
            Task::Regress { .. } => Answers::Values(vec![0.0; examples * target_len]),
        };
        Self {
            inputs: vec![0.0; examples * input_len],
            answers,
            input_len,
            target_len,
        }
    }

    /// The examples at `indices`, for the network.
    pub fn load(&mut self, examples: &Examples, indices: &[u32], draw: Draw) -> Batch<'_> {
        self.fill(examples, indices, draw);
        self.batch(indices.len(), draw)
    }

    fn fill(&mut self, examples: &Examples, indices: &[u32], draw: Draw) {
        let count = indices.len();
        let inputs = &mut self.inputs[..count * self.input_len];
        let len = count * self.target_len;
        match &mut self.answers {
            Answers::Classes(classes) => examples.fill(indices, inputs, &mut classes[..len]),
            Answers::Values(values) => {
                examples.fill(indices, inputs, TargetsMut::Values(&mut values[..len]));
            }
            Answers::Inputs => examples.fill_inputs(indices, inputs),
        }
        examples.augment(inputs, draw);
    }

    /// The first `count` examples that it was filled with.
    fn batch(&self, count: usize, draw: Draw) -> Batch<'_> {
        let inputs = &self.inputs[..count * self.input_len];
        let len = count * self.target_len;
        let targets = match &self.answers {
            Answers::Classes(classes) => Targets::Classes(&classes[..len]),
            Answers::Values(values) => Targets::Values(&values[..len]),
            Answers::Inputs => Targets::Values(inputs),
        };
        Batch {
            inputs,
            targets,
            draw,
        }
    }
}

/// Which examples a worker has of each update, and what is drawn for them.
#[derive(Debug, Clone)]
struct Share {
    global: GlobalBatches,
    rank: usize,
    workers: usize,
    /// Workers whose update has one batch, where it grows with their number.
    base: Option<usize>,
    seed: u64,
    /// Where workers train on shards of their own in place of parts of one batch.
    skew: Option<Skew>,
}

/// Shards by class, and this worker's own.
#[derive(Debug, Clone)]
struct Skew {
    labels: Arc<[u32]>,
    alpha: f64,
    own: Shard,
}

impl Share {
    /// Examples of an update over all workers.
    fn update(&self) -> usize {
        let batch = self.global.batch();
        let base = self.base.map(|base| base.max(1));
        base.map_or(batch, |base| batch * self.workers.max(base) / base)
    }

    /// This worker's of them.
    fn part(&self) -> Range<usize> {
        slice(self.update(), self.rank, self.workers)
    }

    /// The place after that of an update.
    fn after(&self, place: u64) -> u64 {
        place + self.base.map_or(1, |_| self.update() as u64)
    }

    fn draw(&self, place: u64) -> Draw {
        let batch = self.global.batch() as u64;
        let (step, within) = match self.base {
            Some(_) => (place / batch, place % batch),
            None => (place, 0),
        };
        Draw {
            seed: self.seed,
            step,
            first: within + self.part().start as u64,
        }
    }

    fn fill(&mut self, buffers: &mut Buffers, examples: &Examples, place: u64) {
        let (draw, part) = (self.draw(place), self.part());
        match (&mut self.skew, self.base) {
            (Some(skew), _) => buffers.fill(examples, skew.own.indices(place), draw),
            (None, None) => buffers.fill(examples, &self.global.indices(place)[part], draw),
            (None, Some(_)) => {
                let own = self.global.span(place + part.start as u64, part.len());
                buffers.fill(examples, &own, draw);
            }
        }
    }
}

/// One worker's part of each update's examples. The next one's are filled in by a thread while this one's are computed with, where that
/// takes longer than handing them over; the bits are the same.
///
/// An update's place in the data is its step; where updates grow with the workers, it is the number of examples before it.
#[derive(Debug)]
pub struct Batches {
    share: Share,
    buffers: Buffers,
    ahead: Option<Ahead>,
}

impl Batches {
    /// For worker `rank` of `workers`.
    #[must_use]
    pub fn new(
        global: GlobalBatches,
        seed: u64,
        rank: usize,
        workers: usize,
        buffers: impl FnOnce(usize) -> Buffers,
    ) -> Self {
        let share = Share {
            global,
            rank,
            workers,
            base: None,
            seed,
            skew: None,
        };
        Self {
            buffers: buffers(share.part().len()),
            share,
            ahead: None,
        }
    }

    /// Updates grow with the workers: those of `base` of them have one batch.
    #[must_use]
    pub fn growing(mut self, base: usize, buffers: impl FnOnce(usize) -> Buffers) -> Self {
        self.share.base = Some(base);
        self.buffers = buffers(self.examples());
        self
    }

    /// Workers train on shards of their own, whose classes are skewed by this concentration: `labels` are all examples', and this
    /// is worker `rank` of `workers`.
    #[must_use]
    pub fn skewed(mut self, labels: &[u32], alpha: f64, rank: usize, workers: usize) -> Self {
        let share = &mut self.share;
        let part = share.part().len();
        let own = Shard::new(labels, alpha, share.seed, (rank, workers), part);
        share.skew = Some(Skew {
            labels: labels.into(),
            alpha,
            own,
        });
        self
    }

    /// The same batches, as worker `rank` of another number of workers.
    pub fn recut(&mut self, rank: usize, workers: usize, buffers: impl FnOnce(usize) -> Buffers) {
        let share = &mut self.share;
        let before = share.part().len();
        (share.rank, share.workers) = (rank, workers);
        let part = share.part().len();
        if part != before {
            self.buffers = buffers(part);
        }
        if let Some(skew) = &mut share.skew {
            let place = (rank, workers);
            skew.own = Shard::new(&skew.labels, skew.alpha, share.seed, place, part);
        }
        // What it fills is the old part; the next step begins another.
        self.ahead = None;
    }

    /// This worker's examples of each update.
    #[must_use]
    pub fn examples(&self) -> usize {
        self.share.part().len()
    }

    /// All workers' examples of each update.
    #[must_use]
    pub fn update(&self) -> usize {
        self.share.update()
    }

    /// The part of the update at `place`. All calls are about the same examples.
    pub fn load(&mut self, examples: &Examples, place: u64) -> Batch<'_> {
        let loaded = match &mut self.ahead {
            Some(ahead) => ahead.take(place, &mut self.buffers),
            None => false,
        };
        if !loaded {
            self.share.fill(&mut self.buffers, examples, place);
        }
        if self.ahead.is_none() && self.is_worth_a_thread(examples) {
            self.ahead = Ahead::start(&self.share, &self.buffers, examples);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.begin(self.share.after(place));
        }
        self.buffers.batch(self.examples(), self.share.draw(place))
    }

    /// The same batches for another thread, which takes updates in an order of its own: see [`Self::load_now`].
    #[must_use]
    pub fn twin(&self) -> Self {
        Self {
            share: self.share.clone(),
            buffers: self.buffers.clone(),
            ahead: None,
        }
    }

    /// The part of the update at `place`; which one comes next is not known, so nobody fills it beforehand.
    pub fn load_now(&mut self, examples: &Examples, place: u64) -> Batch<'_> {
        self.share.fill(&mut self.buffers, examples, place);
        self.loaded(place)
    }

    /// The part of `step` once more, which was loaded last.
    #[must_use]
    pub fn loaded(&self, step: u64) -> Batch<'_> {
        self.buffers.batch(self.examples(), self.share.draw(step))
    }

    /// Whole batches in an epoch.
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
struct Ahead {
    /// `None` only while it ends.
    places: Option<SyncSender<(u64, Buffers)>>,
    filled: Receiver<(u64, Buffers)>,
    /// Where the next batch goes; `None` while the thread has it.
    spare: Option<Buffers>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// `None` when there can be no thread, which is no reason not to train.
    fn start(share: &Share, buffers: &Buffers, examples: &Examples) -> Option<Self> {
        let (places, asked) = sync_channel::<(u64, Buffers)>(1);
        let (done, filled) = sync_channel(1);
        let (mut share, examples) = (share.clone(), examples.clone());
        let fill = move || {
            for (place, mut buffers) in asked {
                share.fill(&mut buffers, &examples, place);
                if done.send((place, buffers)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("prefetch".to_owned())
            .spawn(fill)
            .ok()?;
        Some(Self {
            places: Some(places),
            filled,
            spare: Some(buffers.clone()),
            thread: Some(thread),
        })
    }

    /// Asks for the update's at `place`.
    fn begin(&mut self, place: u64) {
        if let (Some(places), Some(buffers)) = (&self.places, self.spare.take()) {
            // It ends only when this does.
            places
                .send((place, buffers))
                .expect("the prefetching thread");
        }
    }

    /// Puts the update's at `place` into `buffers`, if that is what was asked for.
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

impl Drop for Ahead {
    fn drop(&mut self) {
        self.places = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked already if it fails, and said so.
            drop(thread.join());
        }
    }
}

/// The batches of a run over `examples` training examples.
///
/// # Errors
/// When not even one whole batch fits.
pub fn global(seed: u64, examples: usize, batch: usize) -> Result<GlobalBatches, OrderError> {
    GlobalBatches::new(seed, examples, batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;
    use crate::model::{Input, zoo};

    const COLUMNS: usize = FILLED_AT_ONCE / 8;

    fn dataset() -> Dataset {
        let inputs: Vec<f32> = (0..30 * COLUMNS).map(|i| i as f32).collect();
        let targets = || data::Targets::Classes((0..30).map(|i| i % 3).collect());
        let examples = Examples::numbers(30, inputs, targets());
        Dataset {
            input: Input::Row { columns: COLUMNS },
            task: Task::Classify { classes: 3 },
            train: examples.clone(),
            test: examples,
        }
    }

    /// First number of each example, its class, and what is drawn.
    fn seen(batch: &Batch<'_>) -> (Vec<f32>, Vec<u32>, Draw) {
        let Targets::Classes(classes) = batch.targets else {
            panic!("classes");
        };
        let firsts = batch.inputs.iter().step_by(COLUMNS).copied();
        (firsts.collect(), classes.to_vec(), batch.draw)
    }

    #[test]
    fn a_batch_that_was_filled_ahead_is_the_one_that_would_have_been_filled() {
        let data = dataset();
        let network = zoo::mlp(data.input, &[], 3).unwrap();
        let new = |rank, workers| {
            let global = global(5, 30, 8).unwrap();
            let buffers = |examples| Buffers::new(&network, &data, examples);
            Batches::new(global, 5, rank, workers, buffers)
        };
        let fresh = |step, rank, workers| {
            let mut batches = new(rank, workers);
            seen(&batches.load(&data.train, step))
        };
        let mut batches = new(0, 1);
        // Over the end of an epoch, back after a resume, forward, and as another worker of another number.
        for step in [0, 1, 2, 3, 4, 1, 2, 9] {
            let batch = seen(&batches.load(&data.train, step));
            assert_eq!(batch, fresh(step, 0, 1), "step {step}");
            assert!(batches.ahead.is_some(), "large batches are filled ahead");
        }
        batches.recut(1, 2, |examples| Buffers::new(&network, &data, examples));
        for step in [10, 11] {
            assert_eq!(seen(&batches.load(&data.train, step)), fresh(step, 1, 2));
        }
        batches.recut(0, 1, |examples| Buffers::new(&network, &data, examples));
        assert_eq!(seen(&batches.load(&data.train, 12)), fresh(12, 0, 1));
    }

    /// Over a resize and the ends of epochs: the workers' parts follow one another, and with the base's workers they are the batches.
    #[test]
    fn updates_that_grow_with_the_workers_take_every_example_in_turn() {
        let data = dataset();
        let network = zoo::mlp(data.input, &[], 3).unwrap();
        let room = |examples| Buffers::new(&network, &data, examples);
        let new = |rank, workers| Batches::new(global(5, 30, 6).unwrap(), 5, rank, workers, room);
        let mut plain = new(0, 1);
        let expected: Vec<f32> = (0..12)
            .flat_map(|step| seen(&plain.load(&data.train, step)).0)
            .collect();
        let mut taken = Vec::new();
        for workers in [2, 3, 3, 5, 2, 1] {
            let place = taken.len();
            let mut update = 0;
            for rank in 0..workers {
                let mut grown = new(rank, workers).growing(2, room);
                update = grown.update();
                let batch = grown.load(&data.train, place as u64);
                taken.extend(seen(&batch).0);
            }
            assert_eq!(update, 3 * workers.max(2));
            assert_eq!(taken.len(), place + update);
        }
        assert_eq!(taken, expected[..taken.len()]);
        // What is drawn is what a single batch's examples would have drawn.
        let (mut grown, mut plain) = (new(1, 2).growing(2, room), new(1, 2));
        for step in [0, 4, 5] {
            let batch = seen(&grown.load(&data.train, 6 * step));
            assert_eq!(batch, seen(&plain.load(&data.train, step)));
        }
    }
}
