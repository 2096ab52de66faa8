//! How many PS shards a running job has while its workers stay. No policy weighs that: shards take no GPUs, and how many are best follows
//! from the job's own speed. More or fewer are adopted in place where it pays, by the rules that hold of workers: nothing else is under way,
//! the job has been left alone for long enough, and what the change saves repays it.
//!
//! A job that could only restart keeps what it has: its next start chooses anew.

use super::calm::{is_quiet, rests};
use super::free::{FreeNode, Room, When};
use super::in_place;
use super::pass::Rest;
use super::place;
use super::standing::Standing;
use super::world::{LiveJob, World, seconds_of};
use muster_model::job::Intent;

/// Lets whoever gains by it have another number of shards. Whether anybody does.
pub(crate) fn adopt(world: &mut World<'_>, rest: &Rest) -> bool {
    if !is_quiet(world) {
        return false;
    }
    let mut left: Option<Vec<FreeNode>> = None;
    let mut any = false;
    for index in 0..world.jobs.len() {
        let Some(best) = better(world, &world.jobs[index]) else {
            continue;
        };
        let free = left.get_or_insert_with(|| beside_waiting(world, &rest.free));
        let live = &world.jobs[index];
        let Some(change) = in_place::reshard(live, free, best) else {
            continue;
        };
        let (had, gets) = (live.size.1, change.shards_after(live));
        if !pays(world, live, gets) {
            continue;
        }
        world.resize(
            index,
            &change,
            format!("from {had} to {gets} PS shards: worth the change"),
        );
        for held in &world.jobs[index].joining {
            free[held.node as usize].hold(held);
        }
        any = true;
    }
    any
}

/// How many shards serve its workers best, where that are others than it has and it may be changed.
fn better(world: &World<'_>, live: &LiveJob<'_>) -> Option<u32> {
    let (workers, ps_shards) = live.size;
    let is_settled = live.standing == Standing::Running
        && live.job.intent == Intent::Run
        && live.member.is_some()
        && in_place::is_able(live)
        && !rests(world, live);
    let best = live.sizing.ps_shards(workers);
    (ps_shards > 0 && best > 0 && best != ps_shards && is_settled).then_some(best)
}

/// Whether so many shards save enough of the time that is left, the change paid.
fn pays(world: &World<'_>, live: &LiveJob<'_>, ps_shards: u32) -> bool {
    let (policy, workers) = (world.policy, live.size.0);
    let now_s = live.estimate.time_s(live.size);
    let then_s = live.estimate.time_s((workers, ps_shards));
    let saved_s = now_s - then_s - seconds_of(policy.in_place_cost_ms);
    saved_s > 0.0 && saved_s >= policy.min_gain * now_s
}

/// What shards may take of `free`: not the CPU and the memory without which those who wait could not use the GPUs there.
pub(crate) fn beside_waiting(world: &World<'_>, free: &[FreeNode]) -> Vec<FreeNode> {
    let mut left = free.to_vec();
    let waits = |live: &&LiveJob<'_>| live.standing.waits() && live.job.intent == Intent::Run;
    let mut shapes = Vec::new();
    for live in world.jobs.iter().filter(waits) {
        let shape = live.shape.least();
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    for node in &mut left {
        let kept = shapes.iter().map(|shape| {
            let workers = place::units(node, shape, When::Later);
            Room::worker(&shape.worker).times(workers)
        });
        let kept = kept.reduce(|a, b| Room {
            cpu_milli: a.cpu_milli.max(b.cpu_milli),
            memory_bytes: a.memory_bytes.max(b.memory_bytes),
        });
        node.take_room(kept.unwrap_or_default(), When::Now);
    }
    left
}
