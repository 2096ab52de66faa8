//! A step that travels in parts: what a shard holds is cut into ranges, each of which goes to the shard, is applied and comes back by
//! itself, in the order in which the next forward pass needs them.
//!
//! The backward pass has the gradients of the last layers first; the next forward pass needs the parameters of the first layers first.
//! So of the parts that are ready the one with the lowest place goes first, whenever the wire is free: one that becomes ready later
//! overtakes all that wait (TicTac, Hashemi et al., MLSys 2019; ByteScheduler, Peng et al., SOSP 2019). A part is the unit of preemption.
//!
//! Worker and shard both compute the cut from the view, so it is a pure function. This module knows no sockets.

use crate::assign::{Piece, load};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Numbers of a part, 256 KiB: few enough that one which is on its way holds up a more urgent one for a millisecond or two on a
/// gigabit wire, enough that frames, locks and wake-ups do not show.
pub const PART: usize = 64 << 10;

/// Parameters of a network whose steps are worth cutting, 4 MiB: below, threads, frames and round trips cost more than waiting.
pub const WORTH_CUTTING: usize = 1 << 20;

/// Into how many parts a shard's numbers are cut.
#[must_use]
pub fn count(numbers: usize) -> usize {
    numbers.div_ceil(PART)
}

/// Of a shard's `numbers`, those of a part, in its local order.
#[must_use]
pub fn range(part: usize, numbers: usize) -> Range<usize> {
    let start = (part * PART).min(numbers);
    start..(start + PART).min(numbers)
}

/// One shard's part in the whole arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub shard: usize,
    pub part: usize,
    /// Where its numbers lie in the arena, ascending.
    pub ranges: Vec<Range<usize>>,
}

impl Place {
    /// Of the arena, the first number that is in it.
    #[must_use]
    pub fn start(&self) -> usize {
        self.ranges.first().map_or(0, |range| range.start)
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        let meets = |own: &Range<usize>| own.start < range.end && range.start < own.end;
        self.ranges.iter().any(meets)
    }

    /// Its numbers, copied out of the arena.
    pub fn read(&self, arena: &[f32], out: &mut Vec<f32>) {
        out.clear();
        for range in &self.ranges {
            out.extend_from_slice(&arena[range.clone()]);
        }
    }

    /// Puts its numbers into the arena.
    ///
    /// # Panics
    /// When there are not as many as it has places.
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
pub struct Plan {
    /// By their first number.
    places: Vec<Place>,
    /// By shard and part, which of them.
    index: Vec<Vec<usize>>,
}

impl Plan {
    /// Of shards that hold these pieces, each ascending.
    #[must_use]
    pub fn new(assignment: &[Vec<Piece>]) -> Self {
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
                places.push(Place {
                    shard,
                    part,
                    ranges,
                });
            }
        }
        places.sort_by_key(Place::start);
        let mut index: Vec<Vec<usize>> = assignment
            .iter()
            .map(|pieces| vec![0; count(load(pieces))])
            .collect();
        for (at, place) in places.iter().enumerate() {
            index[place.shard][place.part] = at;
        }
        Self { places, index }
    }

    /// By their first number.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Which of [`Self::places`] this is; `None` where a shard has no such part.
    #[must_use]
    pub fn find(&self, shard: usize, part: usize) -> Option<usize> {
        self.index.get(shard)?.get(part).copied()
    }

    /// Whether any part of `range` is among those that `missing` marks, by place.
    #[must_use]
    pub fn lacks(&self, range: &Range<usize>, missing: &[bool]) -> bool {
        let until = self.places.partition_point(|p| p.start() < range.end);
        let places = self.places[..until].iter().zip(missing);
        places
            .rev()
            .any(|(place, missing)| *missing && place.overlaps(range))
    }
}

/// Which of several ready parts goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The one that the next forward pass needs first.
    #[default]
    ByNeed,
    /// The one that was ready first: what benches compare with.
    AsReady,
}

