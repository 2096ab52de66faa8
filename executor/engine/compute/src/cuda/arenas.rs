//! Addresses of parameters, their copies for products and their gradients on a device.
//!
//! Parameters are uploaded and gradients downloaded in the order of the network's table, without
//! gaps. Products need aligned matrices, so weights and gradients have separate arenas in the same
//! order, in which each block begins at a multiple of 64 elements.

use super::product::ElementType;
use super::queue::DeviceAddress;
use crate::model::ParameterBlock;
use std::ops::Range;

/// Alignment of the start of each block, in elements.
const ALIGNMENT: usize = 64;

/// Addresses of the blocks in all arenas.
#[derive(Debug, Clone)]
pub(crate) struct DeviceArenas {
    /// f32, in the order of the table.
    pub(crate) parameters: DeviceAddress,
    /// Copies of the parameters for products, in the kind of values, aligned.
    pub(crate) weights: DeviceAddress,
    /// f32, aligned.
    pub(crate) gradients: DeviceAddress,
    kind: ElementType,
    /// Start of each block in the table and in the aligned arenas.
    places: Vec<[usize; 2]>,
    len: usize,
}

impl DeviceArenas {
    /// Lays out the blocks; the caller sets the addresses. `more` reserves a number of elements
    /// after the block at a place.
    pub(crate) fn new(
        blocks: &[ParameterBlock],
        kind: ElementType,
        more: Option<(usize, usize)>,
    ) -> Self {
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

    /// Number of elements of an aligned arena.
    pub(crate) fn aligned_len(&self) -> usize {
        self.len
    }

    pub(crate) fn parameter(&self, place: usize) -> DeviceAddress {
        self.parameters + 4 * place as u64
    }

    pub(crate) fn weight(&self, place: usize) -> DeviceAddress {
        self.weights + (self.aligned(place) * self.kind.size()) as u64
    }

    pub(crate) fn gradient(&self, place: usize) -> DeviceAddress {
        self.gradients + 4 * self.aligned(place) as u64
    }

    /// Number of elements of the aligned gradient arena from the start to the end of a range,
    /// including gaps between blocks.
    pub(crate) fn span(&self, range: &Range<usize>) -> usize {
        self.aligned(range.end - 1) + 1 - self.aligned(range.start)
    }

    /// Merges adjacent blocks into ranges of places. Blocks are merged if no arena has a gap
    /// between them and `of` returns the same key.
    pub(crate) fn runs<'a, K: PartialEq>(
        &self,
        blocks: impl Iterator<Item = &'a ParameterBlock>,
        of: impl Fn(&ParameterBlock) -> K,
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

    /// Returns the index in the aligned arenas of the parameter at `place` of the table.
    fn aligned(&self, place: usize) -> usize {
        let after = self.places.partition_point(|[start, _]| *start <= place);
        let [start, aligned] = self.places[after - 1];
        aligned + place - start
    }
}
