//! Matrix products on slices: the one place that calls `gemm`.

use super::math;
use super::simd::vectorised;
use gemm::{Parallelism, gemm};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    /// Room for a transposed copy of a right-hand side. Grows to the largest that the thread has met.
    static TRANSPOSED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// A matrix in row-major storage without gaps, or the transpose of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// What happens to what the destination held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Overwrite,
    Add,
}

impl<'a> Matrix<'a> {
    /// # Panics
    /// When `data` is not exactly `rows` × `cols`.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a {rows}×{cols} matrix");
        Self {
            data,
            rows,
            cols,
            row_stride: cols,
            col_stride: 1,
        }
    }

    /// Columns `first..first + cols` of a row-major matrix whose rows are `stride` long; `data` holds whole rows.
    ///
    /// # Panics
    /// When rows do not fill `data` or have no such columns.
    pub(crate) fn columns(data: &'a [f32], stride: usize, first: usize, cols: usize) -> Self {
        check_columns(data.len(), stride, first, cols);
        Self {
            rows: data.len() / stride,
            data: &data[first.min(data.len())..],
            cols,
            row_stride: stride,
            col_stride: 1,
        }
    }

    /// Some of its rows and columns; nothing is moved.
    fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let first = rows.start * self.row_stride + cols.start * self.col_stride;
        Self {
            data: &self.data[first..],
            rows: rows.len(),
            cols: cols.len(),
            ..self
        }
    }

    /// The same numbers with rows and columns exchanged; nothing is moved.
    pub(crate) fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

fn check_columns(len: usize, stride: usize, first: usize, cols: usize) {
    assert!(
        stride > 0 && len.is_multiple_of(stride) && first + cols <= stride,
        "columns {first} to {} of rows of {stride} in {len} numbers",
        first + cols
    );
}

/// `out = lhs · rhs`, or `out += lhs · rhs`; `out` is row-major without gaps. With more than one thread it runs on the current rayon
/// pool; threads divide rows and columns of `out`, never a sum, so the bits stay the same.
///
/// # Panics
/// When the shapes do not fit together.
pub(crate) fn multiply(
    out: &mut [f32],
    write: Write,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
) {
    let (rows, cols) = (lhs.rows, rhs.cols);
    assert_eq!(out.len(), rows * cols, "a {rows}×{cols} result");
    if cols > 0 {
        multiply_columns(out, [cols, 0], write, lhs, rhs, threads);
    }
}

/// As [`multiply`], into the columns from `first` on of the rows of `stride` numbers that fill `out`; its other columns stay.
///
/// # Panics
/// When the shapes do not fit together.
pub(crate) fn multiply_columns(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: Write,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    assert_eq!(k, rhs.rows, "inner dimensions");
    check_columns(out.len(), stride, first, n);
    assert_eq!(out.len(), m * stride, "{m} rows of {stride}");
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if write == Write::Overwrite {
            out.chunks_exact_mut(stride)
                .for_each(|row| row[first..first + n].fill(0.0));
        }
        return;
    }
    if rhs.col_stride != 1 && n > 1 && m > 1 {
        // `gemm` packs a transposed right-hand side number by number, in 3 ns each; moving whole registers takes a tenth.
        let mut room = TRANSPOSED.take();
        let is_worth_turning = m >= LEAST_TURNED && m * (k + 2 * n) < k * n;
        match is_worth_turning {
            true => multiply_turned(out, [stride, first], write, lhs, rhs, threads, &mut room),
            false => {
                let copy = at_least(&mut room, k * n);
                transpose(rhs.data, rhs.col_stride, n, k, copy);
                let rhs = Matrix::new(copy, k, n);
                multiply_columns(out, [stride, first], write, lhs, rhs, threads);
            }
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
            write = Write::Add;
        }
    }
}

/// Rows of a left-hand side that are few: what `gemm` copies of the right-hand side for them is not read often.
const FEW_ROWS: usize = 256;

/// Numbers of a sum that are multiplied at a time where `gemm` copies much for little, or a transposed left-hand side: what it copies then
/// stays in the second-level cache, which it would leave by its reckoning with the third-level one. A tenth of the time of a product.
const DEPTH: usize = 256;

