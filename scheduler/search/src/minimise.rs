//! Minimiser within bounds: limited-memory BFGS (Nocedal and Wright, algorithm 7.4) with steps
//! projected onto the box.

const MEMORY: usize = 8;

/// Descends from `x` within `low <= x[i] <= high`. `f` returns the value and fills the gradient.
/// Returns the smallest value and its location.
pub(crate) fn minimise(
    mut x: Vec<f64>,
    bounds: &[(f64, f64)],
    max_iterations: usize,
    mut f: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> (f64, Vec<f64>) {
    project(&mut x, bounds);
    let n = x.len();
    let mut gradient = vec![0.0; n];
    let mut value = f(&x, &mut gradient);
    let mut pairs: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..max_iterations {
        let free: Vec<bool> = (0..n)
            .map(|i| {
                let (low, high) = bounds[i];
                !(x[i] <= low && gradient[i] > 0.0 || x[i] >= high && gradient[i] < 0.0)
            })
            .collect();
        let steepest: f64 = (0..n)
            .filter(|i| free[*i])
            .map(|i| gradient[i].abs())
            .fold(0.0, f64::max);
        if !value.is_finite() || steepest < 1e-9 {
            break;
        }
        let direction = direction(&gradient, &free, &pairs);
        let Some((next, next_value, next_gradient)) =
            descend(&x, value, &gradient, &direction, bounds, &mut f)
        else {
            if pairs.is_empty() {
                break;
            }
            pairs.clear();
            continue;
        };
        let s: Vec<f64> = (0..n).map(|i| next[i] - x[i]).collect();
        let y: Vec<f64> = (0..n).map(|i| next_gradient[i] - gradient[i]).collect();
        let fell = value - next_value;
        (x, value, gradient) = (next, next_value, next_gradient);
        if dot(&s, &y) > 1e-12 * dot(&y, &y) {
            if pairs.len() == MEMORY {
                pairs.remove(0);
            }
            pairs.push((s, y));
        }
        if fell <= 1e-10 * (1.0 + value.abs()) {
            break;
        }
    }
    (value, x)
}

/// Sets the numbers that are not free to 0.
fn mask(v: &mut [f64], free: &[bool]) {
    for (v, free) in v.iter_mut().zip(free) {
        *v = if *free { *v } else { 0.0 };
    }
}

fn direction(gradient: &[f64], free: &[bool], pairs: &[(Vec<f64>, Vec<f64>)]) -> Vec<f64> {
    let mut q = gradient.to_vec();
    mask(&mut q, free);
    let mut alphas = Vec::with_capacity(pairs.len());
    for (s, y) in pairs.iter().rev() {
        let alpha = dot(s, &q) / dot(s, y);
        add(&mut q, y, -alpha);
        alphas.push(alpha);
    }
    let scale = match pairs.last() {
        Some((s, y)) => dot(s, y) / dot(y, y),
        None => 0.1 / dot(&q, &q).sqrt().max(1e-300),
    };
    q.iter_mut().for_each(|q| *q *= scale);
    for ((s, y), alpha) in pairs.iter().zip(alphas.into_iter().rev()) {
        let beta = dot(y, &q) / dot(s, y);
        add(&mut q, s, alpha - beta);
    }
    q.iter_mut().for_each(|q| *q = -*q);
    mask(&mut q, free);
    if dot(&q, gradient) >= 0.0 {
        q = gradient.iter().map(|g| -g * scale).collect();
        mask(&mut q, free);
    }
    q
}

/// Halves the step until the value decreases enough (Armijo).
fn descend(
    x: &[f64],
    value: f64,
    gradient: &[f64],
    direction: &[f64],
    bounds: &[(f64, f64)],
    f: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Option<(Vec<f64>, f64, Vec<f64>)> {
    let mut length = 1.0;
    for _ in 0..20 {
        let mut next = x.to_vec();
        add(&mut next, direction, length);
        project(&mut next, bounds);
        let moved: f64 = (0..x.len()).map(|i| gradient[i] * (next[i] - x[i])).sum();
        let mut next_gradient = vec![0.0; x.len()];
        let next_value = f(&next, &mut next_gradient);
        if next_value.is_finite() && next_value <= value + 1e-4 * moved && moved < 0.0 {
            return Some((next, next_value, next_gradient));
        }
        length *= 0.4;
    }
    None
}

fn project(x: &mut [f64], bounds: &[(f64, f64)]) {
    for (x, (low, high)) in x.iter_mut().zip(bounds) {
        *x = x.clamp(*low, *high);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &mut [f64], b: &[f64], factor: f64) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += factor * b;
    }
}

#[cfg(test)]
mod tests {
    use super::minimise;

    fn rosenbrock(x: &[f64], g: &mut [f64]) -> f64 {
        g[0] = -2.0 * (1.0 - x[0]) - 400.0 * x[0] * (x[1] - x[0] * x[0]);
        g[1] = 200.0 * (x[1] - x[0] * x[0]);
        (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2)
    }

    #[test]
    fn minimise_finds_minimum_of_rosenbrock() {
        let (value, x) = minimise(vec![-1.2, 1.0], &[(-2.0, 2.0); 2], 200, rosenbrock);
        assert!(value < 1e-8, "{value} at {x:?}");
    }

    #[test]
    fn minimise_finds_minimum_within_bounds() {
        let (_, x) = minimise(
            vec![-1.2, 1.0],
            &[(-2.0, 0.5), (-2.0, 2.0)],
            200,
            rosenbrock,
        );
        assert!(
            (x[0] - 0.5).abs() < 1e-9 && (x[1] - 0.25).abs() < 1e-4,
            "{x:?}"
        );
    }
}