/// Parts that wait for the wire. One thread takes them, any may add to them.
#[derive(Debug)]
pub struct Queue<T> {
    order: Order,
    lane: Mutex<Lane<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: BTreeMap<usize, (usize, T)>,
    added: usize,
    /// Whether one that was taken is on its way yet.
    is_sending: bool,
    is_closed: bool,
}

impl<T> Queue<T> {
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self {
            order,
            lane: Mutex::new(Lane {
                waiting: BTreeMap::new(),
                added: 0,
                is_sending: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lane(&self) -> MutexGuard<'_, Lane<T>> {
        self.lane.lock().expect("nobody panics with it")
    }

    /// This part is ready. What comes after the end is thrown away.
    pub fn add(&self, part: usize, what: T) {
        let mut lane = self.lane();
        if lane.is_closed {
            return;
        }
        lane.added += 1;
        let place = match self.order {
            Order::ByNeed => part,
            Order::AsReady => lane.added,
        };
        lane.waiting.insert(place, (part, what));
        drop(lane);
        self.changed.notify_all();
    }

    /// Waits for a part and takes the first; `None` once all are taken and no more come. Taking says that the one before is on its way
    /// no more.
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
            lane = self.changed.wait(lane).expect("nobody panics with it");
        }
    }

    /// No more come; what waits is taken yet.
    pub fn close(&self) {
        self.lane().is_closed = true;
        self.changed.notify_all();
    }

    /// Nobody takes any more: what waits is thrown away.
    pub fn give_up(&self) {
        let mut lane = self.lane();
        lane.is_closed = true;
        lane.is_sending = false;
        lane.waiting.clear();
        drop(lane);
        self.changed.notify_all();
    }

    /// Waits until all that was added is on its way no more.
    pub fn wait_until_idle(&self) {
        let mut lane = self.lane();
        while lane.is_sending || !lane.waiting.is_empty() {
            lane = self.changed.wait(lane).expect("nobody panics with it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assign::assign;
    use proptest::prelude::*;

    fn assignment(lens: &[usize], shards: usize) -> Vec<Vec<Piece>> {
        let mut offset = 0;
        let blocks: Vec<Piece> = lens
            .iter()
            .map(|&len| {
                offset += len;
                Piece {
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
            let plan = Plan::new(&assignment);
            let mut held = vec![0u8; lens.iter().sum()];
            for place in plan.places() {
                prop_assert_eq!(&plan.places()[plan.find(place.shard, place.part).unwrap()], place);
                let numbers: usize = place.ranges.iter().map(Range::len).sum();
                prop_assert_eq!(numbers, range(place.part, load(&assignment[place.shard])).len());
                place.ranges.iter().flat_map(Clone::clone).for_each(|at| held[at] += 1);
            }
            prop_assert!(held.iter().all(|&count| count == 1));
            // Of one shard, a part that is needed earlier has the lower number.
            for shard in 0..shards {
                let own = plan.places().iter().filter(|place| place.shard == shard);
                prop_assert!(own.map(|place| place.part).eq(0..plan.index[shard].len()));
            }
        }

        #[test]
        fn what_is_read_out_is_written_back(
            lens in prop::collection::vec(1usize..90_000, 1..6), shards in 1usize..4,
        ) {
            let plan = Plan::new(&assignment(&lens, shards));
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
        fn what_is_lacked_is_what_a_slow_look_finds(
            lens in prop::collection::vec(1usize..100_000, 1..6), shards in 1usize..4,
            seed: u64, at in 0.0..1.0f64, len in 1usize..200_000,
        ) {
            let plan = Plan::new(&assignment(&lens, shards));
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

        /// In whatever order parts become ready between two sendings, the next one is always the most urgent of those that are.
        #[test]
        fn the_most_urgent_of_those_that_are_ready_goes_first(
            parts in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
            takes in prop::collection::vec(any::<bool>(), 200),
        ) {
            let queue = Queue::new(Order::ByNeed);
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
    fn as_ready_is_first_come_first_served() {
        let queue = Queue::new(Order::AsReady);
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