/// Rows of a transposed left-hand side that are multiplied at a time, as [`DEPTH`].
const HEIGHT: usize = 512;

/// As [`multiply_columns`], by one call of `gemm`; nothing is empty, and columns of `rhs` are side by side or few.
fn multiply_part(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: Write,
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
    // SAFETY: each `Matrix` holds numbers and strides that stay within them (`new`, `columns`, `part`, `transposed`); `out` was
    // checked and, as an exclusive borrow, overlaps neither.
    unsafe {
        gemm(
            m,
            n,
            k,
            out[first..].as_mut_ptr(),
            1,
            stride as isize,
            write == Write::Add,
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

/// Rows of a result that fill enough of a micro-kernel's registers when they are its columns.
const LEAST_TURNED: usize = 32;

/// As [`multiply_columns`] of a transposed right-hand side that is larger than the other two matrices: its transpose, which lies as `gemm`
/// likes it, times the left-hand side's is the result's. `room` is for the small matrices, turned.
fn multiply_turned(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: Write,
    lhs: Matrix<'_>,
    rhs: Matrix<'_>,
    threads: usize,
    room: &mut Vec<f32>,
) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    let room = at_least(room, m * (k + 2 * n));
    let (turned, room) = room.split_at_mut(m * k);
    let (product, result) = room.split_at_mut(m * n);
    // Rows of `lhs` may lie far apart, or its columns may be rows already.
    if lhs.row_stride == 1 {
        for (row, line) in turned.chunks_exact_mut(m).enumerate() {
            line.copy_from_slice(&lhs.data[row * lhs.col_stride..][..m]);
        }
    } else {
        transpose(lhs.data, lhs.row_stride, m, k, turned);
    }
    let turned = Matrix::new(turned, k, m);
    multiply(product, Write::Overwrite, rhs.transposed(), turned, threads);
    transpose(product, m, n, m, result);
    for (to, from) in out.chunks_exact_mut(stride).zip(result.chunks_exact(n)) {
        let to = &mut to[first..first + n];
        match write {
            Write::Overwrite => to.copy_from_slice(from),
            Write::Add => math::add(to, from),
        }
    }
}

fn at_least(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    room.resize(room.len().max(len), 0.0);
    &mut room[..len]
}

/// Columns of a right-hand side that lie together in [`Strips`].
const STRIP: usize = 192;

/// A right-hand side that many products have, cut into strips of columns, each without gaps. In a wide matrix every row of the few columns
/// that `gemm` works on lies in a page, and in the same lines of the first-level cache, as the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strips<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
}

impl<'a> Strips<'a> {
    /// Of a row-major matrix without gaps, which `room` takes a copy of.
    ///
    /// # Panics
    /// When either has another length.
    pub(crate) fn of(data: &[f32], rows: usize, cols: usize, room: &'a mut [f32]) -> Self {
        assert_eq!((data.len(), room.len()), (rows * cols, rows * cols));
        let mut rest = &mut *room;
        for first in (0..cols).step_by(STRIP) {
            let width = STRIP.min(cols - first);
            let (strip, after) = rest.split_at_mut(rows * width);
            let lines = data.chunks_exact(cols).zip(strip.chunks_exact_mut(width));
            for (from, to) in lines {
                to.copy_from_slice(&from[first..first + width]);
            }
            rest = after;
        }
        let data = room;
        Self { data, rows, cols }
    }

    /// Of the transpose of a row-major matrix without gaps: its rows become columns.
    ///
    /// # Panics
    /// As [`Self::of`].
    pub(crate) fn transposed(data: &[f32], rows: usize, cols: usize, room: &'a mut [f32]) -> Self {
        assert_eq!((data.len(), room.len()), (rows * cols, rows * cols));
        let mut rest = &mut *room;
        for lines in data.chunks(STRIP * cols) {
            let (strip, after) = rest.split_at_mut(lines.len());
            transpose(lines, cols, lines.len() / cols, cols, strip);
            rest = after;
        }
        let data = room;
        let (rows, cols) = (cols, rows);
        Self { data, rows, cols }
    }
}

/// As [`multiply_columns`], on one thread.
///
/// # Panics
/// As there.
pub(crate) fn multiply_strips(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: Write,
    lhs: Matrix<'_>,
    rhs: Strips<'_>,
) {
    let mut rest = rhs.data;
    for start in (0..rhs.cols).step_by(STRIP) {
        let width = STRIP.min(rhs.cols - start);
        let (strip, after) = rest.split_at(rhs.rows * width);
        let strip = Matrix::new(strip, rhs.rows, width);
        multiply_columns(out, [stride, first + start], write, lhs, strip, 1);
        rest = after;
    }
}

/// Rows and columns of what [`transpose`] turns at a time: 16 KiB, half of the first-level cache.
const TILE: usize = 64;

vectorised! {
    /// `out` is columns × rows; row `i` of `data` begins at `i · stride`. By blocks that fit into registers, and tiles of them without gaps,
    /// as lines of a matrix that is as wide as a power of two would drive each other out of the cache.
    pub(crate) fn transpose(data: &[f32], stride: usize, rows: usize, columns: usize, out: &mut [f32]) {
        const SIDE: usize = 8;
        let mut tile = [0.0; TILE * TILE];
        let (whole_rows, whole_columns) = (rows - rows % SIDE, columns - columns % SIDE);
        for first_row in (0..whole_rows).step_by(TILE) {
            let height = TILE.min(whole_rows - first_row);
            for first_column in (0..whole_columns).step_by(TILE) {
                let width = TILE.min(whole_columns - first_column);
                for row in (0..height).step_by(SIDE) {
                    for column in (0..width).step_by(SIDE) {
                        let mut block = [[0.0; SIDE]; SIDE];
                        for (i, line) in block.iter_mut().enumerate() {
                            let at = (first_row + row + i) * stride + first_column + column;
                            line.copy_from_slice(&data[at..][..SIDE]);
                        }
                        let mut turned = [[0.0; SIDE]; SIDE];
                        for i in 0..SIDE {
                            for j in 0..SIDE {
                                turned[j][i] = block[i][j];
                            }
                        }
                        for (j, line) in turned.iter().enumerate() {
                            tile[(column + j) * TILE + row..][..SIDE].copy_from_slice(line);
                        }
                    }
                }
                for column in 0..width {
                    let at = (first_column + column) * rows + first_row;
                    out[at..][..height].copy_from_slice(&tile[column * TILE..][..height]);
                }
            }
        }
        for row in 0..rows {
            let first = if row < whole_rows { whole_columns } else { 0 };
            for column in first..columns {
                out[column * rows + row] = data[row * stride + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_of_every_orientation_is_the_definition() {
        let (m, n, k) = (5, 7, 3);
        let a: Vec<f32> = (0..m * k).map(|i| i as f32 - 6.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| 3.0 - i as f32).collect();
        let a_transposed: Vec<f32> = (0..k * m).map(|i| a[(i % m) * k + i / m]).collect();
        let b_transposed: Vec<f32> = (0..n * k).map(|i| b[(i % k) * n + i / k]).collect();
        let expected: Vec<f32> = (0..m * n)
            .map(|i| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum())
            .collect();
        for lhs in [
            Matrix::new(&a, m, k),
            Matrix::new(&a_transposed, k, m).transposed(),
        ] {
            for rhs in [
                Matrix::new(&b, k, n),
                Matrix::new(&b_transposed, n, k).transposed(),
            ] {
                let mut out = vec![1.0; m * n];
                multiply(&mut out, Write::Overwrite, lhs, rhs, 1);
                assert_eq!(out, expected);
                multiply(&mut out, Write::Add, lhs, rhs, 2);
                assert!(out.iter().zip(&expected).all(|(x, y)| *x == 2.0 * y));
            }
        }
    }

    #[test]
    fn a_product_in_pieces_is_the_definition() {
        for (m, is_turned) in [(HEIGHT + 3, true), (5, false)] {
            let (n, k) = (7, 2 * DEPTH + 9);
            let a: Vec<f32> = (0..m * k).map(|i| (i * 37 % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i * 53 % 13) as f32 - 6.0).collect();
            let (lhs, strides) = match is_turned {
                true => (Matrix::new(&a, k, m).transposed(), [1, m]),
                false => (Matrix::new(&a, m, k), [k, 1]),
            };
            let mut out = vec![4.0; m * n];
            multiply(&mut out, Write::Overwrite, lhs, Matrix::new(&b, k, n), 1);
            multiply(&mut out, Write::Add, lhs, Matrix::new(&b, k, n), 2);
            for (at, value) in out.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let term = |p: usize| a[i * strides[0] + p * strides[1]] * b[p * n + j];
                // Whole numbers, whose sums are exact.
                assert_eq!(*value, 2.0 * (0..k).map(term).sum::<f32>(), "{i}, {j}");
            }
        }
    }

    #[test]
    fn a_wide_transposed_right_hand_side_is_the_definition_in_whole_and_in_columns() {
        // So that it is larger than the other two.
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
            multiply_columns(&mut out, [stride, first], Write::Overwrite, lhs, rhs, 1);
            multiply_columns(&mut out, [stride, first], Write::Add, lhs, rhs, 2);
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

    #[test]
    fn a_product_of_columns_leaves_the_others() {
        // Columns 1 and 2 of 2×4 times columns 0 and 1 of 2×3, into columns 1 and 2 of 2×3.
        let a: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..6).map(|i| i as f32 - 2.0).collect();
        let mut out = vec![9.0; 6];
        multiply_columns(
            &mut out,
            [3, 1],
            Write::Overwrite,
            Matrix::columns(&a, 4, 1, 2),
            Matrix::columns(&b, 3, 0, 2),
            1,
        );
        assert_eq!(out, [9.0, 0.0, 3.0, 9.0, -4.0, 7.0]);
        multiply_columns(
            &mut out,
            [3, 1],
            Write::Add,
            Matrix::columns(&a, 4, 1, 2),
            Matrix::columns(&b, 3, 0, 2),
            1,
        );
        assert_eq!(out, [9.0, 0.0, 6.0, 9.0, -8.0, 14.0]);
    }

    #[test]
    fn transposing_moves_every_number() {
        for (rows, columns, stride) in [
            (1, 1, 1),
            (8, 8, 8),
            (9, 17, 20),
            (3, 30, 30),
            (40, 7, 9),
            (150, 203, 210),
        ] {
            let data: Vec<f32> = (0..rows * stride).map(|i| i as f32).collect();
            let mut out = vec![f32::NAN; rows * columns];
            transpose(&data, stride, rows, columns, &mut out);
            let expected = (0..columns * rows).map(|i| data[i % rows * stride + i / rows]);
            assert!(out.iter().copied().eq(expected), "{rows}×{columns}");
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let (m, n, k) = (97, 130, 1100);
        let a: Vec<f32> = (0..m * k)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 77.0)
            .collect();
        let b: Vec<f32> = (0..k * n)
            .map(|i| ((i * 53 % 89) as f32 - 44.0) / 61.0)
            .collect();
        let product = |threads| {
            let mut out = vec![0.0; m * n];
            multiply(
                &mut out,
                Write::Overwrite,
                Matrix::new(&a, m, k),
                Matrix::new(&b, k, n),
                threads,
            );
            out
        };
        assert_eq!(product(1), product(3));
    }

    #[test]
    fn an_empty_sum_is_zero() {
        let mut out = vec![4.0; 6];
        multiply(
            &mut out,
            Write::Add,
            Matrix::new(&[], 2, 0),
            Matrix::new(&[], 0, 3),
            1,
        );
        assert_eq!(out, [4.0; 6]);
        multiply(
            &mut out,
            Write::Overwrite,
            Matrix::new(&[], 2, 0),
            Matrix::new(&[], 0, 3),
            1,
        );
        assert_eq!(out, [0.0; 6]);
    }
}
