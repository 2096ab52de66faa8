//! Finish-time fairness of Themis (Mahajan et al., NSDI 2020).
//!
//! The rho of a job compares two times from its submission to its end: in the shared cluster, and
//! alone in 1/N of it, with N jobs. The objective is a small largest rho. A job keeps its GPUs for
//! a lease of one round. Free GPUs are then offered to the worst-off part of the jobs. The order is
//! by the rise of rho per GPU if a job got none. GPUs that these jobs cannot use go to the others
//! in order of submission.
//!
//! The worst-off part is 1 - f. `f` trades fairness for efficiency; the value 0.8 is the paper's.
//!
//! Differences from the paper:
//!
//! - There is no truthful auction (hidden payments make lying useless), because rho comes from the
//!   outlooks and jobs do not bid.
//! - Applications of several jobs are not modelled.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::{self, minimum, request};
use super::{SchedulingPolicy, gang};
use crate::problem::{PolicyDecision, SchedulingProblem};

/// Policy that serves the jobs with the largest rho first.
#[derive(Debug, Clone, Copy)]
pub struct Themis;

/// Part of the jobs that gets no offer: the paper's fairness knob.
const F: f64 = 0.8;

impl SchedulingPolicy for Themis {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let fates = fates(problem);
        gang::in_order(problem, PlacementStyle::Packed, &order(problem, &fates))
    }
}

#[derive(Debug, Clone, Copy)]
struct FinishTimeFairness {
    rho: f64,
    /// Rise of rho per second without GPUs, per requested GPU.
    urgency: f64,
    leased: bool,
}

fn fates(problem: &SchedulingProblem) -> Vec<FinishTimeFairness> {
    let state = AllocationState::beside_fixed(problem);
    let part = f64::from(problem.gpus()) / problem.jobs.len().max(1) as f64;
    (0..problem.jobs.len())
        .map(|job| fate(&state, job, part))
        .collect()
}

/// Returns the fate of a job. `part` is its part of the cluster in GPUs.
fn fate(state: &AllocationState<'_>, job: usize, part: f64) -> FinishTimeFairness {
    let problem = state.problem;
    let of = &problem.jobs[job];
    let size = request(of);
    let work = of.outlook.work_done + of.outlook.work_left;
    let alone_s = work / part_speed(state, job, part);
    let shared_s = of.age_s(problem.now_s) + of.outlook.work_left / state.best_speed(job, size);
    let lease_ends_s = of.since_s + problem.round_s;
    FinishTimeFairness {
        // A job that cannot run in its part, or anywhere, loses nothing by waiting.
        rho: if alone_s.is_finite() && shared_s.is_finite() {
            shared_s / alone_s
        } else {
            0.0
        },
        urgency: 1.0 / alone_s / f64::from(size),
        leased: !of.present.is_empty() && problem.now_s < lease_ends_s,
    }
}

/// Returns the work per second in a part of the cluster: the speed on as many GPUs, or a fraction
/// of the smallest gang's speed.
fn part_speed(state: &AllocationState<'_>, job: usize, part: f64) -> f64 {
    let of = &state.problem.jobs[job];
    let (least, most) = (minimum(of), request(of));
    if part < f64::from(least) {
        return state.best_speed(job, least) * part / f64::from(least);
    }
    let unit = of.unit.gpus.max(1);
    let sizes = (least..=most).filter(|size| size % unit == 0 && f64::from(*size) <= part);
    sizes
        .map(|size| state.best_speed(job, size))
        .fold(0.0, f64::max)
}

/// Returns the jobs by priority. Within a priority leased jobs come first, then the worst-off part
/// by urgency, then the others by submission. The worst-off part does not depend on which jobs run,
/// so a decision is not reversed as soon as it is applied.
fn order(problem: &SchedulingProblem, fates: &[FinishTimeFairness]) -> Vec<usize> {
    let rhos: Vec<f64> = fates.iter().map(|fate| -fate.rho).collect();
    let mut order = order::by_key(problem, &rhos);
    for class in order.chunk_by_mut(|&a, &b| problem.jobs[a].priority == problem.jobs[b].priority) {
        let offered = (class.len() as f64 * (1.0 - F)).ceil() as usize;
        let (worst_off, others) = class.split_at_mut(offered.min(class.len()));
        worst_off.sort_by(|&a, &b| {
            let by_urgency = fates[b].urgency.total_cmp(&fates[a].urgency);
            by_urgency.then(a.cmp(&b))
        });
        others.sort_unstable();
        class.sort_by_key(|&job| !fates[job].leased);
    }
    order
}
