//! A worker's connection to one PS shard. [`partitions`] sends a step in partitions,
//! [`local_aggregation`] the summed step of the workers of a node. [`requests`] contains all other
//! messages, [`snapshot_connection`] a second connection for checkpoints.

mod local_aggregation;
mod partitions;
mod requests;
mod snapshot_connection;

pub(super) use partitions::{OutgoingPartitions, WorkerBufferPool};
pub(super) use snapshot_connection::{SnapshotConnection, SnapshotId};

use muster_comm::compress::Feedback;
use muster_comm::shard_codec::{Salt, ShardCodec};
use muster_comm::wire::metadata::{
    AnswerHead, Hello, NoisePart, PushHead, StepStats, Welcome, decode_u64,
};
use muster_comm::wire::view::{Departed, TaskSetView};
use muster_comm::wire::{Connection, FrameKind, Header, WireError, handshake, handshake_local};
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Time limit for the connection and the handshake.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

/// Interval at which a waiting worker checks whether to wait further.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether to wait further for a shard's answer.
pub type WaitCondition<'a> = &'a (dyn Fn() -> bool + Sync);

/// A shard's answer to a pull or a push.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reply {
    /// The parameters are in place; the worker continues with step `clock`.
    Parameters { clock: u64, stats: StepStats },
    /// Another view begins, under which this worker must pull, or which does not contain it.
    Moved,
    /// Coordinator: workers have left, and it must decide whether training continues without them.
    Gone,
    /// Coordinator: the squared norm of the shard's part of the step. The shard waits for the clip
    /// factor.
    Norm { square: f64 },
    /// Training stops because the coordinator has left; `lost` if it left without a goodbye.
    Interrupted { version: u64, lost: bool },
    /// The coordinator has ended training.
    Finished,
    /// The worker must push alone: its gradients are not in the node's push.
    Absent,
    /// No answer arrived within the time limit.
    GaveUp,
}

/// A shard's answer with the messages before it.
#[derive(Debug)]
pub(super) struct ShardReply {
    pub reply: Reply,
    /// The view that holds from this answer on, if the shard expects that the worker does not know
    /// it.
    pub view: Option<TaskSetView>,
    pub departed: Vec<Departed>,
    /// This worker must send its residual before the next push.
    pub keeps: bool,
    /// The parameters contain all workers' pushes for steps before this one; 0 if there are none.
    pub slowest: u64,
    /// Coordinator: the shard's measurement of the gradient noise.
    pub noise: NoisePart,
}

impl ShardReply {
    pub fn is_norm(&self) -> bool {
        matches!(self.reply, Reply::Norm { .. })
    }
}

impl From<Reply> for ShardReply {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            view: None,
            departed: Vec::new(),
            keeps: false,
            slowest: 0,
            noise: NoisePart::default(),
        }
    }
}

/// A worker's residual, with the task it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerResidual<'a> {
    pub of: TaskId,
    pub feedback: &'a Mutex<&'a mut Feedback>,
}

/// First message of the answer to a pull.
pub(super) enum PullStart {
    /// The parameters of this view follow.
    View(TaskSetView),
    Other(ShardReply),
}

/// How to reach a shard.
#[derive(Debug, Clone)]
pub(super) struct ShardRoute<'a> {
    pub address: &'a str,
    /// Task whose process hosts the shard; all candidates where it is not certain.
    pub hosts: Vec<TaskId>,
    /// Folder of the node's endpoints, if it has one.
    pub sockets: Option<&'a Path>,
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct ShardLink {
    pub(super) shard: TaskId,
    /// Task whose process hosts the shard.
    pub(super) host: TaskId,
    /// Address of that process.
    pub(super) address: String,
    /// Folder of the node's endpoints, if it has one.
    pub(super) sockets: Option<PathBuf>,
    connection: Connection,
    /// Second handle of the same connection for a sending thread, once there was one.
    speaker: Option<Connection>,
    state_per_parameter: usize,
    keeps_known: bool,
    /// Codecs of pushes and answers, if they are encoded.
    pub(super) shard_codec: Option<ShardCodec>,
    codes: Vec<u8>,
    /// Whether each push is followed by the residual.
    says_held: bool,
    /// Coordinator: connection over which checkpoints read the shard's snapshot buffer.
    side: SnapshotConnection,
    /// Whether this shard received gradients. If it is lost, its promoted replica needs them again.
    pub(super) is_pushed_to: bool,
    /// Whether a pull was sent that has no answer yet.
    pub(super) is_asked: bool,
}

