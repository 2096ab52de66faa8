//! Order of the trials of one study by expected gain: an allocation of one trial may be exchanged
//! with another's.
//!
//! A policy weighs tenants, ages and lengths, and does not know expected gains. Its decision is
//! kept, except that allocations are exchanged within a study, between jobs of one tenant, one
//! priority and equal demands. So the GPUs of each tenant and each node stay the same for all
//! expectations. A weight inside the policies' objectives would move GPUs between tenants.
//!
//! The classes of HyperDrive (Rasley et al., Middleware 2017) follow from the numbers: promising
//! trials start and grow first, poor ones last. No trial starves, because the trials of a study are
//! finite. No running trial is stopped or moved for an exchange.

use crate::problem::{
    NodeAllocation, PolicyDecision, ProblemJob, SchedulingProblem, gpus_of, nodes_of,
};
use std::collections::BTreeMap;

/// Exchanges the allocations of each study's trials so that larger expected gains come first.
#[must_use]
pub fn prioritise_trials(
    problem: &SchedulingProblem,
    mut decision: PolicyDecision,
) -> PolicyDecision {
    for group in groups(problem) {
        let mut order = group;
        // Largest gain first; among equals the oldest trial.
        order.sort_by(|&a, &b| {
            let (one, other) = (gain(problem, a), gain(problem, b));
            other.total_cmp(&one).then(a.cmp(&b))
        });
        // Terminates: each exchange moves GPUs to a trial with a larger gain.
        while pass(problem, &mut decision, &order) {}
    }
    decision
}

/// Whether an allocation was exchanged.
fn pass(problem: &SchedulingProblem, decision: &mut PolicyDecision, order: &[usize]) -> bool {
    let given: Vec<usize> = order
        .iter()
        .rev()
        .copied()
        .filter(|&job| {
            decision.parts[job]
                .as_ref()
                .is_some_and(|parts| !parts.is_empty())
        })
        .collect();
    let mut any = false;
    for &better in order {
        for &worse in &given {
            if gain(problem, better) > gain(problem, worse) {
                any |= exchange(problem, decision, better, worse);
            }
        }
    }
    any
}

fn gain(problem: &SchedulingProblem, job: usize) -> f64 {
    problem.jobs[job].trial.map_or(0.0, |trial| trial.gain)
}

/// Returns the groups of movable trials that differ only in their expected gain.
fn groups(problem: &SchedulingProblem) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, job) in problem.jobs.iter().enumerate() {
        let Some(trial) = job.trial.filter(|_| job.is_movable()) else {
            continue;
        };
        let unit = (job.unit.gpus, job.unit.cpu_milli, job.unit.memory_bytes);
        let alike = (trial.study, job.tenant, job.priority, unit);
        groups.entry(alike).or_default().push(index);
    }
    groups
        .into_values()
        .filter(|group| group.len() > 1)
        .collect()
}

/// Gives the new or additional GPUs of the less promising trial to the other, if that has fewer and
/// can take them.
fn exchange(
    problem: &SchedulingProblem,
    decision: &mut PolicyDecision,
    better: usize,
    worse: usize,
) -> bool {
    let (has, would) = (&problem.jobs[better].present, &problem.jobs[worse].present);
    match (has.is_empty(), would.is_empty()) {
        (true, true) => exchange_starts(problem, decision, better, worse),
        (false, true) => keep_running(problem, decision, better, worse),
        (false, false) => exchange_growth(problem, decision, better, worse),
        // A running trial is not stopped for a waiting one.
        (true, false) => false,
    }
}

fn exchange_starts(
    problem: &SchedulingProblem,
    decision: &mut PolicyDecision,
    better: usize,
    worse: usize,
) -> bool {
    let (less, more) = (
        decision.holds(problem, better),
        decision.holds(problem, worse),
    );
    let gains = gpus_of(more) > gpus_of(less);
    let fits =
        gains && takes(problem, better, more) && (less.is_empty() || takes(problem, worse, less));
    if fits {
        decision.parts.swap(better, worse);
        swap_worth(decision, better, worse);
    }
    fits
}

