//! A subset of a view's ranks in an order that all members agree on, and the distribution of a
//! range over them.

use std::ops::Range;

/// Pieces begin at multiples of this number of floats (one cache line).
const GRAIN: usize = 16;

/// A subset of a view's ranks, with this task's place in it.
#[derive(Debug, Clone, Copy)]
pub struct RankSubset<'a> {
    members: &'a [usize],
    me: usize,
}

impl<'a> RankSubset<'a> {
    /// Creates the subset of `members` for the task with this rank.
    ///
    /// # Panics
    /// If `rank` is not one of `members`.
    #[must_use]
    pub fn new(members: &'a [usize], rank: usize) -> Self {
        let me = members.iter().position(|&member| member == rank);
        Self {
            members,
            me: me.expect("only members take part"),
        }
    }

    /// Place of this task.
    #[must_use]
    pub fn me(self) -> usize {
        self.me
    }

    /// Number of places.
    #[must_use]
    pub fn len(self) -> usize {
        self.members.len()
    }

    /// Always false: this task is a member.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.members.is_empty()
    }

    /// The rank at a place, modulo the number of places.
    #[must_use]
    pub fn rank(self, place: usize) -> usize {
        self.members[place % self.members.len()]
    }
}

/// Splits `range` into `parts` pieces, as evenly as whole cache lines allow. The last pieces of a
/// short range are empty.
#[must_use]
pub fn pieces(range: Range<usize>, parts: usize) -> Vec<Range<usize>> {
    let len = range.len();
    let lines = len.div_ceil(GRAIN);
    let pieces = (0..parts).map(|part| {
        let [start, end] =
            [part, part + 1].map(|bound| range.start + (lines * bound / parts * GRAIN).min(len));
        start..end
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_follow_each_other_and_are_even(start in 0usize..100, len in 0usize..10_000, parts in 1usize..20) {
            let dealt = pieces(start..start + len, parts);
            prop_assert_eq!(dealt.len(), parts);
            prop_assert_eq!(dealt[0].start, start);
            prop_assert_eq!(dealt[parts - 1].end, start + len);
            for pair in dealt.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
            }
            let longest = dealt.iter().map(Range::len).max().unwrap();
            prop_assert!(longest <= len / parts + 2 * GRAIN);
        }
    }
}
