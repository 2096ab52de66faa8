//! Synchronisation of the workers. There is one lock and one condition variable. Each worker's
//! connection thread calls in here and blocks until its answer is known.
//!
//! - BSP: the step's gradients are summed in the order of ranks once all have arrived, so the
//!   result has the same bits each time.
//! - SSP with staleness s (Ho et al., NIPS 2013): a push is applied at once. It is answered when
//!   the worker is at most s steps ahead of the slowest.
//! - ASP (Dean et al., NIPS 2012): a push is applied and answered at once.
//!
//! In every mode a gradient is a sum over examples, scaled by 1 over the *global* batch. So the
//! pushes of one step under SSP and ASP together move plain SGD as far as one BSP step, for any
//! number of workers.
//!
//! The view states the members, and the coordinator changes it ([`super::change`]). Only the
//! coordinator is notified of a departed worker, as soon as its own answer depends on that worker.
//! It continues without the worker or ends the job. If the coordinator departs, all others are
//! interrupted.

use super::messages::{ConnectionId, Membership, RequestRefusal, ShardAnswer};
use super::outbox::ShardBufferPool;
use super::partitions::PartitionedStep;
use super::recipe::Recipe;
use super::replication::ReplicaSender;
use super::serve::Identity;
use super::snapshot_buffer::SnapshotBuffer;
use super::state::{ShardState, TensorPhase, WorkerStatus};
use super::tensors::Tensors;
use muster_comm::partitions::PartitionOrder;
use muster_comm::wire::metadata::HALF_DONE;
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval at which a waiting worker checks the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shared state of a shard.
#[derive(Debug)]
pub struct ShardExchange {
    /// This shard.
    pub(super) me: TaskId,
    /// Task whose process hosts it: its own, or the replica holder.
    pub(super) host: TaskId,
    pub(super) consistency: Consistency,
    pub(super) recipe: Recipe,
    pub(super) grad_scale: f32,
    /// Whether a step waits for the coordinator's clip factor.
    pub(super) clips: bool,
    /// Whether this shard has a replica.
    pub(super) is_replicated: bool,
    /// Order in which partitions of parameters are sent.
    pub(super) order: PartitionOrder,
    /// Free buffers for partitions.
    pub(super) spares: Arc<ShardBufferPool>,
    /// Snapshot buffer for checkpoints.
    pub(super) lent: SnapshotBuffer,
    state: Mutex<ShardState>,
    pub(super) changed: Condvar,
}

impl ShardExchange {
    /// Creates the empty exchange of shard `me`. `global_batch` is the number of examples per step
    /// over all workers.
    #[must_use]
    pub fn new(me: TaskId, recipe: Recipe, consistency: Consistency, global_batch: u32) -> Self {
        Self {
            me,
            host: me,
            consistency,
            grad_scale: 1.0 / global_batch as f32,
            clips: false,
            is_replicated: false,
            order: PartitionOrder::default(),
            spares: Arc::default(),
            lent: SnapshotBuffer::default(),
            state: Mutex::new(ShardState::new(recipe.tensors(
                &[],
                consistency.is_bulk_synchronous() && consistency.backup() == 0,
            ))),
            recipe,
            changed: Condvar::new(),
        }
    }

    /// Adds replication. `identity` is this shard's.
    #[must_use]
    pub fn with_replication(mut self, identity: Identity) -> Self {
        self.lock().replica_sender = Some(ReplicaSender::of(identity));
        self.is_replicated = true;
        self
    }

    /// Sets the order in which partitions are sent.
    #[must_use]
    pub fn sending(mut self, order: PartitionOrder) -> Self {
        self.order = order;
        self
    }

    /// Creates the empty exchange of a lost shard, hosted by this process.
    pub(super) fn promoted_exchange(&self, lost: TaskId, identity: &Identity) -> Self {
        let identity = Identity {
            task_id: lost,
            ..identity.clone()
        };
        let encoded = self.answers_encoded();
        let promoted = Self {
            me: lost,
            host: self.host,
            consistency: self.consistency,
            grad_scale: self.grad_scale,
            clips: self.clips,
            is_replicated: true,
            order: self.order,
            spares: Arc::default(),
            lent: SnapshotBuffer::default(),
            state: Mutex::new(ShardState::new(self.recipe.tensors(&[], encoded))),
            recipe: self.recipe.clone(),
            changed: Condvar::new(),
        };
        promoted.with_replication(identity)
    }

