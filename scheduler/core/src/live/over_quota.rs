//! A quota that was lowered under running jobs holds at once: those whose minimum leaves something shrink, and if that is not enough,
//! others stop. It is no part of what a policy weighs: a policy would have to be asked with a problem that breaks its own rules.

use super::in_place;
use super::pass::requeue;
use super::standing::Turn;
use super::world::World;
use muster_model::job::RequeueCause;
use std::cmp::Reverse;

/// What one job gives up.
struct Giver {
    index: usize,
    /// Of its holdings; less than all of them leaves it its minimum.
    gpus: u32,
    holds: u32,
}

/// Lets those above their tenant's quota go on with less where their tasks can; tells the others to stop, each with a checkpoint: in their
/// turn they come back with what is left for them.
pub(crate) fn obey(world: &mut World<'_>) {
    for tenant in 0..world.problem.tenants.len() {
        let Some(quota) = world.problem.tenants[tenant].gpu_quota else {
            continue;
        };
        let holders = holders(world, tenant);
        let held: u32 = holders.iter().map(|&(_, holds)| holds).sum();
        if held <= quota {
            continue;
        }
        for giver in givers(world, &holders, held.saturating_sub(quota)) {
            let shrinks = giver.gpus < giver.holds;
            let change = shrinks
                .then(|| in_place::shrink(&world.jobs[giver.index], giver.gpus))
                .flatten();
            let what = match (&change, shrinks) {
                (Some(_), _) => "goes on with fewer GPUs",
                (None, true) => "comes back with fewer GPUs",
                (None, false) => "back to the queue",
            };
            let why = format!("{what}: its tenant held {held}, and its quota is {quota} now");
            match change {
                Some(change) => world.resize(giver.index, &change, why),
                None => world.stop(giver.index, requeue(RequeueCause::OverQuota, why)),
            }
        }
    }
}

/// A tenant's jobs that keep their GPUs and what each holds: the lowest priority first, then the newest.
fn holders(world: &World<'_>, tenant: usize) -> Vec<(usize, u32)> {
    let mut holders: Vec<(usize, u32)> = (0..world.jobs.len())
        .filter(|&index| {
            let live = &world.jobs[index];
            live.tenant as usize == tenant && live.standing.stays()
        })
        .map(|index| (index, world.jobs[index].charged()))
        .collect();
    holders.sort_by_key(|&(index, _)| Reverse(Turn::of(&world.jobs[index])));
    holders
}

/// Who gives up how much, so that together it is at least `excess`. Once whole jobs stop, some need not shrink after all: the last
/// in the order, who come first in every other respect, are spared.
fn givers(world: &World<'_>, holders: &[(usize, u32)], excess: u32) -> Vec<Giver> {
    let mut given = 0;
    let mut givers: Vec<Giver> = Vec::new();
    for &(index, holds) in holders {
        let spare = holds.saturating_sub(world.jobs[index].shape.min_gpus());
        if given < excess && spare > 0 {
            given += spare;
            givers.push(Giver {
                index,
                gpus: spare,
                holds,
            });
        }
    }
    for &(index, holds) in holders {
        if given >= excess {
            break;
        }
        match givers.iter_mut().find(|giver| giver.index == index) {
            Some(giver) => {
                given += holds - giver.gpus;
                giver.gpus = holds;
            }
            None => {
                given += holds;
                givers.push(Giver {
                    index,
                    gpus: holds,
                    holds,
                });
            }
        }
    }
    spare(givers, given - excess.min(given))
}

/// Leaves out who need not give anything.
fn spare(givers: Vec<Giver>, mut too_much: u32) -> Vec<Giver> {
    let mut kept = Vec::with_capacity(givers.len());
    for giver in givers.into_iter().rev() {
        if giver.gpus <= too_much {
            too_much -= giver.gpus;
        } else {
            kept.push(giver);
        }
    }
    kept.reverse();
    kept
}
