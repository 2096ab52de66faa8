//! Who takes part: a view is a numbered list of members, and a coordinator gives everyone the same next one.
//!
//! The fabric never decides who is a member. A task that sees a peer die reports it and is told the next view; whoever tells it
//! (rank 0, the executor, a test) is behind [`Coordinator`].

use muster_model::id::TaskId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A task that may be in a view; where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub id: TaskId,
    /// Fence: another attempt of the same task is refused.
    pub attempt: u32,
    /// The machine, as its kernel calls this boot of it. Members that say the same try shared memory.
    pub node: String,
    pub address: SocketAddr,
    /// The socket through which tasks of the same node hand each other memory.
    pub local: Option<PathBuf>,
    /// Collectives on the arena that it has completed; `None` of a newcomer that has not got the others' parameters yet.
    pub completed: Option<u64>,
    /// Only of jobs that ask for sums on GPUs: releases that do not know of it refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summing: Option<Box<Summing>>,
}

/// What a member says of its GPU to those that would sum on theirs together with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Summing {
    Gpu {
        /// The library's version.
        library: String,
        /// Which one of all that there are.
        gpu: String,
        /// What must be alike for all to compute the same bits from the same sums.
        kind: String,
    },
    /// It cannot, and why.
    Host { why: String },
}

/// The members of one epoch of the job; a member's rank is its place in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Grows with each view; a fence for every connection.
    pub number: u64,
    pub members: Vec<Member>,
}

impl View {
    /// The rank of the member with this id.
    #[must_use]
    pub fn rank_of(&self, id: TaskId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }
}

/// What a member says when it needs the next view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub member: Member,
    /// The view that it leaves; 0 of one that has not been in any.
    pub view: u64,
    /// Members that it holds for dead.
    pub lost: Vec<TaskId>,
    /// Whether it stands between steps and has no collective to repeat.
    pub between_steps: bool,
}

/// Gives every member the same next view.
///
/// What it must keep to: views are numbered upwards from 1; a view holds only members that have reported since the view before,
/// in any order but the same for all; a member that has not been in a view (`completed: None`) is taken in only when all
/// of those that have completed the most collectives report `between_steps`, as it cannot take part in repeating a step; and a
/// member that reports lives, whatever others say of it. [`super::Gathering`] keeps to it.
pub trait Coordinator: Send + Sync {
    /// Blocks until the view after `report.view` is known.
    ///
    /// # Errors
    /// A sentence: why there will be none (the job stops, the member is expelled).
    fn next_view(&self, report: Report) -> Result<View, String>;

    /// Whether someone waits to be taken in. Asked between steps.
    fn someone_waits(&self) -> bool {
        false
    }
}