    pub(super) fn is_promoted(&self) -> bool {
        self.me != self.host
    }

    /// Whether `task` is the coordinator.
    pub(super) fn is_led_by(&self, task: TaskId) -> bool {
        self.lock().is_chief(task)
    }

    /// Admits a worker to its place in the view, or to the waiting workers.
    ///
    /// # Errors
    /// [`RequestRefusal::Taken`]; [`RequestRefusal::NotChief`] when there is another one.
    pub fn join(&self, task: TaskId, as_chief: bool) -> Result<ConnectionId, RequestRefusal> {
        let mut state = self.lock();
        if as_chief && *state.chief.get_or_insert(task) != task {
            return Err(RequestRefusal::NotChief);
        }
        if let Some(member) = state.member(task) {
            if member.standing != WorkerStatus::Awaited {
                return Err(RequestRefusal::Taken(task));
            }
            member.standing = WorkerStatus::Joined;
        }
        state.connections += 1;
        let connection = state.connections;
        // A waiting worker that connects again has abandoned its previous connection and request.
        state.connected.insert(task, connection);
        state.waiting.remove(&task);
        self.changed.notify_all();
        Ok(ConnectionId { task, connection })
    }

    /// Records that a worker has departed, in order or not.
    pub fn depart(&self, connection_id: ConnectionId, in_order: bool) {
        let mut state = self.lock();
        if !state.is_seated(connection_id) {
            return;
        }
        let in_order = in_order || state.finished;
        state.connected.remove(&connection_id.task);
        state.waiting.remove(&connection_id.task);
        state.forget_owed(|_, task| task == connection_id.task);
        if let Some(member) = state.member(connection_id.task) {
            member.outbox = None;
        }
        if let Some(member) = state.member(connection_id.task)
            && member.standing != WorkerStatus::Dropped
        {
            member.standing = if in_order {
                WorkerStatus::Left
            } else {
                WorkerStatus::Lost
            };
        }
        if state.is_chief(connection_id.task) {
            state.chief_lost = Some(!in_order);
        }
        self.follow(&mut state);
        self.changed.notify_all();
    }

