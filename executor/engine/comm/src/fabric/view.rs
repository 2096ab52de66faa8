//! Views of a job: numbered lists of members. A coordinator gives every member the same next view.
//!
//! The fabric does not decide on members. A task that detects a lost peer reports it and receives
//! the next view. [`Coordinator`] is the interface to the decision (rank 0, the executor or a
//! test).

use muster_model::id::TaskId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Task that can be in a view, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewMember {
    pub id: TaskId,
    /// Fence: another attempt of the same task is refused.
    pub attempt: u32,
    /// Boot id of the machine's kernel. Members with the same id try shared memory.
    pub node: String,
    pub address: SocketAddr,
    /// Unix socket through which tasks of the same node exchange memory.
    pub local: Option<PathBuf>,
    /// Number of collectives on the arena that it has completed; `None` for a new member without
    /// the parameters of the others.
    pub completed: Option<u64>,
    /// Only for jobs that request sums on GPUs: releases without this field refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summing: Option<Box<GpuSumSupport>>,
}

/// Description of a member's GPU for members that sum on their GPUs together with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum GpuSumSupport {
    Gpu {
        /// Version of the library.
        library: String,
        /// Identity of the GPU among all GPUs.
        gpu: String,
        /// Properties that must be equal so that all members compute the same bits from the same
        /// sums.
        kind: String,
    },
    /// The member cannot sum on a GPU; the reason.
    Host { why: String },
}

/// Members during one epoch of the job. The rank of a member is its position in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupView {
    /// Number of the view, which grows with each view; a fence for every connection.
    pub number: u64,
    pub members: Vec<ViewMember>,
}

impl GroupView {
    /// Rank of the member with this id.
    #[must_use]
    pub fn rank_of(&self, id: TaskId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }
}

/// Report of a member that needs the next view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberReport {
    pub member: ViewMember,
    /// Number of the view that it leaves; 0 if it has not been in any.
    pub view: u64,
    /// Members that it considers lost.
    pub lost: Vec<TaskId>,
    /// Whether the member is between two steps and has no collective to repeat.
    pub between_steps: bool,
}

/// Gives every member the same next view.
///
/// Requirements on an implementation, which [`super::Gathering`] meets:
///
/// - Views are numbered upwards from 1.
/// - A view contains only members that have reported since the previous view, in the same order for
///   all of them.
/// - A member that has not been in a view (`completed: None`) is admitted only if all members with
///   the most completed collectives report `between_steps`, because it cannot take part in a
///   repeated step.
/// - A member that reports is alive, even if others have reported it lost.
pub trait Coordinator: Send + Sync {
    /// Blocks until the view after `report.view` is known.
    ///
    /// # Errors
    /// The reason, as a sentence, why there will be no view: the job stops, or the member is
    /// excluded.
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String>;

    /// Whether a task waits to be admitted. Called between steps.
    fn someone_waits(&self) -> bool {
        false
    }
}
