//! Enforces a quota that was lowered below what the tenant's jobs hold. Jobs above their minimum
//! shrink, and if that is not enough, jobs stop. A policy does not do it, because its problem would
//! break the quota.

use super::in_place;
use super::queue_order::QueueOrder;
use super::round_state::RoundState;
use crate::plan::Action;
use muster_model::job::RequeueCause;
use std::cmp::Reverse;

/// GPUs that one job releases.
struct QuotaRelease {
    index: usize,
    /// GPUs to release. If they are fewer than `holds`, the job keeps its minimum.
    gpus: u32,
    holds: u32,
}

/// Shrinks jobs of tenants above their quota in place where possible. The other jobs stop with a
/// checkpoint and start again in queue order, within the quota.
pub(crate) fn enforce_quotas(round: &mut RoundState<'_>) {
    for tenant in 0..round.problem.tenants.len() {
        let Some(quota) = round.problem.tenants[tenant].gpu_quota else {
            continue;
        };
        let holders = holders(round, tenant);
        let held: u32 = holders.iter().map(|&(_, holds)| holds).sum();
        if held <= quota {
            continue;
        }
        for giver in givers(round, &holders, held.saturating_sub(quota)) {
            let shrinks = giver.gpus < giver.holds;
            let change = shrinks
                .then(|| in_place::shrink(&round.jobs[giver.index], giver.gpus))
                .flatten();
            let what = match (&change, shrinks) {
                (Some(_), _) => "continues with fewer GPUs",
                (None, true) => "comes back with fewer GPUs",
                (None, false) => "back to the queue",
            };
            let why = format!("{what}: its tenant held {held}, and its quota is {quota} now");
            match change {
                Some(change) => round.resize(giver.index, &change, why),
                None => round.stop(giver.index, Action::requeue(RequeueCause::OverQuota, why)),
            }
        }
    }
}

/// Jobs of a tenant that keep their GPUs, with the GPUs of each: lowest priority first, then
/// newest.
fn holders(round: &RoundState<'_>, tenant: usize) -> Vec<(usize, u32)> {
    let mut holders: Vec<(usize, u32)> = (0..round.jobs.len())
        .filter(|&index| {
            let live = &round.jobs[index];
            live.tenant as usize == tenant && live.scheduling_state.stays()
        })
        .map(|index| (index, round.jobs[index].charged()))
        .collect();
    holders.sort_by_key(|&(index, _)| Reverse(QueueOrder::of(&round.jobs[index])));
    holders
}

/// Chooses the jobs and the GPUs to release, at least `excess` in total. If whole jobs stop, some
/// jobs need not shrink after all. The last in the order are spared first.
fn givers(round: &RoundState<'_>, holders: &[(usize, u32)], excess: u32) -> Vec<QuotaRelease> {
    let mut given = 0;
    let mut givers: Vec<QuotaRelease> = Vec::new();
    for &(index, holds) in holders {
        let spare = holds.saturating_sub(round.jobs[index].shape.min_gpus());
        if given < excess && spare > 0 {
            given += spare;
            givers.push(QuotaRelease {
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
                givers.push(QuotaRelease {
                    index,
                    gpus: holds,
                    holds,
                });
            }
        }
    }
    spare(givers, given - excess.min(given))
}

/// Removes jobs whose GPUs are not needed.
fn spare(givers: Vec<QuotaRelease>, mut too_much: u32) -> Vec<QuotaRelease> {
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
