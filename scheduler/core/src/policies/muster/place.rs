//! Choice of nodes. Jobs with an unchanged size keep their nodes. The others are packed, the
//! largest first.
//!
//! If a gang would be split over too many nodes, one smaller kept gang moves aside. If that does
//! not help, all smaller gangs leave as many nodes as the gang needs. Otherwise a cluster of small
//! jobs would never have whole nodes for it. If that fails too, the gang takes its next best size.

use super::options::{AllocationOption, JobOptions, OptionIndex};
use super::placement_index::PlacementIndex;
use crate::problem::{Demand, NodeAllocation, PolicyDecision, SchedulingProblem, SizeValue};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Placed jobs.
pub(super) struct PlacedOptions {
    /// Option that each job really has.
    pub held: Vec<OptionIndex>,
    parts: Vec<Option<Vec<NodeAllocation>>>,
}

/// Maximum number of kept gangs that are tried as the one to move aside, per placed gang.
const MOST_ASIDE: usize = 8;

/// Maximum number of times in one decision that nodes are cleared of several gangs for a larger
/// one.
const MOST_CLEARINGS: u32 = 8;

pub(super) fn place_options(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    chosen: Vec<OptionIndex>,
) -> PlacedOptions {
    let mut placement_index = PlacementIndex::new(problem);
    let mut held: Vec<OptionIndex> = vec![None; chosen.len()];
    let mut parts: Vec<Option<Vec<NodeAllocation>>> = vec![None; chosen.len()];
    let mut waiting: BinaryHeap<(u32, Reverse<usize>)> = BinaryHeap::new();
    for (job, choice) in chosen.iter().enumerate() {
        let Some(option) = *choice else { continue };
        let of = &problem.jobs[job];
        let stays =
            all_options[job].present == Some(option) && placement_index.take(&of.present, &of.unit);
        if stays {
            held[job] = Some(option);
        } else {
            waiting.push((all_options[job].options[option].gpus, Reverse(job)));
        }
    }
    placement_index.open();
    let mut kept = GangsOnNode::of(problem, &held);
    while let Some((_, Reverse(job))) = waiting.pop() {
        let of = &problem.jobs[job];
        let Some(wanted) = chosen[job] else { continue };
        let others = std::iter::once_with(|| downwards(&all_options[job], wanted)).flatten();
        for option in std::iter::once(wanted).chain(others) {
            if all_options[job].present == Some(option)
                && placement_index.take(&of.present, &of.unit)
            {
                held[job] = Some(option);
                break;
            }
            let AllocationOption {
                kind, gpus, nodes, ..
            } = all_options[job].options[option];
            let mut found = placement_index.find(kind, gpus, nodes, &of.unit);
            if found.is_none() && option == wanted {
                let option = &all_options[job].options[option];
                let one = kept.aside(problem, &mut placement_index, option, &of.unit);
                let aside =
                    one.or_else(|| kept.clear(problem, &mut placement_index, option, &of.unit));
                if let Some((moved, place)) = aside {
                    for moved in moved {
                        held[moved] = None;
                        waiting.push((problem.jobs[moved].held_gpus(), Reverse(moved)));
                    }
                    found = Some(place);
                }
            }
            if let Some(found) = found {
                placement_index.take(&found, &of.unit);
                parts[job] = Some(found);
                held[job] = Some(option);
                break;
            }
        }
    }
    PlacedOptions { held, parts }
}

/// Returns the other options of at most as many GPUs as the wanted one, by descending value.
fn downwards(job_options: &JobOptions<'_>, wanted: usize) -> impl Iterator<Item = usize> + use<> {
    let most = job_options.options[wanted].gpus;
    let mut rest: Vec<(f64, usize)> = Vec::new();
    for (index, option) in job_options.options.iter().enumerate() {
        if index != wanted && option.gpus <= most {
            rest.push((option.value, index));
        }
    }
    rest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    rest.into_iter().map(|(_, index)| index)
}

/// Kept gangs on one node. They are sorted by size when first used.
struct GangsOnNode {
    jobs: Vec<(u32, usize)>,
    sorted: bool,
    /// Remaining number of clearings.
    clearings: u32,
}

impl GangsOnNode {
    fn of(problem: &SchedulingProblem, held: &[OptionIndex]) -> Self {
        let jobs = (0..held.len())
            .filter(|&job| held[job].is_some() && problem.jobs[job].present.len() == 1);
        Self {
            jobs: jobs
                .map(|job| (problem.jobs[job].held_gpus(), job))
                .collect(),
            sorted: false,
            clearings: MOST_CLEARINGS,
        }
    }

