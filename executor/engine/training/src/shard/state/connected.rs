//! Connected workers.

use super::super::messages::ConnectionId;
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Workers after their handshake.
#[derive(Debug, Default)]
pub struct ConnectedWorkers {
    /// The coordinator, from its first connection on.
    pub chief: Option<TaskId>,
    /// Number of each worker's newest connection.
    newest: BTreeMap<TaskId, u64>,
    /// Workers that are not in the view and wait for admission.
    pub waiting: BTreeSet<TaskId>,
    /// Number of connections so far.
    count: u64,
}

impl ConnectedWorkers {
    /// Registers a new connection. A waiting worker that connects again has abandoned its previous
    /// connection and request.
    pub fn add(&mut self, task: TaskId) -> ConnectionId {
        self.count += 1;
        let connection = self.count;
        self.newest.insert(task, connection);
        self.waiting.remove(&task);
        ConnectionId { task, connection }
    }

    pub fn remove(&mut self, task: TaskId) {
        self.newest.remove(&task);
        self.waiting.remove(&task);
    }

    pub fn contains(&self, task: TaskId) -> bool {
        self.newest.contains_key(&task)
    }

    /// Whether this is the newest connection of its worker.
    pub fn is_seated(&self, connection_id: ConnectionId) -> bool {
        self.newest.get(&connection_id.task) == Some(&connection_id.connection)
    }

    /// Returns the number of workers that do not wait for admission.
    pub fn inside(&self) -> usize {
        let connected = self.newest.keys();
        connected
            .filter(|task| !self.waiting.contains(task))
            .count()
    }
}
