//! Division of an operation's work among threads such that the bits do not depend on their number.
//!
//! Work is cut into items by shapes alone. Sums over items are added in the order of the items.

use super::math::add;
use super::matrix::WriteMode;
use super::operands::ThreadScratch;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Approximate number of elements per item of memory-bound work: 256 KiB, large compared with the
/// cost of scheduling an item.
const ITEM: usize = 1 << 16;

/// Number of examples per item of work when an example has `numbers` elements.
pub(crate) fn examples_per_item(numbers: usize) -> usize {
    (ITEM / numbers.max(1)).max(1)
}

/// Runs `work` for each item. The items write to disjoint memory.
pub(crate) fn each<T: Send>(
    threads: usize,
    items: impl Iterator<Item = T>,
    work: impl Fn(T) + Sync,
) {
    if threads == 1 {
        items.for_each(work);
    } else {
        let items: Vec<T> = items.collect();
        items.into_par_iter().for_each(&work);
    }
}

/// Runs `work` for each item with a thread's scratch, as many items at a time as there are threads.
/// After each wave, `done` is called on its scratches in the order of the items.
pub(crate) fn waves<T: Send>(
    lanes: &mut [ThreadScratch],
    mut items: impl Iterator<Item = T>,
    work: impl Fn(T, &mut ThreadScratch) + Sync,
    mut done: impl FnMut(&mut ThreadScratch),
) {
    if let [lane] = lanes {
        for item in items {
            work(item, lane);
            done(lane);
        }
        return;
    }
    loop {
        let wave: Vec<_> = lanes.iter_mut().zip(items.by_ref()).collect();
        let used = wave.len();
        if used == 0 {
            return;
        }
        wave.into_par_iter()
            .for_each(|(lane, item)| work(item, lane));
        lanes[..used].iter_mut().for_each(&mut done);
    }
}

/// Writes or adds a thread's part of a gradient.
pub(crate) fn accumulate(sum: &mut [f32], part: &[f32], write: WriteMode) {
    match write {
        WriteMode::Overwrite => sum.copy_from_slice(part),
        WriteMode::Add => add(sum, part),
    }
}
