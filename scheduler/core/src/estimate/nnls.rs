//! Non-negative least squares for a few unknowns: the active-set method of Lawson and Hanson
//! (1974).

/// Returns the `x >= 0` that minimises `|A x - b|`, for `rows` of `A` with their `b`.
///
/// Columns are scaled to unit length first, so that terms of very different size are separated.
pub(crate) fn solve<const N: usize>(rows: &[([f64; N], f64)]) -> [f64; N] {
    let scale = column_lengths(rows);
    let (gram, right) = normal_equations(rows, &scale);
    let mut x = [0.0; N];
    let mut passive = [false; N];
    // Every pass frees one column. More passes mean that rounding causes a cycle; the last point is
    // then as good.
    for _ in 0..4 * N {
        let Some(entering) = steepest(&gram, &right, &x, &passive) else {
            break;
        };
        passive[entering] = true;
        loop {
            let trial = least_squares(&gram, &right, &passive);
            let blocked = (0..N).filter(|&i| passive[i] && trial[i] <= 0.0);
            let step = blocked
                .map(|i| x[i] / (x[i] - trial[i]).max(f64::MIN_POSITIVE))
                .fold(f64::INFINITY, f64::min);
            if step.is_infinite() {
                x = trial;
                break;
            }
            for i in 0..N {
                x[i] += step * (trial[i] - x[i]) * f64::from(u8::from(passive[i]));
                if passive[i] && x[i] <= 1e-12 {
                    passive[i] = false;
                    x[i] = 0.0;
                }
            }
            if !passive.contains(&true) {
                break;
            }
        }
    }
    std::array::from_fn(|i| scaled(x[i], scale[i]))
}

/// Returns the value over the length of its column, or 0 for a column of length 0.
fn scaled(value: f64, length: f64) -> f64 {
    if length > 0.0 { value / length } else { 0.0 }
}

fn column_lengths<const N: usize>(rows: &[([f64; N], f64)]) -> [f64; N] {
    std::array::from_fn(|i| {
        rows.iter()
            .map(|(row, _)| row[i] * row[i])
            .sum::<f64>()
            .sqrt()
    })
}

fn normal_equations<const N: usize>(
    rows: &[([f64; N], f64)],
    scale: &[f64; N],
) -> ([[f64; N]; N], [f64; N]) {
    let gram = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            rows.iter()
                .map(|(row, _)| scaled(row[i], scale[i]) * scaled(row[j], scale[j]))
                .sum()
        })
    });
    let right = std::array::from_fn(|i| {
        let column = rows.iter().map(|(row, b)| scaled(row[i], scale[i]) * b);
        column.sum()
    });
    (gram, right)
}

/// Returns the inactive column along which the error falls fastest, if it falls.
fn steepest<const N: usize>(
    gram: &[[f64; N]; N],
    right: &[f64; N],
    x: &[f64; N],
    passive: &[bool; N],
) -> Option<usize> {
    (0..N)
        .filter(|&i| !passive[i])
        .map(|i| {
            let reached: f64 = (0..N).map(|j| gram[i][j] * x[j]).sum();
            (i, right[i] - reached)
        })
        .filter(|&(_, descent)| descent > 1e-10)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(i, _)| i)
}

/// Returns the unconstrained least squares solution over the passive columns, by elimination with
/// partial pivoting.
fn least_squares<const N: usize>(
    gram: &[[f64; N]; N],
    right: &[f64; N],
    passive: &[bool; N],
) -> [f64; N] {
    const RIDGE: f64 = 1e-12;
    let columns: Vec<usize> = (0..N).filter(|&i| passive[i]).collect();
    let size = columns.len();
    let mut matrix: Vec<Vec<f64>> = columns
        .iter()
        .map(|&i| {
            let mut row: Vec<f64> = columns
                .iter()
                .map(|&j| gram[i][j] + if i == j { RIDGE } else { 0.0 })
                .collect();
            row.push(right[i]);
            row
        })
        .collect();
    for pivot in 0..size {
        let best = (pivot..size)
            .max_by(|&a, &b| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs()))
            .unwrap_or(pivot);
        matrix.swap(pivot, best);
        let (above, below) = matrix.split_at_mut(pivot + 1);
        let pivot_row = &above[pivot];
        for row in below {
            let factor = row[pivot] / pivot_row[pivot];
            for (value, pivot_value) in row.iter_mut().zip(pivot_row).skip(pivot) {
                *value -= factor * pivot_value;
            }
        }
    }
    let mut x = [0.0; N];
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size)
            .map(|column| matrix[row][column] * x[columns[column]])
            .sum();
        x[columns[row]] = (matrix[row][size] - known) / matrix[row][row];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::solve;

    #[test]
    fn nnls_finds_coefficients_of_exact_data() {
        let rows: Vec<([f64; 3], f64)> = (1..8)
            .map(|k| {
                let k = f64::from(k);
                ([1.0 / k, 1.0, k], 3.0 / k + 0.5 + 0.25 * k)
            })
            .collect();
        let x = solve(&rows);
        for (found, expected) in x.iter().zip([3.0, 0.5, 0.25]) {
            assert!((found - expected).abs() < 1e-6, "{x:?}");
        }
    }

    #[test]
    fn nnls_never_returns_negative_coefficients() {
        let rows: Vec<([f64; 2], f64)> = (1..6)
            .map(|k| ([1.0, f64::from(k)], 10.0 - f64::from(k)))
            .collect();
        let x = solve(&rows);
        assert_eq!(x[1], 0.0);
        assert!((x[0] - 7.0).abs() < 1e-9, "{x:?}");
    }
}