    /// Moves the smallest gang aside that makes room. Returns this gang and the place. The gang is
    /// no longer kept.
    fn aside(
        &mut self,
        problem: &SchedulingProblem,
        placement_index: &mut PlacementIndex<'_>,
        option: &AllocationOption,
        unit: &Demand,
    ) -> Option<(Vec<usize>, Vec<NodeAllocation>)> {
        if !self.sorted {
            self.jobs.sort_unstable();
            self.sorted = true;
        }
        let mut tried = 0;
        for index in 0..self.jobs.len() {
            let (gpus, job) = self.jobs[index];
            if gpus >= option.gpus || tried == MOST_ASIDE {
                break;
            }
            let of = &problem.jobs[job];
            if problem.kind_of(&of.present[0]) != option.kind {
                continue;
            }
            tried += 1;
            placement_index.give(&of.present, &of.unit);
            if let Some(place) = placement_index.find(option.kind, option.gpus, option.nodes, unit)
            {
                self.jobs.remove(index);
                return Some((vec![job], place));
            }
            placement_index.take(&of.present, &of.unit);
        }
        None
    }

    /// Clears as many nodes of smaller gangs as the gang needs. Nodes on which fewer GPUs move come
    /// first.
    fn clear(
        &mut self,
        problem: &SchedulingProblem,
        placement_index: &mut PlacementIndex<'_>,
        option: &AllocationOption,
        unit: &Demand,
    ) -> Option<(Vec<usize>, Vec<NodeAllocation>)> {
        self.clearings = self.clearings.checked_sub(1)?;
        let mut by_node: BTreeMap<u32, (u32, Vec<usize>)> = BTreeMap::new();
        for &(gpus, job) in self.jobs.iter().filter(|(gpus, _)| *gpus < option.gpus) {
            let part = &problem.jobs[job].present[0];
            if problem.kind_of(part) == option.kind {
                let (moving, jobs) = by_node.entry(part.node).or_default();
                *moving += gpus;
                jobs.push(job);
            }
        }
        let whole = problem.node_gpus(option.kind).min(option.gpus);
        let mut nodes: Vec<(u32, u32)> = by_node
            .iter()
            .map(|(&node, &(moving, _))| (moving, node))
            .collect();
        nodes.retain(|&(moving, node)| {
            let free = placement_index.free_on(node, unit);
            free.is_some_and(|free| free + moving >= whole)
        });
        nodes.sort_unstable();
        let mut moved = Vec::new();
        for (_, node) in nodes.into_iter().take(option.nodes as usize) {
            for &job in &by_node[&node].1 {
                let of = &problem.jobs[job];
                placement_index.give(&of.present, &of.unit);
                moved.push(job);
            }
            if let Some(place) = placement_index.find(option.kind, option.gpus, option.nodes, unit)
            {
                self.jobs.retain(|(_, job)| !moved.contains(job));
                return Some((moved, place));
            }
        }
        for job in moved {
            let of = &problem.jobs[job];
            placement_index.take(&of.present, &of.unit);
        }
        None
    }
}

/// Converts the placement into a decision.
pub(super) fn decision(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    seating: PlacedOptions,
) -> PolicyDecision {
    let mut decision = PolicyDecision::keep(problem);
    decision.worth = vec![SizeValue::default(); problem.jobs.len()];
    let seats = seating.held.into_iter().zip(seating.parts);
    for (job, (held, parts)) in seats.enumerate() {
        let of = &problem.jobs[job];
        if !of.is_movable() {
            continue;
        }
        decision.parts[job] = match (held, parts) {
            (Some(_), parts) => parts.filter(|parts| *parts != of.present),
            (None, _) => (!of.present.is_empty()).then(Vec::new),
        };
        decision.worth[job] = worth(&all_options[job], held);
    }
    decision
}

/// Returns the gain per GPU of the last step to an option and of the next one.
fn worth(job_options: &JobOptions<'_>, held: OptionIndex) -> SizeValue {
    let (gpus, value, kind) = held.map_or((0, 0.0, None), |option| {
        let option = job_options.options[option];
        (option.gpus, option.value, Some(option.kind))
    });
    let same = job_options
        .options
        .iter()
        .filter(|option| kind.is_none_or(|kind| option.kind == kind));
    let mut worth = SizeValue::default();
    let mut below = (0, 0.0);
    for option in same {
        if option.gpus < gpus && option.gpus > below.0 {
            below = (option.gpus, option.value);
        }
        if option.gpus > gpus {
            let gain = (option.value - value) / f64::from(option.gpus - gpus);
            worth.next_gain = worth.next_gain.max(gain);
        }
    }
    if gpus > 0 {
        worth.last_gain = (value - below.1) / f64::from(gpus - below.0);
    }
    worth
}
