//! GPU memory that suspended programs keep.
//!
//! The built-in engine releases its GPUs when it is suspended. A user's program keeps its memory
//! there, unless the driver moves it to the host. Another job may start on such a GPU only if it
//! fits beside the suspended programs. The policy does not know GPU memory: the GPUs are hidden
//! from it, and time slicing starts the jobs that fit.
//!
//! CPU slots have no memory of their own; their host memory is counted as such.

use super::free::{FreeNode, NodeGpuMasks, indices};
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotNode};
use std::collections::BTreeMap;

/// Memory of an unknown amount: no other job fits beside it.
const UNKNOWN: u64 = u64::MAX;

/// Memory that suspended programs keep, in bytes, by node and GPU. Only GPUs with such memory are
/// listed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GpuMemory {
    kept: BTreeMap<(u32, u32), u64>,
    /// Share of a GPU's memory that must stay free; `None` if GPU memory is not counted.
    spare: Option<f64>,
}

impl GpuMemory {
    /// Counts the programs that are suspended in the present state of the round.
    pub(crate) fn of(round: &RoundState<'_>) -> Self {
        let mut memory = Self {
            kept: BTreeMap::new(),
            spare: round.policy.spare_gpu_memory,
        };
        if memory.spare.is_some() {
            let jobs = round.jobs.iter();
            for live in jobs.filter(|live| live.job.command.is_some()) {
                memory.add(round.snapshot, live.job, &resident(live));
            }
        }
        memory
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Counts what the job keeps on these GPUs while it is suspended.
    pub(crate) fn add(
        &mut self,
        snapshot: &ClusterSnapshot,
        job: &SnapshotJob,
        gpus: &NodeGpuMasks,
    ) {
        for (&node, &gpus) in gpus {
            let kept = snapshot
                .nodes
                .get(node as usize)
                .map_or(0, |node| kept_bytes(job, node));
            for gpu in indices(gpus).into_iter().filter(|_| kept > 0) {
                let sum = self.kept.entry((node, gpu)).or_default();
                *sum = sum.saturating_add(kept);
            }
        }
    }

    /// GPUs on which programs keep memory.
    pub(crate) fn gpus(&self) -> NodeGpuMasks {
        masks(self.kept.keys().copied())
    }

    /// Withholds the GPUs on which the job does not fit beside suspended programs, and no others.
    pub(crate) fn admit(
        &self,
        free: &mut [FreeNode],
        snapshot: &ClusterSnapshot,
        job: &SnapshotJob,
    ) {
        let full = self.kept.keys().copied();
        let full = masks(full.filter(|&at| !self.fits(snapshot, job, at, 0)));
        for node in self.gpus().into_keys() {
            free[node as usize].withheld = full.get(&node).copied().unwrap_or(0);
        }
    }

    /// Whether a queued job and a running job can take turns on the GPUs of the running one. Both,
    /// and the guest of the running job, must fit beside what the others keep there.
    pub(crate) fn fits_after(
        &self,
        round: &RoundState<'_>,
        job: &SnapshotJob,
        victim: &PlannedJob<'_>,
    ) -> bool {
        let guest = victim.guest.map(|guest| round.jobs[guest].job);
        let leave: Vec<&SnapshotJob> = std::iter::once(victim.job).chain(guest).collect();
        let is_program = |job: &SnapshotJob| job.command.is_some();
        if self.spare.is_none() || !(is_program(job) || leave.iter().any(|one| is_program(one))) {
            return true;
        }
        victim.home().iter().all(|(&node, &gpus)| {
            let Some(there) = round.snapshot.nodes.get(node as usize) else {
                return true;
            };
            let kept = kept_bytes(job, there);
            let each = leave.iter().map(|one| kept_bytes(one, there));
            let left = each.fold(0, u64::saturating_add);
            let mut gpus = indices(gpus).into_iter();
            gpus.all(|gpu| {
                let fits = |job, more| self.fits(round.snapshot, job, (node, gpu), more);
                fits(job, left) && leave.iter().all(|one| fits(one, kept))
            })
        })
    }

    /// Whether a suspended job fits when it resumes and this running job is suspended. A program
    /// has kept its memory there, so it fits.
    pub(crate) fn may_return(
        &self,
        round: &RoundState<'_>,
        job: &SnapshotJob,
        blocker: &PlannedJob<'_>,
    ) -> bool {
        job.command.is_some() || self.fits_after(round, job, blocker)
    }

    /// Whether the job fits on a GPU beside what suspended programs keep there, and `more` bytes.
    fn fits(
        &self,
        snapshot: &ClusterSnapshot,
        job: &SnapshotJob,
        (node, gpu): (u32, u32),
        more: u64,
    ) -> bool {
        let kept = self.kept.get(&(node, gpu)).copied().unwrap_or(0);
        let kept = kept.saturating_add(more);
        let (Some(spare), true) = (self.spare, kept > 0) else {
            return true;
        };
        let has = snapshot.nodes[node as usize].gpu_memory_bytes;
        let needed = job.needed_gpu_bytes().unwrap_or(UNKNOWN);
        kept.saturating_add(needed) as f64 <= has as f64 * (1.0 - spare)
    }
}

/// Bytes that the job keeps on each of its GPUs of a node while it is suspended.
fn kept_bytes(job: &SnapshotJob, node: &SnapshotNode) -> u64 {
    job.kept_gpu_bytes(node).unwrap_or(UNKNOWN)
}

/// GPUs on which the processes of a job exist without holding them.
fn resident(live: &PlannedJob<'_>) -> NodeGpuMasks {
    if live.scheduling_state.stays() {
        return NodeGpuMasks::new();
    }
    let is_suspended = live.scheduling_state == SchedulingState::Suspended;
    let tasks = live.job.tasks.iter().zip(&live.places);
    let idle = tasks.filter(|(task, _)| {
        let is_there = task.is_worker() && !task.state.is_released();
        is_there && (is_suspended || !task.state.holds_gpus())
    });
    masks(idle.flat_map(|(task, &node)| task.gpus.iter().map(move |&gpu| (node, gpu))))
}

fn masks(gpus: impl Iterator<Item = (u32, u32)>) -> NodeGpuMasks {
    let mut masks = NodeGpuMasks::new();
    for (node, gpu) in gpus.filter(|&(_, gpu)| gpu < u64::BITS) {
        *masks.entry(node).or_default() |= 1 << gpu;
    }
    masks
}
