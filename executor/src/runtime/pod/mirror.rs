//! Shared state of the node loop, which must not wait, and the server task: the known pods, and the
//! requests for them.

use super::status::TaskPodStatus;
use k8s_openapi::api::core::v1::Pod;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The shared state. A change of the requests notifies `requests_changed`.
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<PodMirrorState>,
    pub requests_changed: Notify,
}

#[derive(Debug, Default)]
pub struct PodMirrorState {
    /// The server has listed all pods since this daemon started.
    pub is_complete: bool,
    pods: BTreeMap<TaskId, PodPresence>,
    requests: BTreeMap<TaskId, PodRequest>,
    /// Messages of the server about pod requests that failed.
    failures: BTreeMap<TaskId, String>,
}

/// State of the pod of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodPresence {
    Present(Box<TaskPodStatus>),
    /// The server reports that it does not exist, or not any more.
    Absent,
    /// The server has refused it permanently, with this message.
    Refused(String),
}

/// The requested change of one task's pod.
#[derive(Debug, Clone, PartialEq)]
pub enum PodRequest {
    Create(Box<PodCreation>),
    Delete,
    /// Find out whether it exists.
    Look,
}

/// A pod, and the folders that must exist before it. They may be on a network file system, so the
/// node loop does not create them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodCreation {
    pub pod: Pod,
    pub folders: Vec<PathBuf>,
}

impl Mirror {
    pub fn lock(&self) -> MutexGuard<'_, PodMirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn request(&self, task: TaskId, request: PodRequest) {
        let mut state = self.lock();
        state.requests.insert(task, request);
        state.failures.remove(&task);
        drop(state);
        self.requests_changed.notify_one();
    }
}

impl PodMirrorState {
    #[must_use]
    pub fn presence(&self, task: TaskId) -> Option<&PodPresence> {
        self.pods.get(&task)
    }

    #[must_use]
    pub fn has_request(&self, task: TaskId) -> bool {
        self.requests.contains_key(&task)
    }

    #[must_use]
    pub fn requests(&self) -> Vec<(TaskId, PodRequest)> {
        let requests = self.requests.iter();
        requests
            .map(|(task, request)| (*task, request.clone()))
            .collect()
    }

    /// Returns the existing pods.
    pub fn present(&self) -> impl Iterator<Item = (TaskId, &TaskPodStatus)> {
        self.pods
            .iter()
            .filter_map(|(task, presence)| match presence {
                PodPresence::Present(status) => Some((*task, status.as_ref())),
                PodPresence::Absent | PodPresence::Refused(_) => None,
            })
    }

    pub fn record(&mut self, task: TaskId, presence: PodPresence) {
        self.pods.insert(task, presence);
    }

    /// Records an answer. It may be older than the newest event of the watch, which then prevails.
    pub fn record_answer(&mut self, task: TaskId, presence: PodPresence) {
        match (&presence, self.pods.get(&task)) {
            (PodPresence::Present(_), Some(PodPresence::Present(_))) => {}
            _ => self.record(task, presence),
        }
    }

    /// Removes a fulfilled pod request, unless another one has replaced it.
    pub fn fulfil(&mut self, task: TaskId, request: &PodRequest) {
        if self.requests.get(&task) == Some(request) {
            self.requests.remove(&task);
            self.failures.remove(&task);
        }
    }

    /// Records a failed attempt with the server's message, if it answered.
    pub fn fail(&mut self, task: TaskId, request: &PodRequest, why: Option<String>) {
        if self.requests.get(&task) == Some(request) {
            match why {
                Some(why) => self.failures.insert(task, why),
                None => self.failures.remove(&task),
            };
        }
    }

    /// Returns the server's message why no pod can be created, if one is requested.
    #[must_use]
    pub fn creation_error(&self, task: TaskId) -> Option<&str> {
        let is_requested = matches!(self.requests.get(&task), Some(PodRequest::Create(_)));
        let why = self.failures.get(&task).filter(|_| is_requested)?;
        Some(why)
    }

    /// Records a list of all pods. The state of a missing pod becomes unknown: it may have been
    /// created during the listing.
    pub fn record_all(&mut self, all: BTreeMap<TaskId, TaskPodStatus>) {
        self.pods.retain(|task, presence| {
            !matches!(presence, PodPresence::Present(_)) || all.contains_key(task)
        });
        let all = all.into_iter();
        self.pods
            .extend(all.map(|(task, status)| (task, PodPresence::Present(Box::new(status)))));
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
            .filter(|(_, presence)| !matches!(presence, PodPresence::Present(_)));
        gone.map(|(task, _)| *task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{PodMirrorState, PodPresence};
    use crate::runtime::pod::status::TaskPodStatus;
    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use muster_model::id::TaskId;

    fn in_phase(phase: &str) -> PodPresence {
        let pod = Pod {
            status: Some(PodStatus {
                phase: Some(phase.to_owned()),
                ..PodStatus::default()
            }),
            ..Pod::default()
        };
        PodPresence::Present(Box::new(TaskPodStatus::of(&pod)))
    }

    #[test]
    fn answer_does_not_replace_a_newer_event_of_the_watch() {
        let (mut state, task) = (PodMirrorState::default(), TaskId(uuid::Uuid::from_u128(1)));
        state.record_answer(task, in_phase("Pending"));
        assert_eq!(state.presence(task), Some(&in_phase("Pending")));
        state.record(task, in_phase("Failed"));
        state.record_answer(task, in_phase("Pending"));
        assert_eq!(state.presence(task), Some(&in_phase("Failed")));
        state.record_answer(task, PodPresence::Absent);
        assert_eq!(state.presence(task), Some(&PodPresence::Absent));
    }
}
