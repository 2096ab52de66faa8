//! Parameters and optimizer state, to and from workers.

use super::super::messages::{ConnectionId, RequestRefusal, ShardAnswer};
use super::super::state::ShardPhase;
use super::super::tensors::Tensors;
use super::ShardExchange;
use muster_comm::wire::metadata::HALF_DONE;
use muster_comm::wire::snapshot::SnapshotHead;
use std::sync::Arc;
use std::time::Duration;

impl ShardExchange {
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
            let state = self.lock_as_chief(connection_id)?;
            if state.view.is_none() {
                return Err(RequestRefusal::Change("there is none yet").into());
            }
            if !state.phase.is_empty() {
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
        state.phase = ShardPhase::Ready;
        state.version = step;
        state.updates = updates;
        for member in &mut state.members {
            member.clock = step;
        }
        self.rules.follow(&mut state);
        self.notify();
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
        if !state.connected.is_seated(connection_id) {
            return Err(RequestRefusal::Replaced(connection_id.task));
        }
        let task = connection_id.task;
        let wanted = if number == 0 {
            self.rules.model.view_to_pull(&state, task)
        } else {
            number
        };
        if let Some(member) = state.member(task) {
            member.entered = member.entered.max(wanted);
            self.rules.follow(&mut state);
        } else {
            state.connected.waiting.insert(task);
        }
        self.notify();
        loop {
            if !state.connected.is_seated(connection_id) {
                return Err(RequestRefusal::Replaced(connection_id.task));
            }
            if let Some(answer) = self.rules.after_end(&state, &mut Vec::new()) {
                return Ok(answer);
            }
            let present = state.number();
            if !state.has_member(task) {
                if number > 0 && present >= number {
                    return Err(RequestRefusal::Stranger(task));
                }
            } else if state.phase.is_ready() && present >= wanted {
                let view = state.view.clone();
                let buffer = Vec::new();
                return Ok(self.rules.parameters(&mut state, task, buffer, view, None));
            }
            if let Some(next) = state.next_view()
                && next.number > number
                && number > 0
            {
                let (view, buffer) = (Arc::new(next.clone()), Vec::new());
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
        let mut state = self.lock_as_chief(connection_id)?;
        while state.phase.is_moving() && !state.ending.broken {
            state = self.wait(state);
        }
        if !state.phase.is_ready() {
            return Err(RequestRefusal::NotInitialised.into());
        }
        let state = self.hear_all(state, within);
        let version = if state.step.is_half_done() {
            HALF_DONE
        } else {
            self.rules.model.next_step(&state)
        };
        let updates = state.updates;
        // The tensors stay locked without the state lock. Updates wait for the reader, but workers
        // can join, push and depart.
        let tensors = Arc::clone(&state.tensors);
        let tensors = tensors.read().expect("no update has panicked");
        drop(state);
        read(version, updates, &tensors)
    }

    /// Copies the state at one version into the snapshot buffer. Returns the version, and the
    /// header for the coordinator. `within` as in [`Self::snapshot`].
    ///
    /// # Errors
    /// A [`RequestRefusal`].
    pub(in crate::shard) fn lend(
        &self,
        connection_id: ConnectionId,
        within: Duration,
    ) -> Result<(u64, SnapshotHead), RequestRefusal> {
        let mut lent = None;
        self.snapshot(connection_id, within, |version, updates, tensors| {
            let count = self.lent.copy(version, tensors);
            lent = Some((version, SnapshotHead { updates, count }));
            Ok::<(), RequestRefusal>(())
        })?;
        Ok(lent.expect("it was read"))
    }
}
