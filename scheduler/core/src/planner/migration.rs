//! Restart of a job on other GPUs or with another size. It stops with a checkpoint, and its
//! destination is reserved until it has stopped. The destination may contain its own GPUs.
//!
//! The destination is part of the job's state, so it survives a crash of the scheduler. The
//! reservation is cancelled if one of its nodes takes no new tasks. The job then waits for a place
//! like others.

use super::free::{FreeNode, Holding, gpus_of};
use super::gang::GangPlacement;
use super::round_state::RoundState;
use super::scaling_model::JobScaling;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::snapshot::SnapshotJob;
use muster_model::id::NodeId;
use muster_model::job::{AfterStop, JobState, RequeueCause};
use muster_model::spec::Range;

/// Destination of a moving job, if the job still moves.
pub(crate) fn destination(
    job: &SnapshotJob,
    settled: &JobState,
    find: impl Fn(NodeId) -> Option<u32>,
) -> Option<GangPlacement> {
    let JobState::Stopping {
        then: AfterStop::Move { to },
    } = &job.state
    else {
        return None;
    };
    let goes_on = match settled {
        JobState::Stopping { then } => matches!(then, AfterStop::Move { .. }),
        JobState::Queued => true,
        _ => false,
    };
    goes_on.then(|| GangPlacement::of_seats(to, find)).flatten()
}

/// Reserves the destinations of moving jobs, once all jobs are known. Cancels reservations that
/// cannot be kept.
pub(crate) fn reserve_destinations(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        let Some(placed) = &live.destination else {
            continue;
        };
        let held = placed.holdings(&live.shape);
        let own = |node: u32| -> u64 {
            let there = live.holdings.iter().filter(|own| own.node == node);
            there.fold(0, |gpus, own| gpus | own.gpus)
        };
        let is_free = |held: &Holding| {
            let node = &round.free[held.node as usize];
            let there = node.now | (node.later & own(held.node));
            node.open && there & held.gpus == held.gpus
        };
        let fits = takes(live.job, placed.size());
        if fits && held.iter().all(is_free) && live.scheduling_state.waits() {
            held.iter()
                .for_each(|held| round.free[held.node as usize].keep(held));
        } else {
            give_up(round, index);
        }
    }
}

/// Whether the owner's present range allows this size.
pub(crate) fn takes(job: &SnapshotJob, (workers, ps_shards): (u32, u32)) -> bool {
    let within = |range: Range, count| (range.min..=range.max).contains(&count);
    within(job.workers, workers) && within(job.ps_shards, ps_shards)
}

/// Cancels the reservation for good: once the node is open again, other jobs may use its GPUs.
fn give_up(round: &mut RoundState<'_>, index: usize) {
    let now_ms = round.now_ms;
    let live = &mut round.jobs[index];
    live.destination = None;
    if matches!(live.state, JobState::Stopping { .. }) {
        let why = "where it was to go is not to be had any more".to_owned();
        live.take(Action::requeue(RequeueCause::Resize, why), now_ms);
    }
    round.refresh(index);
}

/// Starts jobs that have stopped at their destinations.
pub(crate) fn start_at_destinations(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        if live.scheduling_state != SchedulingState::Queued || live.destination.is_none() {
            continue;
        }
        let Some(placed) = round.jobs[index].destination.take() else {
            continue;
        };
        let live = &round.jobs[index];
        let held = placed.holdings(&live.shape);
        let quota = round.quota(live);
        let holds = round.held[live.tenant as usize].saturating_add(gpus_of(&held));
        for held in &held {
            let node = &mut round.free[held.node as usize];
            node.release_later(held);
            node.give_back(held);
        }
        let has_room = |held: &Holding| {
            let node = &round.free[held.node as usize];
            node.now_room.holds(held.room) && node.now & held.gpus == held.gpus
        };
        if held.iter().all(has_room) && quota.is_none_or(|quota| holds <= quota) {
            let why = "continues on the GPUs that were reserved for it".to_owned();
            round.start(index, &placed, why);
        } else {
            round.refresh(index);
        }
    }
}

/// Free resources after a job has stopped. The GPU of a host becomes its guest's and is not free.
pub(crate) fn once_stopped(round: &RoundState<'_>, index: usize) -> Vec<FreeNode> {
    let mut free = round.free.clone();
    let live = &round.jobs[index];
    for held in live.holdings.iter().filter(|_| live.guest.is_none()) {
        let node = &mut free[held.node as usize];
        node.release_later(held);
        node.give_back(held);
    }
    free
}

impl RoundState<'_> {
    /// Stops a job and reserves a place for its restart. If the owner's range no longer allows the
    /// size, the job returns to the queue.
    pub(crate) fn relocate(&mut self, index: usize, placed: GangPlacement, why: String) {
        if !takes(self.jobs[index].job, placed.size()) {
            self.stop(index, Action::requeue(RequeueCause::Resize, why));
            if self.jobs[index].member.is_none() && self.journal.is_none() {
                self.enlist(index);
            }
            return;
        }
        self.remember(index);
        let was_charged = self.uninvite(index);
        self.undo_resumption(index);
        let now_ms = self.now_ms;
        // A trial only needs to know which jobs could start.
        let to = match &self.journal {
            Some(_) => Vec::new(),
            None => placed.seats(&self.snapshot.nodes),
        };
        let live = &mut self.jobs[index];
        let then = AfterStop::Move { to };
        live.take(
            Action::Stop {
                then,
                why,
                charge: was_charged,
                not_before_ms: None,
            },
            now_ms,
        );
        live.is_resizing = false;
        live.shape.workers = live.job.workers;
        for held in &live.holdings {
            self.free[held.node as usize].release_later(held);
        }
        for held in placed.holdings(&live.shape) {
            self.free[held.node as usize].keep(&held);
        }
        let step = live.job.progress.step;
        let workers = placed.size().0;
        live.sizing = JobScaling::of(&live.estimate, &live.shape, step, workers, &self.kinds);
        live.destination = Some(placed);
        // A suspended job was not part of the policy's problem.
        if live.member.is_none() {
            self.enlist(index);
        }
        self.refresh(index);
        self.keep_excluded();
    }
}
