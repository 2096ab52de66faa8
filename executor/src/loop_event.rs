//! Events from outside the node loop, which wake it.

use crate::metrics::WokenBy;
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use muster_proto::session::Report;
use tokio::sync::mpsc::UnboundedSender;

/// Event from outside the loop.
#[derive(Debug)]
pub enum NodeLoopEvent {
    /// A session is open; reports go to this channel. At most two reports are unacknowledged.
    Connected(UnboundedSender<Report>),
    /// The scheduler has lost acknowledged data: everything on the disk is reported again.
    ReportAll,
    Disconnected,
    Assigned(DecodedAssignment),
    Acknowledged(u64),
    Leave {
        stop_tasks: bool,
    },
    /// The state of a task may have changed.
    Look,
    /// The events or the log of a task have grown. They go with the next report.
    Grown,
    /// The task ends with this outcome because of the disk space that it uses.
    End(TaskId, Outcome),
}

impl NodeLoopEvent {
    pub(crate) fn source(&self) -> WokenBy {
        match self {
            Self::Look | Self::Grown | Self::End(..) => WokenBy::Task,
            Self::Connected(_)
            | Self::ReportAll
            | Self::Disconnected
            | Self::Assigned(_)
            | Self::Acknowledged(_)
            | Self::Leave { .. } => WokenBy::Scheduler,
        }
    }
}

/// A decoded assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedAssignment {
    pub generation: u64,
    pub tasks: Vec<DecodedTask>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DecodedTask {
    pub launch: TaskLaunch,
    pub peers: Peers,
    pub stop: bool,
    /// Whether the stop follows a request for a checkpoint.
    pub asks: bool,
}