/// Keeps a trial running if the policy would stop it for a less promising one on the same GPUs.
fn keep_running(
    problem: &SchedulingProblem,
    decision: &mut PolicyDecision,
    better: usize,
    worse: usize,
) -> bool {
    let job = &problem.jobs[better];
    let is_stopped = decision.holds(problem, better).is_empty();
    let keeps = is_stopped && decision.parts[worse].as_ref() == Some(&job.present);
    if keeps {
        decision.parts[better] = None;
        decision.parts[worse] = None;
    }
    keeps
}

/// Exchanges the growth of two trials that run on equally many GPUs. The more promising one must
/// keep its size otherwise.
fn exchange_growth(
    problem: &SchedulingProblem,
    decision: &mut PolicyDecision,
    better: usize,
    worse: usize,
) -> bool {
    let (a, b) = (&problem.jobs[better], &problem.jobs[worse]);
    let keeps = decision.holds(problem, better) == a.present;
    if !keeps
        || a.held_gpus() != b.held_gpus()
        || kind(problem, &a.present) != kind(problem, &b.present)
    {
        return false;
    }
    let grown = decision.holds(problem, worse).to_vec();
    let Some(more) = beyond(&grown, &b.present) else {
        return false;
    };
    let larger = joined(&a.present, &more);
    let fits = nodes_of(&larger) <= nodes_of(&grown) && takes(problem, better, &larger);
    if fits {
        decision.parts[better] = Some(larger);
        decision.parts[worse] = None;
        swap_worth(decision, better, worse);
    }
    fits
}

fn swap_worth(decision: &mut PolicyDecision, one: usize, other: usize) {
    if !decision.worth.is_empty() {
        decision.worth.swap(one, other);
    }
}

/// Whether the parts are within the job's bounds and the job runs on them.
fn takes(problem: &SchedulingProblem, job: usize, parts: &[NodeAllocation]) -> bool {
    let job: &ProblemJob = &problem.jobs[job];
    let gpus = gpus_of(parts);
    let runs = kind(problem, parts)
        .is_some_and(|kind| job.outlook.speed(kind, gpus, nodes_of(parts)) > 0.0);
    (job.min_gpus..=job.max_gpus).contains(&gpus) && runs
}

fn kind(problem: &SchedulingProblem, parts: &[NodeAllocation]) -> Option<u16> {
    let first = parts.first()?;
    Some(problem.kind_of(first))
}

/// Returns the parts of `grown` beyond `present`. Returns `None` unless `grown` contains all of
/// `present` and more.
fn beyond(grown: &[NodeAllocation], present: &[NodeAllocation]) -> Option<Vec<NodeAllocation>> {
    let mut left = by_node(grown);
    for part in present {
        let there = left.get_mut(&part.node)?;
        *there = there.checked_sub(part.gpus)?;
    }
    let more: Vec<NodeAllocation> = left
        .into_iter()
        .filter(|(_, gpus)| *gpus > 0)
        .map(|(node, gpus)| NodeAllocation { node, gpus })
        .collect();
    (!more.is_empty()).then_some(more)
}

fn joined(present: &[NodeAllocation], more: &[NodeAllocation]) -> Vec<NodeAllocation> {
    let mut parts = present.to_vec();
    for extra in more {
        match parts.iter_mut().find(|part| part.node == extra.node) {
            Some(part) => part.gpus += extra.gpus,
            None => parts.push(*extra),
        }
    }
    parts
}

fn by_node(parts: &[NodeAllocation]) -> BTreeMap<u32, u32> {
    let mut sum = BTreeMap::new();
    for part in parts {
        *sum.entry(part.node).or_default() += part.gpus;
    }
    sum
}
