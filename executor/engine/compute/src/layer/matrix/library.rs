//! Matrix products by the crate `gemm`, whose only caller this module is. A transposed right-hand
//! side is first copied in row order, because `gemm` packs it slowly. Large products are divided so
//! that packed copies stay in a cache.
//!
//! Names: `lhs` has m × k elements, `rhs` k × n. An operand is transposed if the elements of its
//! columns, and not of its rows, are adjacent in memory.

use super::super::math;
use super::{Matrix, WriteMode, at_least, transpose};
use gemm::{Parallelism, gemm};
use std::cell::Cell;

thread_local! {
    /// Buffer for transposed copies. Grows to the largest size that the thread has needed.
    static TRANSPOSED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Equivalent of [`super::multiply_columns`], which has checked that the operands are not empty and
/// that all shapes match. `out` consists of rows of length `stride`; the product goes to the
/// columns from `first` on.
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
        // `gemm` packs a transposed right-hand side element by element. `transpose` works on blocks
        // in registers, which is much faster.
        let mut buffer = TRANSPOSED.take();
        let is_rhs_largest = m * (k + 2 * n) < k * n;
        if is_rhs_largest && m >= MIN_ROWS_TRANSPOSED {
            multiply_by_transposes(out, [stride, first], write, lhs, rhs, threads, &mut buffer)
        } else {
            let copy = at_least(&mut buffer, k * n);
            transpose(rhs.data, rhs.col_stride, n, k, copy);
            let rhs = Matrix::new(copy, k, n);
            multiply(out, [stride, first], write, lhs, rhs, threads);
        }
        TRANSPOSED.set(buffer);
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

/// Inner dimension of a partial product. Products are divided where `gemm` packs much for little
/// work, or packs a transposed left-hand side. The packed copy then stays in the second-level
/// cache; `gemm` sizes it for the third-level one.
const DEPTH: usize = 256;

/// Number of rows of a transposed left-hand side that are multiplied at a time, for the reason of
/// [`DEPTH`].
const HEIGHT: usize = 512;

/// Equivalent of [`multiply`] by one call of `gemm`. The elements of a row of `rhs` are adjacent,
/// unless the product has one row or one column.
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
    // `transposed`). `multiply_columns` has checked `out`. As an exclusive borrow, it overlaps
    // neither operand.
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

/// Minimum number of rows of a result that is computed by [`multiply_by_transposes`]. They become
/// its columns, and fewer would not fill the registers of `gemm`'s inner loop.
const MIN_ROWS_TRANSPOSED: usize = 32;

/// Equivalent of [`multiply`] for a transposed right-hand side that is larger than the two other
/// matrices together. Computes the transposed result, `rhs^T lhs^T`, so that not `rhs` but the two
/// small matrices are transposed. `buffer` holds `lhs^T`, the transposed result, and the result.
fn multiply_by_transposes(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
    buffer: &mut Vec<f32>,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    let buffer = at_least(buffer, m * (k + 2 * n));
    let (lhs_transposed, buffer) = buffer.split_at_mut(m * k);
    let (result_transposed, result) = buffer.split_at_mut(m * n);
    // The columns of a transposed `lhs` are copied; otherwise its rows are transposed.
    if lhs.row_stride == 1 {
        for (column, to) in lhs_transposed.chunks_exact_mut(m).enumerate() {
            to.copy_from_slice(&lhs.data[column * lhs.col_stride..][..m]);
        }
    } else {
        transpose(lhs.data, lhs.row_stride, m, k, lhs_transposed);
    }
    let lhs_transposed = Matrix::new(lhs_transposed, k, m);
    multiply(
        result_transposed,
        [m, 0],
        WriteMode::Overwrite,
        rhs.transposed(),
        lhs_transposed,
        threads,
    );
    transpose(result_transposed, m, n, m, result);
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
        for (m, is_transposed) in [(HEIGHT + 3, true), (5, false)] {
            let (n, k) = (7, 2 * DEPTH + 9);
            let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 13) as f32 - 6.0).collect();
            let (lhs, strides) = if is_transposed {
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
        let (m, n, k) = (MIN_ROWS_TRANSPOSED + 3, 300, 203);
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
