//! Who waits for whom. One lock and one condition variable; every worker's connection thread calls in here and is blocked until
//! its answer is known.
//!
//! BSP: the step's gradients are summed in the order of ranks once all are in, whatever order they came in, so the result has
//! the same bits each time. SSP with staleness s (Ho et al., NIPS 2013): a push is applied at once, and answered once the worker
//! is at most s steps ahead of the slowest. ASP (Dean et al., NIPS 2012): applied and answered at once.
//!
//! Each gradient is a sum over examples and is scaled by 1 over the *global* batch in every mode: under SSP and ASP the pushes of
//! one step together move plain SGD as far as one BSP step does, however many workers there are.
//!
//! A worker departs once. In order (`Goodbye`) it does so only between steps, so it has pushed its last step to every shard; a
//! lost one may have pushed it to some shards only, and then the shards' versions differ, which the chief sees in its snapshot.
//! After a departure a step that all pushed is still completed; one that can no longer complete is interrupted.

use super::tensors::Tensors;
use crate::wire::hello::StepStats;
use muster_model::spec::Consistency;
use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::Duration;

/// A gradient as one worker pushed it, in the shard's local order.
#[derive(Debug)]
pub struct Push {
    pub gradients: Vec<f32>,
    pub stats: StepStats,
}

/// What a waiting worker is told. The buffer of its push comes back, to be used again.
#[derive(Debug)]
pub enum Answer {
    /// Go on with step `clock`. Under BSP the parameters are read from [`Exchange::tensors`], where nothing can change them before
    /// this worker pushes again; otherwise `buffer` holds a copy of them.
    Parameters {
        clock: u64,
        stats: StepStats,
        buffer: Vec<f32>,
        copied: bool,
    },
    Interrupted {
        version: u64,
        lost: bool,
        buffer: Vec<f32>,
    },
    Finished,
}

/// A request that the protocol does not allow now; the connection is closed and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("worker {rank} pushed step {pushed}, but its next step is {expected}")]
    StalePush {
        rank: u32,
        pushed: u64,
        expected: u64,
    },
    #[error("the shard has no parameters yet")]
    NotInitialised,
    #[error("the shard already has its parameters")]
    AlreadyInitialised,
    #[error("only the chief may do this")]
    NotChief,
    #[error("worker {0} is connected or has left; a revision's worker joins once")]
    RankTaken(u32),
}

/// How a worker stands to the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Awaited,
    Joined,
    Left,
    Lost,
}

/// How all workers together stand, for the shard's own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    pub joined: usize,
    pub left: usize,
    pub lost: usize,
    pub awaited: usize,
    pub finished: bool,
}

#[derive(Debug)]
struct State {
    initialised: bool,
    finished: bool,
    /// Steps applied under BSP.
    version: u64,
    /// Optimizer updates applied: steps under BSP, pushes otherwise.
    updates: u64,
    /// Next step of each worker.
    clocks: Vec<u64>,
    members: Vec<Member>,
    /// Of the present step; empty again as soon as it is applied.
    pushed: Vec<Option<Push>>,
    /// Buffers of applied pushes, until their worker's thread takes them back.
    spare: Vec<Vec<f32>>,
    /// Of completed steps under BSP, of applied pushes otherwise; the chief takes it with each answer.
    stats: StepStats,
}

/// The shard's shared state.
#[derive(Debug)]
pub struct Exchange {
    consistency: Consistency,
    grad_scale: f32,
    state: Mutex<State>,
    changed: Condvar,
    /// Locked after `state`, never before it.
    tensors: RwLock<Tensors>,
}

impl Exchange {
    /// `global_batch` in examples per step over all workers.
    #[must_use]
    pub fn new(
        tensors: Tensors,
        consistency: Consistency,
        workers: usize,
        global_batch: u32,
    ) -> Self {
        Self {
            consistency,
            grad_scale: 1.0 / global_batch as f32,
            state: Mutex::new(State {
                initialised: false,
                finished: false,
                version: 0,
                updates: 0,
                clocks: vec![0; workers],
                members: vec![Member::Awaited; workers],
                pushed: (0..workers).map(|_| None).collect(),
                spare: vec![Vec::new(); workers],
                stats: StepStats::default(),
            }),
            changed: Condvar::new(),
            tensors: RwLock::new(tensors),
        }
    }

