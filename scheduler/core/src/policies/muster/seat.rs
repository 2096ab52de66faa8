//! On which nodes: who keeps its size keeps its nodes, the others are packed, the largest first. Where a gang would be torn apart, a
//! smaller one of those that were seated moves aside, or all smaller ones move from as many nodes as it needs: on a cluster of small
//! jobs there would never be whole nodes for it otherwise. Where that does not help, the gang takes the next best size.

use super::choose::Choice;
use super::floor::Floor;
use super::menu::{Dish, Menu};
use crate::problem::{Decision, Demand, Part, Problem, Worth};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Who sits where.
pub(super) struct Seating {
    /// The dish that each job really has.
    pub held: Vec<Choice>,
    parts: Vec<Option<Vec<Part>>>,
}

/// Kept gangs that are tried as the one to move aside, for one gang.
const MOST_ASIDE: usize = 8;

/// Times in one decision that nodes are cleared of several gangs for a larger one.
const MOST_CLEARINGS: u32 = 8;

pub(super) fn seat(problem: &Problem, menus: &[Menu<'_>], chosen: Vec<Choice>) -> Seating {
    let mut floor = Floor::new(problem);
    let mut held: Vec<Choice> = vec![None; chosen.len()];
    let mut parts: Vec<Option<Vec<Part>>> = vec![None; chosen.len()];
    let mut waiting: BinaryHeap<(u32, Reverse<usize>)> = BinaryHeap::new();
    for (job, choice) in chosen.iter().enumerate() {
        let Some(dish) = *choice else { continue };
        let of = &problem.jobs[job];
        let stays = menus[job].present == Some(dish) && floor.take(&of.present, &of.unit);
        if stays {
            held[job] = Some(dish);
        } else {
            waiting.push((menus[job].dishes[dish].gpus, Reverse(job)));
        }
    }
    floor.open();
    let mut kept = Kept::of(problem, &held);
    while let Some((_, Reverse(job))) = waiting.pop() {
        let of = &problem.jobs[job];
        let Some(wanted) = chosen[job] else { continue };
        let others = std::iter::once_with(|| downwards(&menus[job], wanted)).flatten();
        for dish in std::iter::once(wanted).chain(others) {
            if menus[job].present == Some(dish) && floor.take(&of.present, &of.unit) {
                held[job] = Some(dish);
                break;
            }
            let Dish {
                kind, gpus, nodes, ..
            } = menus[job].dishes[dish];
            let mut found = floor.find(kind, gpus, nodes, &of.unit);
            if found.is_none() && dish == wanted {
                let dish = &menus[job].dishes[dish];
                let one = kept.aside(problem, &mut floor, dish, &of.unit);
                let aside = one.or_else(|| kept.clear(problem, &mut floor, dish, &of.unit));
                if let Some((moved, place)) = aside {
                    for moved in moved {
                        held[moved] = None;
                        waiting.push((problem.jobs[moved].held_gpus(), Reverse(moved)));
                    }
                    found = Some(place);
                }
            }
            if let Some(found) = found {
                floor.take(&found, &of.unit);
                parts[job] = Some(found);
                held[job] = Some(dish);
                break;
            }
        }
    }
    Seating { held, parts }
}

/// The other dishes of no more GPUs than the wanted one, by their value.
fn downwards(menu: &Menu<'_>, wanted: usize) -> impl Iterator<Item = usize> + use<> {
    let most = menu.dishes[wanted].gpus;
    let mut rest: Vec<(f64, usize)> = Vec::new();
    for (index, dish) in menu.dishes.iter().enumerate() {
        if index != wanted && dish.gpus <= most {
            rest.push((dish.value, index));
        }
    }
    rest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    rest.into_iter().map(|(_, index)| index)
}

/// Gangs on one node that stay where they are, the smallest first once the first is asked for.
struct Kept {
    jobs: Vec<(u32, usize)>,
    sorted: bool,
    /// Times that nodes may still be cleared for a gang.
    clearings: u32,
}

impl Kept {
    fn of(problem: &Problem, held: &[Choice]) -> Self {
        let stays = |&job: &usize| held[job].is_some() && problem.jobs[job].present.len() == 1;
        let jobs = (0..held.len()).filter(stays);
        Self {
            jobs: jobs
                .map(|job| (problem.jobs[job].held_gpus(), job))
                .collect(),
            sorted: false,
            clearings: MOST_CLEARINGS,
        }
    }

    /// The smallest gang that makes room by moving aside, and the place that it makes. It is not kept any more.
    fn aside(
        &mut self,
        problem: &Problem,
        floor: &mut Floor<'_>,
        dish: &Dish,
        unit: &Demand,
    ) -> Option<(Vec<usize>, Vec<Part>)> {
        let kind = |job: usize| problem.nodes[problem.jobs[job].present[0].node as usize].kind;
        if !self.sorted {
            self.jobs.sort_unstable();
            self.sorted = true;
        }
        let mut tried = 0;
        for index in 0..self.jobs.len() {
            let (gpus, job) = self.jobs[index];
            if gpus >= dish.gpus || tried == MOST_ASIDE {
                break;
            }
            if kind(job) != dish.kind {
                continue;
            }
            tried += 1;
            let of = &problem.jobs[job];
            floor.give(&of.present, &of.unit);
            if let Some(place) = floor.find(dish.kind, dish.gpus, dish.nodes, unit) {
                self.jobs.remove(index);
                return Some((vec![job], place));
            }
            floor.take(&of.present, &of.unit);
        }
        None
    }

    /// Clears as many nodes as the gang needs of smaller ones, those first on which the fewest GPUs move.
    fn clear(
        &mut self,
        problem: &Problem,
        floor: &mut Floor<'_>,
        dish: &Dish,
        unit: &Demand,
    ) -> Option<(Vec<usize>, Vec<Part>)> {
        self.clearings = self.clearings.checked_sub(1)?;
        let mut by_node: BTreeMap<u32, (u32, Vec<usize>)> = BTreeMap::new();
        for &(gpus, job) in self.jobs.iter().filter(|(gpus, _)| *gpus < dish.gpus) {
            let node = problem.jobs[job].present[0].node;
            if problem.nodes[node as usize].kind == dish.kind {
                let (moving, jobs) = by_node.entry(node).or_default();
                *moving += gpus;
                jobs.push(job);
            }
        }
        let whole = problem.node_gpus(dish.kind).min(dish.gpus);
        let mut nodes: Vec<(u32, u32)> = by_node
            .iter()
            .map(|(&node, &(moving, _))| (moving, node))
            .collect();
        nodes.retain(|&(moving, node)| floor.free_on(node) + moving >= whole);
        nodes.sort_unstable();
        let mut moved = Vec::new();
        for (_, node) in nodes.into_iter().take(dish.nodes as usize) {
            for &job in &by_node[&node].1 {
                let of = &problem.jobs[job];
                floor.give(&of.present, &of.unit);
                moved.push(job);
            }
            if let Some(place) = floor.find(dish.kind, dish.gpus, dish.nodes, unit) {
                self.jobs.retain(|(_, job)| !moved.contains(job));
                return Some((moved, place));
            }
        }
        for job in moved {
            let of = &problem.jobs[job];
            floor.take(&of.present, &of.unit);
        }
        None
    }
}

/// Puts a seating in the words of a decision.
pub(super) fn decision(problem: &Problem, menus: &[Menu<'_>], seating: Seating) -> Decision {
    let mut decision = Decision::keep(problem);
    decision.worth = vec![Worth::default(); problem.jobs.len()];
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
        decision.worth[job] = worth(&menus[job], held);
    }
    decision
}

/// What the last step to a dish gained per GPU, and what the next would.
fn worth(menu: &Menu<'_>, held: Choice) -> Worth {
    let (gpus, value, kind) = held.map_or((0, 0.0, None), |dish| {
        let dish = menu.dishes[dish];
        (dish.gpus, dish.value, Some(dish.kind))
    });
    let same = menu
        .dishes
        .iter()
        .filter(|dish| kind.is_none_or(|kind| dish.kind == kind));
    let mut worth = Worth::default();
    let mut below = (0, 0.0);
    for dish in same {
        if dish.gpus < gpus && dish.gpus > below.0 {
            below = (dish.gpus, dish.value);
        }
        if dish.gpus > gpus {
            let gain = (dish.value - value) / f64::from(dish.gpus - gpus);
            worth.next_gain = worth.next_gain.max(gain);
        }
    }
    if gpus > 0 {
        worth.last_gain = (value - below.1) / f64::from(gpus - below.0);
    }
    worth
}
