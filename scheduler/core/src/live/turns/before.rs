//! Before the policy: resumes or starts jobs that have waited long enough, or reserves their free
//! GPUs.

use super::fair::TenantShares;
use super::turning::{loan_ms, shortest_ms};
use super::{
    CONSIDERED, NodeGpuMasks, could_run, count, go_on, home, needs, overlaps, queued,
    quota_has_room, standing_by_gpu, standing_still, vacate,
};
use crate::live::free::{FreeNode, When};
use crate::live::gang;
use crate::live::pass::requeue;
use crate::live::place;
use crate::live::standing::SchedulingState;
use crate::live::world::{PlannedJob, RoundState};
use crate::policy::Slicing;
use muster_model::job::{Intent, RequeueCause};

/// Resumes suspended jobs that precede all queued jobs. Starts queued jobs for which the policy has
/// had no room for a quantum. Reserves free GPUs of the first job in line that cannot be served.
pub(crate) fn before(world: &mut RoundState<'_>) {
    let mut line = standing_still(world);
    // Without time slicing no job is suspended for queued jobs, so these do not compete here.
    if let Some(slicing) = world.policy.slicing {
        line.extend(queued(world, slicing));
    }
    line.sort_unstable();
    let mut shares = TenantShares::of(world, &line);
    let quantum_ms = world.policy.slicing.map(|slicing| slicing.quantum_ms);
    let quantum_ms = quantum_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let slicing = world.policy.slicing;
    let crowded = slicing.map_or_else(NodeGpuMasks::new, |slicing| crowded(world, slicing));
    // Without time slicing no job makes room for it.
    let patience_ms = match slicing {
        Some(_) => quantum_ms,
        None => i64::try_from(world.policy.min_run_ms).unwrap_or(i64::MAX),
    };
    let urgent = urgent(world);
    let mut looked = 0;
    for waiter in line.iter().copied() {
        let waited_ms = world.now_ms.saturating_sub(waiter.since_ms);
        // A job that waits for its tenant's quota does not delay others.
        if !quota_has_room(world, waiter.index, needs(world, waiter.index)) {
            continue;
        }
        // The policy would stop it again for these jobs. After the policy it can get the remaining
        // GPUs.
        if waiter.stands
            && urgent.is_some_and(|urgent| world.jobs[waiter.index].job.priority < urgent)
        {
            continue;
        }
        if looked == CONSIDERED || !(waiter.stands || waited_ms >= quantum_ms) {
            break;
        }
        // The policy then decides about the free GPUs.
        if shares
            .as_ref()
            .is_some_and(|shares| shares.defers(world, waiter))
        {
            continue;
        }
        looked += 1;
        let served = if waiter.stands {
            go_on(world, waiter.index, "its time slice begins")
        } else {
            begin(world, waiter.index, &crowded)
        };
        if served && waiter.stands {
            world.enlist(waiter.index);
        } else if served {
            shares = TenantShares::of(world, &line);
        } else if waiter.stands && waited_ms >= patience_ms && is_shut_out(world, waiter.index) {
            go_elsewhere(world, waiter.index);
        } else if world.reserved.is_none() {
            let wanted = if waiter.stands {
                home(world, waiter.index)
            } else {
                gang_of(world, waiter.index, &crowded)
            };
            reserve(world, waiter.index, wanted);
            if let Some(slicing) = slicing {
                lend(world, slicing, &crowded);
            }
        }
    }
}

/// Highest priority of the queued jobs that could run on the empty cluster.
fn urgent(world: &RoundState<'_>) -> Option<i32> {
    let jobs = world.jobs.iter().enumerate();
    let queued = jobs.filter(|(index, live)| {
        let waits = live.standing == SchedulingState::Queued && live.job.intent == Intent::Run;
        waits && could_run(world, *index)
    });
    queued.map(|(_, live)| live.job.priority).max()
}

/// Whether a job without time slices holds GPUs of this suspended job, which could only wait for
/// the end of that job.
fn is_shut_out(world: &RoundState<'_>, index: usize) -> bool {
    let home = home(world, index);
    let takes_turns = |live: &PlannedJob<'_>| {
        world.policy.slicing.is_some() && live.job.suspends && !live.job.exclusive
    };
    world.jobs.iter().enumerate().any(|(other, live)| {
        other != index && live.standing.stays() && !takes_turns(live) && overlaps(live, &home)
    })
}

