//! Two-dimensional Gittins index of Tiresias (Gu et al., NSDI 2019): least attained service,
//! corrected by the distribution of the total service of finished jobs.
//!
//! The index of a job with attained service `a` (GPU-seconds) is the maximum over `d` of P(S - a <=
//! d | S > a) / E[min(S - a, d) | S > a]. `S` is distributed as the service of finished jobs and
//! `d` is the service that the job may get next. The numerator is the chance that the job ends
//! within `d`, the denominator the expected service until then.
//!
//! The policy lowers the mean completion time if history is informative: a cluster of many short
//! jobs and a few of several days serves the old jobs last. Service is discretised, as in the
//! paper, so that similar jobs do not displace each other alternately. Jobs of one class share an
//! index and are in order of submission.
//!
//! Without history (fewer than `ENOUGH` jobs, or none with that much service) the class alone
//! decides, the least first.

use super::allocation_state::PlacementStyle;
use super::{SchedulingPolicy, gang, order};
use crate::problem::{PolicyDecision, SchedulingProblem};

/// Policy that serves the highest Gittins index first.
#[derive(Debug, Clone, Copy)]
pub struct TiresiasGittins;

/// Minimum number of finished jobs for a distribution.
const ENOUGH: usize = 10;

/// Lower bounds of the classes of attained service, in GPU-seconds: 0, a quarter of an hour on one
/// GPU, and then four times the one before.
const CLASSES: [f64; 7] = [
    0.0, 900.0, 3_600.0, 14_400.0, 57_600.0, 230_400.0, 921_600.0,
];

impl SchedulingPolicy for TiresiasGittins {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let ranks = ranks(&problem.history_gpu_s);

        let jobs = problem.jobs.iter();
        let keys: Vec<f64> = jobs.map(|job| ranks[class(job.attained_gpu_s)]).collect();
        let order = order::by_key(problem, &keys);
        gang::in_order(problem, PlacementStyle::Packed, &order)
    }
}

/// Returns the class of an attained service, as an index of `CLASSES`.
fn class(attained_gpu_s: f64) -> usize {
    let begun = CLASSES.iter().filter(|&&begin| begin <= attained_gpu_s);
    begun.count().max(1) - 1
}

/// Returns the key of every class, the smaller first: minus the index. Classes without history come
/// last.
fn ranks(history: &[f64]) -> [f64; CLASSES.len()] {
    let enough = history.len() >= ENOUGH;
    let mut ranks = [0.0; CLASSES.len()];
    for (class, rank) in ranks.iter_mut().enumerate() {
        let index = enough.then(|| index(history, class)).flatten();
        // A class number is a small integer, so the conversion is exact.
        *rank = index.map_or(class as f64, |index| -index);
    }
    ranks
}

/// Returns the Gittins index at the lower bound of a class, or `None` if no finished job had more
/// service.
fn index(history: &[f64], class: usize) -> Option<f64> {
    let attained = CLASSES[class];
    let left: Vec<f64> = history
        .iter()
        .map(|service| service - attained)
        .filter(|&left| left > 0.0)
        .collect();
    if left.is_empty() {
        return None;
    }
    let ends = CLASSES[class + 1..].iter().copied();
    let quanta = ends.chain([f64::INFINITY]).map(|end| end - attained);
    let indices = quanta.map(|quantum| {
        let done = left.iter().filter(|&&left| left <= quantum).count() as f64;
        let taken: f64 = left.iter().map(|left| left.min(quantum)).sum();
        done / taken
    });
    indices.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gittins_rank_of_old_jobs_follows_the_history() {
        let mut short = vec![600.0; 90];
        short.extend([500_000.0; 10]);
        let of_short = ranks(&short);
        assert!(of_short[0] < of_short[1], "{of_short:?}");

        // All jobs take an hour, so a job with more service is nearer to its end.
        let of_equal = ranks(&vec![3_600.0; 100]);
        assert!(of_equal[1] < of_equal[0], "{of_equal:?}");
    }

    #[test]
    fn gittins_index_is_end_probability_over_expected_service() {
        // From 0: within 900 s, 1 of 2 ends after 500 and the other takes 900: 1/1400. Within 3,600
        // s both end: 2/2500.
        let index = index(&[500.0, 2_000.0], 0).unwrap();
        assert!((index - 2.0 / 2_500.0).abs() < 1e-15, "{index}");
    }
}
