//! Matrix products by the crate `gemm`. Transposes operands that `gemm` packs slowly. This module
//! is the only caller of the crate.

use super::super::math;
use super::{Matrix, WriteMode, at_least, transpose};
use gemm::{Parallelism, gemm};
use std::cell::Cell;

thread_local! {
    /// Buffer for a transposed copy of a right-hand side. Grows to the largest copy that the thread
    /// has needed.
    static TRANSPOSED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Equivalent of [`super::multiply_columns`] for operands that are not empty and whose shapes
/// match.
pub(super) fn multiply(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    if rhs.col_stride != 1 && n > 1 && m > 1 {
        // `gemm` packs a transposed right-hand side element by element; a transposition by
        // registers is much faster.
        let mut room = TRANSPOSED.take();
        let is_worth_turning = m >= LEAST_TURNED && m * (k + 2 * n) < k * n;
        if is_worth_turning {
            multiply_turned(out, [stride, first], write, lhs, rhs, threads, &mut room)
        } else {
            let copy = at_least(&mut room, k * n);
            transpose(rhs.data, rhs.col_stride, n, k, copy);
            let rhs = Matrix::new(copy, k, n);
            multiply(out, [stride, first], write, lhs, rhs, threads);
        }
        TRANSPOSED.set(room);
        return;
    }
    let [height, depth] = match (lhs.col_stride, m) {
        (1, ..=FEW_ROWS) => [m, DEPTH],
        (1, _) => [m, k],
        _ => [HEIGHT, DEPTH],
    };
    for row in (0..m).step_by(height) {
        let rows = row..m.min(row + height);
        let out = &mut out[rows.start * stride..rows.end * stride];
        let mut write = write;
        for at in (0..k).step_by(depth) {
            let inner = at..k.min(at + depth);
            let (lhs, rhs) = (lhs.part(rows.clone(), inner.clone()), rhs.part(inner, 0..n));
            multiply_part(out, [stride, first], write, lhs, rhs, threads);
            write = WriteMode::Add;
        }
    }
}

/// Maximum number of rows of a left-hand side for which `gemm`'s packed copy of the right-hand side
/// is hardly reused.
const FEW_ROWS: usize = 256;

/// Depth of a partial product where `gemm` packs much for little work, or packs a transposed
/// left-hand side. The packed copy then stays in the second-level cache; `gemm` sizes it for the
/// third-level one.
const DEPTH: usize = 256;

/// Number of rows of a transposed left-hand side that are multiplied at a time, for the reason of
/// [`DEPTH`].
const HEIGHT: usize = 512;

/// Equivalent of [`multiply`] by one call of `gemm`. The operands are not empty, and columns of
/// `rhs` are adjacent or few.
fn multiply_part(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    let parallelism = if threads > 1 {
        Parallelism::Rayon(threads)
    } else {
        Parallelism::None
    };
    // SAFETY: each `Matrix` has strides that stay within its data (`new`, `columns`, `part`,
    // `transposed`). `out` was checked and, as an exclusive borrow, overlaps neither operand.
    unsafe {
        gemm(
            m,
            n,
            k,
            out[first..].as_mut_ptr(),
            1,
            stride as isize,
            write == WriteMode::Add,
            lhs.data.as_ptr(),
            lhs.col_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.col_stride as isize,
            rhs.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Minimum number of rows of a result that fill a micro-kernel's registers when they become its
/// columns.
const LEAST_TURNED: usize = 32;

/// Equivalent of [`multiply`] for a transposed right-hand side that is larger than the two other
/// matrices together. Computes the transposed result: the transposed right-hand side, which `gemm`
/// packs fast, times the transposed left-hand side. `room` holds the two small transposed matrices.
fn multiply_turned(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
    room: &mut Vec<f32>,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    let room = at_least(room, m * (k + 2 * n));
    let (turned, room) = room.split_at_mut(m * k);
    let (product, result) = room.split_at_mut(m * n);
    // Rows of `lhs` may be strided, or its columns may already be contiguous.
    if lhs.row_stride == 1 {
        for (row, line) in turned.chunks_exact_mut(m).enumerate() {
            line.copy_from_slice(&lhs.data[row * lhs.col_stride..][..m]);
        }
    } else {
        transpose(lhs.data, lhs.row_stride, m, k, turned);
    }
    let turned = Matrix::new(turned, k, m);
    multiply(
        product,
        [m, 0],
        WriteMode::Overwrite,
        rhs.transposed(),
        turned,
        threads,
    );
    transpose(product, m, n, m, result);
    for (to, from) in out.chunks_exact_mut(stride).zip(result.chunks_exact(n)) {
        let to = &mut to[first..first + n];
        match write {
            WriteMode::Overwrite => to.copy_from_slice(from),
            WriteMode::Add => math::add(to, from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_in_pieces_equals_definition() {
        for (m, is_turned) in [(HEIGHT + 3, true), (5, false)] {
            let (n, k) = (7, 2 * DEPTH + 9);
            let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 13) as f32 - 6.0).collect();
            let (lhs, strides) = if is_turned {
                (Matrix::new(&a, k, m).transposed(), [1, m])
            } else {
                (Matrix::new(&a, m, k), [k, 1])
            };
            let mut out = vec![4.0; m * n];
            let rhs = Matrix::new(&b, k, n);
            multiply(&mut out, [n, 0], WriteMode::Overwrite, lhs, rhs, 1);
            multiply(&mut out, [n, 0], WriteMode::Add, lhs, rhs, 2);
            for (at, value) in out.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let terms = (0..k).map(|p| a[i * strides[0] + p * strides[1]] * b[p * n + j]);
                // Whole numbers, whose sums are exact.
                assert_eq!(*value, 2.0 * terms.sum::<f32>(), "{i}, {j}");
            }
        }
    }

    #[test]
    fn wide_transposed_right_hand_side_equals_definition() {
        // The right-hand side must be larger than the two other matrices.
        let (m, n, k) = (LEAST_TURNED + 3, 300, 203);
        assert!(m * (k + 2 * n) < n * k);
        let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 11) as f32 - 5.0).collect();
        let a_transposed: Vec<f32> = (0..k * m).map(|i| a[(i % m) * k + i / m]).collect();
        let b: Vec<f32> = (0..n * k).map(|i| (i * 53 % 13) as f32 - 6.0).collect();
        let expected =
            |i: usize, j: usize| -> f32 { (0..k).map(|at| a[i * k + at] * b[j * k + at]).sum() };
        for lhs in [
            Matrix::new(&a, m, k),
            Matrix::new(&a_transposed, k, m).transposed(),
        ] {
            let rhs = Matrix::new(&b, n, k).transposed();
            let (stride, first) = (n + 7, 4);
            let mut out = vec![1.0; m * stride];
            multiply(&mut out, [stride, first], WriteMode::Overwrite, lhs, rhs, 1);
            multiply(&mut out, [stride, first], WriteMode::Add, lhs, rhs, 2);
            for (at, value) in out.iter().enumerate() {
                let (i, j) = (at / stride, at % stride);
                let is_inside = (first..first + n).contains(&j);
                // Whole numbers, whose sums are exact.
                let wanted = if is_inside {
                    2.0 * expected(i, j - first)
                } else {
                    1.0
                };
                assert!(*value == wanted, "{i}, {j}: {value}, not {wanted}");
            }
        }
    }
}
