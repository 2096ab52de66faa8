//! What the exchange is given and what it answers.

use super::tensors::Tensors;
use crate::pages;
use crate::squeeze::Squeeze;
use crate::wire::hello::{NoisePart, StepStats};
use crate::wire::view::{Departed, View};
use muster_model::id::TaskId;
use std::sync::{Arc, RwLock};

/// A gradient as one worker pushed it, in the shard's local order.
#[derive(Debug)]
pub struct Push {
    /// Not looked at where there are codes; memory for others then.
    pub gradients: Vec<f32>,
    pub codes: Option<Codes>,
    /// That they are the sum over.
    pub targets: u64,
    pub stats: StepStats,
    /// Of a sum over several workers of one node.
    pub together: Option<Together>,
}

/// Whose gradients are in a push besides the sender's, and what tells of their noise, as in [`crate::wire::hello::SumHead`].
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    pub others: Vec<TaskId>,
    pub squares: f64,
    pub inverses: f64,
}

/// Gradients as they came, of which the length is right, so that they can be decoded whenever they are needed.
#[derive(Debug)]
pub struct Codes {
    pub squeeze: Arc<Squeeze>,
    pub bytes: Vec<u8>,
}

impl Push {
    /// Decodes what has come encoded.
    pub fn decode(&mut self, parameters: usize) {
        if let Some(Codes { squeeze, bytes }) = self.codes.take() {
            pages::resize(&mut self.gradients, parameters);
            let decoded = squeeze.decode_push(&bytes, &mut self.gradients);
            decoded.expect("codes of the right length");
        }
    }
}

/// What a waiting worker is told. The buffer of its push comes back, to be used again.
#[derive(Debug)]
pub enum Answer {
    /// Go on with step `clock`. Where every worker's push is waited for the parameters are read from `tensors`: nothing can change
    /// them before this worker pushes again. Otherwise `buffer` holds a copy of them.
    Parameters {
        /// Sent before, where the worker does not know it yet.
        view: Option<Arc<View>>,
        clock: u64,
        stats: StepStats,
        /// Pushes of all workers for steps before this one are in the parameters.
        slowest: u64,
        /// Chief: as it was measured.
        noise: NoisePart,
        tensors: Arc<RwLock<Tensors>>,
        /// What a worker that has the parameters of the step before lacks of these, encoded.
        deltas: Option<Arc<Vec<u8>>>,
        /// The worker hands over what it holds back: before its next push where answers are encoded, otherwise with it.
        keeps: bool,
        buffer: Vec<f32>,
        copied: bool,
    },
    /// Before it is answered, a worker says what it holds back after its push of the step before `clock`.
    HandOver {
        clock: u64,
        buffer: Vec<f32>,
    },
    /// What was asked for or pushed together with others' is to be pushed alone.
    Absent {
        buffer: Vec<f32>,
    },
    /// This view begins: pull under it, or leave.
    Moved {
        view: Arc<View>,
        buffer: Vec<f32>,
    },
    /// Chief: these went away, or have not come. Its push still waits for its answer.
    Gone {
        departed: Vec<Departed>,
        buffer: Vec<f32>,
    },
    /// Chief: of this shard's part of the step the square norm; what clipping leaves of all decides how it goes on.
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

/// A request that the protocol does not allow now; the connection is closed and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
    #[error("the chief did not say in time that the lost shard goes on here")]
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
        /// Version and count, as those below.
        asked: (u64, u64),
        newest: (u64, u64),
    },
    #[error("a copy of {len} numbers has no {numbers} from number {from} on")]
    NotCopied { from: u64, numbers: u64, len: usize },
}

/// How all workers together stand, for the shard's own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    pub joined: usize,
    pub left: usize,
    pub lost: usize,
    pub awaited: usize,
    pub finished: bool,
    /// Not in the view, and everything is handed over.
    pub retired: bool,
    pub broken: bool,
}

/// A worker's seat at the shard: one connection of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    pub task: TaskId,
    pub(super) connection: u64,
}
