//! Before the policy: resumes or starts jobs that have waited long enough, or reserves their free
//! GPUs.

use super::fair_share::TenantShares;
use super::rotation::{loan_ms, shortest_ms};
use super::{
    CONSIDERED, SliceWaiter, could_run, needs, overlaps, queued, quota_has_room, suspended_by_gpu,
    suspended_waiters, vacate,
};
use crate::plan::Action;
use crate::planner::free::{Availability, FreeNode, NodeGpuMasks, count_gpus};
use crate::planner::gang;
use crate::planner::gpu_memory::GpuMemory;
use crate::planner::place;
use crate::planner::round_state::RoundState;
use crate::planner::scheduling_state::SchedulingState;
use crate::policy::Slicing;
use muster_model::job::{Intent, RequeueCause};

/// Resumes suspended jobs that precede all queued jobs. Starts queued jobs for which the policy has
/// had no room for a quantum. Reserves free GPUs of the first job in line that cannot be served.
pub(crate) fn before_policy(round: &mut RoundState<'_>) {
    let mut line = suspended_waiters(round);
    // Without time slicing no job is suspended for queued jobs, so these do not compete here.
    if let Some(slicing) = round.policy.slicing {
        line.extend(queued(round, slicing));
    }
    line.sort_unstable();
    let mut shares = TenantShares::of(round, &line);
    let quantum_ms = round.policy.slicing.map(|slicing| slicing.quantum_ms);
    let quantum_ms = quantum_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let slicing = round.policy.slicing;
    let crowded = slicing.map_or_else(NodeGpuMasks::new, |slicing| crowded(round, slicing));
    // Without time slicing no job makes room for it.
    let patience_ms = match slicing {
        Some(_) => quantum_ms,
        None => i64::try_from(round.policy.min_run_ms).unwrap_or(i64::MAX),
    };
    let urgent = urgent(round);
    let memory = GpuMemory::of(round);
    let mut considered = 0;
    for waiter in line.iter().copied() {
        let waited_ms = round.now_ms.saturating_sub(waiter.since_ms);
        // A job that waits for its tenant's quota does not delay others.
        if !quota_has_room(round, waiter.index, needs(round, waiter.index)) {
            continue;
        }
        // The policy would stop it again for these jobs. After the policy it can get the remaining
        // GPUs.
        if waiter.is_suspended
            && urgent.is_some_and(|urgent| round.jobs[waiter.index].job.priority < urgent)
        {
            continue;
        }
        if considered == CONSIDERED || !(waiter.is_suspended || waited_ms >= quantum_ms) {
            break;
        }
        // The policy then decides about the free GPUs.
        if shares
            .as_ref()
            .is_some_and(|shares| shares.defers(round, waiter))
        {
            continue;
        }
        considered += 1;
        let served = if waiter.is_suspended {
            round.resume(waiter.index, "its time slice begins")
        } else {
            begin(round, waiter.index, (&crowded, &memory))
        };
        if served && waiter.is_suspended {
            round.enlist(waiter.index);
        } else if served {
            shares = TenantShares::of(round, &line);
        } else if waiter.is_suspended
            && waited_ms >= patience_ms
            && is_shut_out(round, waiter.index, &memory)
        {
            restart_elsewhere(round, waiter.index);
        } else if round.reserved.is_none() {
            let wanted = if waiter.is_suspended {
                round.jobs[waiter.index].home()
            } else {
                gang_of(round, waiter.index, (&crowded, &memory))
            };
            reserve(round, waiter.index, wanted);
            if let Some(slicing) = slicing {
                lend(round, slicing, &crowded);
            }
        }
    }
    begin_beside_programs(round, &line, (&crowded, shares.as_ref()));
}

/// Starts queued jobs beside suspended programs that keep memory on their GPUs, where they fit. The
/// policy does not see these GPUs, so it cannot start the jobs for which programs were suspended.
/// Jobs whose tenants would exceed their shares come last.
fn begin_beside_programs(
    round: &mut RoundState<'_>,
    line: &[SliceWaiter],
    (crowded, shares): (&NodeGpuMasks, Option<&TenantShares>),
) {
    if round.hidden.values().all(|&gpus| gpus == 0) {
        return;
    }
    let memory = GpuMemory::of(round);
    let is_deferred = |waiter: &&SliceWaiter| shares.is_some_and(|one| one.defers(round, **waiter));
    let (deferred, first): (Vec<&SliceWaiter>, Vec<&SliceWaiter>) =
        line.iter().take(CONSIDERED).partition(is_deferred);
    for waiter in first.into_iter().chain(deferred) {
        let live = &round.jobs[waiter.index];
        let (shape, least) = (&live.shape, live.shape.least());
        let size = (least.workers.min, least.ps_shards.min);
        let waits = live.scheduling_state == SchedulingState::Queued
            && quota_has_room(round, waiter.index, needs(round, waiter.index));
        // The policy decides about all other GPUs.
        if waits && place::find(&round.free, shape, size, Availability::Now).is_none() {
            begin(round, waiter.index, (crowded, &memory));
        }
    }
}

/// Highest priority of the queued jobs that could run on the empty cluster.
fn urgent(round: &RoundState<'_>) -> Option<i32> {
    let jobs = round.jobs.iter().enumerate();
    let queued = jobs.filter(|(index, live)| {
        let waits =
            live.scheduling_state == SchedulingState::Queued && live.job.intent == Intent::Run;
        waits && !live.job.is_cpu_only() && could_run(round, *index)
    });
    queued.map(|(_, live)| live.job.priority).max()
}

