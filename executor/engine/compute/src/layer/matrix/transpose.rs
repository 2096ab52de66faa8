//! Transposition of a matrix by blocks that fit into registers.

use crate::simd::vectorised;

/// Number of rows and columns that [`transpose`] moves at a time: 16 KiB, half of the first-level
/// cache.
const TILE: usize = 64;

vectorised! {
    /// Writes `out` as columns × rows; row `i` of `data` begins at `i · stride`. Blocks fit into
    /// registers and are collected in tiles without gaps. Without tiles, the lines of a matrix
    /// whose width is a power of two would evict each other from the cache.
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
    fn transpose_moves_every_element() {
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
}
