//! Effects of a resize in place on the dense state: held and free resources.
//!
//! `in_place` decides which tasks are changed.

use super::free::{Holding, bits, gpus_of};
use super::gang::add;
use super::in_place::TaskSetChange;
use super::planned_job::{PlannedJob, room_of};
use super::round_state::RoundState;
use crate::plan::Action;
use muster_model::job::Charge;
use muster_model::task::Role;

impl RoundState<'_> {
    /// Resizes a running job in place.
    pub(crate) fn resize(&mut self, index: usize, change: &TaskSetChange, why: String) {
        self.remember(index);
        let now_ms = self.now_ms;
        let join = match &self.journal {
            Some(_) => Vec::new(),
            None => change.tasks(&self.snapshot.nodes),
        };
        let live = &mut self.jobs[index];
        let mut action = Action::Resize {
            leave: change.leave.clone(),
            join,
            why,
            charge: Charge::None,
        };
        if let Some(Action::Resize { .. }) = live.actions.last() {
            action = merged(live.actions.pop(), action);
            live.revision -= 1;
        }
        live.take(action, now_ms);
        live.leaving_tasks.extend(&change.leave);
        live.part(change);
        live.placed_ms = Some(now_ms);
        live.revision += 1;
        live.is_resizing = true;
        self.held[live.tenant as usize] += gpus_of(&live.joining);
        let joining = live.joining.iter().map(|held| (held.node, held.gpus));
        let joining: Vec<(u32, u64)> = joining.collect();
        for held in &live.joining {
            self.free[held.node as usize].hold(held);
        }
        for held in &live.leaving {
            self.free[held.node as usize].release_later(held);
        }
        self.lend(joining.into_iter());
        self.refresh(index);
        self.keep_excluded();
    }

    /// Undoes the joining part of this round's resize of a job that now stops. Returns the charge
    /// of that resize.
    pub(crate) fn uninvite(&mut self, index: usize) -> Charge {
        let live = &mut self.jobs[index];
        let Some(Action::Resize { charge, .. }) = live.actions.last() else {
            return Charge::None;
        };
        let charged = *charge;
        live.actions.pop();
        live.revision -= 1;
        for held in std::mem::take(&mut live.joining) {
            let node = &mut self.free[held.node as usize];
            node.release_later(&held);
            node.give_back(&held);
            self.held[live.tenant as usize] -= held.gpus.count_ones();
            live.holdings
                .iter_mut()
                .filter(|kept| kept.node == held.node)
                .for_each(|kept| {
                    kept.gpus &= !held.gpus;
                    kept.room.take(held.room);
                });
        }
        charged
    }

    /// In a trial: the tasks that leave by a resize in place have ended.
    pub(crate) fn part_with(&mut self, index: usize) {
        if self.jobs[index].leaving.is_empty() {
            return;
        }
        self.remember(index);
        let leaving = std::mem::take(&mut self.jobs[index].leaving);
        self.give_back(index, &leaving);
    }
}

impl PlannedJob<'_> {
    /// Separates the holdings of leaving tasks and adds those of joining tasks.
    fn part(&mut self, change: &TaskSetChange) {
        let mut kept = Vec::new();
        let mut leaving = Vec::new();
        let tasks = self.job.tasks.iter().zip(&self.places);
        for (task, &node) in tasks.filter(|(task, _)| !task.state.is_released()) {
            let held = Holding {
                node,
                gpus: bits(&task.gpus),
                room: room_of(self.job, task.role),
            };
            if self.leaving_tasks.contains(&task.id) {
                add(&mut leaving, held);
            } else {
                add(&mut kept, held);
            }
        }
        for &(role, node, gpus) in &change.join {
            let held = Holding {
                node,
                gpus,
                room: room_of(self.job, role),
            };
            add(&mut self.joining, held);
            add(&mut kept, held);
        }
        self.size = self.size_after(change);
        self.holdings = kept;
        self.leaving = leaving;
    }

    /// Workers and shards after the change.
    fn size_after(&self, change: &TaskSetChange) -> (u32, u32) {
        let (mut workers, mut shards) = (i64::from(self.size.0), i64::from(self.size.1));
        let tasks = self.job.tasks.iter();
        let left = tasks.filter(|task| change.leave.contains(&task.id));
        let left = left.map(|task| (task.role, -1));
        let joined = change.join.iter().map(|&(role, ..)| (role, 1));
        for (role, by) in left.chain(joined) {
            match role {
                Role::Worker { .. } => workers += by,
                Role::PsShard { .. } => shards += by,
            }
        }
        let workers = u32::try_from(workers).unwrap_or(0);
        (workers, u32::try_from(shards).unwrap_or(0))
    }
}

/// Merges two resizes of one round.
fn merged(before: Option<Action>, after: Action) -> Action {
    match (before, after) {
        (
            Some(Action::Resize {
                mut leave,
                why: first,
                charge,
                ..
            }),
            Action::Resize {
                leave: more,
                join,
                why,
                ..
            },
        ) => {
            leave.extend(more);
            let why = format!("{first}; {why}");
            Action::Resize {
                leave,
                join,
                why,
                charge,
            }
        }
        (_, after) => after,
    }
}
