//! Which PS shard holds which part of the parameters: the parameter assignment of Optimus (Peng et al., EuroSys 2018), made
//! even.
//!
//! Optimus' PAA fills shards by best fit up to the mean load, slices blocks larger than that, and deals tiny blocks by request
//! count alone. Its loads drift where a block fits nowhere and where tiny blocks add up: the fullest shard of ResNeXt-152 on
//! eight shards holds 13 % more than the mean. Here there is one rule: blocks go, largest first, to the emptiest shard, and
//! whatever would lift it above [`SLACK_PERCENT`] over the mean is cut off and goes on to the next. Large blocks are so cut
//! into the fewest pieces, and the tiny ones, which come last, even out what the others left.
//!
//! No slack at all would make loads exactly even, at up to one more cut per shard.
//!
//! Worker and shard both compute this from the network's blocks, so it must stay a pure function of its arguments.

use std::collections::BTreeSet;
use std::ops::Range;

/// By how much the fullest shard may exceed the mean load.
pub const SLACK_PERCENT: usize = 1;

/// A run of parameters in the flat arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// In parameters, from the start of the arena.
    pub offset: usize,
    /// In parameters; never 0.
    pub len: usize,
}

impl Piece {
    /// As a range of indices into the flat arena.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Per shard the pieces that it holds, ascending by offset, neighbours merged. Blocks are `(offset, len)` in parameters and
/// must not overlap; empty blocks are left out. A shard may hold nothing when there are fewer parameters than shards.
///
/// # Panics
/// When `shards` is 0: the job document does not allow it.
#[must_use]
pub fn assign(blocks: &[Piece], shards: usize) -> Vec<Vec<Piece>> {
    assert!(shards > 0, "a job has at least one PS shard");
    let total: usize = blocks.iter().map(|block| block.len).sum();
    let capacity = capacity(total, shards);
    let mut largest_first: Vec<Piece> = blocks.iter().copied().filter(|b| b.len > 0).collect();
    largest_first.sort_by(|a, b| b.len.cmp(&a.len).then(a.offset.cmp(&b.offset)));
    let mut held: Vec<Vec<Piece>> = vec![Vec::new(); shards];
    // Ordered by load, then by requests: the first is the emptiest.
    let mut emptiest: BTreeSet<(usize, usize, usize)> =
        (0..shards).map(|shard| (0, 0, shard)).collect();
    for block in largest_first {
        let mut rest = block;
        while rest.len > 0 {
            let (load, requests, shard) = emptiest.pop_first().expect("there is a shard");
            let len = rest.len.min(capacity - load);
            assert!(
                len > 0,
                "the emptiest is below the mean while parameters are left"
            );
            let offset = rest.offset;
            held[shard].push(Piece { offset, len });
            emptiest.insert((load + len, requests + 1, shard));
            rest = Piece {
                offset: offset + len,
                len: rest.len - len,
            };
        }
    }
    held.into_iter().map(merged).collect()
}

/// The most that a shard holds: the mean and its slack, but at least the mean rounded up, so that everything finds room.
fn capacity(total: usize, shards: usize) -> usize {
    let slack = total / shards * SLACK_PERCENT / 100;
    total.div_ceil(shards).max(total / shards + slack)
}

fn merged(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_unstable();
    let mut out: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match out.last_mut() {
            Some(last) if last.offset + last.len == piece.offset => last.len += piece.len,
            _ => out.push(piece),
        }
    }
    out
}

