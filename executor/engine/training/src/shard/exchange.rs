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

use super::follower::Follower;
use super::lent::Lent;
use super::outbox::Spares;
use super::parts::Parted;
use super::recipe::Recipe;
use super::serve::Identity;
use super::state::{Phase, Standing, State};
use super::tensors::Tensors;
use super::words::{Answer, Membership, Refusal, Seat};
use muster_comm::parts::Order;
use muster_comm::wire::hello::HALF_DONE;
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval at which a waiting worker checks the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shared state of a shard.
#[derive(Debug)]
pub struct Exchange {
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
    pub(super) order: Order,
    /// Free buffers for partitions.
    pub(super) spares: Arc<Spares>,
    /// Snapshot buffer for checkpoints.
    pub(super) lent: Lent,
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl Exchange {
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
            order: Order::default(),
            spares: Arc::default(),
            lent: Lent::default(),
            state: Mutex::new(State::new(recipe.tensors(
                &[],
                consistency.is_bulk_synchronous() && consistency.backup() == 0,
            ))),
            recipe,
            changed: Condvar::new(),
        }
    }

    /// Adds replication. `identity` is this shard's.
    #[must_use]
    pub fn with_follower(mut self, identity: Identity) -> Self {
        self.lock().follower = Some(Follower::of(identity));
        self.is_replicated = true;
        self
    }

    /// Sets the order in which partitions are sent.
    #[must_use]
    pub fn sending(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Creates the empty exchange of a lost shard, hosted by this process.
    pub(super) fn heir_of(&self, lost: TaskId, identity: &Identity) -> Self {
        let identity = Identity {
            task_id: lost,
            ..identity.clone()
        };
        let encoded = self.answers_encoded();
        let heir = Self {
            me: lost,
            host: self.host,
            consistency: self.consistency,
            grad_scale: self.grad_scale,
            clips: self.clips,
            is_replicated: true,
            order: self.order,
            spares: Arc::default(),
            lent: Lent::default(),
            state: Mutex::new(State::new(self.recipe.tensors(&[], encoded))),
            recipe: self.recipe.clone(),
            changed: Condvar::new(),
        };
        heir.with_follower(identity)
    }

    pub(super) fn is_heir(&self) -> bool {
        self.me != self.host
    }

    /// Whether `task` is the coordinator.
    pub(super) fn is_led_by(&self, task: TaskId) -> bool {
        self.lock().is_chief(task)
    }

    /// Admits a worker to its place in the view, or to the waiting workers.
    ///
    /// # Errors
    /// [`Refusal::Taken`]; [`Refusal::NotChief`] when there is another one.
    pub fn join(&self, task: TaskId, as_chief: bool) -> Result<Seat, Refusal> {
        let mut state = self.lock();
        if as_chief && *state.chief.get_or_insert(task) != task {
            return Err(Refusal::NotChief);
        }
        if let Some(member) = state.member(task) {
            if member.standing != Standing::Awaited {
                return Err(Refusal::Taken(task));
            }
            member.standing = Standing::Joined;
        }
        state.connections += 1;
        let connection = state.connections;
        // A waiting worker that connects again has abandoned its previous connection and request.
        state.connected.insert(task, connection);
        state.waiting.remove(&task);
        self.changed.notify_all();
        Ok(Seat { task, connection })
    }

    /// Records that a worker has departed, in order or not.
    pub fn depart(&self, seat: Seat, in_order: bool) {
        let mut state = self.lock();
        if !state.is_seated(seat) {
            return;
        }
        let in_order = in_order || state.finished;
        state.connected.remove(&seat.task);
        state.waiting.remove(&seat.task);
        state.forget_owed(|_, task| task == seat.task);
        if let Some(member) = state.member(seat.task) {
            member.outbox = None;
        }
        if let Some(member) = state.member(seat.task)
            && member.standing != Standing::Dropped
        {
            member.standing = if in_order {
                Standing::Left
            } else {
                Standing::Lost
            };
        }
        if state.is_chief(seat.task) {
            state.chief_lost = Some(!in_order);
        }
        self.follow(&mut state);
        self.changed.notify_all();
    }

    /// Coordinator: initialises the shard. `fill` receives the parts to fill: the parameters, then
    /// plane by plane the optimizer's state.
    ///
    /// # Errors
    /// A [`Refusal`], or the error of `fill`.
    pub fn init<E: From<Refusal>>(
        &self,
        seat: Seat,
        step: u64,
        updates: u64,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let tensors = {
            let state = self.lock();
            if !state.is_chief(seat.task) {
                return Err(Refusal::NotChief.into());
            }
            if state.view.is_none() {
                return Err(Refusal::Change("there is none yet").into());
            }
            if state.phase != Phase::Empty {
                return Err(Refusal::AlreadyInitialised.into());
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
        state.phase = Phase::Ready;
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
    /// [`Refusal::Stranger`] when the view does not contain this worker; [`Refusal::Replaced`];
    /// [`Refusal::NotAdopted`].
    pub fn pull(&self, seat: Seat, number: u64) -> Result<Answer, Refusal> {
        let mut state = self.adopted()?;
        if !state.is_seated(seat) {
            return Err(Refusal::Replaced(seat.task));
        }
        let pending = state.pending.as_ref();
        let next = pending.map_or(0, |(_, change)| change.view.number);
        let is_member = state.member(seat.task).is_some();
        let wanted = match number {
            // Under BSP the step before the next view waits for the gradients of each member.
            0 if self.is_bsp() && is_member => 0,
            // Otherwise a worker without a view enters the next one at once.
            0 => next,
            known => known,
        };
        if let Some(member) = state.member(seat.task) {
            member.entered = member.entered.max(wanted);
            self.follow(&mut state);
        } else {
            state.waiting.insert(seat.task);
        }
        self.changed.notify_all();
        loop {
            if !state.is_seated(seat) {
                return Err(Refusal::Replaced(seat.task));
            }
            if state.finished {
                return Ok(Answer::Finished);
            }
            if let Some(lost) = state.chief_lost {
                return Ok(self.interrupted(&state, lost, Vec::new()));
            }
            let (ready, present) = (state.phase == Phase::Ready, state.number());
            match state.member(seat.task) {
                Some(_) if ready && present >= wanted => {
                    let view = state.view.clone();
                    return Ok(self.parameters(&mut state, seat, Vec::new(), view, None));
                }
                None if number > 0 && present >= number => {
                    return Err(Refusal::Stranger(seat.task));
                }
                _ => {}
            }
            if let Some((_, change)) = &state.pending
                && change.view.number > number
                && number > 0
            {
                let (view, buffer) = (Arc::new(change.view.clone()), Vec::new());
                return Ok(Answer::Moved { view, buffer });
            }
            state = self.wait(state);
        }
    }

    /// Calls `read` with the version, the number of updates and the tensors, all at one version.
    /// Where workers send residuals by themselves, waits for them, at most `within`.
    ///
    /// # Errors
    /// A [`Refusal`], or the error of `read`.
    pub fn snapshot<E: From<Refusal>>(
        &self,
        seat: Seat,
        within: Duration,
        read: impl FnOnce(u64, u64, &Tensors) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief.into());
        }
        while matches!(state.phase, Phase::Moving { .. }) && !state.broken {
            state = self.wait(state);
        }
        if state.phase != Phase::Ready {
            return Err(Refusal::NotInitialised.into());
        }
        let state = self.hear_all(state, within);
        let version = if state.parted.as_ref().is_some_and(Parted::is_half_done) {
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
    /// [`Refusal::NotChief`].
    pub fn finish(&self, seat: Seat) -> Result<(), Refusal> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        state.finished = true;
        self.changed.notify_all();
        Ok(())
    }

    /// Coordinator: returns the workers that have loaded their data and wait for admission.
    ///
    /// # Errors
    /// [`Refusal::NotChief`].
    pub fn guests(&self, seat: Seat) -> Result<Vec<TaskId>, Refusal> {
        let state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
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
            left: count(Standing::Left),
            lost: count(Standing::Lost),
            awaited: count(Standing::Awaited),
            finished: state.finished,
            retired: state.phase == Phase::Retired && state.handed_over,
            broken: state.broken,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no connection has panicked with the lock")
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Like [`Self::wait`], but returns after [`LOOK_EVERY`] at the latest.
    pub(super) fn wait_a_while<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, LOOK_EVERY);
        waited.expect("no connection has panicked with the lock").0
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .expect("no connection has panicked with the lock")
    }
}

pub(super) fn moved(state: &State, buffer: Vec<f32>) -> Answer {
    let view = state.view.clone().expect("a step was pushed under one");
    Answer::Moved { view, buffer }
}
