//! Time slicing of Gandiva (Xiao et al., OSDI 2018): if the gangs exceed the GPUs, they rotate with
//! a fixed quantum. So every job shows early whether it is worth its GPUs.
//!
//! The policy optimises no completion time. It gives early feedback and high utilisation. Waiting
//! jobs are served in the order in which they began to wait. A job that has run for a quantum goes
//! behind the jobs that wait by then. Placement prefers nodes whose jobs have the same size
//! (affinity). Running jobs are migrated to gather a scattered gang: the node with the most free
//! GPUs is vacated. A job that may grow takes idle GPUs of its own node until another job needs
//! them.
//!
//! Differences from the paper:
//!
//! - Two jobs are never packed on one GPU, because a decision cannot express a shared GPU.
//! - Time slices rotate over the whole cluster and not node by node.
//! - There is no profiling. The outlook tells whether a migration or a growth pays.

mod consolidation;
mod grow;

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::request;
use super::{PolicyCapabilities, SchedulingPolicy, gang};
use crate::problem::{NodeAllocation, PolicyDecision, ProblemJob, SchedulingProblem};
use std::cmp::Reverse;

/// Policy that rotates gangs in time slices.
#[derive(Debug, Clone, Copy)]
pub struct Gandiva;

/// Length of a time slice in seconds.
pub const QUANTUM_S: f64 = 60.0;

/// Maximum number of gathering rounds in one decision. Each one can make room for others; one is
/// usual.
const MIGRATIONS: usize = 8;

/// Waiting time in seconds after which no job starts before a gang, so that GPUs accumulate for it.
const PATIENCE_S: f64 = 2.0 * QUANTUM_S;

impl SchedulingPolicy for Gandiva {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let bases: Vec<Option<Vec<NodeAllocation>>> = (0..problem.jobs.len())
            .map(|job| Some(base(problem, job)))
            .collect();
        let start = AllocationState::beside_fixed(problem).with_present(&bases);
        let turns = turns(problem);
        let impatient = impatient(&start);
        let mut given = serve(&start, &bases, &turns, &impatient);
        for _ in 0..MIGRATIONS {
            let Some(gathered) = consolidation::scattered(&start, &given) else {
                break;
            };
            // The moves may have made room for other jobs.
            given = serve(&start, &gathered, &turns, &impatient);
        }
        grow::into_idle(&start, given).decision()
    }

    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            gathers: true,
            ..PolicyCapabilities::default()
        }
    }
}

/// Returns the allocation of a job without its growth.
fn base(problem: &SchedulingProblem, job: usize) -> Vec<NodeAllocation> {
    let of = &problem.jobs[job];
    let mut left = request(of);
    let mut parts = of.present.clone();
    for part in &mut parts {
        part.gpus = part.gpus.min(left);
        left -= part.gpus;
    }
    parts.retain(|part| part.gpus > 0);
    parts
}

/// Returns the allocations of the jobs that run when all are served in turn. `present` are their
/// allocations now. Behind an impatient job without a place, no job of its priority starts.
fn serve(
    start: &AllocationState<'_>,
    present: &[Option<Vec<NodeAllocation>>],
    turns: &[usize],
    impatient: &[bool],
) -> Vec<Option<Vec<NodeAllocation>>> {
    let problem = start.problem;
    let start = start.clone().with_present(present);
    let served = gang::run(&start, PlacementStyle::Affine, || {
        let mut turns = turns.iter().copied();
        // The job named last, and the priority in which waiting jobs may not start.
        let mut named: Option<usize> = None;
        let mut held_back: Option<i32> = None;
        move |state: &AllocationState<'_>| {
            if let Some(job) = named.filter(|&job| impatient[job] && state.given(job).is_none()) {
                held_back = Some(problem.jobs[job].priority);
            }
            named = turns.find(|&job| {
                let of = &problem.jobs[job];
                Some(of.priority) != held_back || !of.present.is_empty()
            });
            named
        }
    });
    served.into_given()
}

/// Whether a job is in the first quantum of its allocation. It then keeps it if possible.
fn in_first_quantum(problem: &SchedulingProblem, job: usize) -> bool {
    let of = &problem.jobs[job];
    !of.present.is_empty() && problem.now_s < of.since_s + QUANTUM_S
}

/// Returns the order of the jobs: by priority, then jobs in their first quantum, then by the time
/// at which a job last joined the end of the queue. At equal times running jobs come first.
fn turns(problem: &SchedulingProblem) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    order.sort_by(|&a, &b| {
        let by_class = class(problem, a).cmp(&class(problem, b));
        let (a, b) = (&problem.jobs[a], &problem.jobs[b]);
        by_class
            .then(queued_s(problem, a).total_cmp(&queued_s(problem, b)))
            .then(a.present.is_empty().cmp(&b.present.is_empty()))
    });
    order
}

/// Returns the class of a job in the order: by priority, then jobs in their first quantum.
fn class(problem: &SchedulingProblem, job: usize) -> (Reverse<i32>, bool) {
    let priority = problem.jobs[job].priority;
    (Reverse(priority), !in_first_quantum(problem, job))
}

/// Returns the time at which a job last joined the end of the queue. For a waiting job that is the
/// start of its wait, for a running job the end of its last whole quantum.
fn queued_s(problem: &SchedulingProblem, job: &ProblemJob) -> f64 {
    if job.present.is_empty() {
        return job.since_s;
    }
    let quanta = ((problem.now_s - job.since_s) / QUANTUM_S).floor();
    job.since_s + quanta * QUANTUM_S
}

/// Whether each job has waited for longer than the patience and would fit if all movable jobs were
/// absent.
fn impatient(start: &AllocationState<'_>) -> Vec<bool> {
    let problem = start.problem;
    (0..problem.jobs.len())
        .map(|job| {
            let of = &problem.jobs[job];
            of.present.is_empty()
                && problem.now_s - of.since_s > PATIENCE_S
                && start
                    .seek(job, request(of), PlacementStyle::Packed)
                    .is_some()
        })
        .collect()
}

/// Whether a job may be migrated or resized now: it keeps its allocation, which is older than a
/// quantum.
fn is_settled(start: &AllocationState<'_>, job: usize, given: Option<&[NodeAllocation]>) -> bool {
    let present = start.present(job);
    !present.is_empty() && given == Some(present) && !in_first_quantum(start.problem, job)
}

/// Returns the remaining seconds of a job on these GPUs.
fn time_left_s(state: &AllocationState<'_>, job: usize, parts: &[NodeAllocation]) -> f64 {
    state.problem.jobs[job].outlook.work_left / state.speed_on(job, parts)
}
