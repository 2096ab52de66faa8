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
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Menu {
    pub dishes: Vec<Dish>,
    pub present: Option<usize>,
}

/// A kind of GPU in this problem.
#[derive(Debug, Clone, Copy)]
struct Kind {
    index: u16,
    node_gpus: u32,
    gpus: u32,
}

/// What being faster on idle GPUs counts beside being faster on GPUs that are well used.
const IDLE_WORTH: f64 = 0.01;

/// What the movable jobs could have; empty for others.
pub(super) fn menus(problem: &Problem, policy: &Muster) -> Vec<Menu> {
    let kinds = kinds(problem);
    let of = |job| menu(problem, policy, &kinds, job);
    problem.jobs.iter().map(of).collect()
}

fn kinds(problem: &Problem) -> Vec<Kind> {
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

fn menu(problem: &Problem, policy: &Muster, kinds: &[Kind], job: &Job) -> Menu {
    if !job.is_movable() {
        return Menu::default();
    }
    let held = job.held_gpus();
    let present = job.present.first();
    let present = present.map(|part| (problem.nodes[part.node as usize].kind, held));
    let mut dishes = sizes(policy, kinds, job, held);
    // Every dish has its speed as its value so far.
    let per_gpu = |dish: &Dish| dish.value / f64::from(dish.gpus);
    let best = dishes.iter().map(per_gpu).fold(0.0, f64::max);
    worth_their_gpus(&mut dishes, policy.floor * best, present);
    let restart_s = job.restart_s.max(1e-3);
    let offset_s = policy.offset_restarts * restart_s;
    let work = job.outlook.work_left / (1.0 + policy.optimism * job.outlook.uncertainty);
    let age = job.age_s(problem.now_s) / (policy.patience_restarts * restart_s);
    let esteem = policy.ageing * (1.0 + age).ln() - policy.thrift * best.ln();
    for dish in &mut dishes {
        let speed = dish.value;
        let stays = present == Some((dish.kind, dish.gpus));
        let cost_s = if stays {
            0.0
        } else {
            policy.caution * restart_s
        };
        let time_s = work / speed + cost_s + offset_s;
        let thrift = policy.thrift * (speed / f64::from(dish.gpus)).ln();
        dish.haste = -policy.power * time_s.ln();
        dish.value = (esteem + thrift + dish.haste).exp();
    }
    idle_growth(&mut dishes);
    dishes.retain(|dish| dish.value.is_finite() && dish.value > 0.0);
    let has = |dish: &Dish| present == Some((dish.kind, dish.gpus));
    Menu {
        present: dishes.iter().position(has),
        dishes,
    }
}

/// On one node any number of units, on several only whole nodes; the minimum and what it has in any case. Their value is the speed.
fn sizes(policy: &Muster, kinds: &[Kind], job: &Job, held: u32) -> Vec<Dish> {
    let unit = job.unit.gpus.max(1);
    let least = job.min_gpus.max(1).div_ceil(unit) * unit;
    let measured = job.outlook.largest_gpus.max(1);
    let explored = measured.saturating_mul(policy.explore_factor);
    let most = job.max_gpus.min(explored.max(least));
    let mut dishes = Vec::new();
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
            if speed > 0.0 && speed.is_finite() {
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
    dishes
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
