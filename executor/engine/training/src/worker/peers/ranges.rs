//! Ranges in which a step's gradients travel in priority order: their places in the arena, and
//! which range is summed next.
//!
//! The backward pass completes the gradients of the last layers first; the next forward pass needs
//! the parameters of the first layers first. So the first of the ready ranges is summed next. A
//! range that becomes ready later overtakes all that wait (TicTac, Hashemi et al., MLSys 2019;
//! ByteScheduler, Peng et al., SOSP 2019). A range is the unit of preemption.
//!
//! All members must sum the same ranges in the same order, although their backward passes are not
//! synchronous and members may die. So the order is a function of the sums alone. Marks precede
//! each range in the arena and are summed with it. There is one mark (a float) for every range. A
//! member sets it to 1 if it did not have that range ready when it entered this sum. If the sum of
//! a mark is 0, all members whose gradients are in the sum have that range. The next range is the
//! first one known to be ready in this way. If there is none, it is the last remaining range: the
//! backward pass completes it next, and all members wait for it.
//!
//! Proof that members agree: the first sum is the last range on all members. Assume that all
//! members have summed the same k ranges. Every member then has the same bits of the k-th sum with
//! its marks, whether it added them itself or received them after a death.
//! [`muster_comm::collective::CollectiveGroup`] guarantees both. So all compute the same next
//! range. A sum that a death interrupts is repeated for the same range from the same floats and
//! marks. No clock, rank, view or message influences the order. The marks of a dead member leave
//! the repeated sum with its gradients, so the others no longer wait for it.
//!
//! Rejected alternatives: a member that names the next range would name ranges that others do not
//! have yet, and the network would be idle meanwhile. A separate sum of marks before each range
//! needs another round trip. A fixed order cannot follow how much has been sent when the backward
//! pass ends.

use crate::worker::head::HEAD;
use muster_comm::partitions::PartitionOrder;
use std::collections::BTreeSet;
use std::ops::Range;

/// Minimum number of floats in a range (1 MiB). It delays a more urgent range only by some
/// milliseconds on a gigabit network, and the round trips of its sum are negligible.
const LEAST: usize = 256 << 10;

/// Maximum number of ranges, which is the number of marks before each range. A 64th of the
/// gradients is fine enough for the order.
const MOST: usize = 64;

/// Ranges that tile the parameters in ascending order, in which a forward pass needs them. The same
/// on all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientRanges(Vec<Range<usize>>);

impl GradientRanges {
    /// Divides `parameters` parameters.
    #[must_use]
    pub fn new(parameters: usize) -> Self {
        Self::of(parameters, parameters.div_ceil(MOST).max(LEAST))
    }

    /// Divides `parameters` parameters into ranges of `len`; the last may be shorter.
    ///
    /// # Panics
    /// When these are more than [`MOST`].
    #[must_use]
    pub fn of(parameters: usize, len: usize) -> Self {
        let starts = (0..parameters).step_by(len);
        let ranges: Vec<_> = starts
            .map(|start| start..(start + len).min(parameters))
            .collect();
        assert!(ranges.len() <= MOST, "a mark for each range");
        Self(ranges)
    }

    /// Returns the number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the parameters of a range.
    #[must_use]
    pub fn parameters(&self, at: usize) -> Range<usize> {
        self.0[at].clone()
    }

    /// Returns the number of floats of the arena: the step's head, and each range after its marks.
    #[must_use]
    pub fn arena(&self) -> usize {
        HEAD + MOST * self.count() + self.0.last().map_or(0, |range| range.end)
    }

    /// Returns the place in the arena of the marks that are summed with a range.
    #[must_use]
    pub fn marks(&self, at: usize) -> Range<usize> {
        let start = HEAD + MOST * at + self.0[at].start;
        start..start + MOST
    }

    /// Returns the place in the arena of a range's gradients.
    #[must_use]
    pub fn gradients(&self, at: usize) -> Range<usize> {
        let start = self.marks(at).end;
        start..start + self.0[at].len()
    }

    /// Returns the part of the arena of one sum: a range with its marks, and the step's head with
    /// the first.
    #[must_use]
    pub fn summed(&self, at: usize) -> Range<usize> {
        let start = match at {
            0 => 0,
            at => self.marks(at).start,
        };
        start..self.gradients(at).end
    }

    /// Returns the ranges that contain `range` of the parameters.
    #[must_use]
    pub fn covering(&self, range: &Range<usize>) -> Range<usize> {
        let first = self.0.partition_point(|own| own.end <= range.start);
        first..self.0.partition_point(|own| own.start < range.end)
    }
}

/// Marks the ranges before `ready`, which this member does not have yet.
pub fn mark(marks: &mut [f32], ready: usize) {
    let (missing, there) = marks.split_at_mut(ready);
    missing.fill(1.0);
    there.fill(0.0);
}

/// Ranges of a step that are not summed yet.
#[derive(Debug)]
pub struct RangeQueue {
    order: PartitionOrder,
    left: BTreeSet<usize>,
    /// All ranges from this one on are known to be ready on all members.
    ready: usize,
}

impl RangeQueue {
    /// Creates the queue of `count` ranges.
    #[must_use]
    pub fn new(count: usize, order: PartitionOrder) -> Self {
        Self {
            order,
            left: (0..count).collect(),
            ready: count,
        }
    }