impl ShardRoute<'_> {
    fn handshake_local(&self, hello: &Hello) -> Result<Option<(Connection, Welcome)>, WireError> {
        let Some(sockets) = self.sockets else {
            return Ok(None);
        };
        for &host in &self.hosts {
            let greeted = handshake_local(sockets, host, self.address, hello, JOIN_LIMIT)?;
            if greeted.is_some() {
                return Ok(greeted);
            }
        }
        Ok(None)
    }
}

impl ShardLink {
    /// Connects and performs the handshake.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] with the shard's reason when it rejects the handshake.
    pub(super) fn join(
        shard: TaskId,
        route: &ShardRoute<'_>,
        hello: &Hello,
    ) -> Result<Self, WireError> {
        let hello = Hello {
            to: Some(shard),
            ..hello.clone()
        };
        let (connection, welcome) = match route.handshake_local(&hello)? {
            Some(near) => near,
            None => handshake(route.address, &hello, JOIN_LIMIT)?,
        };
        Ok(Self {
            shard,
            host: shard,
            address: route.address.to_owned(),
            sockets: route.sockets.map(Path::to_owned),
            connection,
            speaker: None,
            shard_codec: None,
            codes: Vec::new(),
            says_held: false,
            side: SnapshotConnection::default(),
            is_pushed_to: false,
            is_asked: false,
            state_per_parameter: welcome.state_per_parameter as usize,
            keeps_known: welcome.keeps_known,
        })
    }

    /// Whether the connection uses memory that the shard maps as well.
    pub(super) fn is_shared_memory(&self) -> bool {
        self.connection.is_shared_memory()
    }

