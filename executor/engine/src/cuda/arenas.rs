//! Where parameters, their copies for products and their gradients lie on a device.
//!
//! Parameters come and gradients leave in the order of the network's table, without gaps, as everywhere else. Products want aligned
//! matrices, so weights and gradients lie apart in arenas of the same order in which each block begins on its own 64 numbers.

use super::product::Kind;
use super::queue::Address;
use crate::model::Block;
use std::ops::Range;

/// Numbers that each block's beginning is a multiple of.
const ALIGNMENT: usize = 64;

/// Addresses of blocks in all arenas.
#[derive(Debug, Clone)]
pub(crate) struct Arenas {
    /// f32, in the table's order.
    pub(crate) parameters: Address,
    /// Values, aligned.
    pub(crate) weights: Address,
    /// f32, aligned.
    pub(crate) gradients: Address,
    kind: Kind,
    /// Beginning of each block in the table and in the aligned arenas.
    places: Vec<[usize; 2]>,
    len: usize,
}

impl Arenas {
    /// Addresses are to be set. `more` asks for so many numbers behind the block at a place.
    pub(crate) fn new(blocks: &[Block], kind: Kind, more: Option<(usize, usize)>) -> Self {
        let mut len = 0;
        let places = blocks.iter().map(|block| {
            let place = [block.offset, len];
            let more = more.filter(|(place, _)| *place == block.offset);
            let more = more.map_or(0, |(_, numbers)| numbers);
            len += (block.len + more).next_multiple_of(ALIGNMENT);
            place
        });
        let places = places.collect();
        Self {
            parameters: 0,
            weights: 0,
            gradients: 0,
            kind,
            places,
            len,
        }
    }

    /// Numbers of an aligned arena.
    pub(crate) fn aligned_len(&self) -> usize {
        self.len
    }

    pub(crate) fn parameter(&self, place: usize) -> Address {
        self.parameters + 4 * place as u64
    }

    pub(crate) fn weight(&self, place: usize) -> Address {
        self.weights + (self.aligned(place) * self.kind.size()) as u64
    }

    pub(crate) fn gradient(&self, place: usize) -> Address {
        self.gradients + 4 * self.aligned(place) as u64
    }

    /// Numbers of the aligned arena of gradients from a range's beginning to its end, gaps between blocks included.
    pub(crate) fn span(&self, range: &Range<usize>) -> usize {
        self.aligned(range.end - 1) + 1 - self.aligned(range.start)
    }

    /// Neighbouring blocks that no arena has a gap between, and that are alike in what `of` says of them, as one range of places.
    pub(crate) fn runs<'a, K: PartialEq>(
        &self,
        blocks: impl Iterator<Item = &'a Block>,
        of: impl Fn(&Block) -> K,
    ) -> Vec<(Range<usize>, K)> {
        let mut runs: Vec<(Range<usize>, K)> = Vec::new();
        for block in blocks {
            let (place, key) = (block.offset, of(block));
            if let Some((run, last)) = runs.last_mut() {
                let apart = self.aligned(place) - self.aligned(run.start);
                if *last == key && run.end == place && apart == run.len() {
                    run.end += block.len;
                    continue;
                }
            }
            runs.push((block.range(), key));
        }
        runs
    }

    /// In aligned arenas, of the parameter at `place` of the table.
    fn aligned(&self, place: usize) -> usize {
        let after = self.places.partition_point(|[start, _]| *start <= place);
        let [start, aligned] = self.places[after - 1];
        aligned + place - start
    }
}
