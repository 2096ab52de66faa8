//! Workers of the view.

use super::super::messages::Push;
use super::super::outbox::PartitionOutbox;
use muster_model::id::TaskId;
use std::sync::Arc;

/// State of a worker of the view at the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStatus {
    Awaited,
    Joined,
    Left,
    Lost,
    /// The coordinator has removed it; the view continues without it.
    Dropped,
}

/// A worker of the view.
#[derive(Debug)]
pub struct ShardMember {
    pub task: TaskId,
    pub standing: WorkerStatus,
    /// Next step of the worker.
    pub clock: u64,
    /// Its gradients of the present step; `None` after they are applied.
    pub push: Option<Push>,
    /// Newest step whose gradients another worker of its node pushed in a sum.
    pub covered: Option<u64>,
    /// Buffer of an applied push, until its connection takes it back.
    pub spare: Vec<f32>,
    /// Newest view under which it has pulled.
    pub entered: u64,
    /// Newest step that an answer has named to it.
    pub answered: u64,
    /// Number of updates in the parameters that it received last.
    pub read_at: u64,
    /// Partitions of its gradients of the present step that wait for those of the other workers.
    pub parts: Vec<Option<Vec<f32>>>,
    /// Receives partitions of parameters.
    pub outbox: Option<Arc<PartitionOutbox>>,
}

impl ShardMember {
    /// Creates a worker whose next step is `clock`.
    pub fn new(task: TaskId, standing: WorkerStatus, clock: u64) -> Self {
        Self {
            task,
            standing,
            clock,
            push: None,
            covered: None,
            spare: Vec::new(),
            entered: 0,
            answered: 0,
            read_at: 0,
            parts: Vec::new(),
            outbox: None,
        }
    }

    /// BSP: whether its gradients of the present step `version` have arrived, alone or in a sum.
    pub fn has_pushed(&self, version: u64) -> bool {
        self.push.is_some() || self.covered == Some(version)
    }

    /// Whether the coordinator has not removed it.
    pub fn is_counted(&self) -> bool {
        self.standing != WorkerStatus::Dropped
    }

    /// Whether it has departed, and the coordinator has not decided on it.
    pub fn is_departed(&self) -> bool {
        matches!(self.standing, WorkerStatus::Left | WorkerStatus::Lost)
    }

    /// Whether its gradients of partition `part` have arrived and are not applied.
    pub fn has_part(&self, part: usize) -> bool {
        self.parts.get(part).is_some_and(Option::is_some)
    }

    /// Takes the buffer of its applied push.
    pub fn take_spare(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.spare)
    }
}
