//! Reserved destinations of moving jobs.

use super::RoundState;
use crate::plan::Action;
use crate::planner::free::Holding;
use crate::planner::gang::GangPlacement;
use crate::planner::planned_job::PlannedJob;
use crate::snapshot::SnapshotJob;
use muster_model::id::NodeId;
use muster_model::job::{AfterStop, JobState, RequeueCause};

/// Destination of a moving job, if the job still moves.
pub(super) fn destination(
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

impl RoundState<'_> {
    /// Reserves the destinations of moving jobs, once all jobs are known. Cancels reservations that
    /// cannot be kept.
    pub(super) fn reserve_destinations(&mut self) {
        for index in 0..self.jobs.len() {
            let live = &self.jobs[index];
            let Some(placed) = &live.destination else {
                continue;
            };
            let held = placed.holdings(&live.shape);
            let fits = live.allows_size(placed.size());
            let is_free = held.iter().all(|held| self.is_free_for(live, held));
            if fits && is_free && live.scheduling_state.waits() {
                held.iter()
                    .for_each(|held| self.free[held.node as usize].keep(held));
            } else {
                self.cancel_reservation(index);
            }
        }
    }

    /// Whether the GPUs of one node are free, or will be once the job's own tasks have ended.
    fn is_free_for(&self, live: &PlannedJob<'_>, held: &Holding) -> bool {
        let own = live.holdings.iter().filter(|own| own.node == held.node);
        let own = own.fold(0, |gpus, own| gpus | own.gpus);
        let node = &self.free[held.node as usize];
        let there = node.now | (node.later & own);
        node.open && there & held.gpus == held.gpus
    }

    /// Cancels the reservation for good: once the node is open again, other jobs may use its GPUs.
    fn cancel_reservation(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.destination = None;
        if matches!(live.state, JobState::Stopping { .. }) {
            let why = "the target GPUs are no longer available".to_owned();
            live.take(Action::requeue(RequeueCause::Resize, why), now_ms);
        }
        self.refresh(index);
    }
}
