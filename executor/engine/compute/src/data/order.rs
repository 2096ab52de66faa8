//! Order of the examples: a permutation per epoch, cut into batches of constant size, which are cut
//! into slices of the workers.
//!
//! The rest of an epoch after its last whole batch is dropped, so that every step has the same
//! batch size and gradient scale. Each epoch has its own permutation and therefore drops other
//! examples.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::Range;

/// Separates the use of a seed for the order from its use for initial parameters.
const DOMAIN: [u8; 16] = *b"muster order v1\0";

/// Permutation of the training examples, derived from (seed, epoch).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochOrder(Vec<u32>);

impl EpochOrder {
    /// Fisher and Yates' shuffle with ChaCha12, keyed by the seed, with the epoch as its stream.
    /// The result is the same on every machine.
    ///
    /// # Panics
    /// If there are more than 2³² examples.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, examples: usize) -> Self {
        let examples = u32::try_from(examples).expect("an index of an example is 32 bits wide");
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..24].copy_from_slice(&DOMAIN);
        let mut rng = ChaCha12Rng::from_seed(key);
        rng.set_stream(epoch);
        let mut order: Vec<u32> = (0..examples).collect();
        for i in (1..examples).rev() {
            order.swap(i as usize, below(&mut rng, i + 1) as usize);
        }
        Self(order)
    }

    /// Returns the indices of the examples in the order of the epoch.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

/// Returns the order in which rows of a data set are distributed to training and test; it is the
/// same for every job.
pub(super) fn deal(rows: usize) -> Vec<u32> {
    EpochOrder::new(0, u64::MAX, rows).0
}

/// Uniform below `bound`, without bias (Lemire, 2019).
fn below(rng: &mut ChaCha12Rng, bound: u32) -> u32 {
    let threshold = bound.wrapping_neg() % bound;
    loop {
        let product = u64::from(rng.next_u32()) * u64::from(bound);
        if product as u32 >= threshold {
            return (product >> 32) as u32;
        }
    }
}

/// Position of a step in the data. Both fields count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochPosition {
    pub epoch: u64,
    /// Number of the batch within the epoch.
    pub batch: u64,
}

/// Batch size that does not fit the data set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a batch of {batch} examples from a training set of {examples}; it must be 1 to {examples}"
)]
pub struct BatchSizeError {
    pub batch: usize,
    pub examples: usize,
}

/// Global batches of a run, by step. Caches the order of one epoch, because steps are mostly
/// requested in order.
#[derive(Debug, Clone)]
pub struct GlobalBatches {
    seed: u64,
    examples: usize,
    batch: usize,
    current: Option<(u64, EpochOrder)>,
}

impl GlobalBatches {
    /// Batches of `batch` out of `examples` training examples.
    ///
    /// # Errors
    /// If no whole batch fits into the examples, or `batch` is 0.
    pub fn new(seed: u64, examples: usize, batch: usize) -> Result<Self, BatchSizeError> {
        if batch == 0 || batch > examples {
            return Err(BatchSizeError { batch, examples });
        }
        Ok(Self {
            seed,
            examples,
            batch,
            current: None,
        })
    }

    /// Number of examples in a batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Number of whole batches in an epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        (self.examples / self.batch) as u64
    }

    #[must_use]
    pub fn position(&self, step: u64) -> EpochPosition {
        let steps = self.steps_per_epoch();
        EpochPosition {
            epoch: step / steps,
            batch: step % steps,
        }
    }

    /// Returns the indices of the examples of `step`'s global batch, always `batch` of them. A new
    /// epoch shuffles all examples.
    pub fn indices(&mut self, step: u64) -> &[u32] {
        let EpochPosition { epoch, batch } = self.position(step);
        let first = batch as usize * self.batch;
        let count = self.batch;
        &self.epoch(epoch)[first..][..count]
    }

    /// Returns the indices of the `count` examples from place `first` on, in the concatenation of
    /// the batches of all steps. Updates of another size than a batch use it; they may begin within
    /// a batch and span epochs.
    pub fn span(&mut self, first: u64, count: usize) -> Vec<u32> {
        let per_epoch = self.steps_per_epoch() * self.batch as u64;
        let mut indices = Vec::with_capacity(count);
        while indices.len() < count {
            let at = first + indices.len() as u64;
            // Both are below the number of examples.
            let (within, left) = ((at % per_epoch) as usize, count - indices.len());
            let end = (within + left).min(per_epoch as usize);
            indices.extend_from_slice(&self.epoch(at / per_epoch)[within..end]);
        }
        indices
    }

    fn epoch(&mut self, epoch: u64) -> &[u32] {
        let (_, order) = match self.current.take() {
            Some(current) if current.0 == epoch => self.current.insert(current),
            _ => self
                .current
                .insert((epoch, EpochOrder::new(self.seed, epoch, self.examples))),
        };
        order.as_slice()
    }
}