    /// A worker joins; once per revision.
    ///
    /// # Errors
    /// [`Refusal::RankTaken`].
    pub fn join(&self, rank: usize) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.members[rank] != Member::Awaited {
            return Err(Refusal::RankTaken(rank as u32));
        }
        state.members[rank] = Member::Joined;
        self.changed.notify_all();
        Ok(())
    }

    /// A worker departs, in order or not.
    pub fn depart(&self, rank: usize, in_order: bool) {
        let mut state = self.lock();
        state.members[rank] = if in_order || state.finished {
            Member::Left
        } else {
            Member::Lost
        };
        self.changed.notify_all();
    }

    /// The chief gives the shard its content. `fill` receives the parts to fill: the parameters, then plane by plane the optimizer's
    /// state.
    ///
    /// # Errors
    /// A [`Refusal`], or what `fill` failed with.
    pub fn init<E: From<Refusal>>(
        &self,
        rank: usize,
        step: u64,
        updates: u64,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        if rank != 0 {
            return Err(Refusal::NotChief.into());
        }
        if self.lock().initialised {
            return Err(Refusal::AlreadyInitialised.into());
        }
        // The chief's one connection thread is the only one that comes here, so the state lock need not be held meanwhile.
        self.write_tensors(|tensors| tensors.fill_with(fill))?;
        let mut state = self.lock();
        state.initialised = true;
        state.version = step;
        state.updates = updates;
        state.clocks.fill(step);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until there are parameters to start with.
    #[must_use]
    pub fn pull(&self, rank: usize) -> Answer {
        let mut state = self.lock();
        loop {
            if state.finished {
                return Answer::Finished;
            }
            if state.departed() {
                return state.interrupted(self.consistency, Vec::new());
            }
            if state.initialised {
                return self.parameters(&mut state, rank, Vec::new());
            }
            state = self.wait(state);
        }
    }

    /// Takes the gradients of `clock` from `rank` and waits until the worker may go on.
    ///
    /// # Errors
    /// [`Refusal::StalePush`] for a step done already, done twice or not yet due; [`Refusal::NotInitialised`].
    pub fn push(&self, rank: usize, clock: u64, push: Push) -> Result<Answer, Refusal> {
        let mut state = self.lock();
        if !state.initialised {
            return Err(Refusal::NotInitialised);
        }
        if state.finished {
            return Ok(Answer::Finished);
        }
        if clock != state.clocks[rank] {
            return Err(Refusal::StalePush {
                rank: rank as u32,
                pushed: clock,
                expected: state.clocks[rank],
            });
        }
        state.clocks[rank] += 1;
        match self.consistency {
            Consistency::Bsp { .. } => Ok(self.push_bsp(state, rank, clock, push)),
            Consistency::Ssp { staleness, .. } => {
                Ok(self.push_stale(state, rank, push, u64::from(staleness)))
            }
            Consistency::Asp { .. } => Ok(self.push_stale(state, rank, push, u64::MAX)),
        }
    }

    /// Reads everything at one version: the clock, the updates applied, and the tensors by `read`.
    ///
    /// # Errors
    /// A [`Refusal`], or what `read` failed with.
    pub fn snapshot<E: From<Refusal>>(
        &self,
        rank: usize,
        read: impl FnOnce(u64, u64, &Tensors) -> Result<(), E>,
    ) -> Result<(), E> {
        if rank != 0 {
            return Err(Refusal::NotChief.into());
        }
        let state = self.lock();
        if !state.initialised {
            return Err(Refusal::NotInitialised.into());
        }
        let (version, updates) = (state.next_step(self.consistency), state.updates);
        // Held while the state lock is let go: updates wait for the reader, others may still join, push and depart.
        let tensors = self.tensors();
        drop(state);
        read(version, updates, &tensors)
    }

    /// The chief ends training: whoever waits is told so.
    ///
    /// # Errors
    /// [`Refusal::NotChief`].
    pub fn finish(&self, rank: usize) -> Result<(), Refusal> {
        if rank != 0 {
            return Err(Refusal::NotChief);
        }
        self.lock().finished = true;
        self.changed.notify_all();
        Ok(())
    }

    /// The tensors, for reading.
    pub fn tensors(&self) -> RwLockReadGuard<'_, Tensors> {
        self.tensors.read().expect("no update has panicked")
    }

    /// Waits up to `limit` for a change of membership or state, then tells how all stand.
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
                .filter(|&&member| member == which)
                .count()
        };
        Membership {
            joined: count(Member::Joined),
            left: count(Member::Left),
            lost: count(Member::Lost),
            awaited: count(Member::Awaited),
            finished: state.finished,
        }
    }

    fn push_bsp(
        &self,
        mut state: MutexGuard<'_, State>,
        rank: usize,
        clock: u64,
        push: Push,
    ) -> Answer {
        state.pushed[rank] = Some(push);
        if state.pushed.iter().all(Option::is_some) {
            self.apply_all(&mut state);
            self.changed.notify_all();
        }
        loop {
            if state.version > clock {
                let buffer = std::mem::take(&mut state.spare[rank]);
                return self.parameters(&mut state, rank, buffer);
            }
            if state.finished {
                return Answer::Finished;
            }
            if state.cannot_complete() {
                let buffer = state.pushed[rank]
                    .take()
                    .map(|push| push.gradients)
                    .unwrap_or_default();
                return state.interrupted(self.consistency, buffer);
            }
            state = self.wait(state);
        }
    }

    fn apply_all(&self, state: &mut State) {
        let update = state.updates;
        let mut gradients: Vec<&mut [f32]> = Vec::with_capacity(state.pushed.len());
        for push in state.pushed.iter_mut().flatten() {
            state.stats.add(push.stats);
            gradients.push(&mut push.gradients);
        }
        self.write_tensors(|tensors| tensors.update(update, &mut gradients, self.grad_scale));
        for (pushed, spare) in state.pushed.iter_mut().zip(&mut state.spare) {
            *spare = pushed.take().map(|push| push.gradients).unwrap_or_default();
        }
        state.updates += 1;
        state.version += 1;
    }

    fn push_stale(
        &self,
        mut state: MutexGuard<'_, State>,
        rank: usize,
        mut push: Push,
        staleness: u64,
    ) -> Answer {
        let update = state.updates;
        self.write_tensors(|tensors| {
            tensors.update(update, &mut [&mut push.gradients], self.grad_scale)
        });
        state.updates += 1;
        state.stats.add(push.stats);
        self.changed.notify_all();
        loop {
            if state.finished {
                return Answer::Finished;
            }
            if state.departed() {
                return state.interrupted(self.consistency, push.gradients);
            }
            let slowest = state.clocks.iter().min().expect("a job has a worker");
            if state.clocks[rank] - slowest <= staleness {
                return self.parameters(&mut state, rank, push.gradients);
            }
            state = self.wait(state);
        }
    }

    fn parameters(&self, state: &mut State, rank: usize, mut buffer: Vec<f32>) -> Answer {
        let copied = !self.consistency.is_bulk_synchronous();
        if copied {
            // A copy, lest a worker that reads slowly holds up everyone else's updates.
            buffer.clear();
            buffer.extend_from_slice(self.tensors().parameters());
        }
        Answer::Parameters {
            clock: state.clocks[rank],
            stats: if rank == 0 {
                state.stats.take()
            } else {
                StepStats::default()
            },
            buffer,
            copied,
        }
    }

    fn write_tensors<R>(&self, change: impl FnOnce(&mut Tensors) -> R) -> R {
        change(&mut self.tensors.write().expect("no update has panicked"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no connection has panicked with the lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .expect("no connection has panicked with the lock")
    }
}

impl State {
    fn departed(&self) -> bool {
        self.members
            .iter()
            .any(|m| matches!(m, Member::Left | Member::Lost))
    }

    /// BSP: some worker has departed without having pushed the present step.
    fn cannot_complete(&self) -> bool {
        self.members
            .iter()
            .zip(&self.pushed)
            .any(|(member, push)| matches!(member, Member::Left | Member::Lost) && push.is_none())
    }

    /// The step that training continues from: BSP, the version; otherwise the chief's clock.
    fn next_step(&self, consistency: Consistency) -> u64 {
        match consistency {
            Consistency::Bsp { .. } => self.version,
            Consistency::Ssp { .. } | Consistency::Asp { .. } => self.clocks[0],
        }
    }

    fn interrupted(&self, consistency: Consistency, buffer: Vec<f32>) -> Answer {
        Answer::Interrupted {
            version: self.next_step(consistency),
            lost: self.members.contains(&Member::Lost),
            buffer,
        }
    }
}
