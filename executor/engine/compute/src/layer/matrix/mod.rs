//! Matrix products on slices. The implementation, [`tiles`] or [`library`], is chosen by processor
//! and shape and is invisible to the caller.

mod block;
mod library;
mod tiles;
mod transpose;

pub(crate) use transpose::transpose;

use block::MatrixBlockMut;
use std::ops::Range;
use tiles::TileKernel;

/// View of a matrix in row-major storage, or of its transpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// Whether a result replaces the previous content of its destination or is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    Overwrite,
    Add,
}

impl<'a> Matrix<'a> {
    /// # Panics
    /// If the length of `data` is not `rows` × `cols`.
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

    /// Returns the columns `first..first + cols` of a row-major matrix with rows of length
    /// `stride`. `data` holds whole rows.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows or the rows have no such columns.
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

    /// Returns a submatrix without copying.
    fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let first = rows.start * self.row_stride + cols.start * self.col_stride;
        Self {
            data: &self.data[first..],
            rows: rows.len(),
            cols: cols.len(),
            ..self
        }
    }

    /// Returns the transpose without copying.
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

/// Computes `out = lhs · rhs` or `out += lhs · rhs`; `out` is row-major without gaps. With more
/// than one thread it runs on the current rayon pool. Threads divide rows and columns of `out` and
/// never a sum, so the bits do not depend on their number.
///
/// # Panics
/// If the shapes do not match.
pub(crate) fn multiply(
    out: &mut [f32],
    write: WriteMode,
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

/// Equivalent of [`multiply`] that writes to the columns from `first` on. `out` consists of rows of
/// length `stride`; its other columns are unchanged.
///
/// # Panics
/// If the shapes do not match.
pub(crate) fn multiply_columns(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
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
        if write == WriteMode::Overwrite {
            out.chunks_exact_mut(stride)
                .for_each(|row| row[first..first + n].fill(0.0));
        }
        return;
    }
    match TileKernel::find().filter(|tiles| tiles.suit([m, n, k])) {
        Some(tiles) => {
            let out = MatrixBlockMut::new(out, [stride, first], n);
            tiles.multiply(out, write, lhs, rhs, threads);
        }
        None => library::multiply(out, [stride, first], write, lhs, rhs, threads),
    }
}

/// Right-hand side of many products, cut into strips of columns without gaps; the strips are panels
/// where [`tiles`] is used. For `gemm` the strips avoid cache conflicts. In a wide matrix, rows of
/// the columns that `gemm` reads at a time share pages and lines of the first-level cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixStrips<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    /// Number of columns of a strip; the last strip may have fewer.
    width: usize,
}

impl<'a> MatrixStrips<'a> {
    /// Number of columns of a strip for `gemm`.
    const WIDE: usize = 192;

    fn width() -> usize {
        TileKernel::find().map_or(Self::WIDE, |_| tiles::COLUMNS)
    }

    /// Copies a row-major matrix without gaps into `room`.
    ///
    /// # Panics
    /// If either slice has another length than `rows` × `cols`.
    pub(crate) fn of(data: &[f32], rows: usize, cols: usize, room: &'a mut [f32]) -> Self {
        assert_eq!((data.len(), room.len()), (rows * cols, rows * cols));
        let width = Self::width();
        for (strip, first) in room.chunks_mut(rows * width).zip((0..cols).step_by(width)) {
            let width = strip.len() / rows;
            let lines = data.chunks_exact(cols).zip(strip.chunks_exact_mut(width));
            for (from, to) in lines {
                to.copy_from_slice(&from[first..first + width]);
            }
        }
        let data = room;
        Self {
            data,
            rows,
            cols,
            width,
        }
    }

    /// Copies the transpose of a row-major matrix without gaps into `room`; its rows become
    /// columns.
    ///
    /// # Panics
    /// If either slice has another length than `rows` × `cols`.
    pub(crate) fn transposed(data: &[f32], rows: usize, cols: usize, room: &'a mut [f32]) -> Self {
        assert_eq!((data.len(), room.len()), (rows * cols, rows * cols));
        let width = Self::width();
        let lines = data.chunks(width * cols);
        for (lines, strip) in lines.zip(room.chunks_mut(width * cols)) {
            transpose(lines, cols, lines.len() / cols, cols, strip);
        }
        let data = room;
        let (rows, cols) = (cols, rows);
        Self {
            data,
            rows,
            cols,
            width,
        }
    }
}

