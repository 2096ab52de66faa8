//! Synchronisation of the workers. There is one lock and one condition variable. Each worker's
//! connection thread calls in here and blocks until its answer is known.
//!
//! The consistency model ([`super::rules`]) decides when a push is applied, and when its worker may
//! continue. In every model a gradient is a sum over examples, scaled by 1 over the *global* batch.
//!
//! The view states the members, and the coordinator changes it ([`change`]). Only the
//! coordinator is notified of a departed worker, as soon as its own answer depends on that worker.
//! It continues without the worker or ends the job. If the coordinator departs, all others are
//! interrupted.

mod change;
mod consistent_snapshot;
mod content;
mod failover;
mod local_aggregation;
mod partitions;
mod push;
mod residuals;

pub use partitions::GradientPartition;

use super::identity::Identity;
use super::messages::{ConnectionId, Membership, RequestRefusal, ShardAnswer};
use super::recipe::Recipe;
use super::replication::ReplicaSender;
use super::rules::{ShardRules, WaitingWorker, model_of};
use super::snapshot_buffer::SnapshotBuffer;
use super::state::{ShardState, WorkerStatus};
use muster_comm::partitions::PartitionOrder;
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval at which a waiting worker checks the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shared state of a shard.
#[derive(Debug)]
pub struct ShardExchange {
    pub(super) rules: ShardRules,
    /// Order in which partitions of parameters are sent.
    pub(super) order: PartitionOrder,
    /// Snapshot buffer for checkpoints.
    pub(super) lent: SnapshotBuffer,
    state: Mutex<ShardState>,
    changed: Condvar,
}

impl ShardExchange {
    /// Creates the empty exchange of shard `me`. `global_batch` is the number of examples per step
    /// over all workers.
    #[must_use]
    pub fn new(me: TaskId, recipe: Recipe, consistency: Consistency, global_batch: u32) -> Self {
        Self::with_rules(ShardRules {
            me,
            host: me,
            model: model_of(consistency),
            recipe,
            grad_scale: 1.0 / global_batch as f32,
            clips: false,
            is_replicated: false,
            spares: Arc::default(),
        })
    }

    fn with_rules(rules: ShardRules) -> Self {
        Self {
            order: PartitionOrder::default(),
            lent: SnapshotBuffer::default(),
            state: Mutex::new(rules.empty_state()),
            rules,
            changed: Condvar::new(),
        }
    }

    /// Adds replication. `identity` is this shard's.
    #[must_use]
    pub fn with_replication(mut self, identity: Identity) -> Self {
        self.lock().replica_sender = Some(ReplicaSender::of(identity));
        self.rules.is_replicated = true;
        self
    }