    /// Coordinator: initialises the shard. `fill` receives the parts to fill: the parameters, then
    /// plane by plane the optimizer's state.
    ///
    /// # Errors
    /// A [`RequestRefusal`], or the error of `fill`.
    pub fn init<E: From<RequestRefusal>>(
        &self,
        connection_id: ConnectionId,
        step: u64,
        updates: u64,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let tensors = {
            let state = self.lock();
            if !state.is_chief(connection_id.task) {
                return Err(RequestRefusal::NotChief.into());
            }
            if state.view.is_none() {
                return Err(RequestRefusal::Change("there is none yet").into());
            }
            if state.phase != TensorPhase::Empty {
                return Err(RequestRefusal::AlreadyInitialised.into());
            }
            Arc::clone(&state.tensors)
        };
        // Only the coordinator's connection thread calls this, so the state lock is not needed
        // meanwhile.
        tensors
            .write()
            .expect("no update has panicked")
            .fill_with(fill)?;
        let mut state = self.lock();
        state.phase = TensorPhase::Ready;
        state.version = step;
        state.updates = updates;
        for member in &mut state.members {
            member.clock = step;
        }
        self.follow(&mut state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for parameters under a view of at least `number`; with 0, under the first view that
    /// contains the worker.
    ///
    /// # Errors
    /// [`RequestRefusal::Stranger`] when the view does not contain this worker;
    /// [`RequestRefusal::Replaced`]; [`RequestRefusal::NotAdopted`].
    pub fn pull(
        &self,
        connection_id: ConnectionId,
        number: u64,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let mut state = self.adopted()?;
        if !state.is_seated(connection_id) {
            return Err(RequestRefusal::Replaced(connection_id.task));
        }
        let pending = state.pending.as_ref();
        let next = pending.map_or(0, |(_, change)| change.view.number);
        let is_member = state.member(connection_id.task).is_some();
        let wanted = match number {
            // Under BSP the step before the next view waits for the gradients of each member.
            0 if self.is_bsp() && is_member => 0,
            // Otherwise a worker without a view enters the next one at once.
            0 => next,
            known => known,
        };
        if let Some(member) = state.member(connection_id.task) {
            member.entered = member.entered.max(wanted);
            self.follow(&mut state);
        } else {
            state.waiting.insert(connection_id.task);
        }
        self.changed.notify_all();
        loop {
            if !state.is_seated(connection_id) {
                return Err(RequestRefusal::Replaced(connection_id.task));
            }
            if state.finished {
                return Ok(ShardAnswer::Finished);
            }
            if let Some(lost) = state.chief_lost {
                return Ok(self.interrupted(&state, lost, Vec::new()));
            }
            let (ready, present) = (state.phase == TensorPhase::Ready, state.number());
            match state.member(connection_id.task) {
                Some(_) if ready && present >= wanted => {
                    let view = state.view.clone();
                    return Ok(self.parameters(&mut state, connection_id, Vec::new(), view, None));
                }
                None if number > 0 && present >= number => {
                    return Err(RequestRefusal::Stranger(connection_id.task));
                }
                _ => {}
            }
            if let Some((_, change)) = &state.pending
                && change.view.number > number
                && number > 0
            {
                let (view, buffer) = (Arc::new(change.view.clone()), Vec::new());
                return Ok(ShardAnswer::Moved { view, buffer });
            }
            state = self.wait(state);
        }
    }

    /// Calls `read` with the version, the number of updates and the tensors, all at one version.
    /// Where workers send residuals by themselves, waits for them, at most `within`.
    ///
    /// # Errors
    /// A [`RequestRefusal`], or the error of `read`.
    pub fn snapshot<E: From<RequestRefusal>>(
        &self,
        connection_id: ConnectionId,
        within: Duration,
        read: impl FnOnce(u64, u64, &Tensors) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief.into());
        }
        while matches!(state.phase, TensorPhase::Moving { .. }) && !state.broken {
            state = self.wait(state);
        }
        if state.phase != TensorPhase::Ready {
            return Err(RequestRefusal::NotInitialised.into());
        }
        let state = self.hear_all(state, within);
        let version = if state
            .parted
            .as_ref()
            .is_some_and(PartitionedStep::is_half_done)
        {
            HALF_DONE
        } else {
            state.next_step(self.consistency)
        };
        let updates = state.updates;
        // The tensors stay locked without the state lock. Updates wait for the reader, but workers
        // can join, push and depart.
        let tensors = Arc::clone(&state.tensors);
        let tensors = tensors.read().expect("no update has panicked");
        drop(state);
        read(version, updates, &tensors)
    }

    /// Coordinator: ends training for all waiting workers.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub fn finish(&self, connection_id: ConnectionId) -> Result<(), RequestRefusal> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        state.finished = true;
        self.changed.notify_all();
        Ok(())
    }

    /// Coordinator: returns the workers that have loaded their data and wait for admission.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub fn guests(&self, connection_id: ConnectionId) -> Result<Vec<TaskId>, RequestRefusal> {
        let state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        Ok(state.waiting.iter().copied().collect())
    }

    /// Waits up to `limit` for a change of membership or state, then returns the membership.
    #[must_use]
    pub fn membership(&self, limit: Duration) -> Membership {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout(state, limit)
            .expect("no connection has panicked with the lock");
        let count = |which| {
            state
                .members
                .iter()
                .filter(|member| member.standing == which)
                .count()
        };
        Membership {
            joined: state.inside().count(),
            left: count(WorkerStatus::Left),
            lost: count(WorkerStatus::Lost),
            awaited: count(WorkerStatus::Awaited),
            finished: state.finished,
            retired: state.phase == TensorPhase::Retired && state.handed_over,
            broken: state.broken,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.state
            .lock()
            .expect("no connection has panicked with the lock")
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Like [`Self::wait`], but returns after [`LOOK_EVERY`] at the latest.
    pub(super) fn wait_a_while<'a>(
        &self,
        state: MutexGuard<'a, ShardState>,
    ) -> MutexGuard<'a, ShardState> {
        let waited = self.changed.wait_timeout(state, LOOK_EVERY);
        waited.expect("no connection has panicked with the lock").0
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, ShardState>) -> MutexGuard<'a, ShardState> {
        self.changed
            .wait(state)
            .expect("no connection has panicked with the lock")
    }
}

pub(super) fn moved(state: &ShardState, buffer: Vec<f32>) -> ShardAnswer {
    let view = state.view.clone().expect("a step was pushed under one");
    ShardAnswer::Moved { view, buffer }
}
