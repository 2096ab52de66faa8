//! What is known of our pods, and what is wanted of them, between the node's loop, which may not wait, and the tasks that speak to the
//! API server.

use super::status::Status;
use k8s_openapi::api::core::v1::Pod;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Shared. Whoever changes what is wanted rings.
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<State>,
    pub bell: Notify,
}

#[derive(Debug, Default)]
pub struct State {
    /// The server has told of all our pods since this daemon started.
    pub is_complete: bool,
    pods: BTreeMap<TaskId, Known>,
    wishes: BTreeMap<TaskId, Wish>,
    /// Why wishes did not come true when they were last tried, in the server's words.
    in_vain: BTreeMap<TaskId, String>,
}

/// What is known of the pod of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Present(Box<Status>),
    /// The server says that there is none (any more).
    Absent,
    /// The server has refused it, for ever, with these words.
    Refused(String),
}

/// The one thing that is wanted of the pod of one task.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Create(Box<Making>),
    Delete,
    /// To know whether there is one.
    Look,
}

/// A pod, and the folders that have to be there before. They may lie on another machine, so the node's loop does not make them.
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

    /// Pods that are there.
    pub fn present(&self) -> impl Iterator<Item = (TaskId, &Status)> {
        self.pods.iter().filter_map(|(task, known)| match known {
            Known::Present(status) => Some((*task, status.as_ref())),
            Known::Absent | Known::Refused(_) => None,
        })
    }

    pub fn learn(&mut self, task: TaskId, known: Known) {
        self.pods.insert(task, known);
    }

    /// What an answer says. It may be older than what the watch has told of the pod in the meantime.
    pub fn learn_answer(&mut self, task: TaskId, known: Known) {
        match (&known, self.pods.get(&task)) {
            (Known::Present(_), Some(Known::Present(_))) => {}
            _ => self.learn(task, known),
        }
    }

    /// The wish has come true, unless another one has come since.
    pub fn fulfil(&mut self, task: TaskId, wish: &Wish) {
        if self.wishes.get(&task) == Some(wish) {
            self.wishes.remove(&task);
            self.in_vain.remove(&task);
        }
    }

    /// The wish was tried, and did not come true; the server says why, or is not heard.
    pub fn fail(&mut self, task: TaskId, wish: &Wish, why: Option<String>) {
        if self.wishes.get(&task) == Some(wish) {
            match why {
                Some(why) => self.in_vain.insert(task, why),
                None => self.in_vain.remove(&task),
            };
        }
    }

    /// Why no pod can be made, if one is wished for and the server has said.
    #[must_use]
    pub fn not_made(&self, task: TaskId) -> Option<&str> {
        let is_wished = matches!(self.wishes.get(&task), Some(Wish::Create(_)));
        let why = self.in_vain.get(&task).filter(|_| is_wished)?;
        Some(why)
    }

    /// All pods that there are. One that is missing from them may have been made while they were listed, so nothing is known of it now.
    pub fn learn_all(&mut self, all: BTreeMap<TaskId, Status>) {
        self.pods
            .retain(|task, known| !matches!(known, Known::Present(_)) || all.contains_key(task));
        let all = all.into_iter();
        self.pods
            .extend(all.map(|(task, status)| (task, Known::Present(Box::new(status)))));
        self.is_complete = true;
    }

    /// Nobody will ask for it any more.
    pub fn forget(&mut self, task: TaskId) {
        self.pods.remove(&task);
    }

    /// Tasks whose pods are known not to be there.
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
    fn an_answer_that_comes_after_the_watchs_news_is_older_than_it() {
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
