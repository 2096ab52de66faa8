//! Shared state of the node loop, which must not wait, and the server task: the known pods, and the
//! wishes for them.

use super::status::Status;
use k8s_openapi::api::core::v1::Pod;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The shared state. A change of the wishes rings the bell.
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<State>,
    pub bell: Notify,
}

#[derive(Debug, Default)]
pub struct State {
    /// The server has listed all pods since this daemon started.
    pub is_complete: bool,
    pods: BTreeMap<TaskId, Known>,
    wishes: BTreeMap<TaskId, Wish>,
    /// Messages of the server about wishes that failed.
    in_vain: BTreeMap<TaskId, String>,
}

/// State of the pod of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Present(Box<Status>),
    /// The server reports that it does not exist, or not any more.
    Absent,
    /// The server has refused it permanently, with this message.
    Refused(String),
}

/// The requested change of one task's pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Create(Box<Making>),
    Delete,
    /// Find out whether it exists.
    Look,
}

/// A pod, and the folders that must exist before it. They may be on a network file system, so the
/// node loop does not create them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Making {
    pub pod: Pod,
    pub folders: Vec<PathBuf>,
}

impl Mirror {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wish(&self, task: TaskId, wish: Wish) {
        let mut state = self.lock();
        state.wishes.insert(task, wish);
        state.in_vain.remove(&task);
        drop(state);
        self.bell.notify_one();
    }
}

impl State {
    #[must_use]
    pub fn known(&self, task: TaskId) -> Option<&Known> {
        self.pods.get(&task)
    }

    #[must_use]
    pub fn has_wish(&self, task: TaskId) -> bool {
        self.wishes.contains_key(&task)
    }

    #[must_use]
    pub fn wishes(&self) -> Vec<(TaskId, Wish)> {
        let wishes = self.wishes.iter();
        wishes.map(|(task, wish)| (*task, wish.clone())).collect()
    }

    /// Returns the existing pods.
    pub fn present(&self) -> impl Iterator<Item = (TaskId, &Status)> {
        self.pods.iter().filter_map(|(task, known)| match known {
            Known::Present(status) => Some((*task, status.as_ref())),
            Known::Absent | Known::Refused(_) => None,
        })
    }

    pub fn learn(&mut self, task: TaskId, known: Known) {
        self.pods.insert(task, known);
    }

    /// Records an answer. It may be older than the newest event of the watch, which then prevails.
    pub fn learn_answer(&mut self, task: TaskId, known: Known) {
        match (&known, self.pods.get(&task)) {
            (Known::Present(_), Some(Known::Present(_))) => {}
            _ => self.learn(task, known),
        }
    }

    /// Removes a fulfilled wish, unless another one has replaced it.
    pub fn fulfil(&mut self, task: TaskId, wish: &Wish) {
        if self.wishes.get(&task) == Some(wish) {
            self.wishes.remove(&task);
            self.in_vain.remove(&task);
        }
    }

    /// Records a failed attempt with the server's message, if it answered.
    pub fn fail(&mut self, task: TaskId, wish: &Wish, why: Option<String>) {
        if self.wishes.get(&task) == Some(wish) {
            match why {
                Some(why) => self.in_vain.insert(task, why),
                None => self.in_vain.remove(&task),
            };
        }
    }

    /// Returns the server's message why no pod can be created, if one is wished for.
    #[must_use]
    pub fn not_made(&self, task: TaskId) -> Option<&str> {
        let is_wished = matches!(self.wishes.get(&task), Some(Wish::Create(_)));
        let why = self.in_vain.get(&task).filter(|_| is_wished)?;
        Some(why)
    }

    /// Records a list of all pods. The state of a missing pod becomes unknown: it may have been
    /// created during the listing.
    pub fn learn_all(&mut self, all: BTreeMap<TaskId, Status>) {
        self.pods
            .retain(|task, known| !matches!(known, Known::Present(_)) || all.contains_key(task));
        let all = all.into_iter();
        self.pods
            .extend(all.map(|(task, status)| (task, Known::Present(Box::new(status)))));
        self.is_complete = true;
    }

    /// Forgets a task that no caller asks for any more.
    pub fn forget(&mut self, task: TaskId) {
        self.pods.remove(&task);
    }

    /// Returns the tasks whose pods do not exist.
    #[must_use]
    pub fn gone(&self) -> Vec<TaskId> {
        let gone = self
            .pods
            .iter()
            .filter(|(_, known)| !matches!(known, Known::Present(_)));
        gone.map(|(task, _)| *task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, State};
    use crate::runtime::pod::status::Status;
    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use muster_model::id::TaskId;

    fn in_phase(phase: &str) -> Known {
        let pod = Pod {
            status: Some(PodStatus {
                phase: Some(phase.to_owned()),
                ..PodStatus::default()
            }),
            ..Pod::default()
        };
        Known::Present(Box::new(Status::of(&pod)))
    }

    #[test]
    fn answer_does_not_replace_a_newer_event_of_the_watch() {
        let (mut state, task) = (State::default(), TaskId(uuid::Uuid::from_u128(1)));
        state.learn_answer(task, in_phase("Pending"));
        assert_eq!(state.known(task), Some(&in_phase("Pending")));
        state.learn(task, in_phase("Failed"));
        state.learn_answer(task, in_phase("Pending"));
        assert_eq!(state.known(task), Some(&in_phase("Failed")));
        state.learn_answer(task, Known::Absent);
        assert_eq!(state.known(task), Some(&Known::Absent));
    }
}