/// Parameters that a shard holds.
#[must_use]
pub fn load(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

/// The mutable parts of `arena` that `assignment` names, shard by shard: each shard's connection then writes its own part at the
/// same time as the others.
///
/// # Panics
/// When pieces overlap or leave the arena; [`assign`] makes no such pieces.
#[must_use]
pub fn split_mut<'a>(arena: &'a mut [f32], assignment: &[Vec<Piece>]) -> Vec<Vec<&'a mut [f32]>> {
    let mut order: Vec<(Piece, usize)> = assignment
        .iter()
        .enumerate()
        .flat_map(|(shard, pieces)| pieces.iter().map(move |&piece| (piece, shard)))
        .collect();
    order.sort_unstable();
    let mut out: Vec<Vec<&'a mut [f32]>> = assignment.iter().map(|_| Vec::new()).collect();
    let mut rest = arena;
    let mut at = 0;
    for (piece, shard) in order {
        let (_, tail) = rest.split_at_mut(piece.offset - at);
        let (part, tail) = tail.split_at_mut(piece.len);
        out[shard].push(part);
        rest = tail;
        at = piece.offset + piece.len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(lens: &[usize]) -> Vec<Piece> {
        let mut offset = 0;
        lens.iter()
            .map(|&len| {
                let piece = Piece { offset, len };
                offset += len;
                piece
            })
            .collect()
    }

    proptest! {
        #[test]
        fn covers_everything_once_and_evenly(
            lens in prop::collection::vec(0usize..5_000, 0..60), shards in 1usize..20,
        ) {
            let total: usize = lens.iter().sum();
            let assignment = assign(&blocks(&lens), shards);
            prop_assert_eq!(assignment.len(), shards);
            let mut seen = vec![0u8; total];
            for piece in assignment.iter().flatten() {
                prop_assert!(piece.len > 0);
                for slot in &mut seen[piece.range()] {
                    *slot += 1;
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
            let loads: Vec<usize> = assignment.iter().map(|pieces| load(pieces)).collect();
            let most = total.div_ceil(shards).max(total * 101 / (100 * shards));
            prop_assert!(loads.iter().all(|&load| load <= most), "loads {:?}", loads);
        }

        #[test]
        fn split_parts_are_those_of_the_assignment(
            lens in prop::collection::vec(1usize..200, 1..20), shards in 1usize..6,
        ) {
            let total: usize = lens.iter().sum();
            let mut arena: Vec<f32> = (0..total).map(|i| i as f32).collect();
            let assignment = assign(&blocks(&lens), shards);
            let parts = split_mut(&mut arena, &assignment);
            for (pieces, parts) in assignment.iter().zip(&parts) {
                prop_assert_eq!(pieces.len(), parts.len());
                for (piece, part) in pieces.iter().zip(parts) {
                    prop_assert_eq!(piece.len, part.len());
                    prop_assert_eq!(part[0], piece.offset as f32);
                }
            }
        }
    }

    #[test]
    fn blocks_that_fit_stay_whole() {
        let assignment = assign(&blocks(&[100, 60, 40, 100]), 3);
        assert_eq!(
            assignment.iter().map(Vec::len).collect::<Vec<_>>(),
            [1, 1, 1]
        );
        assert_eq!(
            assignment[2],
            [Piece {
                offset: 100,
                len: 100
            }],
            "60 and 40 lie together and merge"
        );
    }

    #[test]
    fn one_large_block_is_cut_once_per_shard() {
        let assignment = assign(&blocks(&[1_000, 10]), 4);
        let loads: Vec<usize> = assignment.iter().map(|pieces| load(pieces)).collect();
        assert!(
            loads.iter().all(|&load| (245..=255).contains(&load)),
            "{loads:?}"
        );
        let pieces: usize = assignment.iter().map(Vec::len).sum();
        assert_eq!(pieces, 4, "the last piece and the small block merge");
    }

    /// Many tiny blocks after large ones are the case where dealing by request count alone drifts.
    #[test]
    fn many_tiny_blocks_do_not_drift() {
        let mut lens = vec![50_000, 30_000, 20_000];
        lens.extend((0..300).map(|i| 10 + i % 90));
        let total: usize = lens.iter().sum();
        let assignment = assign(&blocks(&lens), 7);
        let fullest = assignment.iter().map(|pieces| load(pieces)).max();
        assert!(fullest.is_some_and(|load| load * 700 <= total * 101));
    }
}