/// Whether a job holds GPUs of this suspended job and cannot be suspended for it, so that this job
/// could only wait for the end of that one: it has no time slices, or would keep too much memory.
fn is_shut_out(round: &RoundState<'_>, index: usize, memory: &GpuMemory) -> bool {
    let home = round.jobs[index].home();
    let has_slices = round.policy.slicing.is_some();
    round.jobs.iter().enumerate().any(|(other, live)| {
        other != index
            && live.scheduling_state.stays()
            && overlaps(live, &home)
            && !(has_slices
                && live.job.takes_turns()
                && memory.may_return(round, round.jobs[index].job, live))
    })
}

/// Restarts a suspended job that cannot resume on its GPUs: from its checkpoint, where there is
/// room. Without room the job waits in the queue and shows the reason.
fn restart_elsewhere(round: &mut RoundState<'_>, index: usize) {
    let live = &round.jobs[index];
    let (shape, size) = (live.shape.clone(), live.size);
    let gpus = count_gpus(&round.jobs[index].home());
    let why = "its GPUs are held by a job that cannot be suspended for it";
    let found = if quota_has_room(round, index, gpus) {
        place::find(&round.free, &shape, size, Availability::Now)
    } else {
        None
    };
    match found {
        Some(shares) => {
            let placed = gang::take(&mut round.free.clone(), &shape, &shares, Availability::Now);
            let why = format!("{why}: it continues elsewhere from its checkpoint");
            round.relocate(index, placed, why);
        }
        None => {
            let why = format!("{why}: it waits in the queue for room elsewhere");
            round.stop(index, Action::requeue(RequeueCause::Resize, why));
            round.enlist(index);
        }
    }
}

/// Starts a queued job with its smallest gang, if that fits now. Returns whether it was started.
fn begin(
    round: &mut RoundState<'_>,
    index: usize,
    (crowded, memory): (&NodeGpuMasks, &GpuMemory),
) -> bool {
    let shape = round.jobs[index].shape.clone();
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut free = round.free.clone();
    leave_out(&mut free, crowded);
    memory.admit(&mut free, round.snapshot, round.jobs[index].job);
    let mut found = place::find(&free, &shape, least, Availability::Now);
    if found.is_none() && !round.lendable.is_empty() {
        free = round.with_lendable(&free);
        found = place::find(&free, &shape, least, Availability::Now);
    }
    let Some(shares) = found else {
        return false;
    };
    let placed = gang::take(&mut free, &shape, &shares, Availability::Now);
    round.start(index, &placed, "its time slice begins".to_owned());
    true
}

/// Free GPUs among those that the smallest gang of a job would use once all time-sliced jobs were
/// suspended. Empty if the gang would not fit even then.
fn gang_of(
    round: &RoundState<'_>,
    index: usize,
    (crowded, memory): (&NodeGpuMasks, &GpuMemory),
) -> NodeGpuMasks {
    let (job, shape) = (round.jobs[index].job, round.jobs[index].shape.clone());
    let mut free = round.free.clone();
    leave_out(&mut free, crowded);
    memory.admit(&mut free, round.snapshot, job);
    for live in &round.jobs {
        let makes_room =
            live.scheduling_state == SchedulingState::Running && live.job.takes_turns();
        if makes_room && memory.fits_after(round, job, live) {
            vacate(&mut free, live);
        }
    }
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut gang = NodeGpuMasks::new();
    let Some(shares) = place::find(&free, &shape, least, Availability::Later) else {
        return gang;
    };
    // Only GPUs that are free now can be reserved.
    for share in shares {
        let node = &mut free[share.node as usize];
        let wanted = share.workers * shape.worker.gpus;
        let now = wanted.min(node.gpus(Availability::Now));
        *gang.entry(share.node).or_default() |= node.take_gpus(now, Availability::Now);
    }
    gang
}

/// GPUs with more suspended jobs than allowed: only one of these jobs may run there.
fn crowded(round: &RoundState<'_>, slicing: Slicing) -> NodeGpuMasks {
    let mut crowded = NodeGpuMasks::new();
    for ((node, gpu), count) in suspended_by_gpu(round) {
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
fn reserve(round: &mut RoundState<'_>, index: usize, gpus: NodeGpuMasks) {
    if gpus.is_empty() {
        return;
    }
    let mut kept = NodeGpuMasks::new();
    for (node, gpus) in gpus {
        if let Some(free) = round.free.get_mut(node as usize) {
            kept.insert(node, free.now & gpus);
            free.now &= !gpus;
        }
    }
    round.reserved = Some((index, kept));
}

/// Lends the reserved GPUs while the slice is at least the shortest slice away. GPUs with the
/// maximum number of suspended jobs are not lent, because a borrower could not be suspended there.
fn lend(round: &mut RoundState<'_>, slicing: Slicing, crowded: &NodeGpuMasks) {
    let Some((index, kept)) = &round.reserved else {
        return;
    };
    if loan_ms(round, slicing, *index) < shortest_ms(slicing) {
        return;
    }
    let lendable = kept.iter().map(|(node, gpus)| {
        let crowded = crowded.get(node).copied().unwrap_or(0);
        (*node, gpus & !crowded)
    });
    round.lendable = lendable.filter(|(_, gpus)| *gpus != 0).collect();
}
