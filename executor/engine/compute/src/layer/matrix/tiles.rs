//! Matrix products with AVX2. The sums of one tile of the result are in registers at a time.
//!
//! The crate `gemm` packs the right-hand side for every product, which costs as much as a product
//! with few rows, and packs transposed operands element by element. Here the right-hand side of
//! many products is cut into panels once ([`super::MatrixStrips`]), and other operands are
//! transposed by registers while they are packed. The loop order is Goto and van de Geijn's (2008).
//! A panel of the right-hand side stays in the first-level cache. It is multiplied by panels of the
//! left-hand side, which stay in the second-level cache.
//!
//! Each element of the result is a chain of fused multiply-adds over each 256 terms of the sum,
//! first to last, wherever it is in a tile. The bits depend on the length of the sum alone and not
//! on other shapes or the number of threads.

use super::{Matrix, MatrixBlockMut, WriteMode};

/// Number of columns of a tile and of a panel: two registers.
pub(super) const COLUMNS: usize = 16;

/// Proof that this processor has AVX2 and fused multiply-adds but not AVX-512, for which `gemm` is
/// faster.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileKernel(Avx2Support);

#[cfg(target_arch = "x86_64")]
use avx2::Avx2Support;

/// No processor of other architectures qualifies.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
enum Avx2Support {}

#[cfg(not(target_arch = "x86_64"))]
impl Avx2Support {
    fn find() -> Option<Self> {
        None
    }

    fn multiply(self, _: MatrixBlockMut<'_>, _: WriteMode, _: Matrix<'_>, _: RightOperand<'_>) {
        match self {}
    }
}

