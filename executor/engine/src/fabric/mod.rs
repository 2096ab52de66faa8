//! Links between the tasks of one job: TCP between nodes, shared memory within one.
//!
//! A [`Port`] lives as long as its task. For each [`View`] that a [`Coordinator`] names, [`Fabric::join`] connects the task with
//! every other member: greetings of [`crate::wire`] with secret, revision, attempt and view number, then bare floats, as both
//! sides of a collective know what comes next. Two tasks on the same kernel hand each other memory over a Unix socket; where that
//! does not work (another container's file system, no anonymous files) the pair falls back to TCP by itself.
//!
//! A peer killed by a signal is noticed at once, also in shared memory, by the end of its control socket; a machine that vanishes
//! within [`crate::wire`]'s fifteen seconds of silence; a process that is stopped or frozen after [`Options::silence`], for its pulse
//! is missed; a peer that lives and has a pulse but does nothing after [`Options::stall`]. Whoever notices tells the others before it leaves, so that all survivors name the same rank.
//!
//! This module must never know what is computed from the floats, nor decide who is a member.

mod arena;
mod control;
mod gathering;
mod hello;
mod join;
mod lend;
mod link;
mod mesh;
mod node;
mod plane;
mod port;
mod pulse;
mod ring;
mod shm;
mod tcp;
mod topology;
mod view;

pub use arena::Arena;
pub use gathering::Gathering;
pub use hello::{Channel, Credentials, ORDER, PeerHello, Stream};
pub use mesh::{Flow, How, Mesh, Piece, Side, Take};
pub use node::Node;
pub use port::Port;
pub use view::{Coordinator, Member, Report, Summing, View};

pub use crate::memory::Shared;
use crate::wire::WireError;
use control::Word;
use std::io;
use std::time::Duration;

/// How a task meets its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether tasks of one node use shared memory; otherwise everything goes over TCP.
    pub shared_memory: bool,
    /// How long members of a view wait for each other to come.
    pub join_limit: Duration,
    /// A peer whose process gives no sign of life for so long while it is waited for is held for lost. However long a step takes, its
    /// process does give one.
    pub silence: Duration,
    /// A peer that lives but moves nothing for so long while it is waited for is held for lost.
    pub stall: Duration,
}

impl Default for Options {
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
    /// Every survivor gets this with the same rank, unless several died at once.
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
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// A task's connections in one view.
#[derive(Debug)]
pub struct Fabric {
    view: View,
    mesh: Mesh,
    groups: Vec<Vec<usize>>,
    node: Option<Node>,
    options: Options,
}

impl Fabric {
    /// Connects with every other member of `view`; all members call this.
    ///
    /// # Errors
    /// [`FabricError::Lost`] when a member is dead or does not come; [`FabricError::NotMember`]; a refused greeting.
    pub fn join(port: &Port, view: View, options: &Options) -> Result<Self, FabricError> {
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

    /// Shares the arena with the other tasks of the node, if there are any that memory can be shared with; all members call this,
    /// with arenas of one length.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn share(&mut self, arena: &mut Arena) -> Result<(), FabricError> {
        let rank = self.rank();
        let group = self.groups.iter().find(|group| group.contains(&rank));
        let group = group.expect("every rank is in a group");
        if group.len() > 1 {
            let node = Node::share(&mut self.mesh, group, arena, &self.options)?;
            self.node = Some(node);
        }
        Ok(())
    }

    /// Ranks that share memory with each other, by node; disjoint, everyone in one, the same on all ranks.
    #[must_use]
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// What this task shares with others of its node, after [`Self::share`].
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The parts that a collective on an arena needs at once.
    #[must_use]
    pub fn parts(&mut self) -> (&mut Mesh, &[Vec<usize>], Option<&mut Node>, &Options) {
        let Self {
            mesh,
            groups,
            node,
            options,
            ..
        } = self;
        (mesh, groups, node.as_mut(), options)
    }

    /// Keeps the node's planes beyond the view: they hold the last sums.
    #[must_use]
    pub fn take_node(&mut self) -> Option<Node> {
        self.node.take()
    }

    /// The view that these connections are of.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// This task's place in it.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.mesh.rank()
    }

    /// Members in it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mesh.size()
    }

    /// The links, for collectives.
    pub fn mesh(&mut self) -> &mut Mesh {
        &mut self.mesh
    }

    /// Leaves because of `error`, telling the others why.
    pub fn abandon(mut self, error: &FabricError) {
        self.mesh.leave_because(error);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.mesh.say(Word::Leave);
    }
}
