//! Failover: a lost shard is replaced by its replica, in the process of the replica holder.
//!
//! Its exchange runs beside that of the holder's own shard, under the lost shard's id and in the
//! coordinator's view. So no pieces move and no step is repeated. Workers repeat the pushes that
//! have no answer; a push that the replica contains is answered and not applied again.

use super::super::messages::{ConnectionId, RequestRefusal};
use super::super::replica::ShardReplica;
use super::super::state::{ShardMember, ShardPhase, ShardState};
use super::ShardExchange;
use muster_comm::wire::view::TaskSetView;
use muster_compute::clock;
use std::sync::{Arc, MutexGuard, RwLock};
use std::time::Duration;

/// Time for which workers wait for the promotion; the coordinator may be evaluating.
const ADOPTED_WITHIN: Duration = Duration::from_secs(60);

impl ShardExchange {
    /// At a promoted replica, waits until the coordinator has ordered the promotion.
    ///
    /// # Errors
    /// [`RequestRefusal::NotAdopted`]: the coordinator may not have lost the shard.
    pub(in crate::shard) fn adopted(&self) -> Result<MutexGuard<'_, ShardState>, RequestRefusal> {
        let began = clock::now();
        let mut state = self.lock();
        while self.rules.is_promoted()
            && state.phase.is_empty()
            && state.ending.chief_lost.is_none()
        {
            if began.elapsed() >= ADOPTED_WITHIN {
                return Err(RequestRefusal::NotAdopted);
            }
            state = self.wait_a_while(state);
        }
        Ok(state)
    }

    /// Whether the exchange is empty.
    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.lock().phase.is_empty()
    }

    /// Coordinator: promotes the replica to the lost shard. Returns the next step, which is `least`
    /// or later.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`]; [`RequestRefusal::AlreadyInitialised`];
    /// [`RequestRefusal::Change`] when the replica has another layout than the view, or lacks
    /// acknowledged steps.
    pub(in crate::shard) fn adopt(
        &self,
        connection_id: ConnectionId,
        view: TaskSetView,
        least: u64,
        copy: ShardReplica,
    ) -> Result<u64, RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        if !state.phase.is_empty() {
            return Err(RequestRefusal::AlreadyInitialised);
        }
        if view.layout != copy.layout || view.pieces(self.rules.me) != copy.pieces {
            return Err(RequestRefusal::Change("the copy is of another layout"));
        }
        let model = &self.rules.model;
        let mut next = model.clock_in(&copy, connection_id.task);
        if next < least {
            return Err(RequestRefusal::Change(
                "the copy lacks steps that were answered",
            ));
        }
        // Under SSP and ASP all workers start a view at the coordinator's next step; the replica
        // has no update of this view yet.
        let begins = !model.is_synchronous() && copy.view < view.number;
        if begins {
            next = least;
        }
        let mut members = Vec::with_capacity(view.workers.len());
        for &task in &view.workers {
            let clock = if begins {
                least
            } else {
                model.clock_in(&copy, task)
            };
            members.push(ShardMember {
                entered: view.number,
                read_at: copy.updates,
                ..ShardMember::new(task, state.standing_in_new_view(task), clock)
            });
            state.connected.waiting.remove(&task);
        }
        state.members = members;
        state.version = copy.version;
        state.updates = copy.updates;
        state.report.hold = copy.hold;
        state.tally.layout = view.layout;
        state.view = Some(Arc::new(view));
        state.tensors = Arc::new(RwLock::new(copy.tensors));
        state.phase = ShardPhase::Ready;
        self.rules.follow(&mut state);
        self.notify();
        Ok(next)
    }
}
