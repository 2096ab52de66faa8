//! Links between the tasks of one job: TCP between nodes, shared memory within one.
//!
//! A [`PeerPort`] lives as long as its task. For each [`GroupView`] of a [`Coordinator`],
//! [`Fabric::join`] connects the task with every other member. A connection begins with a handshake
//! of [`crate::wire`] with secret, attempt and view number; after it, only floats follow, because
//! both sides of a collective know the next range. Two tasks on the same kernel send each other
//! memory over a Unix socket. If this fails (file system of another container, no anonymous files),
//! the pair uses TCP.
//!
//! | lost peer | detected by |
//! |---|---|
//! | process killed | the end of its control socket, at once, also with shared memory |
//! | machine vanished | no TCP acknowledgement for the fifteen seconds of [`crate::wire`] |
//! | process stopped or frozen | no heartbeat for [`FabricOptions::silence`] |
//! | process runs, but makes no progress | no data for [`FabricOptions::stall`] |
//!
//! The task that detects the loss notifies the others before it leaves, so that all survivors name
//! the same rank.
//!
//! This module must not depend on what is computed from the floats, nor decide on members.

mod arena;
mod control;
mod gathering;
mod handshake;
mod heartbeat;
mod join;
mod link;
mod mesh;
mod node;
mod plane;
mod port;
mod ring;
mod shm;
mod tcp;
mod topology;
mod view;
mod zero_copy;

pub use arena::Arena;
pub use gathering::Gathering;
pub use handshake::{Credentials, ORDER, PeerChannel, PeerHello, PeerStream};
pub use mesh::{CollectiveBuffer, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange};
pub use node::NodeSharedMemory;
pub use port::PeerPort;
pub use view::{Coordinator, GpuSumSupport, GroupView, MemberReport, ViewMember};

pub use crate::memory::SharedMapping;
use crate::wire::WireError;
use control::ControlMessage;
use std::io;
use std::time::Duration;

/// Settings of a task's connections to its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricOptions {
    /// Whether tasks of one node use shared memory; otherwise all connections use TCP.
    pub shared_memory: bool,
    /// Maximum time for which members of a view wait for each other to connect.
    pub join_limit: Duration,
    /// A peer that sends no heartbeat for this time while it is waited for is considered lost. The
    /// heartbeat does not depend on the duration of a step.
    pub silence: Duration,
    /// A peer that sends heartbeats but no data for this time while it is waited for is considered
    /// lost.
    pub stall: Duration,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self {
            shared_memory: true,
            join_limit: Duration::from_secs(20),
            silence: Duration::from_secs(15),
            stall: Duration::from_secs(60),
        }
    }
}

/// Why a collective was not completed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// All survivors receive the same rank, unless several members were lost at once.
    #[error("rank {rank} is lost")]
    Lost { rank: usize },
    #[error("rank {rank} has sent what is no part of a sum")]
    Nonsense { rank: usize },
    #[error("the members form another view")]
    Regroup,
    #[error("this task is not in the view")]
    NotMember,
    #[error("could not {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("could not greet a peer")]
    Greeting(#[from] WireError),
    #[error("there will be no next view: {0}")]
    NoView(String),
}

impl FabricError {
    pub fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// Connections of a task in one view.
#[derive(Debug)]
pub struct Fabric {
    view: GroupView,
    mesh: Mesh,
    groups: Vec<Vec<usize>>,
    node: Option<NodeSharedMemory>,
    options: FabricOptions,
}

impl Fabric {
    /// Connects with every other member of `view`; all members must call this.
    ///
    /// # Errors
    /// [`FabricError::Lost`] if a member is lost or does not connect; [`FabricError::NotMember`];
    /// an error of a refused handshake.
    pub fn join(
        port: &PeerPort,
        view: GroupView,
        options: &FabricOptions,
    ) -> Result<Self, FabricError> {
        let mut mesh = join::join(port, &view, options)?;
        match topology::agree(&mut mesh) {
            Ok(groups) => Ok(Self {
                view,
                mesh,
                groups,
                node: None,
                options: options.clone(),
            }),
            Err(error) => {
                mesh.leave_because(&error);
                Err(error)
            }
        }
    }

    /// Shares the arena with the other tasks of the node with which memory can be shared. All
    /// members must call this with arenas of the same length.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn share(&mut self, arena: &mut Arena) -> Result<(), FabricError> {
        let rank = self.rank();
        let group = self.groups.iter().find(|group| group.contains(&rank));
        let group = group.expect("every rank is in a group");
        if group.len() > 1 {
            let node = NodeSharedMemory::share(&mut self.mesh, group, arena, &self.options)?;
            self.node = Some(node);
        }
        Ok(())
    }

    /// Groups of ranks that share memory with each other. The groups are disjoint, contain every
    /// rank, and are the same on all ranks.
    #[must_use]
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// Shared memory of this task's node, after [`Self::share`].
    #[must_use]
    pub fn node(&self) -> Option<&NodeSharedMemory> {
        self.node.as_ref()
    }

    /// The parts that a collective on an arena needs at once.
    #[must_use]
    pub fn parts(
        &mut self,
    ) -> (
        &mut Mesh,
        &[Vec<usize>],
        Option<&mut NodeSharedMemory>,
        &FabricOptions,
    ) {
        let Self {
            mesh,
            groups,
            node,
            options,
            ..
        } = self;
        (mesh, groups, node.as_mut(), options)
    }

    /// Takes the planes of the node out, so that they outlive the view: they contain the last sums.
    #[must_use]
    pub fn take_node(&mut self) -> Option<NodeSharedMemory> {
        self.node.take()
    }

    /// View of these connections.
    #[must_use]
    pub fn view(&self) -> &GroupView {
        &self.view
    }

    /// Rank of this task in the view.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.mesh.rank()
    }

    /// Number of members of the view.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mesh.size()
    }

    /// Links, for collectives.
    pub fn mesh(&mut self) -> &mut Mesh {
        &mut self.mesh
    }

    /// Leaves because of `error` and notifies the other members.
    pub fn abandon(mut self, error: &FabricError) {
        self.mesh.leave_because(error);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.mesh.say(ControlMessage::Leave);
    }
}
