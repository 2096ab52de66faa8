//! Events about files of a task that are not kept.

use crate::events;
use crate::folder::NodeTaskFolder;
use muster_model::assignment::TaskReport;
use muster_model::id::TaskId;
use std::collections::BTreeSet;

/// Maximum number of events of a task.
const MAX_NOTES: usize = 20;

/// Events that were added for one task.
#[derive(Debug)]
pub(super) struct TaskNotes {
    task: TaskId,
    folder: NodeTaskFolder,
    messages: BTreeSet<String>,
}

impl TaskNotes {
    pub(super) fn new(task: TaskId, folder: &NodeTaskFolder) -> Self {
        Self {
            task,
            folder: folder.clone(),
            messages: BTreeSet::new(),
        }
    }

    /// Adds an event, unless it was added before or the task has the maximum number of them.
    pub(super) fn add(&mut self, mut message: String) {
        if self.messages.len() >= MAX_NOTES || !self.messages.insert(message.clone()) {
            return;
        }
        if self.messages.len() == MAX_NOTES {
            message.push_str("; other files are not reported");
        }
        tracing::warn!(task.id = %self.task, message);
        let report = TaskReport::Note { message };
        if let Err(error) = events::append(&self.folder.events(), &[report]) {
            tracing::warn!(task.id = %self.task, %error, "its owner is not told");
        }
    }
}
