//! Elastic sizes by marginal gain: every job gets its minimum first. Then each further GPU goes to
//! the job that gains most from it.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::{self, maximum, minimum};
use crate::problem::{PolicyDecision, SchedulingProblem, SizeValue};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Step of a job to its next size.
#[derive(Debug, Clone, Copy)]
pub struct GrowthStep {
    pub job: usize,
    pub kind: u16,
    pub from: u32,
    pub to: u32,
}

/// Wanted size of every job, before nodes are chosen.
#[derive(Debug, Clone)]
pub struct WantedSizes {
    /// Jobs by priority, then by submission.
    order: Vec<usize>,
    /// Kind and GPUs by job; `None` for jobs that wait.
    wanted: Vec<Option<(u16, u32)>>,
    worth: Vec<SizeValue>,
}

/// Sizes all jobs by the gain of a step per GPU.
///
/// GPUs are only counted here, by kind. A job stays on its present kind while that has capacity for
/// its minimum. Otherwise it takes the kind on which its minimum is fastest. Jobs of higher
/// priority grow first, but no job grows by taking GPUs that another job needs for its minimum.
pub fn sizes(
    problem: &SchedulingProblem,
    gain: impl Fn(&AllocationState<'_>, GrowthStep) -> f64,
) -> WantedSizes {
    let mut state = AllocationState::beside_fixed(problem);
    let mut left: Vec<(u16, u32)> = state.kinds().iter().map(|&(kind, _)| (kind, 0)).collect();
    for (node, free) in problem.nodes.iter().zip(&state.tally.free) {
        if let Some(left) = of_kind(&mut left, node.kind) {
            *left += free;
        }
    }
    let order = order::by_submission(problem);
    let mut sizes = WantedSizes {
        wanted: vec![None; problem.jobs.len()],
        worth: vec![SizeValue::default(); problem.jobs.len()],
        order,
    };
    for &job in &sizes.order {
        let of = &problem.jobs[job];
        let mut starts = starts(&state, job).into_iter();
        let start = starts.find(|&(kind, least)| {
            let mut left = left.iter();
            of.is_movable()
                && state.quota_allows(of.tenant, least)
                && left.any(|&(of, free)| of == kind && free >= least)
        });
        let Some((kind, least)) = start else {
            continue;
        };
        sizes.wanted[job] = Some((kind, least));
        state.charge(of.tenant, least);
        *of_kind(&mut left, kind).expect("it was found there") -= least;
    }
    let mut rest = &sizes.order[..];
    while let Some(&first) = rest.first() {
        let priority = problem.jobs[first].priority;
        let same = rest.partition_point(|&job| problem.jobs[job].priority == priority);
        let (class, lower) = rest.split_at(same);
        grow(
            &mut state,
            &mut left,
            class,
            &mut sizes.wanted,
            &mut sizes.worth,
            &gain,
        );
        rest = lower;
    }
    sizes
}

impl WantedSizes {
    /// Chooses the nodes. Jobs with an unchanged size keep their nodes. The others follow by
    /// priority, smaller sizes first, on the nodes with the most free GPUs. A job that does not fit
    /// as a whole (whole units, CPU, memory) gets the largest smaller size that fits. Jobs without
    /// a place then take their minimum from the rest.
    pub fn place(self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut state = AllocationState::beside_fixed(problem);
        let mut anew: Vec<(Reverse<i32>, u32, usize, u16)> = Vec::new();
        for &job in &self.order {
            let Some((kind, gpus)) = self.wanted[job] else {
                continue;
            };
            let of = &problem.jobs[job];
            let same = of.held_gpus() == gpus && present_kind(problem, job) == Some(kind);
            if same && state.can_keep(job) {
                state.keep(job);
            } else {
                anew.push((Reverse(of.priority), gpus, job, kind));
            }
        }
        anew.sort_unstable();
        for (_, gpus, job, kind) in anew {
            fit(&mut state, job, kind, gpus);
        }
        for &job in &self.order {
            if problem.jobs[job].is_movable() && state.given(job).is_none() {
                start(&mut state, job);
            }
        }
        let mut decision = state.decision();
        decision.worth = self.worth;
        decision
    }
}

/// Allocates the largest size up to `gpus` that fits. The present allocation is kept if it has that
/// size.
fn fit(state: &mut AllocationState<'_>, job: usize, kind: u16, gpus: u32) {
    let of = &state.problem.jobs[job];
    let (unit, least) = (of.unit.gpus.max(1), minimum(of));
    let mut size = gpus;
    while size >= least {
        let has =
            of.held_gpus() == size && present_kind(state.problem, job) == Some(kind) && size < gpus;
        if has && state.can_keep(job) {
            return state.keep(job);
        }
        if state.place_on(job, kind, size, PlacementStyle::Emptiest) {
            return;
        }
        size -= unit;
    }
}

/// Allocates the present allocation of a job, or its smallest size on any kind, if that is free.
fn start(state: &mut AllocationState<'_>, job: usize) {
    if state.can_keep(job) {
        return state.keep(job);
    }
    for (kind, least) in starts(state, job) {
        if state.place_on(job, kind, least, PlacementStyle::Emptiest) {
            return;
        }
    }
}

/// Distributes the remaining GPUs to the jobs of one priority, step by step.
fn grow(
    state: &mut AllocationState<'_>,
    left: &mut [(u16, u32)],
    class: &[usize],
    wanted: &mut [Option<(u16, u32)>],
    worth: &mut [SizeValue],
    gain: &impl Fn(&AllocationState<'_>, GrowthStep) -> f64,
) {
    let mut heap: BinaryHeap<StepGain> = class
        .iter()
        .filter_map(|&job| offer(state, job, wanted[job]?, gain))
        .collect();
    for offer in &heap {
        worth[offer.step.job].next_gain = offer.gain;
    }
    while let Some(StepGain { gain: gained, step }) = heap.pop() {
        let more = step.to - step.from;
        let tenant = state.problem.jobs[step.job].tenant;
        let Some(free) = of_kind(left, step.kind).filter(|free| **free >= more) else {
            continue;
        };
        if !state.quota_allows(tenant, more) {
            continue;
        }
        *free -= more;
        state.charge(tenant, more);
        wanted[step.job] = Some((step.kind, step.to));
        let next = offer(state, step.job, (step.kind, step.to), gain);
        worth[step.job] = SizeValue {
            last_gain: gained,
            next_gain: next.map_or(0.0, |next| next.gain),
        };
        heap.extend(next);
    }
}

/// Returns the job's next step, if it has a positive gain.
fn offer(
    state: &AllocationState<'_>,
    job: usize,
    (kind, from): (u16, u32),
    gain: &impl Fn(&AllocationState<'_>, GrowthStep) -> f64,
) -> Option<StepGain> {
    let to = size_after(state, job, kind, from)?;
    let step = GrowthStep {
        job,
        kind,
        from,
        to,
    };
    let gain = gain(state, step) / f64::from(to - from);
    (gain > 0.0).then_some(StepGain { gain, step })
}

/// Returns the kinds on which a job runs, with its smallest size there: its own kind first, then by
/// descending speed.
fn starts(state: &AllocationState<'_>, job: usize) -> Vec<(u16, u32)> {
    let own = present_kind(state.problem, job);
    let of = &state.problem.jobs[job];
    let mut starts: Vec<(u16, u32)> = Vec::new();
    for &(kind, _) in state.kinds() {
        starts.extend(
            size_after(state, job, kind, minimum(of).saturating_sub(1)).map(|least| (kind, least)),
        );
    }
    starts.sort_by(|&(a_kind, a), &(b_kind, b)| {
        let speed = state.speed(job, a_kind, a);
        state.speed(job, b_kind, b).total_cmp(&speed)
    });
    starts.sort_by_key(|&(kind, _)| Some(kind) != own);
    starts
}

/// Returns the next larger size at which the job runs.
fn size_after(state: &AllocationState<'_>, job: usize, kind: u16, from: u32) -> Option<u32> {
    let of = &state.problem.jobs[job];
    let unit = of.unit.gpus.max(1);
    let mut larger = (from + 1..=maximum(of)).filter(|to| to % unit == 0);
    larger.find(|&to| state.speed(job, kind, to) > 0.0)
}

fn present_kind(problem: &SchedulingProblem, job: usize) -> Option<u16> {
    Some(problem.kind_of(problem.jobs[job].present.first()?))
}

fn of_kind(left: &mut [(u16, u32)], kind: u16) -> Option<&mut u32> {
    let found = left.iter_mut().find(|&&mut (of, _)| of == kind);
    found.map(|(_, free)| free)
}

/// Gain of a step. The greatest gain comes first; among equals the first job.
#[derive(Debug, Clone, Copy)]
struct StepGain {
    gain: f64,
    step: GrowthStep,
}

impl Ord for StepGain {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_gain = self.gain.total_cmp(&other.gain);
        by_gain.then(other.step.job.cmp(&self.step.job))
    }
}

impl PartialOrd for StepGain {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for StepGain {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for StepGain {}
