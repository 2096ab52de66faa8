//! Destination of a product: a block of rows and columns of a row-major matrix that can be divided
//! among threads.

use super::check_columns;
use std::marker::PhantomData;

/// Exclusive borrow of the elements of the block, but not of the slice that contains them.
#[derive(Debug)]
pub(super) struct MatrixBlockMut<'a> {
    data: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to `&mut [f32]`: no other target or slice has the same elements.
unsafe impl Send for MatrixBlockMut<'_> {}

impl<'a> MatrixBlockMut<'a> {
    /// Returns the columns `first..first + cols` of `out`, which consists of rows of length
    /// `stride`.
    ///
    /// # Panics
    /// If `out` is not a whole number of rows or the rows have no such columns.
    pub(super) fn new(out: &'a mut [f32], [stride, first]: [usize; 2], cols: usize) -> Self {
        check_columns(out.len(), stride, first, cols);
        let (rows, first) = (out.len() / stride, first.min(out.len()));
        Self {
            rows,
            data: out[first..].as_mut_ptr(),
            cols,
            stride,
            of: PhantomData,
        }
    }

    /// Splits into the rows before `at` and the others.
    pub(super) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at < self.rows, "row {at} of {}", self.rows);
        let data = self.data.wrapping_add(at * self.stride);
        let rows = self.rows - at;
        let below = Self { data, rows, ..self };
        (Self { rows: at, ..self }, below)
    }

    /// Splits into the columns before `at` and the others.
    pub(super) fn split_columns(self, at: usize) -> (Self, Self) {
        assert!(at < self.cols, "column {at} of {}", self.cols);
        let data = self.data.wrapping_add(at);
        let cols = self.cols - at;
        let right = Self { data, cols, ..self };
        (Self { cols: at, ..self }, right)
    }

    /// Returns up to `most` elements of a row from `column` on, fewer at the end of the row.
    #[inline]
    pub(super) fn line(&mut self, row: usize, column: usize, most: usize) -> &mut [f32] {
        assert!(row < self.rows && column < self.cols);
        let len = most.min(self.cols - column);
        // SAFETY: these elements belong to this target, which is borrowed exclusively.
        unsafe {
            let at = self.data.add(row * self.stride + column);
            std::slice::from_raw_parts_mut(at, len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_targets_cover_each_element_once() {
        let mut out = [0.0; 4 * 7];
        let whole = MatrixBlockMut::new(&mut out, [7, 1], 5);
        let (above, below) = whole.split_rows(1);
        let (left, right) = below.split_columns(3);
        for (number, mut part) in [above, left, right].into_iter().enumerate() {
            for row in 0..part.rows {
                for column in (0..part.cols).step_by(2) {
                    let line = part.line(row, column, 2);
                    line.iter_mut().for_each(|x| *x += number as f32 + 1.0);
                }
            }
        }
        let row = [0.0, 2.0, 2.0, 2.0, 3.0, 3.0, 0.0];
        assert_eq!(out[..7], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        assert!(out[7..].chunks_exact(7).all(|line| line == row));
    }
}
