//! Inputs and answers of the exchange, and errors of its connections.

use super::tensors::Tensors;
use muster_comm::shard_codec::ShardCodec;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::{NoisePart, StepStats, SumHead};
use muster_comm::wire::view::{Departed, TaskSetView};
use muster_compute::pages;
use muster_model::id::TaskId;
use std::sync::{Arc, RwLock};

/// Gradients as one worker pushed them, in the shard's local order.
#[derive(Debug)]
pub struct Push {
    /// Unused memory where there are codes.
    pub gradients: Vec<f32>,
    pub codes: Option<EncodedPush>,
    /// Number of targets of the sum.
    pub targets: u64,
    pub stats: StepStats,
    /// Set for a sum over several workers of one node.
    pub together: Option<AggregatedWorkers>,
}

/// Other workers whose gradients a push contains, and their noise measurement, as in
/// [`muster_comm::wire::metadata::SumHead`].
#[derive(Debug, Clone, PartialEq)]
pub struct AggregatedWorkers {
    pub others: Vec<TaskId>,
    pub squares: f64,
    pub inverses: f64,
}

impl From<SumHead> for AggregatedWorkers {
    fn from(head: SumHead) -> Self {
        let SumHead {
            squares,
            inverses,
            others,
            ..
        } = head;
        Self {
            others,
            squares,
            inverses,
        }
    }
}

/// Encoded gradients of valid length, which can be decoded when they are needed.
#[derive(Debug)]
pub struct EncodedPush {
    pub shard_codec: Arc<ShardCodec>,
    pub bytes: Vec<u8>,
}

impl Push {
    /// Decodes an encoded push.
    pub fn decode(&mut self, parameters: usize) {
        if let Some(EncodedPush { shard_codec, bytes }) = self.codes.take() {
            pages::resize(&mut self.gradients, parameters);
            let decoded = shard_codec.decode_push(&bytes, &mut self.gradients);
            decoded.expect("codes of the right length");
        }
    }
}

/// Answer to a waiting worker. It returns the buffer of the push for reuse.
#[derive(Debug)]
pub enum ShardAnswer {
    /// The worker continues with step `clock`. Under BSP without backup workers the parameters are
    /// read from `tensors`, which cannot change before this worker pushes again. Otherwise `buffer`
    /// contains a copy.
    Parameters {
        /// Sent first, if the worker may not know it.
        view: Option<Arc<TaskSetView>>,
        clock: u64,
        stats: StepStats,
        /// The parameters contain the pushes of all workers for steps before this one.
        slowest: u64,
        /// Coordinator: the noise measurement.
        noise: NoisePart,
        tensors: Arc<RwLock<Tensors>>,
        /// Encoded difference to the parameters of the previous step, which the worker has.
        deltas: Option<Arc<Vec<u8>>>,
        /// The worker must send its residual: before its next push where answers are encoded,
        /// otherwise with it.
        keeps: bool,
        buffer: Vec<f32>,
        copied: bool,
    },
    /// Asks a worker for its residual after its push of the step before `clock`; the answer
    /// follows.
    HandOver {
        clock: u64,
        buffer: Vec<f32>,
    },
    /// The worker must push alone: its gradients are not in another worker's sum.
    Absent {
        buffer: Vec<f32>,
    },
    /// This view begins: the worker must pull under it, or leave.
    Moved {
        view: Arc<TaskSetView>,
        buffer: Vec<f32>,
    },
    /// Coordinator: these workers have left, or have not connected. The answer to its push is still
    /// pending.
    Gone {
        departed: Vec<Departed>,
        buffer: Vec<f32>,
    },
    /// Coordinator: squared norm of this shard's part of the step; the shard waits for the clip
    /// factor.
    Norm {
        clock: u64,
        square: f64,
    },
    Interrupted {
        version: u64,
        lost: bool,
        buffer: Vec<f32>,
    },
    Finished,
}

/// Refusal of a request that the protocol does not allow now. The connection is closed; nothing has
/// changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    #[error("worker {task} pushed step {pushed}, but its next step is {expected}")]
    StalePush {
        task: TaskId,
        pushed: u64,
        expected: u64,
    },
    #[error("this is view {present}, not {known}")]
    StaleView { known: u64, present: u64 },
    #[error("worker {0} is not of this view")]
    Stranger(TaskId),
    #[error("the shard has no parameters yet")]
    NotInitialised,
    #[error("the shard already has its parameters")]
    AlreadyInitialised,
    #[error("the coordinator did not confirm in time that the lost shard continues here")]
    NotAdopted,
    #[error("PS shard {0} lives here now, by the chief's word")]
    Adopted(TaskId),
    #[error("only the chief may do this")]
    NotChief,
    #[error("worker {0} is connected or has left; a view's worker joins once")]
    Taken(TaskId),
    #[error("a newer connection of worker {0} took its place")]
    Replaced(TaskId),
    #[error("the view cannot follow: {0}")]
    Change(&'static str),
    #[error("no sum of step {0} waits to be clipped")]
    NothingToClip(u64),
    #[error("part {0} of this push is in already, or there is no such part")]
    Part(usize),
    #[error("step {0} is pushed in parts by some and at once by others")]
    Mixed(u64),
    #[error("these pieces are not expected from shard {0}")]
    NotExpected(TaskId),
    #[error(
        "copy {} of the state, of version {}, is not here any more: the newest is copy {}, of version {}",
        asked.1, asked.0, newest.1, newest.0
    )]
    OtherCopy {
        /// Version and count; the same for `newest`.
        asked: (u64, u64),
        newest: (u64, u64),
    },
    #[error("a copy of {len} numbers has no {numbers} from number {from} on")]
    NotCopied { from: u64, numbers: u64, len: usize },
}

/// Why a connection ended after its handshake.
#[derive(Debug, thiserror::Error)]
pub enum ShardConnectionError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    /// The workers must use the promoted replica; an answer from here would contain updates that
    /// are not part of the model.
    #[error("this shard lives on elsewhere by the chief's word")]
    Superseded,
}

/// Membership of all workers, from which the shard decides on its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    pub joined: usize,
    pub left: usize,
    pub lost: usize,
    pub awaited: usize,
    pub finished: bool,
    /// The shard is not in the view and has handed over all pieces.
    pub retired: bool,
    pub broken: bool,
}

/// One connection of a worker to the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId {
    pub task: TaskId,
    pub(super) connection: u64,
}