/// Right-hand side of a product.
#[derive(Debug, Clone, Copy)]
enum RightOperand<'a> {
    Plain(Matrix<'a>),
    /// Whole panels of 16 columns each, row after row.
    Panels(&'a [f32]),
}

/// Minimum number of columns for which packing the left-hand side pays off.
const LEAST_COLUMNS: usize = 96;
/// Minimum length of the sums for which packing pays off.
const LEAST_DEPTH: usize = 32;

/// Minimum number of rows for which packing the right-hand side pays off.
const LEAST_ROWS: usize = 8;

/// Minimum number of multiplications in the part of an additional thread.
const LEAST_PART: usize = 1 << 18;

impl TileKernel {
    pub(super) fn find() -> Option<Self> {
        Avx2Support::find().map(Self)
    }

    /// Returns whether this implementation is faster than `gemm` for `m` rows, `n` columns and sums
    /// of length `k`.
    pub(super) fn suit(self, [m, n, k]: [usize; 3]) -> bool {
        m >= LEAST_ROWS && n >= LEAST_COLUMNS && k >= LEAST_DEPTH
    }

    /// Computes `out = lhs · rhs` or `out += lhs · rhs`. The shapes must match.
    pub(super) fn multiply(
        self,
        out: MatrixBlockMut<'_>,
        write: WriteMode,
        lhs: Matrix<'_>,
        rhs: Matrix<'_>,
        threads: usize,
    ) {
        let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
        let parts = threads.min(m * n * k / LEAST_PART);
        if parts < 2 {
            return self.0.multiply(out, write, lhs, RightOperand::Plain(rhs));
        }
        let (first, second) = (parts / 2, parts - parts / 2);
        if n >= m && n > COLUMNS {
            let at = (n * first / parts).next_multiple_of(COLUMNS).min(n);
            let (left, right) = out.split_columns(at);
            let (columns, others) = (rhs.part(0..k, 0..at), rhs.part(0..k, at..n));
            rayon::join(
                || self.multiply(left, write, lhs, columns, first),
                || self.multiply(right, write, lhs, others, second),
            );
        } else {
            let at = m * first / parts;
            let (above, below) = out.split_rows(at);
            let (rows, others) = (lhs.part(0..at, 0..k), lhs.part(at..m, 0..k));
            rayon::join(
                || self.multiply(above, write, rows, rhs, first),
                || self.multiply(below, write, others, rhs, second),
            );
        }
    }

    /// Equivalent of [`Self::multiply`] for a right-hand side in whole panels of [`COLUMNS`]
    /// columns without gaps.
    pub(super) fn multiply_panels(
        self,
        out: MatrixBlockMut<'_>,
        write: WriteMode,
        lhs: Matrix<'_>,
        panels: &[f32],
    ) {
        self.0
            .multiply(out, write, lhs, RightOperand::Panels(panels));
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::{Matrix, MatrixBlockMut, WriteMode, at_least};
    use super::{COLUMNS, RightOperand};
    use std::arch::x86_64::{
        __m256, _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
        _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_shuffle_ps,
        _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    use std::cell::Cell;
    use std::ops::Range;

    thread_local! {
        /// Buffer for the panels of both sides. Grows to the largest size that the thread has
        /// needed, at most 2.5 MiB.
        static PANELS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    }

    /// Number of `f32` in a register.
    const LANES: usize = 8;

    /// Maximum number of rows of a tile. It uses twelve registers of sums, two of a panel's row and
    /// one of an element of the left-hand side.
    const ROWS: usize = 6;

    /// Number of terms of a sum at a time: 16 KiB of a panel of the right-hand side, half of the
    /// first-level cache.
    pub(super) const DEPTH: usize = 256;

    /// Number of rows at a time: 240 KiB of the left-hand side, half of a second-level cache.
    const HEIGHT: usize = 240;

    /// Number of columns at a time where there are more than [`HEIGHT`] rows: 2 MiB of the
    /// right-hand side, a part of the third-level cache.
    const WIDTH: usize = 2048;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Avx2Support(());

    impl Avx2Support {
        pub(super) fn find() -> Option<Self> {
            Self::narrow_or_wide().filter(|_| !std::arch::is_x86_feature_detected!("avx512f"))
        }

        pub(super) fn narrow_or_wide() -> Option<Self> {
            let has = std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma");
            has.then_some(Self(()))
        }

        pub(super) fn multiply(
            self,
            out: MatrixBlockMut<'_>,
            write: WriteMode,
            lhs: Matrix<'_>,
            rhs: RightOperand<'_>,
        ) {
            let mut room = PANELS.take();
            // SAFETY: an `Avx2Support` exists only where `find` has detected AVX2 and FMA.
            unsafe { multiply(out, write, lhs, rhs, &mut room) };
            PANELS.set(room);
        }
    }

    #[target_feature(enable = "avx2,fma")]
    fn multiply(
        mut out: MatrixBlockMut<'_>,
        write: WriteMode,
        lhs: Matrix<'_>,
        rhs: RightOperand<'_>,
        room: &mut Vec<f32>,
    ) {
        let (m, n, k) = (lhs.rows, out.cols, lhs.cols);
        let (height, depth) = (m.min(HEIGHT + ROWS), k.min(DEPTH));
        // If all rows fit at once, one panel is packed at a time. Otherwise every panel is needed
        // again for the next rows.
        let is_flat = m <= HEIGHT;
        let width = match rhs {
            RightOperand::Panels(_) => 0,
            RightOperand::Plain(_) if is_flat => COLUMNS,
            RightOperand::Plain(_) => n.min(WIDTH).next_multiple_of(COLUMNS),
        };
        // The last transposed group of a left-hand panel writes up to a register beyond the panel.
        let left = height * depth + LANES;
        let (left, right) = at_least(room, left + width * depth).split_at_mut(left);
        for columns in ranges(n, WIDTH) {
            for inner in ranges(k, DEPTH) {
                let write = if inner.start > 0 {
                    WriteMode::Add
                } else {
                    write
                };
                if let (RightOperand::Plain(rhs), false) = (rhs, is_flat) {
                    copy_right(rhs.part(inner.clone(), columns.clone()), right);
                }
                for rows in evenly(m, HEIGHT) {
                    copy_left(lhs.part(rows.clone(), inner.clone()), left);
                    for (at, first) in columns.clone().step_by(COLUMNS).enumerate() {
                        let len = inner.len() * COLUMNS;
                        let panel = match rhs {
                            RightOperand::Panels(all) => {
                                &all[first * k + inner.start * COLUMNS..][..len]
                            }
                            RightOperand::Plain(rhs) if is_flat => {
                                let to = columns.end.min(first + COLUMNS);
                                copy_right(rhs.part(inner.clone(), first..to), right);
                                &right[..len]
                            }
                            RightOperand::Plain(_) => &right[at * len..][..len],
                        };
                        pass(
                            &mut out,
                            [rows.start, first],
                            rows.len(),
                            write,
                            left,
                            panel,
                        );
                    }
                }
            }
        }
    }

    fn ranges(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> + Clone {
        (0..len).step_by(step).map(move |at| at..len.min(at + step))
    }

    /// Ranges of nearly equal length, at most `most` each. No range has only one or two rows, which
    /// would leave registers empty.
    fn evenly(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> + Clone {
        let parts = len.div_ceil(most);
        (0..parts).map(move |part| part * len / parts..(part + 1) * len / parts)
    }

    /// Multiplies all rows of `left` by one panel of the right-hand side and writes the tiles from
    /// this row and column on.
    #[target_feature(enable = "avx2,fma")]
    fn pass(
        out: &mut MatrixBlockMut<'_>,
        [row, column]: [usize; 2],
        rows: usize,
        write: WriteMode,
        mut left: &[f32],
        panel: &[f32],
    ) {
        let depth = panel.len() / COLUMNS;
        for rows in evenly(rows, ROWS) {
            let (lhs, rest) = left.split_at(rows.len() * depth);
            let at = [row + rows.start, column];
            match rows.len() {
                1 => tile::<1>(out, at, write, lhs, panel),
                2 => tile::<2>(out, at, write, lhs, panel),
                3 => tile::<3>(out, at, write, lhs, panel),
                4 => tile::<4>(out, at, write, lhs, panel),
                5 => tile::<5>(out, at, write, lhs, panel),
                _ => tile::<6>(out, at, write, lhs, panel),
            }
            left = rest;
        }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn tile<const R: usize>(
        out: &mut MatrixBlockMut<'_>,
        [row, column]: [usize; 2],
        write: WriteMode,
        lhs: &[f32],
        panel: &[f32],
    ) {
        // Prefetch the destination, which is needed when the sums are complete.
        for i in 0..R {
            let line = out.line(row + i, column, COLUMNS);
            let ends = [line.first(), line.last()];
            ends.into_iter().flatten().for_each(|number| fetch(number));
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; R];
        let (lhs, _) = lhs.as_chunks::<R>();
        let (panel, _) = panel.as_chunks::<LANES>();
        let (panel, _) = panel.as_chunks::<2>();
        for (numbers, [b, c]) in lhs.iter().zip(panel) {
            let (b, c) = (load(b), load(c));
            for (sums, number) in sums.iter_mut().zip(numbers) {
                let number = _mm256_set1_ps(*number);
                sums[0] = _mm256_fmadd_ps(number, b, sums[0]);
                sums[1] = _mm256_fmadd_ps(number, c, sums[1]);
            }
        }
        for (i, [b, c]) in sums.into_iter().enumerate() {
            let line = out.line(row + i, column, COLUMNS);
            if line.len() == COLUMNS {
                put(line, write, b);
                put(&mut line[LANES..], write, c);
            } else {
                let mut whole = [0.0; COLUMNS];
                whole[..line.len()].copy_from_slice(line);
                put(&mut whole, write, b);
                put(&mut whole[LANES..], write, c);
                line.copy_from_slice(&whole[..line.len()]);
            }
        }
    }

    /// Packs into panels of as many rows as [`pass`] takes at a time, interleaved by row.
    #[target_feature(enable = "avx2,fma")]
    fn copy_left(lhs: Matrix<'_>, mut left: &mut [f32]) {
        for rows in evenly(lhs.rows, ROWS) {
            let width = rows.len();
            copy(lhs.part(rows, 0..lhs.cols), left, width);
            left = &mut left[width * lhs.cols..];
        }
    }

    /// Packs into panels of [`COLUMNS`] columns, row after row. The content beyond the last column
    /// is undefined.
    #[target_feature(enable = "avx2,fma")]
    fn copy_right(rhs: Matrix<'_>, right: &mut [f32]) {
        let panels = right.chunks_exact_mut(rhs.rows * COLUMNS);
        for (columns, panel) in ranges(rhs.cols, COLUMNS).zip(panels) {
            copy(rhs.part(0..rhs.rows, columns).transposed(), panel, COLUMNS);
        }
    }

    /// Interleaves up to `width` lines: the first element of each line, then the second ones, and
    /// so on, each time `width` apart.
    #[target_feature(enable = "avx2,fma")]
    fn copy(lines: Matrix<'_>, panel: &mut [f32], width: usize) {
        match (lines.row_stride, lines.rows) {
            (1, 4) => runs::<4>(lines, panel, width),
            (1, 5) => runs::<5>(lines, panel, width),
            (1, 6) => runs::<6>(lines, panel, width),
            (1, COLUMNS) => runs::<COLUMNS>(lines, panel, width),
            (1, count) => {
                for at in 0..lines.cols {
                    let from = &lines.data[at * lines.col_stride..][..count];
                    panel[at * width..][..count].copy_from_slice(from);
                }
            }
            _ => (0..lines.rows)
                .step_by(LANES)
                .for_each(|first| turned(lines, first, panel, width)),
        }
    }

    /// Copies `N` lines whose elements are already adjacent.
    #[target_feature(enable = "avx2,fma")]
    fn runs<const N: usize>(lines: Matrix<'_>, panel: &mut [f32], width: usize) {
        for at in 0..lines.cols {
            let from = &lines.data[at * lines.col_stride..][..N];
            panel[at * width..][..N].copy_from_slice(from);
        }
    }

    /// Transposes one register's number of lines from line `first` on. Where fewer lines are left,
    /// it writes more; the following lines overwrite the excess, or it is never read.
    #[target_feature(enable = "avx2,fma")]
    fn turned(lines: Matrix<'_>, first: usize, panel: &mut [f32], width: usize) {
        let last = lines.rows - 1;
        let mut begins = [0; LANES];
        for (i, begin) in begins.iter_mut().enumerate() {
            *begin = last.min(first + i) * lines.row_stride;
        }
        let whole = lines.cols - lines.cols % LANES;
        for at in (0..whole).step_by(LANES) {
            let eights = begins.map(|begin| load(&lines.data[begin + at..]));
            let panel = &mut panel[at * width + first..];
            for (i, numbers) in turn(eights).into_iter().enumerate() {
                store(&mut panel[i * width..], numbers);
            }
        }
        for at in whole..lines.cols {
            for i in first..lines.rows.min(first + LANES) {
                panel[at * width + i] = lines.data[i * lines.row_stride + at];
            }
        }
    }

    /// Transposes eight registers.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn turn(x: [__m256; LANES]) -> [__m256; LANES] {
        let pairs = |i: usize| {
            let low = _mm256_unpacklo_ps(x[i], x[i + 1]);
            (low, _mm256_unpackhi_ps(x[i], x[i + 1]))
        };
        let fours = |i: usize| {
            let ((a, b), (c, d)) = (pairs(i), pairs(i + 2));
            [
                _mm256_shuffle_ps::<0x44>(a, c),
                _mm256_shuffle_ps::<0xEE>(a, c),
                _mm256_shuffle_ps::<0x44>(b, d),
                _mm256_shuffle_ps::<0xEE>(b, d),
            ]
        };
        let (above, below) = (fours(0), fours(4));
        let mut y = x;
        for i in 0..4 {
            y[i] = _mm256_permute2f128_ps::<0x20>(above[i], below[i]);
            y[i + 4] = _mm256_permute2f128_ps::<0x31>(above[i], below[i]);
        }
        y
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn put(to: &mut [f32], write: WriteMode, sums: __m256) {
        let sums = match write {
            WriteMode::Overwrite => sums,
            WriteMode::Add => _mm256_add_ps(load(to), sums),
        };
        store(to, sums);
    }

    /// Loads the first eight elements.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn load(from: &[f32]) -> __m256 {
        let from = from[..LANES].as_ptr();
        // SAFETY: the slice has as many elements as a register, and the load needs no alignment.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn store(to: &mut [f32], numbers: __m256) {
        let to = to[..LANES].as_mut_ptr();
        // SAFETY: as in `load`.
        unsafe { _mm256_storeu_ps(to, numbers) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn fetch(number: &f32) {
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(number).cast());
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Ignores whether `gemm` would be faster on this processor.
    fn tiles() -> TileKernel {
        TileKernel(
            Avx2Support::narrow_or_wide().expect("AVX2 and FMA, which every such test machine has"),
        )
    }

    /// Small whole numbers, whose sums are exact.
    fn whole(len: usize, by: usize) -> Vec<f32> {
        (0..len).map(|i| (i * by % 11) as f32 - 5.0).collect()
    }

    fn fractions(len: usize, by: usize) -> Vec<f32> {
        (0..len)
            .map(|i| (i * by % 101) as f32 / 77.0 - 0.6)
            .collect()
    }

    fn turned(data: &[f32], rows: usize, cols: usize) -> Vec<f32> {
        (0..data.len())
            .map(|i| data[i % rows * cols + i / rows])
            .collect()
    }

    /// All heights of a tile, partial panels, sums and blocks, and, for many rows, more columns
    /// than are processed at a time.
    const SHAPES: [[usize; 3]; 8] = [
        [1, 1, 1],
        [2, 17, 7],
        [9, 31, 8],
        [16, 16, 300],
        [23, 40, 270],
        [245, 48, 21],
        [483, 33, 513],
        [250, 2070, 9],
    ];

    #[test]
    fn every_shape_equals_definition_and_keeps_other_columns() {
        for [m, n, k] in SHAPES {
            let (a, b) = (whole(m * k, 37), whole(k * n, 53));
            let (a_turned, b_turned) = (turned(&a, m, k), turned(&b, k, n));
            let mut expected = vec![0.0; m * n];
            for i in 0..m {
                for (j, b) in b.chunks_exact(n).enumerate() {
                    let out = &mut expected[i * n..][..n];
                    out.iter_mut()
                        .zip(b)
                        .for_each(|(out, b)| *out += a[i * k + j] * b);
                }
            }
            let lhs = [
                Matrix::new(&a, m, k),
                Matrix::new(&a_turned, k, m).transposed(),
            ];
            let rhs = [
                Matrix::new(&b, k, n),
                Matrix::new(&b_turned, n, k).transposed(),
            ];
            for (lhs, rhs) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(l, r)| (lhs[l], rhs[r])) {
                let (stride, first) = (n + 5, 2);
                let mut out = vec![0.5; m * stride];
                for (write, threads) in [(WriteMode::Overwrite, 1), (WriteMode::Add, 3)] {
                    let target = MatrixBlockMut::new(&mut out, [stride, first], n);
                    tiles().multiply(target, write, lhs, rhs, threads);
                }
                for (line, expected) in out.chunks_exact(stride).zip(expected.chunks_exact(n)) {
                    let own = &line[first..first + n];
                    let is_twice = own.iter().zip(expected).all(|(x, y)| *x == 2.0 * y);
                    assert!(is_twice, "{m}×{n}×{k}");
                    let others = [&line[..first], &line[first + n..]].concat();
                    assert_eq!(others, [0.5; 5], "{m}×{n}×{k}");
                }
            }
        }
    }

    #[test]
    fn panels_equal_the_plain_product_bitwise() {
        let (m, n, k) = (29, 80, 600);
        let (a, b) = (fractions(m * k, 37), fractions(k * n, 53));
        let lhs = Matrix::new(&a, m, k);
        let (mut plain, mut cut) = (vec![0.0; m * n], vec![0.0; m * n]);
        let out = MatrixBlockMut::new(&mut plain, [n, 0], n);
        tiles().multiply(out, WriteMode::Overwrite, lhs, Matrix::new(&b, k, n), 1);
        let panels: Vec<f32> = (0..n)
            .step_by(COLUMNS)
            .flat_map(|first| {
                b.chunks_exact(n)
                    .flat_map(move |line| &line[first..][..COLUMNS])
            })
            .copied()
            .collect();
        let out = MatrixBlockMut::new(&mut cut, [n, 0], n);
        tiles().multiply_panels(out, WriteMode::Overwrite, lhs, &panels);
        assert!(plain == cut);
    }

    /// The bits of an example do not depend on the examples that share its pass.
    #[test]
    fn row_bits_do_not_depend_on_other_rows() {
        let (m, n, k) = (251, 100, 600);
        let (a, b) = (fractions(m * k, 37), fractions(k * n, 53));
        let product = |rows: std::ops::Range<usize>, threads| {
            let mut out = vec![0.0; rows.len() * n];
            let lhs = Matrix::new(&a, m, k).part(rows, 0..k);
            let target = MatrixBlockMut::new(&mut out, [n, 0], n);
            tiles().multiply(
                target,
                WriteMode::Overwrite,
                lhs,
                Matrix::new(&b, k, n),
                threads,
            );
            out
        };
        let all = product(0..m, 1);
        assert!(all == product(0..m, 4));
        for rows in [0..1, 3..50, 7..250] {
            assert!(
                all[rows.start * n..rows.end * n] == product(rows.clone(), 1),
                "{rows:?}"
            );
        }
    }
}