/// Restarts a suspended job that cannot resume on its GPUs: from its checkpoint, where there is
/// room. Without room the job waits in the queue and shows the reason.
fn go_elsewhere(world: &mut RoundState<'_>, index: usize) {
    let live = &world.jobs[index];
    let (shape, size) = (live.shape, live.size);
    let gpus = count(&home(world, index));
    let why = "its GPUs are held by a job without time slices";
    let found = if quota_has_room(world, index, gpus) {
        place::find(&world.free, &shape, size, When::Now)
    } else {
        None
    };
    match found {
        Some(shares) => {
            let placed = gang::take(&mut world.free.clone(), &shape, &shares, When::Now);
            let why = format!("{why}: it continues elsewhere from its checkpoint");
            world.relocate(index, placed, why);
        }
        None => {
            let why = format!("{why}: it waits in the queue for room elsewhere");
            world.stop(index, requeue(RequeueCause::Resize, why));
            world.enlist(index);
        }
    }
}

/// Starts a queued job with its smallest gang, if that fits now. Returns whether it was started.
fn begin(world: &mut RoundState<'_>, index: usize, crowded: &NodeGpuMasks) -> bool {
    let shape = world.jobs[index].shape;
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let mut found = place::find(&free, &shape, least, When::Now);
    if found.is_none() && !world.lendable.is_empty() {
        free = world.with_lendable(&free);
        found = place::find(&free, &shape, least, When::Now);
    }
    let Some(shares) = found else {
        return false;
    };
    let placed = gang::take(&mut free, &shape, &shares, When::Now);
    world.start(index, &placed, "its time slice begins".to_owned());
    true
}

/// Free GPUs among those that the smallest gang of a job would use once all time-sliced jobs were
/// suspended. Empty if the gang would not fit even then.
fn gang_of(world: &RoundState<'_>, index: usize, crowded: &NodeGpuMasks) -> NodeGpuMasks {
    let shape = world.jobs[index].shape;
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let runs = |live: &&PlannedJob<'_>| live.standing == SchedulingState::Running;
    for live in world.jobs.iter().filter(runs) {
        if live.job.suspends && !live.job.exclusive {
            vacate(&mut free, live);
        }
    }
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut gang = NodeGpuMasks::new();
    let Some(shares) = place::find(&free, &shape, least, When::Later) else {
        return gang;
    };
    // Only GPUs that are free now can be reserved.
    for share in shares {
        let node = &mut free[share.node as usize];
        let wanted = share.workers * shape.worker.gpus;
        let now = wanted.min(node.now.count_ones());
        *gang.entry(share.node).or_default() |= node.take_gpus(now, When::Now);
    }
    gang
}

/// GPUs with more suspended jobs than allowed: only one of these jobs may run there.
fn crowded(world: &RoundState<'_>, slicing: Slicing) -> NodeGpuMasks {
    let mut crowded = NodeGpuMasks::new();
    for ((node, gpu), count) in standing_by_gpu(world) {
        if count > slicing.suspended_per_gpu {
            *crowded.entry(node).or_default() |= 1 << gpu;
        }
    }
    crowded
}

fn leave_out(free: &mut [FreeNode], gpus: &NodeGpuMasks) {
    for (&node, gpus) in gpus {
        free[node as usize].now &= !gpus;
    }
}

/// Reserves the free ones of these GPUs for the first job in line. The jobs on the others are
/// suspended when their slices expire, and no other job starts in between. So a gang does not
/// starve behind single workers.
fn reserve(world: &mut RoundState<'_>, index: usize, gpus: NodeGpuMasks) {
    if gpus.is_empty() {
        return;
    }
    let mut kept = NodeGpuMasks::new();
    for (node, gpus) in gpus {
        if let Some(free) = world.free.get_mut(node as usize) {
            kept.insert(node, free.now & gpus);
            free.now &= !gpus;
        }
    }
    world.reserved = Some((index, kept));
}

/// Lends the reserved GPUs while the slice is at least the shortest slice away. GPUs with the
/// maximum number of suspended jobs are not lent, because a borrower could not be suspended there.
fn lend(world: &mut RoundState<'_>, slicing: Slicing, crowded: &NodeGpuMasks) {
    let Some((index, kept)) = &world.reserved else {
        return;
    };
    if loan_ms(world, slicing, *index) < shortest_ms(slicing) {
        return;
    }
    let lendable = kept.iter().map(|(node, gpus)| {
        let crowded = crowded.get(node).copied().unwrap_or(0);
        (*node, gpus & !crowded)
    });
    world.lendable = lendable.filter(|(_, gpus)| *gpus != 0).collect();
}
