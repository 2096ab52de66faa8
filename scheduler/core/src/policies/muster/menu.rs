//! What every job could have, and what that is worth.

use super::Muster;
use crate::problem::{Job, Problem};

/// One size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dish {
    pub kind: u16,
    pub gpus: u32,
    /// Nodes on which it is meant to lie, the fewest.
    pub nodes: u32,
    pub value: f64,
    /// Logarithm of the first factor of the value alone.
    haste: f64,
}

/// What a job could have, by kind and size; and which of that it has, if it is on the menu.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Menu<'b> {
    pub dishes: &'b [Dish],
    pub present: Option<usize>,
}

/// The menus of all jobs behind each other: a decision on many jobs is mostly a walk through this.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Board {
    dishes: Vec<Dish>,
    /// Of every job, where its menu ends, and what of it the job has.
    menus: Vec<(usize, Option<usize>)>,
}

/// A kind of GPU in this problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    index: u16,
    node_gpus: u32,
    gpus: u32,
}

/// Room for so many dishes a job is there from the start.
const USUAL_DISHES: usize = 12;

/// What being faster on idle GPUs counts beside being faster on GPUs that are well used.
const IDLE_WORTH: f64 = 0.01;

impl Board {
    /// What the movable jobs could have; nothing for others.
    pub(super) fn of(problem: &Problem, policy: &Muster) -> Self {
        let kinds = kinds(problem);
        let mut board = Self {
            dishes: Vec::with_capacity(USUAL_DISHES * problem.jobs.len()),
            menus: Vec::with_capacity(problem.jobs.len()),
        };
        let mut dishes = Vec::new();
        for job in &problem.jobs {
            dishes.clear();
            let present = menu(problem, policy, &kinds, job, &mut dishes);
            board.dishes.extend_from_slice(&dishes);
            board.menus.push((board.dishes.len(), present));
        }
        board
    }

    pub(super) fn menus(&self) -> Vec<Menu<'_>> {
        let mut start = 0;
        let menu = |&(end, present): &(usize, Option<usize>)| {
            let dishes = &self.dishes[start..end];
            start = end;
            Menu { dishes, present }
        };
        self.menus.iter().map(menu).collect()
    }
}

pub(super) fn kinds(problem: &Problem) -> Vec<Kind> {
    let most = problem.nodes.iter().map(|node| node.kind).max();
    let mut kinds: Vec<Kind> = (0..=most.unwrap_or(0))
        .map(|index| Kind {
            index,
            node_gpus: 0,
            gpus: 0,
        })
        .collect();
    for node in &problem.nodes {
        let kind = &mut kinds[usize::from(node.kind)];
        kind.node_gpus = kind.node_gpus.max(node.gpus);
        kind.gpus += node.gpus;
    }
    kinds.retain(|kind| kind.gpus > 0);
    kinds
}

/// Fills in the dishes of a job, and says which of them it has.
pub(super) fn menu(
    problem: &Problem,
    policy: &Muster,
    kinds: &[Kind],
    job: &Job,
    dishes: &mut Vec<Dish>,
) -> Option<usize> {
    if !job.is_movable() {
        return None;
    }
    let held = job.held_gpus();
    let present = job.present.first();
    let present = present.map(|part| (problem.nodes[part.node as usize].kind, held));
    sizes(policy, kinds, job, held, dishes);
    // Every dish has its speed as its value so far.
    let per_gpu = |dish: &Dish| dish.value / f64::from(dish.gpus);
    let best = dishes.iter().map(per_gpu).fold(0.0, f64::max);
    worth_their_gpus(dishes, policy.floor * best, present);
    let restart_s = job.restart_s.max(1e-3);
    let offset_s = policy.offset_restarts * restart_s;
    let work = job.outlook.work_left / (1.0 + policy.optimism * job.outlook.uncertainty);
    let fastest = dishes.iter().map(|dish| dish.value).fold(0.0, f64::max);
    let alone_s = (job.outlook.work_done + work) / fastest;
    let patience_s = policy.patience_restarts * restart_s + policy.patience_lengths * alone_s;
    let age = job.age_s(problem.now_s) / patience_s;
    let young = age.min(policy.elder);
    let ageing = policy.ageing * (1.0 + young).ln() + 0.5 * ((1.0 + age) / (1.0 + young)).ln();
    let esteem = ageing - policy.thrift * best.ln();
    for dish in &mut *dishes {
        let speed = dish.value;
        let stays = present == Some((dish.kind, dish.gpus));
        let cost_s = if stays {
            0.0
        } else {
            policy.caution * job.change_s().max(1e-3)
        };
        let time_s = work / speed + cost_s + offset_s;
        let thrift = policy.thrift * (speed / f64::from(dish.gpus)).ln();
        dish.haste = -policy.power * time_s.ln();
        dish.value = (esteem + thrift + dish.haste).exp();
    }
    idle_growth(dishes);
    dishes.retain(|dish| dish.value.is_finite() && dish.value > 0.0);
    let has = |dish: &Dish| present == Some((dish.kind, dish.gpus));
    dishes.iter().position(has)
}

