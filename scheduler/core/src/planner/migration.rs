//! Restart of a job on other GPUs or with another size. It stops with a checkpoint, and its
//! destination is reserved until it has stopped. The destination may contain its own GPUs and those
//! of other jobs that stop: the job then also waits until these jobs have released them.
//!
//! The destination is part of the job's state, so it survives a crash of the scheduler. The
//! reservation is cancelled if one of its nodes takes no new tasks. The job then waits for a place
//! like others.

use super::free::{FreeNode, gpus_of};
use super::gang::GangPlacement;
use super::round_state::RoundState;
use super::scaling_model::JobScaling;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use muster_model::job::{AfterStop, RequeueCause};

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
        round.end_reservation(&held);
        let has_room = held.iter().all(|held| {
            let node = &round.free[held.node as usize];
            node.now_room.holds(held.room) && node.now & held.gpus == held.gpus
        });
        if has_room && quota.is_none_or(|quota| holds <= quota) {
            let what = if held.iter().any(|held| held.gpus != 0) {
                "GPUs"
            } else {
                "nodes"
            };
            let why = format!("continues on the {what} that were reserved for it");
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
        if !self.jobs[index].allows_size(placed.size()) {
            self.stop(index, Action::requeue(RequeueCause::Resize, why));
            if self.jobs[index].member.is_none() && self.journal.is_none() {
                self.enlist(index);
            }
            return;
        }
        self.begin_move(index, &placed, why, None);
        self.set_destination(index, placed);
    }

    /// Stops jobs and reserves places for their restarts, which may be on GPUs of each other and of
    /// other stopping jobs. The owners' ranges allow the sizes.
    pub(crate) fn relocate_together(
        &mut self,
        moves: Vec<(usize, GangPlacement, String)>,
        until_unix_ms: i64,
    ) {
        let mut destinations = Vec::with_capacity(moves.len());
        for (index, placed, why) in moves {
            self.begin_move(index, &placed, why, Some(until_unix_ms));
            destinations.push((index, placed));
        }
        for (index, placed) in destinations {
            self.set_destination(index, placed);
        }
    }

    fn begin_move(
        &mut self,
        index: usize,
        placed: &GangPlacement,
        why: String,
        until_unix_ms: Option<i64>,
    ) {
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
        let then = AfterStop::Move { to, until_unix_ms };
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
        self.show_cpu_of(index);
    }

    fn set_destination(&mut self, index: usize, placed: GangPlacement) {
        let live = &mut self.jobs[index];
        let destination = placed.holdings(&live.shape);
        let step = live.job.progress.step;
        let workers = placed.size().0;
        live.sizing = JobScaling::of(&live.estimate, &live.shape, step, workers, &self.kinds);
        live.destination = Some(placed);
        self.reserve(&destination);
        // A suspended job was not part of the policy's problem.
        if self.jobs[index].member.is_none() {
            self.enlist(index);
        }
        self.refresh(index);
        self.keep_excluded();
    }
}
