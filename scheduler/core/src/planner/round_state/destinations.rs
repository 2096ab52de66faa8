//! Reserved destinations of moving jobs.

use super::{NodeIndex, RoundState};
use crate::plan::Action;
use crate::planner::free::{FreeNode, Holding, NodeGpuMasks};
use crate::planner::gang::GangPlacement;
use crate::planner::planned_job::PlannedJob;
use crate::planner::scheduling_state::SchedulingState;
use crate::snapshot::SnapshotJob;
use muster_model::id::NodeId;
use muster_model::job::{AfterStop, JobState, RequeueCause, Seat};

/// Destination of a moving job, if the job still moves.
pub(super) fn destination(
    job: &SnapshotJob,
    settled: &JobState,
    find: impl Fn(NodeId) -> Option<u32>,
) -> Option<GangPlacement> {
    let JobState::Stopping {
        then: AfterStop::Move { to, .. },
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

impl RoundState<'_> {
    /// Reserves the destinations of moving jobs, once all jobs are known. Cancels reservations that
    /// cannot be kept.
    pub(super) fn reserve_destinations(&mut self) {
        if self.jobs.iter().all(|live| live.destination.is_none()) {
            return;
        }
        let stopping = self.stopping_gpus();
        let mut overdue = Vec::new();
        for index in 0..self.jobs.len() {
            let live = &self.jobs[index];
            let Some(placed) = &live.destination else {
                continue;
            };
            let held = placed.holdings(&live.shape);
            let fits = live.allows_size(placed.size());
            let is_free = held
                .iter()
                .all(|held| self.is_free_for(live, held, &stopping));
            if !fits || !live.scheduling_state.waits() {
                self.cancel_reservation(index, "the job may not start there any more");
            } else if !is_free {
                self.cancel_reservation(index, "the target GPUs are no longer available");
            } else if self.is_overdue(live) {
                self.cancel_reservation(index, "the target GPUs were not released in time");
                overdue.push(index);
            } else {
                self.reserve(&held);
            }
        }
        for index in overdue {
            self.return_home(index);
        }
    }

    /// Returns a job that has stopped for a move to the GPUs that it left, if they are free.
    fn return_home(&mut self, index: usize) {
        let live = &self.jobs[index];
        if live.scheduling_state != SchedulingState::Queued {
            return;
        }
        let seats = live.job.tasks.iter().map(|task| Seat {
            role: task.role,
            node: task.node,
            gpus: task.gpus.clone(),
        });
        let seats: Vec<Seat> = seats.collect();
        let nodes = NodeIndex::of(self.snapshot);
        let Some(home) = GangPlacement::of_seats(&seats, |id| nodes.find(id)) else {
            return;
        };
        let held = home.holdings(&live.shape);
        let is_free = |held: &Holding| {
            let node = &self.free[held.node as usize];
            node.takes(&live.shape) && node.now & held.gpus == held.gpus
        };
        if live.allows_size(home.size()) && held.iter().all(is_free) {
            self.jobs[index].destination = Some(home);
            self.reserve(&held);
            self.refresh(index);
        }
    }

    /// Reserves the destination of a moving job.
    pub(crate) fn reserve(&mut self, destination: &[Holding]) {
        for held in destination {
            self.free[held.node as usize].keep(held);
            *self.kept.entry(held.node).or_default() |= held.gpus;
        }
    }

    /// Ends the reservation of a destination, whose GPUs are free.
    pub(crate) fn end_reservation(&mut self, destination: &[Holding]) {
        for held in destination {
            let node = &mut self.free[held.node as usize];
            node.release_later(held);
            node.give_back(held);
            *self.kept.entry(held.node).or_default() &= !held.gpus;
        }
    }

    /// GPUs of stopping jobs, by node. A GPU that a guest inherits is not among them.
    fn stopping_gpus(&self) -> NodeGpuMasks {
        let mut gpus = NodeGpuMasks::new();
        for live in self.jobs.iter().filter(|live| is_stopping(live)) {
            for held in &live.holdings {
                *gpus.entry(held.node).or_default() |= held.gpus;
            }
        }
        for (node, gpus) in &mut gpus {
            *gpus &= !self.inherited.get(node).copied().unwrap_or(0);
        }
        gpus
    }

    /// Free resources once all jobs of `movers` and all stopping jobs have released theirs. GPUs
    /// reserved for other moving jobs are not free.
    pub(crate) fn once_all_stopped(&self, movers: &[usize]) -> Vec<FreeNode> {
        let mut free = self.free.clone();
        let moves = movers.iter().map(|&index| &self.jobs[index]);
        for held in moves
            .filter(|live| live.guest.is_none())
            .flat_map(|live| &live.holdings)
        {
            free[held.node as usize].release_later(held);
        }
        let jobs = self.jobs.iter().enumerate();
        let leaving = jobs.filter(|(index, live)| {
            is_stopping(live) || movers.contains(index) && live.guest.is_none()
        });
        for held in leaving.flat_map(|(_, live)| &live.holdings) {
            let node = &mut free[held.node as usize];
            let inherited = self.inherited.get(&held.node).copied().unwrap_or(0);
            let gpus = held.gpus & node.later & !inherited;
            node.give_back(&Holding { gpus, ..*held });
        }
        free
    }

    /// Whether the GPUs of one node are free, or will be once the job's own tasks and those of
    /// stopping jobs have ended.
    fn is_free_for(&self, live: &PlannedJob<'_>, held: &Holding, stopping: &NodeGpuMasks) -> bool {
        let own = live.holdings.iter().filter(|own| own.node == held.node);
        let stopping = stopping.get(&held.node).copied().unwrap_or(0);
        let leaving = own.fold(stopping, |gpus, own| gpus | own.gpus);
        let node = &self.free[held.node as usize];
        let there = node.now | (node.later & leaving);
        node.open && there & held.gpus == held.gpus
    }

    /// Whether the job has waited too long for the jobs at its destination.
    fn is_overdue(&self, live: &PlannedJob<'_>) -> bool {
        let JobState::Stopping {
            then: AfterStop::Move { until_unix_ms, .. },
        } = &live.state
        else {
            return false;
        };
        until_unix_ms.is_some_and(|until_ms| until_ms <= self.now_ms)
    }

    /// Cancels the reservation for good: once the node is open again, other jobs may use its GPUs.
    fn cancel_reservation(&mut self, index: usize, why: &str) {
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.destination = None;
        if matches!(live.state, JobState::Stopping { .. }) {
            let why = why.to_owned();
            live.take(Action::requeue(RequeueCause::Resize, why), now_ms);
            // The job has only waited for the GPUs of other jobs.
            if live.job.held_tasks().next().is_none() {
                live.take(Action::Release, now_ms);
            }
        }
        self.refresh(index);
    }
}

fn is_stopping(live: &PlannedJob<'_>) -> bool {
    matches!(live.state, JobState::Stopping { .. })
}
