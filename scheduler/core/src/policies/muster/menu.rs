//! Options of every job (its menu) and their values.

use super::Muster;
use crate::problem::{ProblemJob, SchedulingProblem};

/// Option of a job: a size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AllocationOption {
    pub kind: u16,
    pub gpus: u32,
    /// Number of nodes of the option: the fewest that hold it.
    pub nodes: u32,
    pub value: f64,
    /// Logarithm of the first factor of the value.
    haste: f64,
}

/// Options of a job by kind and size, and the index of the present one if it is among them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct JobOptions<'b> {
    pub dishes: &'b [AllocationOption],
    pub present: Option<usize>,
}

/// Options of all jobs in one vector. A decision on many jobs mostly scans it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OptionTable {
    dishes: Vec<AllocationOption>,
    /// End of each job's menu, and the index of its present option in it.
    menus: Vec<(usize, Option<usize>)>,
}

/// GPU kind with GPUs in this problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct KindCapacity {
    index: u16,
    node_gpus: u32,
    gpus: u32,
}

/// Options per job for which memory is reserved.
const USUAL_DISHES: usize = 12;

/// Weight of a higher speed on idle GPUs, relative to one on GPUs that are well used.
const IDLE_WORTH: f64 = 0.01;

impl OptionTable {
    /// Returns the options of the movable jobs. Other jobs have none.
    pub(super) fn of(problem: &SchedulingProblem, policy: &Muster) -> Self {
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

    pub(super) fn menus(&self) -> Vec<JobOptions<'_>> {
        let mut start = 0;
        let menu = |&(end, present): &(usize, Option<usize>)| {
            let dishes = &self.dishes[start..end];
            start = end;
            JobOptions { dishes, present }
        };
        self.menus.iter().map(menu).collect()
    }
}

pub(super) fn kinds(problem: &SchedulingProblem) -> Vec<KindCapacity> {
    let most = problem.nodes.iter().map(|node| node.kind).max();
    let mut kinds: Vec<KindCapacity> = (0..=most.unwrap_or(0))
        .map(|index| KindCapacity {
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

/// Fills in the options of a job and returns the index of the present one.
pub(super) fn menu(
    problem: &SchedulingProblem,
    policy: &Muster,
    kinds: &[KindCapacity],
    job: &ProblemJob,
    dishes: &mut Vec<AllocationOption>,
) -> Option<usize> {
    if !job.is_movable() {
        return None;
    }
    let held = job.held_gpus();
    let present = job.present.first();
    let present = present.map(|part| (problem.nodes[part.node as usize].kind, held));
    sizes(policy, kinds, job, held, dishes);
    // At this point the value of each option is its speed.
    let per_gpu = |dish: &AllocationOption| dish.value / f64::from(dish.gpus);
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
    let has = |dish: &AllocationOption| present == Some((dish.kind, dish.gpus));
    dishes.iter().position(has)
}

/// Adds the sizes of a job, with the speed as their value. On one node any number of units is
/// possible, on several only whole nodes. The minimum and the present size are always included.
fn sizes(
    policy: &Muster,
    kinds: &[KindCapacity],
    job: &ProblemJob,
    held: u32,
    dishes: &mut Vec<AllocationOption>,
) {
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
                dishes.push(AllocationOption {
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
            // Next unit on one node, from there next whole node. The present size is inserted
            // between them.
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

/// Raises the value of options that are faster than a smaller one but not worth their GPUs. They
/// become slightly better than the smaller one, so they are taken when their GPUs would be idle.
fn idle_growth(dishes: &mut [AllocationOption]) {
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

/// Removes sizes whose further GPUs add less than `least` each to the speed of the next smaller
/// kept one.
fn worth_their_gpus(dishes: &mut Vec<AllocationOption>, least: f64, present: Option<(u16, u32)>) {
    let mut last: Option<AllocationOption> = None;
    dishes.retain(|dish| {
        let adds = match last.filter(|last| last.kind == dish.kind) {
            Some(last) => dish.value - last.value >= least * f64::from(dish.gpus - last.gpus),
            None => true,
        };
        let stays = adds || present == Some((dish.kind, dish.gpus));
        // A size that is kept only because it is the present one is no reference for others.
        if adds {
            last = Some(*dish);
        }
        stays
    });
}
