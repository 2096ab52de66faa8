//! Time at which the remote sessions of each task last carried data. An interactive job is in use
//! while they do.

use crate::clock;
use muster_model::id::TaskId;
use muster_model::remote::RemoteFrame;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Use of the sessions of one task, shared by them; 0 before the first data.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionUse(Arc<AtomicU64>);

#[derive(Debug, Default)]
pub(super) struct SessionUseByTask(Mutex<BTreeMap<TaskId, SessionUse>>);

impl SessionUse {
    /// Takes a frame of a session. Only input and output of its command or port are use.
    pub(super) fn take(&self, frame: &RemoteFrame) {
        let has_data = match frame {
            RemoteFrame::Input(data) | RemoteFrame::Output(data) | RemoteFrame::Errors(data) => {
                !data.is_empty()
            }
            _ => false,
        };
        if has_data {
            self.0.store(clock::boottime_ms(), Ordering::Relaxed);
        }
    }

    fn last_ms(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }
}

impl SessionUseByTask {
    pub(super) fn of(&self, task: TaskId) -> SessionUse {
        self.lock().entry(task).or_default().clone()
    }

    pub(super) fn last_ms(&self, task: TaskId) -> Option<u64> {
        self.lock().get(&task)?.last_ms()
    }

    pub(super) fn keep(&self, tasks: &BTreeSet<TaskId>) {
        self.lock().retain(|task, _| tasks.contains(task));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, SessionUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_use() {
        let used = SessionUseByTask::default();
        let task = TaskId(uuid::Uuid::from_u128(1));
        let session = used.of(task);
        for idle in [
            RemoteFrame::Alive,
            RemoteFrame::InputEnd,
            RemoteFrame::Input(Vec::new()),
        ] {
            session.take(&idle);
        }
        assert_eq!(used.last_ms(task), None);
        session.take(&RemoteFrame::Output(vec![1]));
        assert!(used.last_ms(task).is_some());
        used.keep(&BTreeSet::from([task]));
        assert!(used.last_ms(task).is_some());
        used.keep(&BTreeSet::new());
        assert_eq!(used.last_ms(task), None);
    }
}
