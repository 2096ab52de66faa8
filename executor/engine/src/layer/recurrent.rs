//! What recurrent layers have in common: rows of numbers per position, which hold gates after one another.

use super::matrix::Write;
use super::simd::vectorised;

/// Examples whose steps go together. The bits do not depend on it, but the number of threads that find work does.
pub(super) const GROUP: usize = 32;

/// The last numbers of what lies before a position: nothing at the first one.
pub(super) fn tail(before: &[f32], len: usize) -> Option<&[f32]> {
    before.len().checked_sub(len).map(|start| &before[start..])
}

/// The first parts of `len` numbers each.
#[inline(always)]
pub(super) fn parts<const N: usize>(mut x: &[f32], len: usize) -> [&[f32]; N] {
    [(); N].map(|()| {
        let (part, rest) = x.split_at(len);
        x = rest;
        part
    })
}

/// As [`parts`].
#[inline(always)]
pub(super) fn parts_mut<const N: usize>(mut x: &mut [f32], len: usize) -> [&mut [f32]; N] {
    [(); N].map(|()| {
        let (part, rest) = std::mem::take(&mut x).split_at_mut(len);
        x = rest;
        part
    })
}

/// Sums over all rows of `stride` numbers, from column `first` on, first row to last.
pub(super) fn add_columns(
    sum: &mut [f32],
    write: Write,
    rows: &[f32],
    stride: usize,
    first: usize,
) {
    if write == Write::Overwrite {
        sum.fill(0.0);
    }
    add_strided(sum, rows, stride, first);
}

/// Clears the gates' gradients of each sequence's first position. Then rows one after the other may be paired with the hidden states one
/// before, across the border between sequences, where there is none.
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
