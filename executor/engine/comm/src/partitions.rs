//! Steps in partitions ("parts"): the range of each shard is cut into parts. Each part is sent to
//! the shard, applied and returned by itself, in the order in which the next forward pass needs the
//! parts.
//!
//! The backward pass produces the gradients of the last layers first; the next forward pass needs
//! the parameters of the first layers first. Whenever the connection is free, the ready part with
//! the lowest position is sent, so a part that becomes ready later overtakes waiting ones (TicTac,
//! Hashemi et al., MLSys 2019; ByteScheduler, Peng et al., SOSP 2019). A part is the unit of
//! preemption.
//!
//! Worker and shard both compute the cut from the view, so it is a pure function. This module does
//! not use sockets.

use crate::assign::{ParameterPiece, load};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Values per part (256 KiB). A part in transfer delays a more urgent one by only a few
/// milliseconds on a gigabit link, and the overhead of frames, locks and wake-ups stays small.
pub const PART: usize = 64 << 10;

/// Smallest number of parameters of a network whose steps are sent in parts (4 MiB). Below it,
/// threads, frames and round trips cost more than the wait.
pub const WORTH_CUTTING: usize = 1 << 20;

/// Number of parts of a shard that holds `numbers` values.
#[must_use]
pub fn count(numbers: usize) -> usize {
    numbers.div_ceil(PART)
}

/// Range of a part among the `numbers` values of a shard, in the shard's local order.
#[must_use]
pub fn range(part: usize, numbers: usize) -> Range<usize> {
    let start = (part * PART).min(numbers);
    start..(start + PART).min(numbers)
}

/// One part of a shard and its position in the arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPlace {
    pub shard: usize,
    pub part: usize,
    /// Ranges of the arena, ascending.
    pub ranges: Vec<Range<usize>>,
}

impl PartitionPlace {
    /// Index of the part's first value in the arena.
    #[must_use]
    pub fn start(&self) -> usize {
        self.ranges.first().map_or(0, |range| range.start)
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.ranges
            .iter()
            .any(|own| own.start < range.end && range.start < own.end)
    }

    /// Copies the part's values out of the arena.
    pub fn read(&self, arena: &[f32], out: &mut Vec<f32>) {
        out.clear();
        for range in &self.ranges {
            out.extend_from_slice(&arena[range.clone()]);
        }
    }

    /// Copies `numbers` into the part's ranges of the arena.
    ///
    /// # Panics
    /// If the number of values differs from the part's.
    pub fn write(&self, numbers: &[f32], arena: &mut [f32]) {
        let mut rest = numbers;
        for range in &self.ranges {
            let (here, tail) = rest.split_at(range.len());
            arena[range.clone()].copy_from_slice(here);
            rest = tail;
        }
        assert!(rest.is_empty(), "a part has as many numbers as places");
    }
}

/// All parts of all shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionPlan {
    /// Parts in the order of their first value.
    places: Vec<PartitionPlace>,
    /// Index into `places` by shard and part.
    index: Vec<Vec<usize>>,
}

impl PartitionPlan {
    /// Cuts the pieces of each shard, which must be ascending.
    #[must_use]
    pub fn new(assignment: &[Vec<ParameterPiece>]) -> Self {
        let mut places = Vec::new();
        for (shard, pieces) in assignment.iter().enumerate() {
            let numbers = load(pieces);
            let mut rest: Vec<Range<usize>> = pieces.iter().map(|piece| piece.range()).collect();
            rest.reverse();
            for part in 0..count(numbers) {
                let mut wanted = range(part, numbers).len();
                let mut ranges = Vec::new();
                while wanted > 0 {
                    let next = rest.last_mut().expect("the parts are cut from the pieces");
                    let len = next.len().min(wanted);
                    ranges.push(next.start..next.start + len);
                    next.start += len;
                    wanted -= len;
                    if next.start == next.end {
                        rest.pop();
                    }
                }
                places.push(PartitionPlace {
                    shard,
                    part,
                    ranges,
                });
            }
        }
        places.sort_by_key(PartitionPlace::start);
        let mut index: Vec<Vec<usize>> = assignment
            .iter()
            .map(|pieces| vec![0; count(load(pieces))])
            .collect();
        for (at, place) in places.iter().enumerate() {
            index[place.shard][place.part] = at;
        }
        Self { places, index }
    }

