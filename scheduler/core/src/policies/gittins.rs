//! Tiresias' two-dimensional Gittins index (Gu et al., NSDI 2019): least attained service, corrected by what is known of how much
//! service jobs take in all.
//!
//! The index of a job that has had `a` GPU-seconds is the best ratio, over the service `d` that it may be given next, of the
//! chance that it ends within that to the service that it is expected to take of it: P(S - a <= d | S > a) / E[min(S - a, d) |
//! S > a], with S distributed as the finished jobs' service was. It lowers the mean completion time when that tells something: a
//! cluster of many short jobs and a few that run for days serves the old ones last. Service is discretised, as in the paper, so
//! that like jobs do not displace each other in turn: those of one class share an index and come in order of submission.
//!
//! Where history says nothing (fewer jobs than [`ENOUGH`], or none that took so much) the class alone decides: the least first.

use super::room::Style;
use super::{Share, gang, order};
use crate::problem::{Decision, Problem};

/// The highest Gittins index first.
#[derive(Debug, Clone, Copy)]
pub struct TiresiasGittins;

/// Finished jobs from which a distribution is read.
const ENOUGH: usize = 10;

/// Where the classes of attained service begin, GPU-seconds: 0, a quarter of an hour on one GPU, and four times as much each.
const CLASSES: [f64; 7] = [
    0.0, 900.0, 3_600.0, 14_400.0, 57_600.0, 230_400.0, 921_600.0,
];

impl Share for TiresiasGittins {
    fn share(&self, problem: &Problem) -> Decision {
        let ranks = ranks(&problem.history_gpu_s);
        let class = |attained_gpu_s: f64| {
            let begun = CLASSES.iter().filter(|&&begin| begin <= attained_gpu_s);
            begun.count().max(1) - 1
        };
        let jobs = problem.jobs.iter();
        let keys: Vec<f64> = jobs.map(|job| ranks[class(job.attained_gpu_s)]).collect();
        let order = order::by_key(problem, &keys);
        gang::in_order(problem, Style::Packed, &order)
    }
}

/// The key of every class, the smaller first: minus its index, and behind all those the classes of which nothing is known.
fn ranks(history: &[f64]) -> [f64; CLASSES.len()] {
    let enough = history.len() >= ENOUGH;
    let mut ranks = [0.0; CLASSES.len()];
    for (class, rank) in ranks.iter_mut().enumerate() {
        let index = enough.then(|| index(history, class)).flatten();
        // A class number is a small integer: exact.
        *rank = index.map_or(class as f64, |index| -index);
    }
    ranks
}

/// The Gittins index at the beginning of a class; `None` when nobody has taken so much.
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
    fn old_jobs_come_last_where_most_are_short_and_first_where_most_end_soon_after() {
        let mut short = vec![600.0; 90];
        short.extend([500_000.0; 10]);
        let of_short = ranks(&short);
        assert!(of_short[0] < of_short[1], "{of_short:?}");

        // Everybody takes an hour: who has had most of it is nearest to its end.
        let of_equal = ranks(&vec![3_600.0; 100]);
        assert!(of_equal[1] < of_equal[0], "{of_equal:?}");
    }

    #[test]
    fn the_index_is_the_chance_to_end_over_the_service_expected() {
        // From 0: within 900 s, 1 of 2 ends after 500 and the other takes 900: 1/1400; within 3,600 both end: 2/2500.
        let index = index(&[500.0, 2_000.0], 0).unwrap();
        assert!((index - 2.0 / 2_500.0).abs() < 1e-15, "{index}");
    }
}
