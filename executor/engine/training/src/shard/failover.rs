//! Failover: a lost shard is replaced by its replica, in the process of the replica holder.
//!
//! Its exchange runs beside that of the holder's own shard, under the lost shard's id and in the
//! coordinator's view. So no pieces move and no step is repeated. Workers repeat the pushes that
//! have no answer; a push that the replica contains is answered and not applied again.

use super::exchange::ShardExchange;
use super::messages::{ConnectionId, RequestRefusal};
use super::replica::ShardReplica;
use super::state::{ShardMember, ShardState, TensorPhase, WorkerStatus};
use muster_comm::wire::view::TaskSetView;
use muster_compute::clock;
use muster_model::id::TaskId;
use std::sync::{Arc, MutexGuard, RwLock};
use std::time::Duration;

/// Time for which workers wait for the promotion; the coordinator may be evaluating.
const ADOPTED_WITHIN: Duration = Duration::from_secs(60);

impl ShardExchange {
    /// At a promoted replica, waits until the coordinator has ordered the promotion.
    ///
    /// # Errors
    /// [`RequestRefusal::NotAdopted`]: the coordinator may not have lost the shard.
    pub(super) fn adopted(&self) -> Result<MutexGuard<'_, ShardState>, RequestRefusal> {
        let began = clock::now();
        let mut state = self.lock();
        while self.is_promoted() && state.phase == TensorPhase::Empty && state.chief_lost.is_none()
        {
            if began.elapsed() >= ADOPTED_WITHIN {
                return Err(RequestRefusal::NotAdopted);
            }
            state = self.wait_a_while(state);
        }
        Ok(state)
    }

    /// Whether the exchange is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().phase == TensorPhase::Empty
    }

    /// Coordinator: promotes the replica to the lost shard. Returns the next step, which is `least`
    /// or later.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`]; [`RequestRefusal::AlreadyInitialised`];
    /// [`RequestRefusal::Change`] when the replica has another layout than the view, or lacks
    /// acknowledged steps.
    pub(super) fn adopt(
        &self,
        connection_id: ConnectionId,
        view: TaskSetView,
        least: u64,
        copy: ShardReplica,
    ) -> Result<u64, RequestRefusal> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        if state.phase != TensorPhase::Empty {
            return Err(RequestRefusal::AlreadyInitialised);
        }
        if view.layout != copy.layout || view.pieces(self.me) != copy.pieces {
            return Err(RequestRefusal::Change("the copy is of another layout"));
        }
        let clock = |task: TaskId| {
            if self.is_bsp() {
                copy.version
            } else {
                copy.clocks.get(&task).copied().unwrap_or(copy.version)
            }
        };
        if clock(connection_id.task) < least {
            return Err(RequestRefusal::Change(
                "the copy lacks steps that were answered",
            ));
        }
        // Under SSP and ASP all workers start a view at the coordinator's next step; the replica
        // has no update of this view yet.
        let begins = !self.is_bsp() && copy.view < view.number;
        let clock = |task: TaskId| if begins { least } else { clock(task) };
        let next = clock(connection_id.task);
        let member = |&task: &TaskId| ShardMember {
            task,
            standing: if state.connected.contains_key(&task) {
                WorkerStatus::Joined
            } else {
                WorkerStatus::Awaited
            },
            clock: clock(task),
            push: None,
            covered: None,
            spare: Vec::new(),
            entered: view.number,
            answered: 0,
            read_at: copy.updates,
            parts: Vec::new(),
            outbox: None,
        };
        state.members = view.workers.iter().map(member).collect();
        for task in &view.workers {
            state.waiting.remove(task);
        }
        state.version = copy.version;
        state.updates = copy.updates;
        state.hold = copy.hold;
        state.tally.layout = view.layout;
        state.view = Some(Arc::new(view));
        state.tensors = Arc::new(RwLock::new(copy.tensors));
        state.phase = TensorPhase::Ready;
        self.follow(&mut state);
        self.notify();
        Ok(next)
    }
}
