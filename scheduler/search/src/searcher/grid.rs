//! Grid search: every point of a finite space once, the last parameter fastest.

use muster_model::study::{Point, Space};

/// Returns the next valid point from number `next` on. Skips points that constraints forbid, and
/// points that differ only in parameters that the trial does not have.
pub(super) fn next(space: &Space, next: &mut u64) -> Option<Point> {
    let points = space.grid_points()?;
    while *next < points {
        let number = *next;
        *next += 1;
        if let Some(point) = at(space, number) {
            return Some(point);
        }
    }
    None
}

fn at(space: &Space, mut number: u64) -> Option<Point> {
    let mut digits = vec![0; space.len()];
    for (d, dimension) in space.dimensions.iter().enumerate().rev() {
        let count = dimension.domain.count()?;
        digits[d] = number % count;
        number /= count;
    }
    let dimensions = space.dimensions.iter().zip(&digits);
    let mut point: Point = dimensions
        .map(|(dimension, digit)| Some(dimension.domain.nth(*digit)))
        .collect();
    space.prune(&mut point);
    // Among points that differ only in pruned parameters, the one with zeros there is the
    // representative.
    let first = point
        .iter()
        .zip(&digits)
        .all(|(value, digit)| value.is_some() || *digit == 0);
    (first && space.allows(&point)).then_some(point)
}
