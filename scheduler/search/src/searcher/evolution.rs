//! Regularized evolution (Real et al. 2019). A few of the youngest `population` trials are drawn
//! and the best of them is mutated in one parameter. Older trials are ignored. With several
//! objectives the best is by NSGA-II's rank and crowding.

use super::{anywhere, spread};
use crate::pareto;
use crate::random::StudyRng;
use crate::study::StudyRecord;
use crate::trial::SearchTrial;
use muster_model::study::{Domain, Point, Space};

/// Standard deviation of a change, as a share of the range.
const REACH: f64 = 0.1;

pub(super) fn suggest(
    record: &StudyRecord,
    population: usize,
    tournament: usize,
    rng: &mut StudyRng,
) -> Option<Point> {
    let number = record.trials.len();
    let judged: Vec<&SearchTrial> = record
        .trials
        .iter()
        .filter(|t| t.outcome.is_some())
        .collect();
    if number < population || judged.is_empty() {
        return spread(record, number as u32, rng);
    }
    let living = &judged[judged.len().saturating_sub(population)..];
    let drawn: Vec<&SearchTrial> = (0..tournament)
        .map(|_| living[rng.below(living.len())])
        .collect();
    let losses: Vec<&[f64]> = drawn
        .iter()
        .filter_map(|t| t.outcome.as_ref().map(|o| o.losses.as_slice()))
        .collect();
    let parent = drawn[pareto::order(&losses)[0]];
    for _ in 0..1000 {
        let child = mutate(&record.space, &parent.point, rng);
        if record.space.allows(&child) {
            return Some(child);
        }
    }
    anywhere(record, rng)
}

/// Parent with one changed parameter. Parameters that become active by the change are drawn anew.
fn mutate(space: &Space, parent: &Point, rng: &mut StudyRng) -> Point {
    let fresh = rng.point(space);
    let dimensions: Vec<usize> = (0..space.len())
        .filter(|d| {
            parent[*d].is_some() && space.dimensions[*d].domain.count().is_none_or(|n| n > 1)
        })
        .collect();
    let mut child = parent.clone();
    if let Some(d) = (!dimensions.is_empty()).then(|| dimensions[rng.below(dimensions.len())]) {
        child[d] = child[d].map(|value| change(&space.dimensions[d].domain, value, rng));
    }
    for d in 0..space.len() {
        let uniform = space.dimensions[d].domain.at(rng.unit());
        if !space.is_active(d, &child) {
            child[d] = None;
        } else if child[d].is_none() {
            child[d] = fresh[d].or(Some(uniform));
        }
    }
    child
}

/// Another value of the domain, near the present one if the domain is ordered.
fn change(domain: &Domain, value: f64, rng: &mut StudyRng) -> f64 {
    for _ in 0..100 {
        let unit = if domain.is_ordered() {
            let reach = REACH.max(domain.line().cell(value));
            domain.unit(value) + reach * rng.normal()
        } else {
            rng.unit()
        };
        let changed = domain.at(unit);
        if changed != value && (0.0..=1.0).contains(&unit) {
            return changed;
        }
    }
    value
}
