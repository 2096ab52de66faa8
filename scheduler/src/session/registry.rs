//! Newest session of each node. A node that dials in again replaces its older session, which may
//! hang until its keep-alive fails.

use muster_model::id::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tonic::Status;

/// Live sessions of this process.
#[derive(Debug, Default, Clone)]
pub struct Registry {
    sessions: Arc<Mutex<BTreeMap<NodeId, watch::Sender<bool>>>>,
}

/// Handle of a session; becomes true when a newer session of the node replaces it.
#[derive(Debug)]
pub struct Replaced(watch::Receiver<bool>);

impl Registry {
    /// Registers the caller as the session of `node`.
    #[must_use]
    pub fn take_over(&self, node: NodeId) -> Replaced {
        let (sender, receiver) = watch::channel(false);
        let older = self.lock().insert(node, sender);
        if let Some(older) = older {
            older.send_replace(true);
        }
        Replaced(receiver)
    }

    /// Ends every session, because this process does not lead any more.
    pub fn end_all(&self) {
        for (_, sender) in std::mem::take(&mut *self.lock()) {
            sender.send_replace(true);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, watch::Sender<bool>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a session if another process leads, so that the node tries another scheduler.
///
/// # Errors
/// `UNAVAILABLE` unless this process leads.
pub fn leads(leader: &watch::Receiver<bool>) -> Result<(), Status> {
    if *leader.borrow() {
        return Ok(());
    }
    Err(Status::unavailable(
        "this scheduler is not the leader; try another, or again",
    ))
}

impl Replaced {
    /// Returns when the session has been replaced.
    pub async fn wait(&mut self) {
        // An error means that the sender is dropped, which happens only after a replacement.
        let _ = self.0.wait_for(|replaced| *replaced).await;
    }
}
