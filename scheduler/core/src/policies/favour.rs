//! Among the trials of one study, those that promise most come first: what a policy gives to one of them may be given to another.
//!
//! A policy weighs tenants, ages and lengths, and knows nothing of what a trial may come to. Here its decision is taken as it is, and
//! only who of a study gets what is exchanged, between jobs of one tenant, one priority and equal demands. So what each tenant holds
//! and what every node gives stays the same by construction, whatever the expectations say; a weight inside the policies' objectives
//! would have moved GPUs between tenants. HyperDrive's classes (Rasley et al., Middleware 2017) come out of the numbers: promising
//! trials start and grow first, poor ones last. Nobody starves of it, as a study's trials are finite, and nobody who runs is stopped or
//! moved for it.

use crate::problem::{Decision, Job, Part, Problem, gpus_of, nodes_of};
use std::collections::BTreeMap;

/// The decision with the same grants, those of each study's trials in the order of what these promise.
#[must_use]
pub fn favour(problem: &Problem, mut decision: Decision) -> Decision {
    for group in groups(problem) {
        let mut order = group;
        // The most promising first, the oldest among equals.
        order.sort_by(|&a, &b| {
            let (one, other) = (gain(problem, a), gain(problem, b));
            other.total_cmp(&one).then(a.cmp(&b))
        });
        // Each exchange moves GPUs to who promises more, so this ends by itself.
        while pass(problem, &mut decision, &order) {}
    }
    decision
}

/// Whether anything was exchanged.
fn pass(problem: &Problem, decision: &mut Decision, order: &[usize]) -> bool {
    let is_given = |&job: &usize| {
        decision.parts[job]
            .as_ref()
            .is_some_and(|parts| !parts.is_empty())
    };
    let given: Vec<usize> = order.iter().rev().copied().filter(is_given).collect();
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

fn gain(problem: &Problem, job: usize) -> f64 {
    problem.jobs[job].trial.map_or(0.0, |trial| trial.gain)
}

/// Movable trials that are alike but for their expectations.
fn groups(problem: &Problem) -> Vec<Vec<usize>> {
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

/// Gives what the less promising one would start or grow with to the other, where that has less and can take it.
fn exchange(problem: &Problem, decision: &mut Decision, better: usize, worse: usize) -> bool {
    let (has, would) = (&problem.jobs[better].present, &problem.jobs[worse].present);
    match (has.is_empty(), would.is_empty()) {
        (true, true) => exchange_starts(problem, decision, better, worse),
        (false, true) => keep_running(problem, decision, better, worse),
        (false, false) => exchange_growth(problem, decision, better, worse),
        // Who runs is not stopped for one who waits.
        (true, false) => false,
    }
}

fn exchange_starts(
    problem: &Problem,
    decision: &mut Decision,
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

/// A policy that lets jobs take turns may stop a trial for one that promises less, on the very same GPUs: then nothing changes.
fn keep_running(problem: &Problem, decision: &mut Decision, better: usize, worse: usize) -> bool {
    let job = &problem.jobs[better];
    let is_stopped = decision.holds(problem, better).is_empty();
    let keeps = is_stopped && decision.parts[worse].as_ref() == Some(&job.present);
    if keeps {
        decision.parts[better] = None;
        decision.parts[worse] = None;
    }
    keeps
}

/// Of two that run on as many GPUs, the one that keeps its size gets what the other would grow by.
fn exchange_growth(
    problem: &Problem,
    decision: &mut Decision,
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

fn swap_worth(decision: &mut Decision, one: usize, other: usize) {
    if !decision.worth.is_empty() {
        decision.worth.swap(one, other);
    }
}

/// Whether the job may have these, and runs on them.
fn takes(problem: &Problem, job: usize, parts: &[Part]) -> bool {
    let job: &Job = &problem.jobs[job];
    let gpus = gpus_of(parts);
    let runs = kind(problem, parts)
        .is_some_and(|kind| job.outlook.speed(kind, gpus, nodes_of(parts)) > 0.0);
    (job.min_gpus..=job.max_gpus).contains(&gpus) && runs
}

fn kind(problem: &Problem, parts: &[Part]) -> Option<u16> {
    let first = parts.first()?;
    Some(problem.nodes[first.node as usize].kind)
}

/// What is in `grown` and not in `present`; `None` unless it holds all of that and more.
fn beyond(grown: &[Part], present: &[Part]) -> Option<Vec<Part>> {
    let mut left = by_node(grown);
    for part in present {
        let there = left.get_mut(&part.node)?;
        *there = there.checked_sub(part.gpus)?;
    }
    let more: Vec<Part> = left
        .into_iter()
        .filter(|(_, gpus)| *gpus > 0)
        .map(|(node, gpus)| Part { node, gpus })
        .collect();
    (!more.is_empty()).then_some(more)
}

fn joined(present: &[Part], more: &[Part]) -> Vec<Part> {
    let mut parts = present.to_vec();
    for extra in more {
        match parts.iter_mut().find(|part| part.node == extra.node) {
            Some(part) => part.gpus += extra.gpus,
            None => parts.push(*extra),
        }
    }
    parts
}

fn by_node(parts: &[Part]) -> BTreeMap<u32, u32> {
    let mut sum = BTreeMap::new();
    for part in parts {
        *sum.entry(part.node).or_default() += part.gpus;
    }
    sum
}