    /// Returns the range that is summed next; `None` if all are summed.
    pub fn take(&mut self) -> Option<usize> {
        let urgent = match self.order {
            PartitionOrder::ByNeed => self.left.range(self.ready..).next(),
            PartitionOrder::AsReady => None,
        };
        let next = *urgent.or(self.left.last())?;
        self.left.remove(&next);
        Some(next)
    }

    /// Processes the summed marks of the last range.
    pub fn hear(&mut self, marks: &[f32]) {
        // Backward passes run from the last range to the first.
        self.ready = marks
            .iter()
            .rposition(|mark| *mark > 0.0)
            .map_or(0, |last| last + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_tile_the_parameters_and_the_arena(parameters in 1usize..40_000_000) {
            let ranges = GradientRanges::new(parameters);
            let (mut end, mut arena_end) = (0, 0);
            for at in 0..ranges.count() {
                prop_assert_eq!(ranges.parameters(at).start, end);
                end = ranges.parameters(at).end;
                let summed = ranges.summed(at);
                prop_assert_eq!(summed.start, arena_end);
                prop_assert_eq!(ranges.marks(at).end, ranges.gradients(at).start);
                prop_assert_eq!(ranges.gradients(at).len(), ranges.parameters(at).len());
                prop_assert_eq!(ranges.gradients(at).end, summed.end);
                prop_assert!(ranges.marks(at).start >= HEAD && ranges.count() <= MOST);
                arena_end = summed.end;
            }
            prop_assert_eq!((end, arena_end), (parameters, ranges.arena()));
        }

        #[test]
        fn covering_matches_linear_search(
            parameters in 1usize..2_000, len in 32usize..300, at in 0.0..1.0f64, wide in 1usize..900,
        ) {
            let ranges = GradientRanges::of(parameters, len);
            let start = (at * parameters as f64) as usize;
            let layer = start..(start + wide).min(parameters);
            let slow = (0..ranges.count()).filter(|&at| {
                let own = ranges.parameters(at);
                own.start < layer.end && layer.start < own.end
            });
            prop_assert!(slow.eq(ranges.covering(&layer)));
        }

        /// Members with different pass speeds, of which some die during sums. The survivors sum the
        /// same ranges in the same order, each once. Each sum is for the first range that all
        /// members of the previous sum had ready.
        #[test]
        fn members_agree_on_order_despite_deaths(
            count in 1usize..MOST, members in 1usize..5,
            paces in prop::collection::vec((0usize..4, 0usize..4, 0usize..4, 0usize..4), 600),
            deaths in prop::collection::vec((1usize..5, 0usize..MOST), 0..4),
        ) {
            let mut lines: Vec<Option<RangeQueue>> =
                (0..members).map(|_| Some(RangeQueue::new(count, PartitionOrder::ByNeed))).collect();
            // First ready range of each member, and of all members of the last sum.
            let mut ready = vec![count; members];
            let (mut known, mut left) = (count, BTreeSet::from_iter(0..count));
            let mut paces = paces.into_iter();
            for summed in 0.. {
                let takes: Vec<Option<usize>> =
                    lines.iter_mut().flatten().map(RangeQueue::take).collect();
                prop_assert!(takes.windows(2).all(|pair| pair[0] == pair[1]));
                let Some(next) = takes[0] else { break };
                let urgent = left.range(known..).next().or(left.last()).copied();
                prop_assert_eq!(Some(next), urgent);
                prop_assert!(left.remove(&next));
                let (a, b, c, d) = paces.next().unwrap_or_default();
                for (ready, pace) in ready.iter_mut().zip([a, b, c, d]) {
                    // A member enters a sum only with this range ready.
                    *ready = ready.saturating_sub(pace).min(next);
                }
                // Deaths before the sum is complete; it is then repeated without the dead members.
                for (member, _) in deaths.iter().filter(|(_, when)| *when == summed) {
                    if *member < members {
                        lines[*member] = None;
                    }
                }
                let mut marks = vec![0.0; MOST];
                for (ready, _) in ready.iter().zip(&lines).filter(|(_, line)| line.is_some()) {
                    let mut own = vec![f32::NAN; MOST];
                    mark(&mut own, *ready);
                    marks.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
                }
                let living = ready.iter().zip(&lines).filter(|(_, line)| line.is_some());
                known = living.map(|(ready, _)| *ready).max().unwrap();
                lines.iter_mut().flatten().for_each(|line| line.hear(&marks));
            }
            prop_assert!(left.is_empty());
        }
    }

    #[test]
    fn range_ready_later_overtakes_waiting_ranges() {
        let mut line = RangeQueue::new(6, PartitionOrder::ByNeed);
        let mut marks = [0.0; MOST];
        let mut order = Vec::new();
        for ready in [4, 2, 2, 1, 0, 0] {
            order.push(line.take().unwrap());
            mark(&mut marks, ready);
            line.hear(&marks);
        }
        assert_eq!(order, [5, 4, 2, 3, 1, 0]);
        assert_eq!(line.take(), None);
    }

    #[test]
    fn as_ready_order_follows_the_backward_pass() {
        let mut line = RangeQueue::new(4, PartitionOrder::AsReady);
        let mut order = Vec::new();
        while let Some(next) = line.take() {
            order.push(next);
            line.hear(&[0.0; MOST]);
        }
        assert_eq!(order, [3, 2, 1, 0]);
    }
}
