//! Sums of sparse blocks, for a shard or for the rounds of a sparse all-reduce (Renggli et al.,
//! "SparCML: High-Performance Sparse Communication for Machine Learning", SC 2019). Positions and
//! values are merged without a dense vector and are written in the codec's format. As sums become
//! denser, their chunks change from offsets to bitmaps, which cost at most 1/32 more than dense
//! values.

use super::super::lanes::{Isa, dispatch};
use super::super::{CHUNK, DecodeError};
use super::wire::{self, Marks, SparseEncodeKernel};
use std::cmp::Ordering;
use std::ops::Range;

/// Vector of `len` values of which few are not zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SparseSum {
    len: usize,
    /// Ascending.
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl SparseSum {
    /// Creates a vector of zeros.
    ///
    /// # Panics
    /// If `len` is 2^32 or more.
    #[must_use]
    pub fn new(len: usize) -> Self {
        assert!(
            u32::try_from(len).is_ok(),
            "a block has fewer than 2^32 numbers"
        );
        Self {
            len,
            ..Self::default()
        }
    }

    /// Reads a block of `len` values in the format of [`super::Sparse`] and [`Self::encode`].
    /// Memory is limited by the number of bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes do not encode such a block.
    pub fn decode(mut bytes: &[u8], len: usize) -> Result<Self, DecodeError> {
        let mut sum = Self::new(len);
        for start in (0..len).step_by(CHUNK) {
            let Self {
                indices, values, ..
            } = &mut sum;
            let read = wire::read(bytes, CHUNK.min(len - start), |offset, value| {
                indices.push((start + offset) as u32);
                values.push(value);
            })?;
            bytes = &bytes[read..];
        }
        match bytes.len() {
            0 => Ok(sum),
            rest => Err(DecodeError::Trailing(rest)),
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no value is stored; the length of the vector does not matter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Positions and values, ascending.
    pub fn entries(&self) -> impl Iterator<Item = (usize, f32)> {
        let indices = self.indices.iter().map(|index| *index as usize);
        indices.zip(self.values.iter().copied())
    }

    /// Adds another vector. Equal orders of addition give equal bits, and `a + b` equals `b + a`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(self.len, other.len, "vectors of one length");
        let mut indices = Vec::with_capacity(self.indices.len() + other.indices.len());
        let mut values = Vec::with_capacity(indices.capacity());
        let (mut a, mut b) = (0, 0);
        while a < self.indices.len() && b < other.indices.len() {
            let (left, right) = (self.indices[a], other.indices[b]);
            indices.push(left.min(right));
            match left.cmp(&right) {
                Ordering::Less => {
                    values.push(self.values[a]);
                    a += 1;
                }
                Ordering::Greater => {
                    values.push(other.values[b]);
                    b += 1;
                }
                Ordering::Equal => {
                    values.push(self.values[a] + other.values[b]);
                    a += 1;
                    b += 1;
                }
            }
        }
        indices.extend_from_slice(&self.indices[a..]);
        values.extend_from_slice(&self.values[a..]);
        indices.extend_from_slice(&other.indices[b..]);
        values.extend_from_slice(&other.values[b..]);
        self.indices = indices;
        self.values = values;
    }

    /// Part of the vector that a rank owns in a reduce-scatter; positions are relative to its
    /// start.
    ///
    /// # Panics
    /// If the range exceeds the vector.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "a part");
        let from = self
            .indices
            .partition_point(|i| (*i as usize) < range.start);
        let to = self.indices.partition_point(|i| (*i as usize) < range.end);
        let start = range.start as u32;
        Self {
            len: range.len(),
            indices: self.indices[from..to].iter().map(|i| i - start).collect(),
            values: self.values[from..to].to_vec(),
        }
    }

    /// Adds the values to a dense vector.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_to(&self, out: &mut [f32]) {
        assert_eq!(self.len, out.len(), "vectors of one length");
        for (index, value) in self.entries() {
            out[index] += value;
        }
    }

    /// Maximum number of bytes that [`Self::encode`] writes.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        let chunks = self.len.div_ceil(CHUNK);
        // A chunk uses a bitmap only if it is shorter than offsets.
        4 * chunks + 6 * self.indices.len()
    }

    /// Encodes the vector to the beginning of `out`, in the format of [`super::Sparse`], and
    /// returns the number of bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::max_bytes`].
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let mut dense = vec![0.0; CHUNK.min(self.len)];
        let (mut written, mut next) = (0, 0);
        let isa = Isa::detect();
        for start in (0..self.len).step_by(CHUNK) {
            let mut marks: Marks = [0; CHUNK / 64];
            let len = CHUNK.min(self.len - start);
            while let Some(index) = self.indices.get(next) {
                let offset = *index as usize - start;
                if offset >= len {
                    break;
                }
                marks[offset / 64] |= 1 << (offset % 64);
                dense[offset] = self.values[next];
                next += 1;
            }
            let write = SparseEncodeKernel {
                marks: &marks,
                values: &mut dense[..len],
                also: &mut [],
                out: &mut out[written..],
            };
            written += dispatch(isa, write);
        }
        written
    }
}
