//! Maximises the expected improvement: many candidates, then a local search from the best ones.

use super::place;
use super::process::GaussianProcess;
use crate::minimise::minimise;
use crate::numeric::log_improvement;
use crate::random::StudyRng;
use crate::study::StudyRecord;
use muster_model::study::{Point, Space};

/// Candidates over the whole space.
const WIDE: usize = 700;
/// Candidates around each of the best trials.
const NEAR: usize = 60;
/// Starting points of the local search.
const STARTS: usize = 6;
const ROUNDS: usize = 3;

pub(super) fn most_promising(
    record: &StudyRecord,
    process: &GaussianProcess,
    rng: &mut StudyRng,
) -> Option<Point> {
    let space = &record.space;
    let least = process.least();
    let mut candidates: Vec<(f64, Vec<f64>)> = Vec::new();
    for candidate in draw_candidates(record, process, rng) {
        let candidate = place(space, &candidate);
        candidates.push((score(process, &candidate, least), candidate));
    }
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
    // The best candidates and random ones, so that the searches do not all start at one maximum.
    let mut starts: Vec<Vec<f64>> = candidates.iter().take(2).map(|c| c.1.clone()).collect();
    while starts.len() < STARTS && candidates.len() > 2 {
        let rank = (rng.unit().powi(3) * candidates.len() as f64) as usize;
        starts.push(candidates[rank.min(candidates.len() - 1)].1.clone());
    }
    starts.extend(process.best_places(1));
    let mut found: Vec<Vec<f64>> = Vec::new();
    for start in starts {
        let mut here = start;
        for _ in 0..ROUNDS {
            let before = here.clone();
            here = climb(space, process, here, least);
            here = switch(space, process, here, least);
            found.push(here.clone());
            if here
                .iter()
                .zip(&before)
                .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
            {
                break;
            }
        }
    }
    found.extend(candidates.into_iter().take(3).map(|(_, place)| place));
    let mut best: Option<(f64, Point)> = None;
    for candidate in &found {
        let point = point(space, candidate);
        if !space.allows(&point) {
            continue;
        }
        let score = score(process, &place(space, &point), least);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, point));
        }
    }
    best.map(|(_, point)| point)
}

/// Logarithm of the expected improvement on `least`.
fn score(process: &GaussianProcess, place: &[f64], least: f64) -> f64 {
    let (mean, variance) = process.at(place);
    let deviation = variance.sqrt();
    log_improvement((least - mean) / deviation) + deviation.ln()
}

fn draw_candidates(
    record: &StudyRecord,
    process: &GaussianProcess,
    rng: &mut StudyRng,
) -> Vec<Point> {
    let space = &record.space;
    let mut points: Vec<Point> = (0..WIDE).map(|_| rng.point(space)).collect();
    let lengths = process.lengths();
    for centre in process.best_places(5) {
        for i in 0..NEAR {
            let reach = 0.3 * 0.001f64.powf(i as f64 / NEAR as f64);
            let mut place = centre.clone();
            for (d, dimension) in space.dimensions.iter().enumerate() {
                if place[d].is_nan() || !dimension.domain.is_ordered() {
                    let anew = rng.unit() < 0.1 && !place[d].is_nan();
                    place[d] = if anew {
                        dimension.domain.at(rng.unit())
                    } else {
                        place[d]
                    };
                } else {
                    place[d] += reach * lengths[d].min(1.0) * rng.normal();
                }
            }
            let mut point = point(space, &place);
            fill(space, &mut point, rng);
            points.push(point);
        }
    }
    points.retain(|p| space.allows(p));
    points
}

/// Draws missing active parameters and removes inactive ones.
fn fill(space: &Space, point: &mut Point, rng: &mut StudyRng) {
    for (d, dimension) in space.dimensions.iter().enumerate() {
        let unit = rng.unit();
        if !space.is_active(d, point) {
            point[d] = None;
        } else if point[d].is_none() {
            point[d] = Some(dimension.domain.at(unit));
        }
    }
}

/// Nearest point of the space. Parameters that the place lacks stay absent.
fn point(space: &Space, place: &[f64]) -> Point {
    let pairs = space.dimensions.iter().zip(place);
    pairs
        .map(|(dimension, x)| {
            let domain = &dimension.domain;
            (!x.is_nan()).then(|| {
                if domain.is_ordered() {
                    domain.at(*x)
                } else {
                    *x
                }
            })
        })
        .collect()
}

/// Gradient ascent in all ordered parameters with many values.
fn climb(space: &Space, process: &GaussianProcess, start: Vec<f64>, least: f64) -> Vec<f64> {
    let axes: Vec<usize> = (0..space.len())
        .filter(|d| {
            let domain = &space.dimensions[*d].domain;
            domain.is_ordered() && domain.count().is_none_or(|n| n > 16) && !start[*d].is_nan()
        })
        .collect();
    if axes.is_empty() {
        return start;
    }
    let mut place = start.clone();
    let bounds = vec![(0.0, 1.0); axes.len()];
    let from = axes.iter().map(|d| start[*d]).collect();
    let (_, found) = minimise(from, &bounds, 50, |x, gradient| {
        for (&d, x) in axes.iter().zip(x) {
            place[d] = *x;
        }
        let (mean, variance, mean_slope, variance_slope) = process.slope(&place);
        let deviation = variance.sqrt();
        let z = (least - mean) / deviation;
        let value = log_improvement(z);
        // d log h(z) / dz = Phi(z) / h(z)
        let by_z = (crate::numeric::log_cdf(z) - value).exp();
        for (slot, &d) in gradient.iter_mut().zip(&axes) {
            let deviation_slope = variance_slope[d] / (2.0 * deviation);
            let z_slope = (-mean_slope[d] - z * deviation_slope) / deviation;
            *slot = -(by_z * z_slope + deviation_slope / deviation);
        }
        -(value + deviation.ln())
    });
    let mut place = start;
    for (&d, x) in axes.iter().zip(&found) {
        place[d] = *x;
    }
    place
}

/// Tries the other values of each parameter with few values, one parameter after the other.
fn switch(space: &Space, process: &GaussianProcess, start: Vec<f64>, least: f64) -> Vec<f64> {
    let mut here = start;
    let mut most = score(process, &place(space, &point(space, &here)), least);
    for (d, dimension) in space.dimensions.iter().enumerate() {
        let domain = &dimension.domain;
        let parent = space
            .dimensions
            .iter()
            .any(|o| o.parent.as_ref().is_some_and(|p| p.0 == d));
        let Some(count) = domain
            .count()
            .filter(|n| *n <= 16 && !parent && !here[d].is_nan())
        else {
            continue;
        };
        for index in 0..count {
            let value = domain.nth(index);
            let mut other = here.clone();
            other[d] = if domain.is_ordered() {
                domain.unit(value)
            } else {
                value
            };
            let found = score(process, &other, least);
            if found > most && space.allows(&point(space, &other)) {
                (most, here) = (found, other);
            }
        }
    }
    here
}
