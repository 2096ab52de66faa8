//! Parameter assignment: distribution of the parameters over the PS shards. Based on the PAA of
//! Optimus (Peng et al., EuroSys 2018), with more even loads.
//!
//! PAA fills shards by best fit up to the mean load, slices larger blocks, and distributes tiny
//! blocks by request count alone. Its loads become uneven where a block fits nowhere or where tiny
//! blocks add up. This module has one rule: each block, largest first, goes to the shard with the
//! least load. The part that would lift this shard more than [`SLACK_PERCENT`] above the mean is
//! cut off and goes to the next shard. Large blocks are thus cut into few pieces, and the tiny
//! blocks, which come last, even out the loads.
//!
//! Without slack the loads would be exactly even, at the price of up to one more cut per shard.
//!
//! Worker and shard both compute the assignment from the network's blocks, so it must remain a pure
//! function of its arguments.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum excess of the fullest shard over the mean load, in percent.
pub const SLACK_PERCENT: usize = 1;

/// Contiguous range of parameters in the flat arena; a pair of numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(usize, usize)", into = "(usize, usize)")]
pub struct ParameterPiece {
    /// Number of parameters before the piece in the arena.
    pub offset: usize,
    /// Number of parameters; never 0.
    pub len: usize,
}

impl From<(usize, usize)> for ParameterPiece {
    fn from((offset, len): (usize, usize)) -> Self {
        Self { offset, len }
    }
}

impl From<ParameterPiece> for (usize, usize) {
    fn from(piece: ParameterPiece) -> Self {
        (piece.offset, piece.len)
    }
}

impl ParameterPiece {
    /// The piece as a range of indices into the flat arena.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Assigns `blocks` to `shards` shards. Returns the pieces of each shard, ascending by offset, with
/// neighbours merged. Blocks are in parameters and must not overlap; empty blocks are skipped. A
/// shard may hold nothing if there are fewer parameters than shards.
///
/// # Panics
/// If `shards` is 0, which the job document does not allow.
#[must_use]
pub fn assign(blocks: &[ParameterPiece], shards: usize) -> Vec<Vec<ParameterPiece>> {
    assert!(shards > 0, "a job has at least one PS shard");
    let total: usize = blocks.iter().map(|block| block.len).sum();
    fill(
        vec![Vec::new(); shards],
        blocks.to_vec(),
        capacity(total, shards),
    )
}

/// Assigns the parameters again after shards were added or removed. `held` contains the pieces that
/// each new shard already holds (empty for a new shard), `total` is the number of all parameters.
/// Only pieces without a holder and pieces above the capacity move, so that as few parameters as
/// possible do.
///
/// # Panics
/// If `held` is empty or its pieces overlap.
#[must_use]
pub fn reassign(total: usize, held: &[Vec<ParameterPiece>]) -> Vec<Vec<ParameterPiece>> {
    assert!(!held.is_empty(), "a job has at least one PS shard");
    let capacity = capacity(total, held.len());
    let mut homeless = gaps(total, held);
    let mut kept: Vec<Vec<ParameterPiece>> = Vec::with_capacity(held.len());
    for pieces in held {
        let (stays, goes) = shed(pieces, load(pieces).saturating_sub(capacity));
        kept.push(stays);
        homeless.extend(goes);
    }
    fill(kept, homeless, capacity)
}

/// Distributes `homeless` to the shards with the least load, up to `capacity` each.
fn fill(
    mut held: Vec<Vec<ParameterPiece>>,
    mut homeless: Vec<ParameterPiece>,
    capacity: usize,
) -> Vec<Vec<ParameterPiece>> {
    homeless.retain(|piece| piece.len > 0);
    homeless.sort_by(|a, b| b.len.cmp(&a.len).then(a.offset.cmp(&b.offset)));
    // Ordered by load, then by number of pieces: the first is the emptiest shard.
    let mut emptiest: BTreeSet<(usize, usize, usize)> = held
        .iter()
        .enumerate()
        .map(|(shard, pieces)| (load(pieces), pieces.len(), shard))
        .collect();
    for block in homeless {
        let mut rest = block;
        while rest.len > 0 {
            let (load, requests, shard) = emptiest.pop_first().expect("there is a shard");
            let len = rest.len.min(capacity - load);
            assert!(
                len > 0,
                "the emptiest is below the mean while parameters are left"
            );
            let offset = rest.offset;
            held[shard].push(ParameterPiece { offset, len });
            emptiest.insert((load + len, requests + 1, shard));
            rest = ParameterPiece {
                offset: offset + len,
                len: rest.len - len,
            };
        }
    }
    held.into_iter().map(merged).collect()
}

/// Ranges of the arena that no shard holds.
fn gaps(total: usize, held: &[Vec<ParameterPiece>]) -> Vec<ParameterPiece> {
    let mut all: Vec<ParameterPiece> = held.iter().flatten().copied().collect();
    all.sort_unstable();
    all.push(ParameterPiece {
        offset: total,
        len: 0,
    });
    let mut at = 0;
    let mut out = Vec::new();
    for piece in all {
        out.push(ParameterPiece {
            offset: at,
            len: piece.offset - at,
        });
        at = piece.offset + piece.len;
    }
    out.retain(|piece| piece.len > 0);
    out
}

/// Splits `pieces` into those that stay and those that leave with exactly `excess` parameters:
/// whole pieces where they fit, the largest first, then one cut.
fn shed(
    pieces: &[ParameterPiece],
    mut excess: usize,
) -> (Vec<ParameterPiece>, Vec<ParameterPiece>) {
    let mut largest_first = pieces.to_vec();
    largest_first.sort_by(|a, b| b.len.cmp(&a.len).then(a.offset.cmp(&b.offset)));
    let (mut stays, mut goes) = (Vec::new(), Vec::new());
    for piece in largest_first {
        if piece.len <= excess {
            excess -= piece.len;
            goes.push(piece);
        } else {
            stays.push(piece);
        }
    }
    // Every piece that stays so far is larger than the rest of the excess.
    if let Some(last) = stays.pop() {
        let len = last.len - excess;
        stays.push(ParameterPiece { len, ..last });
        goes.push(ParameterPiece {
            offset: last.offset + len,
            len: excess,
        });
    }
    goes.retain(|piece| piece.len > 0);
    (stays, goes)
}

/// Intersection of two lists of pieces; both must be ascending.
#[must_use]
pub fn common(a: &[ParameterPiece], b: &[ParameterPiece]) -> Vec<ParameterPiece> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i].range(), b[j].range());
        let (start, end) = (x.start.max(y.start), x.end.min(y.end));
        if start < end {
            out.push(ParameterPiece {
                offset: start,
                len: end - start,
            });
        }
        if x.end <= y.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