    /// Parts in the order of their first value.
    #[must_use]
    pub fn places(&self) -> &[PartitionPlace] {
        &self.places
    }

    /// Index into [`Self::places`]; `None` if the shard has no such part.
    #[must_use]
    pub fn find(&self, shard: usize, part: usize) -> Option<usize> {
        self.index.get(shard)?.get(part).copied()
    }

    /// Whether a part that overlaps `range` is marked in `missing`, which is indexed by place.
    #[must_use]
    pub fn lacks(&self, range: &Range<usize>, missing: &[bool]) -> bool {
        let until = self.places.partition_point(|p| p.start() < range.end);
        let places = self.places[..until].iter().zip(missing);
        places
            .rev()
            .any(|(place, missing)| *missing && place.overlaps(range))
    }
}

/// Order in which ready parts are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionOrder {
    /// The part that the next forward pass needs first.
    #[default]
    ByNeed,
    /// The part that was ready first; a baseline for benches.
    AsReady,
}

/// Queue of parts that wait for the connection. One thread takes parts; any thread may add them.
#[derive(Debug)]
pub struct PartitionQueue<T> {
    order: PartitionOrder,
    lane: Mutex<PartitionQueueState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct PartitionQueueState<T> {
    waiting: BTreeMap<usize, (usize, T)>,
    added: usize,
    /// Whether a taken part is still being sent.
    is_sending: bool,
    is_closed: bool,
}

impl<T> PartitionQueue<T> {
    #[must_use]
    pub fn new(order: PartitionOrder) -> Self {
        Self {
            order,
            lane: Mutex::new(PartitionQueueState {
                waiting: BTreeMap::new(),
                added: 0,
                is_sending: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lane(&self) -> MutexGuard<'_, PartitionQueueState<T>> {
        self.lane.lock().expect("not poisoned")
    }

    /// Adds a ready part. Parts added after the end are dropped.
    pub fn add(&self, part: usize, what: T) {
        let mut lane = self.lane();
        if lane.is_closed {
            return;
        }
        lane.added += 1;
        let place = match self.order {
            PartitionOrder::ByNeed => part,
            PartitionOrder::AsReady => lane.added,
        };
        lane.waiting.insert(place, (part, what));
        drop(lane);
        self.changed.notify_all();
    }

    /// Waits for a part and takes the first one. Returns `None` after the end once no part is left.
    /// The call also states that the previous part has been sent.
    pub fn take(&self) -> Option<(usize, T)> {
        let mut lane = self.lane();
        lane.is_sending = false;
        self.changed.notify_all();
        loop {
            if let Some((_, taken)) = lane.waiting.pop_first() {
                lane.is_sending = true;
                return Some(taken);
            }
            if lane.is_closed {
                return None;
            }
            lane = self.changed.wait(lane).expect("not poisoned");
        }
    }

    /// Ends the queue. Parts that wait can still be taken.
    pub fn close(&self) {
        self.lane().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends the queue and drops the parts that wait.
    pub fn give_up(&self) {
        let mut lane = self.lane();
        lane.is_closed = true;
        lane.is_sending = false;
        lane.waiting.clear();
        drop(lane);
        self.changed.notify_all();
    }

    /// Waits until all added parts have been sent.
    pub fn wait_until_idle(&self) {
        let mut lane = self.lane();
        while lane.is_sending || !lane.waiting.is_empty() {
            lane = self.changed.wait(lane).expect("not poisoned");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assign::assign;
    use proptest::prelude::*;

    fn assignment(lens: &[usize], shards: usize) -> Vec<Vec<ParameterPiece>> {
        let mut offset = 0;
        let blocks: Vec<ParameterPiece> = lens
            .iter()
            .map(|&len| {
                offset += len;
                ParameterPiece {
                    offset: offset - len,
                    len,
                }
            })
            .collect();
        assign(&blocks, shards)
    }

    proptest! {
        #[test]
        fn parts_tile_the_arena_in_the_order_of_need(
            lens in prop::collection::vec(1usize..200_000, 1..12), shards in 1usize..5,
        ) {
            let assignment = assignment(&lens, shards);
            let plan = PartitionPlan::new(&assignment);
            let mut held = vec![0u8; lens.iter().sum()];
            for place in plan.places() {
                prop_assert_eq!(&plan.places()[plan.find(place.shard, place.part).unwrap()], place);
                let numbers: usize = place.ranges.iter().map(Range::len).sum();
                prop_assert_eq!(numbers, range(place.part, load(&assignment[place.shard])).len());
                place.ranges.iter().flat_map(Clone::clone).for_each(|at| held[at] += 1);
            }
            prop_assert!(held.iter().all(|&count| count == 1));
            // Within a shard, a part that is needed earlier has the lower number.
            for shard in 0..shards {
                let own = plan.places().iter().filter(|place| place.shard == shard);
                prop_assert!(own.map(|place| place.part).eq(0..plan.index[shard].len()));
            }
        }

        #[test]
        fn part_read_and_written_back_is_unchanged(
            lens in prop::collection::vec(1usize..90_000, 1..6), shards in 1usize..4,
        ) {
            let plan = PartitionPlan::new(&assignment(&lens, shards));
            let arena: Vec<f32> = (0..lens.iter().sum()).map(|i| i as f32).collect();
            let mut back = vec![-1.0; arena.len()];
            let mut part = Vec::new();
            for place in plan.places() {
                place.read(&arena, &mut part);
                place.write(&part, &mut back);
            }
            prop_assert_eq!(arena, back);
        }

        #[test]
        fn lacks_agrees_with_a_linear_search(
            lens in prop::collection::vec(1usize..100_000, 1..6), shards in 1usize..4,
            seed: u64, at in 0.0..1.0f64, len in 1usize..200_000,
        ) {
            let plan = PartitionPlan::new(&assignment(&lens, shards));
            let total: usize = lens.iter().sum();
            let missing: Vec<bool> =
                (0..plan.places().len()).map(|i| seed >> (i % 64) & 1 == 1).collect();
            let start = (at * total as f64) as usize;
            let range = start..(start + len).min(total);
            let slow = plan.places().iter().zip(&missing).any(|(place, missing)| {
                *missing && place.ranges.iter().flat_map(Clone::clone).any(|i| range.contains(&i))
            });
            prop_assert_eq!(plan.lacks(&range, &missing), slow);
        }

        /// Holds for every order in which parts become ready between two takes.
        #[test]
        fn queue_returns_the_most_urgent_ready_part(
            parts in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
            takes in prop::collection::vec(any::<bool>(), 200),
        ) {
            let queue = PartitionQueue::new(PartitionOrder::ByNeed);
            let (mut coming, mut ready) = (parts.into_iter(), std::collections::BTreeSet::new());
            for takes in takes {
                if takes && !ready.is_empty() {
                    let (part, what) = queue.take().unwrap();
                    prop_assert_eq!(Some(part), ready.pop_first());
                    prop_assert_eq!(what, part * 10);
                } else if let Some(part) = coming.next() {
                    ready.insert(part);
                    queue.add(part, part * 10);
                }
            }
            queue.close();
            while let Some((part, _)) = queue.take() {
                prop_assert_eq!(Some(part), ready.pop_first());
            }
            prop_assert!(ready.is_empty());
        }
    }

    #[test]
    fn as_ready_order_is_first_in_first_out() {
        let queue = PartitionQueue::new(PartitionOrder::AsReady);
        for part in [5, 3, 9, 0] {
            queue.add(part, ());
        }
        queue.close();
        let order: Vec<usize> = std::iter::from_fn(|| queue.take())
            .map(|(part, ())| part)
            .collect();
        assert_eq!(order, [5, 3, 9, 0]);
    }
}
