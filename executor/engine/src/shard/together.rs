//! Gradients that workers of one node have added up and one of them pushes for all, under BSP.
//!
//! The sum counts as a push of each of them, in this shard or not at all: it is refused where one of them has pushed alone, as those do who do
//! not know what became of the sum because somebody among them has gone. So each worker's gradients are in a step once, whoever
//! brings them, and a step is complete exactly when it would be if each had come alone.

use super::exchange::{Exchange, moved};
use super::state::State;
use super::words::{Answer, Refusal, Seat, Together};
use crate::wire::hello::SumHead;
use muster_model::id::TaskId;

impl From<SumHead> for Together {
    fn from(head: SumHead) -> Self {
        let SumHead {
            squares,
            inverses,
            others,
            ..
        } = head;
        Self {
            others,
            squares,
            inverses,
        }
    }
}

impl Exchange {
    /// Whether such sums may come: everyone is waited for, and gradients come as they are.
    #[must_use]
    pub fn takes_sums(&self) -> bool {
        self.is_bsp() && self.backup() == 0 && self.recipe.codecs.is_none()
    }

    /// A worker whose gradients of `clock` others may have brought waits until it may go on. [`Answer::Absent`] where they are not here: it
    /// is to push them.
    ///
    /// # Errors
    /// [`Refusal::StalePush`] for another step than its newest.
    pub fn await_answer(&self, seat: Seat, clock: u64) -> Result<Answer, Refusal> {
        let mut state = self.lock();
        if state.finished {
            return Ok(Answer::Finished);
        }
        if let Some(lost) = state.chief_lost {
            return Ok(self.interrupted(&state, lost, Vec::new()));
        }
        if state.owes(seat.task, clock + 1) {
            return Ok(self.answer_bsp(state, seat, None, clock));
        }
        if state.view.is_none() {
            return Err(Refusal::NotInitialised);
        }
        let Some(expected) = state.member(seat.task).map(|member| member.clock) else {
            return Ok(moved(&state, Vec::new()));
        };
        if expected == clock {
            return Ok(Answer::Absent { buffer: Vec::new() });
        }
        if expected != clock + 1 {
            return Err(Refusal::StalePush {
                task: seat.task,
                pushed: clock,
                expected,
            });
        }
        Ok(self.answer_bsp(state, seat, None, clock))
    }
}

impl State {
    /// Whether others have brought this worker's gradients of `clock`.
    pub fn is_covered(&mut self, task: TaskId, clock: u64) -> bool {
        self.member(task)
            .is_some_and(|member| member.covered == Some(clock))
    }

    /// Whether this worker has still to be told of the last step of a view that is over, after which step `next` comes.
    fn owes(&self, task: TaskId, next: u64) -> bool {
        let mut former = self.former.iter().filter(|former| former.clock == next);
        former.any(|former| former.owed.iter().any(|(owed, _)| *owed == task))
    }

    /// From here on the step `clock` has the gradients of these workers; `false`, and nothing is changed, where it has some of them already, or
    /// somebody is not of the view.
    pub fn cover(&mut self, others: &[TaskId], clock: u64) -> bool {
        let is_open = |state: &mut Self, task| {
            let member = state.member(task);
            member.is_some_and(|member| member.clock == clock && member.push.is_none())
        };
        if !others.iter().all(|&task| is_open(self, task)) {
            return false;
        }
        self.forget_owed(|former, task| former.clock <= clock && others.contains(&task));
        for &task in others {
            let member = self.member(task).expect("it was just looked at");
            member.covered = Some(clock);
            member.clock = clock + 1;
        }
        true
    }
}