/// Ranges of `parts` in the local order of a shard that holds `pieces`; both must be ascending.
///
/// # Panics
/// If a part lies outside the pieces or crosses two of them. Parts from [`common`] do neither.
#[must_use]
pub fn local(pieces: &[ParameterPiece], parts: &[ParameterPiece]) -> Vec<Range<usize>> {
    let (mut index, mut before) = (0, 0);
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        while pieces[index].range().end <= part.offset {
            before += pieces[index].len;
            index += 1;
        }
        assert!(
            pieces[index].offset <= part.offset && part.range().end <= pieces[index].range().end
        );
        let start = before + part.offset - pieces[index].offset;
        out.push(start..start + part.len);
    }
    out
}

/// Maximum load of a shard: the mean and its slack, but at least the mean rounded up, so that all
/// parameters fit.
fn capacity(total: usize, shards: usize) -> usize {
    let slack = total / shards * SLACK_PERCENT / 100;
    total.div_ceil(shards).max(total / shards + slack)
}

fn merged(mut pieces: Vec<ParameterPiece>) -> Vec<ParameterPiece> {
    pieces.sort_unstable();
    let mut out: Vec<ParameterPiece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match out.last_mut() {
            Some(last) if last.offset + last.len == piece.offset => last.len += piece.len,
            _ => out.push(piece),
        }
    }
    out
}

/// Number of parameters that a shard holds.
#[must_use]
pub fn load(pieces: &[ParameterPiece]) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Splits `arena` into the mutable parts of `assignment`, shard by shard. Each shard's connection
/// can then write its part at the same time as the others.
///
/// # Panics
/// If pieces overlap or lie outside the arena. [`assign`] returns no such pieces.
#[must_use]
pub fn split_mut<'a>(
    arena: &'a mut [f32],
    assignment: &[Vec<ParameterPiece>],
) -> Vec<Vec<&'a mut [f32]>> {
    let mut order: Vec<(ParameterPiece, usize)> = assignment
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

    fn blocks(lens: &[usize]) -> Vec<ParameterPiece> {
        let mut offset = 0;
        lens.iter()
            .map(|&len| {
                let piece = ParameterPiece { offset, len };
                offset += len;
                piece
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_parameter_is_assigned_once_and_evenly(
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

        /// After each change of the number of shards, every parameter has one holder and loads are
        /// even. A shard below its capacity gives no parameters away.
        #[test]
        fn reassignment_moves_only_the_necessary_parameters(
            lens in prop::collection::vec(1usize..5_000, 1..40),
            counts in prop::collection::vec(1usize..9, 2..6),
        ) {
            let total: usize = lens.iter().sum();
            let mut held = assign(&blocks(&lens), counts[0]);
            for &count in &counts[1..] {
                let before = held.clone();
                held.resize(count, Vec::new());
                let start = held.clone();
                held = reassign(total, &start);
                let mut seen = vec![0u8; total];
                for piece in held.iter().flatten() {
                    for slot in &mut seen[piece.range()] {
                        *slot += 1;
                    }
                }
                prop_assert!(seen.iter().all(|&count| count == 1));
                let most = capacity(total, count);
                let mut homeless: usize = before.iter().skip(count).map(|pieces| load(pieces)).sum();
                for (old, new) in start.iter().zip(&held) {
                    prop_assert!(load(new) <= most);
                    let stays = load(&common(old, new));
                    prop_assert_eq!(stays, load(old).min(most));
                    homeless += load(old) - stays;
                }
                let moved: usize = start.iter().zip(&held).map(|(old, new)| load(new) - load(&common(old, new))).sum();
                prop_assert_eq!(moved, homeless);
            }
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
    fn parts_are_found_in_the_local_order() {
        let held = [
            ParameterPiece { offset: 10, len: 5 },
            ParameterPiece {
                offset: 30,
                len: 10,
            },
        ];
        let other = [
            ParameterPiece { offset: 0, len: 12 },
            ParameterPiece {
                offset: 14,
                len: 20,
            },
        ];
        let both = common(&held, &other);
        let expected = [(10, 2), (14, 1), (30, 4)].map(ParameterPiece::from);
        assert_eq!(both, expected);
        assert_eq!(local(&held, &both), [0..2, 4..5, 5..9]);
        assert_eq!(local(&other, &both), [10..12, 12..13, 28..32]);
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
            [ParameterPiece {
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

    /// Assignment by request count alone becomes uneven with many tiny blocks after large ones.
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
