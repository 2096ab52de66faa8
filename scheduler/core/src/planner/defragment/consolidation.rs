//! Consolidation: moves a job that is spread over several nodes or racks to one node or one rack,
//! if it saves more time than its restart costs.

use super::{
    JobMigration, Locality, REPAID, carry_out, cost_gpu_s, is_movable, locality, proposed, rack_of,
    without,
};
use crate::planner::fixpoint::RoundFixpoint;
use crate::planner::free::{Availability, FreeNode, gpus_of};
use crate::planner::gang::{self, GangPlacement};
use crate::planner::place;
use crate::planner::planned_job::PlannedJob;
use crate::planner::round_state::RoundState;
use std::collections::{BTreeMap, BTreeSet};

/// Assumed speed of a job on several racks, relative to several nodes of one rack.
const ACROSS_RACKS_SPEED: f64 = 0.98;
/// Maximum number of spread jobs for which a round searches a better place.
const MAX_CANDIDATES: usize = 64;

/// Gathers the job with the largest surplus, if any has one: the GPU-seconds that it saves beyond
/// [`REPAID`] times its cost. Returns whether a job was moved.
pub(super) fn consolidate(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    // Such a policy gathers its jobs itself.
    if round.capabilities.gathers {
        return false;
    }
    let mut views = None;
    let mut best: Option<(f64, JobMigration)> = None;
    let mut candidates = 0;
    let jobs = round.jobs.len();
    // Each round starts with another job, because a round considers only some of them.
    let first = round.snapshot.round as usize % jobs.max(1);
    for index in (first..jobs).chain(0..first) {
        let live = &round.jobs[index];
        if candidates == MAX_CANDIDATES {
            break;
        }
        if !is_movable(round, live) || live.estimate.speed.points() == 0 {
            continue;
        }
        let own = nodes_with_gpus(live.holdings.iter().map(|held| (held.node, held.gpus)));
        let now = locality(round, &own);
        if now == Locality::Node {
            continue;
        }
        candidates += 1;
        let views = views.get_or_insert_with(|| FreeByRack::of(round, fixpoint));
        let Some((then, placed)) = closer_placement(round, views, live, now) else {
            continue;
        };
        let saves_s = time_left_s(round, index, now) - time_left_s(round, index, then);
        let gpus = f64::from(gpus_of(&live.holdings));
        let cost_s = cost_gpu_s(round, live) / gpus;
        let surplus = (saves_s - REPAID * cost_s) * gpus;
        if saves_s.is_finite()
            && surplus > 0.0
            && best.as_ref().is_none_or(|(most, _)| surplus > *most)
        {
            best = Some((surplus, proposed(round, index, placed)));
        }
    }
    let Some((surplus, one)) = best else {
        return false;
    };
    let saves_gpu_s = surplus + REPAID * one.costs_gpu_s;
    let why = format!(
        "its GPUs are nearer to each other there, and it ends about {:.0} s earlier",
        saves_gpu_s / f64::from(gpus_of(&round.jobs[one.index].holdings).max(1))
    );
    let amounts = (one.costs_gpu_s, saves_gpu_s);
    carry_out(round, one, why, None, amounts);
    true
}

/// Returns the nodes whose GPU mask is not empty.
fn nodes_with_gpus(held: impl Iterator<Item = (u32, u64)>) -> Vec<u32> {
    held.filter(|(_, gpus)| *gpus != 0)
        .map(|(node, _)| node)
        .collect()
}

/// Free resources by GPU kind: the nodes of the kind, and the same nodes for each rack with a free
/// GPU. Nodes outside a view are present without free resources.
struct FreeByRack(BTreeMap<u16, (Vec<FreeNode>, Vec<Vec<FreeNode>>)>);

impl FreeByRack {
    fn of(round: &RoundState<'_>, fixpoint: &RoundFixpoint) -> Self {
        let racks: BTreeSet<&str> = (0..fixpoint.free.len() as u32)
            .filter_map(|node| rack_of(round, node))
            .collect();
        let kinds: BTreeSet<u16> = fixpoint.free.iter().map(|node| node.kind).collect();
        let views = kinds.into_iter().map(|kind| {
            let all = without(&fixpoint.free, |node| {
                fixpoint.free[node as usize].kind != kind
            });
            let of_racks = racks
                .iter()
                .map(|name| without(&all, |node| rack_of(round, node) != Some(*name)))
                .filter(|view| view.iter().any(|node| node.now != 0))
                .collect();
            (kind, (all, of_racks))
        });
        Self(views.collect())
    }
}

/// Closest free placement of the whole job that is closer than the present one: one node, or one
/// rack.
fn closer_placement(
    round: &RoundState<'_>,
    views: &FreeByRack,
    live: &PlannedJob<'_>,
    now: Locality,
) -> Option<(Locality, GangPlacement)> {
    let kind = round.free[live.holdings.first()?.node as usize].kind;
    let (everywhere, of_racks) = views.0.get(&kind)?;
    // For a job within one rack only a single node is closer. The search over all nodes prefers a
    // single node, so racks need no search of their own.
    let of_racks = match now {
        Locality::Else => of_racks.as_slice(),
        Locality::Node | Locality::Rack => &[],
    };
    let mut best: Option<(Locality, GangPlacement)> = None;
    for free in std::iter::once(everywhere).chain(of_racks) {
        let Some(shares) = place::find(free, &live.shape, live.size, Availability::Now) else {
            continue;
        };
        let placed = gang::take(&mut free.clone(), &live.shape, &shares, Availability::Now);
        let then = locality(round, &nodes_with_gpus(placed.workers.iter().copied()));
        if then < now && best.as_ref().is_none_or(|(closest, _)| then < *closest) {
            best = Some((then, placed));
        }
    }
    best
}

/// Remaining seconds of a job at its present size, if its GPUs had this locality; infinite if its
/// end is unknown.
fn time_left_s(round: &RoundState<'_>, index: usize, locality: Locality) -> f64 {
    let live = &round.jobs[index];
    let Some(held) = live.holdings.iter().find(|held| held.gpus != 0) else {
        return f64::INFINITY;
    };
    let kind = round.free[held.node as usize].kind;
    let gpus = gpus_of(&live.holdings);
    let outlook = &live.sizing.outlook;
    match locality {
        Locality::Node => outlook.time_left_s(kind, gpus, 1),
        Locality::Rack => outlook.time_left_s(kind, gpus, 2),
        Locality::Else => outlook.time_left_s(kind, gpus, 2) / ACROSS_RACKS_SPEED,
    }
}