/// On one node any number of units, on several only whole nodes; the minimum and what it has in any case. Their value is the speed.
fn sizes(policy: &Muster, kinds: &[Kind], job: &Job, held: u32, dishes: &mut Vec<Dish>) {
    let unit = job.unit.gpus.max(1);
    let least = job.min_gpus.max(1).div_ceil(unit) * unit;
    let measured = job.outlook.largest_gpus.max(1);
    let explored = measured.saturating_mul(policy.explore_factor);
    let most = job.max_gpus.min(explored.max(least));
    for kind in kinds {
        let whole = kind.node_gpus / unit * unit;
        let Some(curve) = job.outlook.curves.get(usize::from(kind.index)) else {
            continue;
        };
        if whole == 0 {
            continue;
        }
        let mut add = |gpus: u32| {
            let nodes = gpus.div_ceil(whole);
            let speed = curve.speed(gpus, nodes);
            if speed > 0.0 && speed < f64::INFINITY {
                dishes.push(Dish {
                    kind: kind.index,
                    gpus,
                    nodes,
                    value: speed,
                    haste: 0.0,
                });
            }
        };
        let top = most
            .min(kind.gpus)
            .max(if least <= kind.gpus { least } else { 0 });
        let mut gpus = least;
        while gpus <= top {
            add(gpus);
            // To the next unit on one node, from there to the next whole node; what it has lies on the way.
            let next = if gpus < whole {
                gpus + unit
            } else {
                (gpus / whole + 1) * whole
            };
            gpus = if (gpus + 1..next).contains(&held) {
                held
            } else {
                next
            };
        }
    }
}

/// A larger size that is faster, but not by enough to be worth its GPUs to anybody else, is worth a little more than the smaller one:
/// it is taken when its GPUs would be idle.
fn idle_growth(dishes: &mut [Dish]) {
    for of_kind in dishes.chunk_by_mut(|a, b| a.kind == b.kind) {
        let (mut value, mut haste) = (0.0, f64::NEG_INFINITY);
        for dish in of_kind {
            if dish.haste > haste && dish.value <= value {
                dish.value = value * (1.0 + IDLE_WORTH * (dish.haste - haste));
            }
            if dish.value > value {
                (value, haste) = (dish.value, dish.haste);
            }
        }
    }
}

/// Leaves out sizes whose further GPUs add less than `least` each to the speed of the next smaller one that stays.
fn worth_their_gpus(dishes: &mut Vec<Dish>, least: f64, present: Option<(u16, u32)>) {
    let mut last: Option<Dish> = None;
    dishes.retain(|dish| {
        let adds = match last.filter(|last| last.kind == dish.kind) {
            Some(last) => dish.value - last.value >= least * f64::from(dish.gpus - last.gpus),
            None => true,
        };
        let stays = adds || present == Some((dish.kind, dish.gpus));
        // What only stays because it is there is no measure for others.
        if adds {
            last = Some(*dish);
        }
        stays
    });
}