    /// Sets the order in which partitions are sent.
    #[must_use]
    pub fn sending(mut self, order: PartitionOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets whether the coordinator clips the gradients.
    #[must_use]
    pub fn clipped(mut self, clips: bool) -> Self {
        self.rules.clips = clips;
        self
    }

    /// Creates the empty exchange of a lost shard, hosted by this process.
    pub(super) fn promoted_exchange(&self, lost: TaskId, identity: &Identity) -> Self {
        let identity = Identity {
            task_id: lost,
            ..identity.clone()
        };
        Self::with_rules(self.rules.promoted(lost))
            .sending(self.order)
            .with_replication(identity)
    }

    /// Returns the id of this shard.
    pub(super) fn me(&self) -> TaskId {
        self.rules.me
    }

    /// Whether `task` is the coordinator.
    pub(super) fn is_led_by(&self, task: TaskId) -> bool {
        self.lock().is_chief(task)
    }

    /// Whether another process has replaced this shard, so that it must not answer workers.
    pub(super) fn is_superseded(&self) -> bool {
        self.lock().ending.superseded
    }

    /// Returns messages on replicas since the last call.
    pub(super) fn take_notes(&self) -> Vec<String> {
        let mut state = self.lock();
        let replica_sender = state.replica_sender.as_mut();
        replica_sender.map_or_else(Vec::new, ReplicaSender::take_notes)
    }

    /// Admits a worker to its place in the view, or to the waiting workers.
    ///
    /// # Errors
    /// [`RequestRefusal::Taken`]; [`RequestRefusal::NotChief`] when there is another one.
    pub fn join(&self, task: TaskId, as_chief: bool) -> Result<ConnectionId, RequestRefusal> {
        let mut state = self.lock();
        if as_chief && *state.connected.chief.get_or_insert(task) != task {
            return Err(RequestRefusal::NotChief);
        }
        if let Some(member) = state.member(task) {
            if member.standing != WorkerStatus::Awaited {
                return Err(RequestRefusal::Taken(task));
            }
            member.standing = WorkerStatus::Joined;
        }
        let connection_id = state.connected.add(task);
        self.notify();
        Ok(connection_id)
    }

    /// Records that a worker has departed, in order or not.
    pub fn depart(&self, connection_id: ConnectionId, in_order: bool) {
        let mut state = self.lock();
        let task = connection_id.task;
        if !state.connected.is_seated(connection_id) {
            return;
        }
        let in_order = in_order || state.ending.finished;
        state.connected.remove(task);
        state.owed.forget(task);
        if let Some(member) = state.member(task) {
            member.outbox = None;
            if member.is_counted() {
                member.standing = if in_order {
                    WorkerStatus::Left
                } else {
                    WorkerStatus::Lost
                };
            }
        }
        if state.is_chief(task) {
            state.ending.chief_lost = Some(!in_order);
        }
        self.rules.follow(&mut state);
        self.notify();
    }

    /// Coordinator: ends training for all waiting workers.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub fn finish(&self, connection_id: ConnectionId) -> Result<(), RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        state.ending.finished = true;
        self.notify();
        Ok(())
    }

    /// Coordinator: returns the workers that have loaded their data and wait for admission.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub fn guests(&self, connection_id: ConnectionId) -> Result<Vec<TaskId>, RequestRefusal> {
        let state = self.lock_as_chief(connection_id)?;
        Ok(state.connected.waiting.iter().copied().collect())
    }

    /// Waits up to `limit` for a change of membership or state, then returns the membership.
    #[must_use]
    pub fn membership(&self, limit: Duration) -> Membership {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout(state, limit)
            .expect("no connection has panicked with the lock");
        Membership {
            joined: state.connected.inside(),
            left: state.count(WorkerStatus::Left),
            lost: state.count(WorkerStatus::Lost),
            awaited: state.count(WorkerStatus::Awaited),
            finished: state.ending.finished,
            retired: state.phase.is_retired() && state.handed_over,
            broken: state.ending.broken,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.state
            .lock()
            .expect("no connection has panicked with the lock")
    }

    /// Returns the state to the coordinator.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`] to another worker.
    fn lock_as_chief(
        &self,
        connection_id: ConnectionId,
    ) -> Result<MutexGuard<'_, ShardState>, RequestRefusal> {
        let state = self.lock();
        if state.is_chief(connection_id.task) {
            Ok(state)
        } else {
            Err(RequestRefusal::NotChief)
        }
    }

    /// Waits for the answer to a worker.
    fn answer(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        mut waiting: WaitingWorker,
    ) -> ShardAnswer {
        let (rules, model) = (&self.rules, &self.rules.model);
        loop {
            if let Some(answer) = model.answer(rules, &mut state, &mut waiting) {
                return answer;
            }
            state = self.wait_a_while(state);
        }
    }

    fn notify(&self) {
        self.changed.notify_all();
    }

    /// Like [`Self::wait`], but returns after [`LOOK_EVERY`] at the latest.
    fn wait_a_while<'a>(&self, state: MutexGuard<'a, ShardState>) -> MutexGuard<'a, ShardState> {
        let waited = self.changed.wait_timeout(state, LOOK_EVERY);
        waited.expect("no connection has panicked with the lock").0
    }

    fn wait<'a>(&self, state: MutexGuard<'a, ShardState>) -> MutexGuard<'a, ShardState> {
        self.changed
            .wait(state)
            .expect("no connection has panicked with the lock")
    }
}