/// Equivalent of [`multiply_columns`] on one thread.
///
/// # Panics
/// If the shapes do not match.
pub(crate) fn multiply_strips(
    out: &mut [f32],
    [stride, first]: [usize; 2],
    write: WriteMode,
    lhs: Matrix<'_>,
    rhs: MatrixStrips<'_>,
) {
    let mut first = first;
    let mut rest = rhs.data;
    if let Some(tiles) = TileKernel::find() {
        assert_eq!(lhs.cols, rhs.rows, "inner dimensions");
        assert_eq!(
            out.len(),
            lhs.rows * stride,
            "{} rows of {stride}",
            lhs.rows
        );
        let whole = rhs.cols - rhs.cols % rhs.width;
        let (panels, others) = rest.split_at(rhs.rows * whole);
        if !panels.is_empty() {
            let out = MatrixBlockMut::new(out, [stride, first], whole);
            tiles.multiply_panels(out, write, lhs, panels);
        }
        first += whole;
        rest = others;
    }
    for strip in rest.chunks(rhs.rows * rhs.width) {
        let width = strip.len() / rhs.rows;
        let strip = Matrix::new(strip, rhs.rows, width);
        multiply_columns(out, [stride, first], write, lhs, strip, 1);
        first += width;
    }
}

fn at_least(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    room.resize(room.len().max(len), 0.0);
    &mut room[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_of_every_orientation_equals_definition() {
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
                multiply(&mut out, WriteMode::Overwrite, lhs, rhs, 1);
                assert_eq!(out, expected);
                multiply(&mut out, WriteMode::Add, lhs, rhs, 2);
                assert!(out.iter().zip(&expected).all(|(x, y)| *x == 2.0 * y));
            }
        }
    }

    #[test]
    fn product_of_columns_keeps_other_columns() {
        // Columns 1 and 2 of 2×4 times columns 0 and 1 of 2×3, into columns 1 and 2 of 2×3.
        let a: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..6).map(|i| i as f32 - 2.0).collect();
        let mut out = vec![9.0; 6];
        multiply_columns(
            &mut out,
            [3, 1],
            WriteMode::Overwrite,
            Matrix::columns(&a, 4, 1, 2),
            Matrix::columns(&b, 3, 0, 2),
            1,
        );
        assert_eq!(out, [9.0, 0.0, 3.0, 9.0, -4.0, 7.0]);
        multiply_columns(
            &mut out,
            [3, 1],
            WriteMode::Add,
            Matrix::columns(&a, 4, 1, 2),
            Matrix::columns(&b, 3, 0, 2),
            1,
        );
        assert_eq!(out, [9.0, 0.0, 6.0, 9.0, -8.0, 14.0]);
    }

    #[test]
    fn strips_equal_the_matrix_and_its_transpose() {
        let (m, rows, cols) = (5, 23, 2 * MatrixStrips::WIDE + 41);
        let data: Vec<f32> = (0..rows * cols)
            .map(|i| (i * 37 % 11) as f32 - 5.0)
            .collect();
        let mut room = vec![0.0; rows * cols];
        for is_turned in [false, true] {
            let matrix = Matrix::new(&data, rows, cols);
            let (matrix, strips) = if is_turned {
                (
                    matrix.transposed(),
                    MatrixStrips::transposed(&data, rows, cols, &mut room),
                )
            } else {
                (matrix, MatrixStrips::of(&data, rows, cols, &mut room))
            };
            let (k, n) = (matrix.rows, matrix.cols);
            let lhs: Vec<f32> = (0..m * k).map(|i| (i * 53 % 13) as f32 - 6.0).collect();
            let lhs = Matrix::new(&lhs, m, k);
            let (stride, first) = (n + 3, 2);
            let (mut whole, mut cut) = (vec![1.0; m * stride], vec![1.0; m * stride]);
            for write in [WriteMode::Overwrite, WriteMode::Add] {
                multiply_columns(&mut whole, [stride, first], write, lhs, matrix, 1);
                multiply_strips(&mut cut, [stride, first], write, lhs, strips);
            }
            // Whole numbers, whose sums are exact.
            assert!(whole == cut, "turned: {is_turned}");
        }
    }

    #[test]
    fn product_bits_do_not_depend_on_threads() {
        let (m, n, k) = (97, 130, 1100);
        let a: Vec<f32> = (0..m * k)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 77.0)
            .collect();
        let b: Vec<f32> = (0..k * n)
            .map(|i| ((i * 53 % 89) as f32 - 44.0) / 61.0)
            .collect();
        let [one, three] = [1, 3].map(|threads| {
            let mut out = vec![0.0; m * n];
            multiply(
                &mut out,
                WriteMode::Overwrite,
                Matrix::new(&a, m, k),
                Matrix::new(&b, k, n),
                threads,
            );
            out
        });
        assert_eq!(one, three);
    }

    #[test]
    fn empty_sum_is_zero() {
        let mut out = vec![4.0; 6];
        multiply(
            &mut out,
            WriteMode::Add,
            Matrix::new(&[], 2, 0),
            Matrix::new(&[], 0, 3),
            1,
        );
        assert_eq!(out, [4.0; 6]);
        multiply(
            &mut out,
            WriteMode::Overwrite,
            Matrix::new(&[], 2, 0),
            Matrix::new(&[], 0, 3),
            1,
        );
        assert_eq!(out, [0.0; 6]);
    }
}
