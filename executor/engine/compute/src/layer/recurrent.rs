//! Helpers of the recurrent layers: one row per position that holds its gates one after another.

use super::matrix::WriteMode;
use crate::simd::vectorised;

/// Number of examples whose steps are computed together. It limits the number of threads that have
/// work; the bits do not depend on it.
pub(super) const GROUP: usize = 32;

/// Returns the last `len` elements before a position, or `None` at the first position.
pub(super) fn tail(before: &[f32], len: usize) -> Option<&[f32]> {
    before.len().checked_sub(len).map(|start| &before[start..])
}

/// Returns the first `N` parts of `len` elements each.
#[inline(always)]
pub(super) fn parts<const N: usize>(mut x: &[f32], len: usize) -> [&[f32]; N] {
    [(); N].map(|()| {
        let (part, rest) = x.split_at(len);
        x = rest;
        part
    })
}

/// Mutable version of [`parts`].
#[inline(always)]
pub(super) fn parts_mut<const N: usize>(mut x: &mut [f32], len: usize) -> [&mut [f32]; N] {
    [(); N].map(|()| {
        let (part, rest) = std::mem::take(&mut x).split_at_mut(len);
        x = rest;
        part
    })
}

/// Adds the columns from `first` on of all rows of length `stride`, first row to last.
pub(super) fn add_columns(
    sum: &mut [f32],
    write: WriteMode,
    rows: &[f32],
    stride: usize,
    first: usize,
) {
    if write == WriteMode::Overwrite {
        sum.fill(0.0);
    }
    add_strided(sum, rows, stride, first);
}

/// Clears the gradients of the gates at the first position of each sequence. Each row can then be
/// multiplied with the hidden state before it, also across the boundary between sequences.
pub(super) fn forget_first(rows: &mut [f32], stride: usize, positions: usize) {
    for row in rows.chunks_exact_mut(stride * positions) {
        row[..stride].fill(0.0);
    }
}

vectorised! {
    fn add_strided(sum: &mut [f32], rows: &[f32], stride: usize, first: usize) {
        for row in rows.chunks_exact(stride) {
            for (sum, value) in sum.iter_mut().zip(&row[first..]) {
                *sum += value;
            }
        }
    }
}