    /// Returns the number of values of optimizer state that the shard keeps per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.state_per_parameter
    }

    /// Sends a pull, unless one is open, and waits until the shard's answer begins. `known` is the
    /// number of the newest known view, 0 for none.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn begin_pull(
        &mut self,
        known: u64,
        patience: WaitCondition<'_>,
    ) -> Result<PullStart, WireError> {
        if !self.is_asked {
            self.connection.send(FrameKind::Pull, known, &[], &[])?;
            self.is_asked = true;
        }
        if !self.wait(patience)? {
            return Ok(PullStart::Other(Reply::GaveUp.into()));
        }
        let header = self.connection.receive()?;
        self.is_asked = false;
        match header.kind {
            FrameKind::View => Ok(PullStart::View(self.json(header, "view")?)),
            _ => Ok(PullStart::Other(self.understand(header, &mut [])?)),
        }
    }

    /// Receives the parameters of the pull that has begun.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn end_pull(&mut self, parts: &mut [&mut [f32]]) -> Result<ShardReply, WireError> {
        let header = self.connection.receive()?;
        self.understand(header, parts)
    }

    /// Pushes the gradients of step `clock`, waits for the parameters after it and writes them into
    /// `parts`.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn push_pull(
        &mut self,
        clock: u64,
        head: PushHead,
        gradients: &[&[f32]],
        parts: &mut [&mut [f32]],
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        self.is_pushed_to = true;
        self.connection
            .send(FrameKind::Push, clock, &head.encode(), gradients)?;
        self.reply(None, parts, patience)
    }

    /// Leaves in order.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn goodbye(mut self) -> Result<(), WireError> {
        self.connection.send(FrameKind::Goodbye, 0, &[], &[])
    }

    /// Like [`Self::push_pull`] with encoded gradients; `gradients` are those of the whole network.
    /// The lock on `feedback` is held only during the encoding. So the push to one shard is sent
    /// while that to the next is encoded.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Panics
    /// Without a shard codec (`shard_codec`).
    pub(super) fn squeezed_push_pull(
        &mut self,
        clock: u64,
        head: PushHead,
        gradients: (Salt, &[f32], WorkerResidual<'_>),
        parts: &mut [&mut [f32]],
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        self.is_pushed_to = true;
        let (salt, gradients, residual) = gradients;
        let shard_codec = self.shard_codec.as_ref().expect("there are codecs");
        {
            let mut feedback = residual.feedback.lock().expect("no codec has panicked");
            shard_codec.encode_push(salt, gradients, &mut feedback, &mut self.codes);
        }
        if self.says_held {
            self.send_residual(clock + 1, residual)?;
        }
        self.connection
            .send_bytes(FrameKind::Codes, clock, &head.encode(), &self.codes)?;
        self.reply(Some(residual), parts, patience)
    }

    /// Sends the residual of the shard's part after the push of the step before `clock`.
    fn send_residual(&mut self, clock: u64, residual: WorkerResidual<'_>) -> Result<(), WireError> {
        let shard_codec = self.shard_codec.as_ref().expect("there are codecs");
        let feedback = residual.feedback.lock().expect("no codec has panicked");
        let (of, planes) = (residual.of.0.as_bytes(), shard_codec.residual(&feedback));
        self.connection.send(FrameKind::Held, clock, of, &planes)
    }

    /// Waits for the answer of a push; `residual` is the residual of an encoded one.
    pub(super) fn reply(
        &mut self,
        residual: Option<WorkerResidual<'_>>,
        parts: &mut [&mut [f32]],
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        if !self.wait(patience)? {
            return Ok(Reply::GaveUp.into());
        }
        let mut header = self.connection.receive()?;
        let (mut view, mut keeps) = (None, false);
        self.says_held = false;
        loop {
            match (header.kind, residual) {
                (FrameKind::View, _) => view = Some(self.json(header, "view")?),
                (FrameKind::Keep, _) => {
                    keeps = true;
                    self.connection.receive_meta(header)?;
                }
                (FrameKind::Fetch, Some(residual)) => {
                    self.connection.receive_meta(header)?;
                    match header.clock {
                        0 => self.says_held = true,
                        clock => self.send_residual(clock, residual)?,
                    }
                }
                _ => break,
            }
            header = self.connection.receive()?;
        }
        let answer = self.understand(header, parts)?;
        // The answer itself may contain a view.
        let view = view.or(answer.view);
        Ok(ShardReply {
            view,
            keeps,
            ..answer
        })
    }

    /// Waits for the answer. Returns `false` if `patience` ended first.
    fn wait(&mut self, patience: WaitCondition<'_>) -> Result<bool, WireError> {
        while !self.connection.wait_readable(LOOK_EVERY)? {
            if !patience() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn understand(
        &mut self,
        header: Header,
        parts: &mut [&mut [f32]],
    ) -> Result<ShardReply, WireError> {
        let reply = match header.kind {
            FrameKind::Parameters => {
                let head = AnswerHead::decode(&self.connection.receive_meta(header)?)?;
                self.connection.receive_payload(header, parts)?;
                let reply = Reply::Parameters {
                    clock: header.clock,
                    stats: head.stats,
                };
                let answer = ShardReply::from(reply);
                return Ok(ShardReply {
                    slowest: head.slowest,
                    noise: head.noise,
                    ..answer
                });
            }
            FrameKind::Deltas => {
                let head = AnswerHead::decode(&self.connection.receive_meta(header)?)?;
                let shard_codec = self
                    .shard_codec
                    .as_ref()
                    .ok_or(WireError::Unexpected { got: header.kind })?;
                let limit = shard_codec.max_pull_bytes();
                self.connection
                    .receive_bytes(header, limit, &mut self.codes)?;
                shard_codec
                    .decode_pull(&self.codes, parts)
                    .map_err(|_| WireError::Malformed("encoded answer"))?;
                let reply = Reply::Parameters {
                    clock: header.clock,
                    stats: head.stats,
                };
                let answer = ShardReply::from(reply);
                return Ok(ShardReply {
                    slowest: head.slowest,
                    noise: head.noise,
                    ..answer
                });
            }
            FrameKind::Norm => {
                let square = decode_u64(&self.connection.receive_meta(header)?)?;
                let square = f64::from_bits(square);
                Reply::Norm { square }
            }
            FrameKind::Moved => {
                let view = Some(self.json(header, "view")?);
                let answer = ShardReply::from(Reply::Moved);
                return Ok(ShardReply { view, ..answer });
            }
            FrameKind::Gone => {
                let departed = self.json(header, "list of the departed")?;
                let answer = ShardReply::from(Reply::Gone);
                return Ok(ShardReply { departed, ..answer });
            }
            FrameKind::Interrupted => {
                let lost = self.connection.receive_meta(header)? != [0];
                Reply::Interrupted {
                    version: header.clock,
                    lost,
                }
            }
            FrameKind::Finished => Reply::Finished,
            FrameKind::Absent => Reply::Absent,
            _ => return Err(self.connection.unexpected(header)),
        };
        Ok(reply.into())
    }

    fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        header: Header,
        what: &'static str,
    ) -> Result<T, WireError> {
        let meta = self.connection.receive_meta(header)?;
        serde_json::from_slice(&meta).map_err(|_| WireError::Malformed(what))
    }
}
