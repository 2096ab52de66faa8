//! What every job could have, and what that is worth.

use super::Muster;
use crate::problem::{Job, Problem};

/// One size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dish {
    pub kind: u16,
    pub gpus: u32,
    pub value: f64,
}

/// A kind of GPU in this problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub index: u16,
    pub node_gpus: u32,
    pub gpus: u32,
}

/// What the movable jobs could have; empty for others.
pub(super) fn menus(problem: &Problem, policy: &Muster) -> Vec<Vec<Dish>> {
    let kinds = kinds(problem);
    problem
        .jobs
        .iter()
        .map(|job| menu(problem, policy, &kinds, job))
        .collect()
}

pub(super) fn kinds(problem: &Problem) -> Vec<Kind> {
    let most = problem.nodes.iter().map(|node| node.kind).max();
    (0..=most.unwrap_or(0))
        .map(|index| Kind {
            index,
            node_gpus: problem.node_gpus(index),
            gpus: problem.gpus_of_kind(index),
        })
        .filter(|kind| kind.gpus > 0)
        .collect()
}

fn menu(problem: &Problem, policy: &Muster, kinds: &[Kind], job: &Job) -> Vec<Dish> {
    if !job.is_movable() {
        return Vec::new();
    }
    let present = job.present.first().map(|part| {
        let kind = problem.nodes[part.node as usize].kind;
        (kind, job.held_gpus())
    });
    let unit = job.unit.gpus.max(1);
    let least = job.min_gpus.max(1).div_ceil(unit) * unit;
    let explored = job.outlook.largest_gpus.max(1).saturating_mul(policy.explore_factor);
    let most = job.max_gpus.min(explored.max(least));
    let mut menu = Vec::new();
    for kind in kinds {
        for gpus in sizes(kind, unit, least, most) {
            let speed = speed(job, kind, gpus);
            if speed <= 0.0 {
                continue;
            }
            let stays = present == Some((kind.index, gpus));
            let cost_s = if stays { 0.0 } else { job.restart_s };
            let time_s = job.outlook.work_left / speed + cost_s + policy.offset_s;
            let time_s = (time_s - policy.ageing * job.age_s(problem.now_s)).max(0.1 * time_s);
            menu.push(Dish {
                kind: kind.index,
                gpus,
                value: time_s.powf(-policy.power),
            });
        }
    }
    menu
}

/// On one node any number of units, on several only whole nodes.
fn sizes(kind: &Kind, unit: u32, least: u32, most: u32) -> impl Iterator<Item = u32> + use<> {
    let whole = kind.node_gpus / unit * unit;
    let most = most.min(kind.gpus);
    let is_asked = move |gpus: &u32| *gpus <= whole || (whole > 0 && gpus.is_multiple_of(whole));
    (least..=most)
        .step_by(unit as usize)
        .filter(move |gpus| is_asked(gpus) || *gpus == least)
}

fn speed(job: &Job, kind: &Kind, gpus: u32) -> f64 {
    let whole = kind.node_gpus / job.unit.gpus.max(1) * job.unit.gpus.max(1);
    if whole == 0 {
        return 0.0;
    }
    job.outlook.speed(kind.index, gpus, gpus.div_ceil(whole))
}
