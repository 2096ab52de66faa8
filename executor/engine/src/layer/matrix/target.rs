//! Where a product goes: some rows and columns of a row-major matrix, which can be divided among threads.

use super::check_columns;
use std::marker::PhantomData;

/// The only borrow of these numbers, though not of the slice that they are spread over.
#[derive(Debug)]
pub(super) struct Target<'a> {
    data: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: as `&mut [f32]`: no other target or slice has the same numbers.
unsafe impl Send for Target<'_> {}

impl<'a> Target<'a> {
    /// Columns `first..first + cols` of rows of `stride` numbers that fill `out`.
    ///
    /// # Panics
    /// When rows do not fill `out` or have no such columns.
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

    /// Rows before `at` and the others.
    pub(super) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at < self.rows, "row {at} of {}", self.rows);
        let data = self.data.wrapping_add(at * self.stride);
        let rows = self.rows - at;
        let below = Self { data, rows, ..self };
        (Self { rows: at, ..self }, below)
    }

    /// Columns before `at` and the others.
    pub(super) fn split_columns(self, at: usize) -> (Self, Self) {
        assert!(at < self.cols, "column {at} of {}", self.cols);
        let data = self.data.wrapping_add(at);
        let cols = self.cols - at;
        let right = Self { data, cols, ..self };
        (Self { cols: at, ..self }, right)
    }

    /// Up to `most` numbers of a row from this column on, fewer at its end.
    #[inline]
    pub(super) fn line(&mut self, row: usize, column: usize, most: usize) -> &mut [f32] {
        assert!(row < self.rows && column < self.cols);
        let len = most.min(self.cols - column);
        // SAFETY: these numbers are this target's, which is borrowed exclusively.
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
    fn parts_have_the_numbers_of_the_whole_once_and_no_others() {
        let mut out = [0.0; 4 * 7];
        let whole = Target::new(&mut out, [7, 1], 5);
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
