//! On which nodes: who keeps its size keeps its nodes, the others are packed, and small jobs move aside where a larger one needs a
//! whole node.

use super::choose::Choice;
use super::menu::Dish;
use crate::policies::room::{Room, Style};
use crate::problem::{Decision, Problem, Worth};

pub(super) fn seat(problem: &Problem, menus: &[Vec<Dish>], chosen: Vec<Choice>) -> Decision {
    let mut room = Room::beside_fixed(problem);
    let mut anew: Vec<(u32, usize)> = Vec::new();
    for (job, choice) in chosen.iter().enumerate() {
        let Some(dish) = choice.map(|dish| menus[job][dish]) else {
            continue;
        };
        let present = &problem.jobs[job].present;
        let same = problem.jobs[job].held_gpus() == dish.gpus
            && room.kind_of(present) == Some(dish.kind);
        if same && room.can_keep(job) {
            room.keep(job);
        } else {
            anew.push((dish.gpus, job));
        }
    }
    anew.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, job) in anew {
        let wanted = chosen[job].map(|dish| menus[job][dish]);
        let Some(wanted) = wanted else { continue };
        place(&mut room, &menus[job], job, wanted);
    }
    let mut decision = room.decision();
    decision.worth = vec![Worth::default(); problem.jobs.len()];
    decision
}

/// The wanted size, else the best smaller one that fits without being torn apart.
fn place(room: &mut Room<'_>, menu: &[Dish], job: usize, wanted: Dish) {
    let mut dishes: Vec<Dish> = menu
        .iter()
        .copied()
        .filter(|dish| dish.value <= wanted.value && dish.gpus <= wanted.gpus)
        .collect();
    dishes.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.gpus.cmp(&b.gpus)));
    for dish in dishes {
        let Some(parts) = room.find(job, dish.kind, dish.gpus, Style::Packed) else {
            continue;
        };
        let node_gpus = room.problem.node_gpus(dish.kind);
        let torn = parts.len() > dish.gpus.div_ceil(node_gpus.max(1)) as usize;
        if !torn {
            room.give(job, parts);
            return;
        }
    }
}