/// Returns the part of a global batch of `batch` examples that worker `rank` of `workers` computes.
/// Parts differ by at most one example, are ordered by rank, and cover the batch. With more workers
/// than examples some parts are empty.
///
/// # Panics
/// If `rank` is not below `workers`.
#[must_use]
pub fn slice(batch: usize, rank: usize, workers: usize) -> Range<usize> {
    assert!(rank < workers, "rank {rank} of {workers} workers");
    let [start, end] =
        [rank, rank + 1].map(|rank| (rank as u128 * batch as u128 / workers as u128) as usize);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn epoch_order_is_a_permutation(seed: u64, epoch: u64, examples in 0usize..3000) {
            let order = EpochOrder::new(seed, epoch, examples);
            let mut sorted = order.as_slice().to_vec();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..examples as u32).collect::<Vec<_>>());
        }

        #[test]
        fn examples_occur_at_most_once_per_epoch(seed: u64, examples in 1usize..500, batch in 1usize..100, epoch in 0u64..1000) {
            prop_assume!(batch <= examples);
            let mut batches = GlobalBatches::new(seed, examples, batch).unwrap();
            let steps = batches.steps_per_epoch();
            let mut seen = vec![false; examples];
            for step in epoch * steps..(epoch + 1) * steps {
                let expected = EpochPosition { epoch, batch: step - epoch * steps };
                prop_assert_eq!(batches.position(step), expected);
                let indices = batches.indices(step).to_vec();
                prop_assert_eq!(indices.len(), batch);
                for index in indices {
                    prop_assert!(!std::mem::replace(&mut seen[index as usize], true));
                }
            }
            prop_assert!(seen.iter().filter(|seen| !**seen).count() < batch);
        }

        #[test]
        fn spans_equal_concatenated_batches(seed: u64, counts in prop::collection::vec(0usize..250, 1..12)) {
            let mut batches = GlobalBatches::new(seed, 97, 10).unwrap();
            let total: usize = counts.iter().sum();
            let mut expected = Vec::new();
            for step in 0..=(total / 10) as u64 {
                expected.extend_from_slice(batches.indices(step));
            }
            let mut first = 0;
            for count in counts {
                prop_assert_eq!(batches.span(first as u64, count), &expected[first..first + count]);
                first += count;
            }
        }

        #[test]
        fn resumed_run_continues_the_order(seed: u64, steps in prop::collection::vec(0u64..200, 1..20)) {
            let mut jumping = GlobalBatches::new(seed, 97, 10).unwrap();
            for step in steps {
                let mut fresh = GlobalBatches::new(seed, 97, 10).unwrap();
                prop_assert_eq!(jumping.indices(step), fresh.indices(step));
            }
        }

        #[test]
        fn slices_partition_the_batch(batch in 0usize..5000, workers in 1usize..200) {
            let mut next = 0;
            for rank in 0..workers {
                let part = slice(batch, rank, workers);
                prop_assert_eq!(part.start, next);
                prop_assert!(part.len() == batch / workers || part.len() == batch.div_ceil(workers));
                next = part.end;
            }
            prop_assert_eq!(next, batch);
        }
    }

    #[test]
    fn orders_differ_between_epochs_and_seeds() {
        let order = EpochOrder::new(1, 0, 1000);
        assert_ne!(order, EpochOrder::new(1, 1, 1000));
        assert_ne!(order, EpochOrder::new(2, 0, 1000));
    }

    /// Pinned, because a checkpoint of an older release must resume with the same order.
    #[test]
    fn order_of_a_seed_is_pinned() {
        assert_eq!(
            EpochOrder::new(7, 3, 10).as_slice(),
            [3, 8, 2, 5, 7, 6, 0, 9, 1, 4]
        );
    }

    #[test]
    fn shuffle_positions_are_uniform() {
        let mut counts = [[0_u32; 5]; 5];
        for epoch in 0..20_000 {
            for (position, &example) in EpochOrder::new(9, epoch, 5).as_slice().iter().enumerate() {
                counts[position][example as usize] += 1;
            }
        }
        // 4,000 are expected in each cell, with a standard deviation of 57.
        assert!(
            counts
                .iter()
                .flatten()
                .all(|count| count.abs_diff(4000) < 285),
            "{counts:?}"
        );
    }

    #[test]
    fn batch_that_does_not_fit_is_rejected() {
        for (examples, batch) in [(10, 0), (10, 11), (0, 1)] {
            assert_eq!(
                GlobalBatches::new(1, examples, batch).unwrap_err(),
                BatchSizeError { batch, examples }
            );
        }
        assert_eq!(GlobalBatches::new(1, 10, 10).unwrap().steps_per_epoch(), 1);
    }
}
