//! The ranges in which a step's gradients travel by need, where they lie in the arena, and which of them is summed next.
//!
//! The backward pass has the gradients of the last layers first; the next forward pass needs the parameters of the first layers
//! first. So of the ranges that are ready the first one goes first; one that becomes ready later overtakes all that wait (TicTac,
//! Hashemi et al., MLSys 2019; ByteScheduler, Peng et al., SOSP 2019). A range is the unit of preemption.
//!
//! All members must sum the same ranges in the same order, though their backward passes are not in step, and though some may die in
//! between. So the order is a function of the sums alone. Before each range in the arena lie marks that are summed with it: of every
//! range one float, 1 of a member that did not have it ready yet when it entered this sum. A mark whose sum is 0 is of a range that
//! everyone has whose gradients are in the sum. Next is the first range that is known to be ready like this, and while none is, the
//! last that is left: the backward pass completes it next, and all wait for it.
//!
//! Members cannot disagree. The first range is the last one on all. Say that all have summed the same k ranges: then whoever has the
//! sum of the k-th has the same bits of it, its marks among them, whether it has added them up itself or was handed them after a
//! death ([`crate::collective::Group`] promises both), so that all compute the same next one; and a sum that a death has broken off is
//! repeated of the same range from the same floats, the marks among them. Nothing else decides: no clock, rank or view, and
//! nobody's word, so nobody's death. What a member that has died had marked goes from the repeated sum with its gradients: those who
//! are left wait for it no more.
//!
//! The rejected ways: one member that names the next range would name what others do not have yet, and leave the wire idle
//! until they do; a sum of marks before each range would be a round trip more for each; and an order that is fixed beforehand
//! does not know how much the wire has carried when the backward pass ends.

use crate::parts::Order;
use crate::worker::head::HEAD;
use std::collections::BTreeSet;
use std::ops::Range;

/// Floats of a range at least, 1 MiB: what holds up a more urgent one for some milliseconds on a gigabit wire, and a sum whose round
/// trips do not show on it.
const LEAST: usize = 256 << 10;

/// Ranges at most, each of which has a mark before every range: a sixty-fourth of the gradients is as fine as an order need be.
const MOST: usize = 64;

/// Ranges that tile the parameters, ascending: in the order in which a forward pass needs them. The same on all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// Of so many parameters.
    #[must_use]
    pub fn new(parameters: usize) -> Self {
        Self::of(parameters, parameters.div_ceil(MOST).max(LEAST))
    }

    /// Of so many, each of `len` but the last.
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

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Of the parameters.
    #[must_use]
    pub fn parameters(&self, at: usize) -> Range<usize> {
        self.0[at].clone()
    }

    /// Floats of an arena for them: the step's head, and each range behind its marks.
    #[must_use]
    pub fn arena(&self) -> usize {
        HEAD + MOST * self.count() + self.0.last().map_or(0, |range| range.end)
    }

    /// Of the arena, the marks that are summed with a range.
    #[must_use]
    pub fn marks(&self, at: usize) -> Range<usize> {
        let start = HEAD + MOST * at + self.0[at].start;
        start..start + MOST
    }

    /// Of the arena, a range's gradients.
    #[must_use]
    pub fn gradients(&self, at: usize) -> Range<usize> {
        let start = self.marks(at).end;
        start..start + self.0[at].len()
    }

    /// Of the arena, what is summed at once: a range with its marks, with the first one the step's head too.
    #[must_use]
    pub fn summed(&self, at: usize) -> Range<usize> {
        let start = match at {
            0 => 0,
            at => self.marks(at).start,
        };
        start..self.gradients(at).end
    }

    /// Which of them `range` of the parameters lies in.
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

/// A step's ranges that are not summed yet.
#[derive(Debug)]
pub struct Line {
    order: Order,
    left: BTreeSet<usize>,
    /// All from this one on are known to be ready everywhere.
    ready: usize,
}

impl Line {
    /// Of so many.
    #[must_use]
    pub fn new(count: usize, order: Order) -> Self {
        Self {
            order,
            left: (0..count).collect(),
            ready: count,
        }
    }

    /// The one that is summed next; `None` once all are.
    pub fn take(&mut self) -> Option<usize> {
        let urgent = match self.order {
            Order::ByNeed => self.left.range(self.ready..).next(),
            Order::AsReady => None,
        };
        let next = *urgent.or(self.left.last())?;
        self.left.remove(&next);
        Some(next)
    }

    /// The sums of the marks of the one that was summed last.
    pub fn hear(&mut self, marks: &[f32]) {
        // Backward passes go from the last to the first.
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
            let ranges = Ranges::new(parameters);
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
        fn a_layer_lies_where_a_slow_look_finds_it(
            parameters in 1usize..2_000, len in 32usize..300, at in 0.0..1.0f64, wide in 1usize..900,
        ) {
            let ranges = Ranges::of(parameters, len);
            let start = (at * parameters as f64) as usize;
            let layer = start..(start + wide).min(parameters);
            let slow = (0..ranges.count()).filter(|&at| {
                let own = ranges.parameters(at);
                own.start < layer.end && layer.start < own.end
            });
            prop_assert!(slow.eq(ranges.covering(&layer)));
        }

        /// Members whose passes come along as they like, of whom some die while they sum: whoever is left has summed the same ranges in
        /// the same order, each once, and each time the first that all had ready whose marks are in the sum before.
        #[test]
        fn members_agree_on_the_order_whoever_dies(
            count in 1usize..MOST, members in 1usize..5,
            paces in prop::collection::vec((0usize..4, 0usize..4, 0usize..4, 0usize..4), 600),
            deaths in prop::collection::vec((1usize..5, 0usize..MOST), 0..4),
        ) {
            let mut lines: Vec<Option<Line>> =
                (0..members).map(|_| Some(Line::new(count, Order::ByNeed))).collect();
            // The first range that each has ready, and that all of the last sum had.
            let mut ready = vec![count; members];
            let (mut known, mut left) = (count, BTreeSet::from_iter(0..count));
            let mut paces = paces.into_iter();
            for summed in 0.. {
                let takes: Vec<Option<usize>> =
                    lines.iter_mut().flatten().map(Line::take).collect();
                prop_assert!(takes.windows(2).all(|pair| pair[0] == pair[1]));
                let Some(next) = takes[0] else { break };
                let urgent = left.range(known..).next().or(left.last()).copied();
                prop_assert_eq!(Some(next), urgent);
                prop_assert!(left.remove(&next));
                let (a, b, c, d) = paces.next().unwrap_or_default();
                for (ready, pace) in ready.iter_mut().zip([a, b, c, d]) {
                    // Whoever enters has this one.
                    *ready = ready.saturating_sub(pace).min(next);
                }
                // Before the sum is complete, which then is repeated without it.
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
    fn what_becomes_ready_later_overtakes_what_waits() {
        let mut line = Line::new(6, Order::ByNeed);
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
    fn as_ready_is_as_the_backward_pass_has_them() {
        let mut line = Line::new(4, Order::AsReady);
        let mut order = Vec::new();
        while let Some(next) = line.take() {
            order.push(next);
            line.hear(&[0.0; MOST]);
        }
        assert_eq!(order, [3, 2, 1, 0]);
    }
}
