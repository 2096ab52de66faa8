//! A worker's connection to one PS shard; [`parts`] is a step in parts, [`together`] one that workers of a node
//! push together, [`words`] what goes over it beside steps, [`side`] a second connection, for checkpoints.

mod parts;
mod side;
mod together;
mod words;

pub(super) use parts::{Outgoing, Spares};
pub(super) use side::{Lent, Side};

use crate::compress::Feedback;
use crate::squeeze::{Salt, Squeeze};
use crate::wire::hello::{AnswerHead, Hello, NoisePart, PushHead, StepStats, Welcome, decode_u64};
use crate::wire::view::{Departed, View};
use crate::wire::{Connection, Header, Kind, WireError, greet, greet_near};
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// To connect and to be welcomed.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

/// How often a waiting worker looks at whether it should wait on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether to go on waiting for a shard's answer.
pub type Patience<'a> = &'a (dyn Fn() -> bool + Sync);

/// A shard's answer to a pull or a push.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reply {
    /// The parameters are in place; go on with step `clock`.
    Parameters { clock: u64, stats: StepStats },
    /// Another view begins, under which this worker must pull, or it is not in it.
    Moved,
    /// Chief: workers went away, and it must decide whether training goes on without them.
    Gone,
    /// Chief: the square of the norm of the shard's part of the step, which waits for what clipping leaves of it.
    Norm { square: f64 },
    /// Training stops as the chief has left; `lost` when not in order.
    Interrupted { version: u64, lost: bool },
    /// The chief has ended training.
    Finished,
    /// What was asked for, or pushed together with others', is to be pushed alone.
    Absent,
    /// Nobody answered in the time there was.
    GaveUp,
}

/// A shard's answer with what came before it.
#[derive(Debug)]
pub(super) struct Told {
    pub reply: Reply,
    /// The view that holds from the answer on, where the shard thinks it is new to the worker.
    pub view: Option<View>,
    pub departed: Vec<Departed>,
    /// Before the next push this worker hands over what it holds back.
    pub keeps: bool,
    /// All workers' pushes for steps before this one are in the parameters; 0 where there are none.
    pub slowest: u64,
    /// Chief: what the shard has measured.
    pub noise: NoisePart,
}

impl From<Reply> for Told {
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

/// What a worker holds back of its gradients, by its own name.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldBack<'a> {
    pub of: TaskId,
    pub feedback: &'a Mutex<&'a mut Feedback>,
}

/// What a pull begins with.
pub(super) enum Begun {
    /// The parameters of this view follow.
    View(View),
    Other(Told),
}

/// Where a shard is reached.
#[derive(Debug, Clone)]
pub(super) struct Way<'a> {
    pub address: &'a str,
    /// In whose process it lives; where that is not known for sure, whoever may be.
    pub hosts: Vec<TaskId>,
    /// Where tasks of this node meet, if they do.
    pub sockets: Option<&'a Path>,
}

/// One greeted connection.
#[derive(Debug)]
pub struct Link {
    pub(super) shard: TaskId,
    /// In whose process it lives.
    pub(super) host: TaskId,
    /// Where that is reached.
    pub(super) address: String,
    /// Where tasks of this node meet, if they do.
    pub(super) sockets: Option<PathBuf>,
    connection: Connection,
    /// The same for a second thread, once there was one.
    speaker: Option<Connection>,
    state_per_parameter: usize,
    keeps_known: bool,
    /// How pushes and answers are encoded, if they are.
    pub(super) squeeze: Option<Squeeze>,
    codes: Vec<u8>,
    /// Whether a push says what is held back after it.
    says_held: bool,
    /// Chief: by which checkpoints draw what the shard has copied.
    side: Side,
    /// Whether this shard was given gradients; one that lives on elsewhere needs them again.
    pub(super) is_pushed_to: bool,
    /// Whether parameters were asked for and nothing was answered yet.
    pub(super) is_asked: bool,
}

impl Way<'_> {
    fn greet_near(&self, hello: &Hello) -> Result<Option<(Connection, Welcome)>, WireError> {
        let Some(sockets) = self.sockets else {
            return Ok(None);
        };
        for &host in &self.hosts {
            let greeted = greet_near(sockets, host, self.address, hello, JOIN_LIMIT)?;
            if greeted.is_some() {
                return Ok(greeted);
            }
        }
        Ok(None)
    }
}

impl Link {
    /// Connects and greets.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] with the shard's reason when it takes this worker for a stranger.
    pub(super) fn join(shard: TaskId, way: &Way<'_>, hello: &Hello) -> Result<Self, WireError> {
        let hello = Hello {
            to: Some(shard),
            ..hello.clone()
        };
        let (connection, welcome) = match way.greet_near(&hello)? {
            Some(near) => near,
            None => greet(way.address, &hello, JOIN_LIMIT)?,
        };
        Ok(Self {
            shard,
            host: shard,
            address: way.address.to_owned(),
            sockets: way.sockets.map(Path::to_owned),
            connection,
            speaker: None,
            squeeze: None,
            codes: Vec::new(),
            says_held: false,
            side: Side::default(),
            is_pushed_to: false,
            is_asked: false,
            state_per_parameter: welcome.state_per_parameter as usize,
            keeps_known: welcome.keeps_known,
        })
    }

    /// Whether it goes through memory that the shard maps too.
    pub(super) fn is_shared_memory(&self) -> bool {
        self.connection.is_shared_memory()
    }

    /// Values of optimizer state that the shard keeps per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.state_per_parameter
    }

    /// Asks for the parameters, where that has not been done yet, and waits until the shard begins its answer. `known` is the newest
    /// view heard of, 0 for none.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn begin_pull(
        &mut self,
        known: u64,
        patience: Patience<'_>,
    ) -> Result<Begun, WireError> {
        if !self.is_asked {
            self.connection.send(Kind::Pull, known, &[], &[])?;
            self.is_asked = true;
        }
        if !self.wait(patience)? {
            return Ok(Begun::Other(Reply::GaveUp.into()));
        }
        let header = self.connection.receive()?;
        self.is_asked = false;
        match header.kind {
            Kind::View => Ok(Begun::View(self.json(header, "view")?)),
            _ => Ok(Begun::Other(self.understand(header, &mut [])?)),
        }
    }

    /// The parameters of the pull that has begun.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn end_pull(&mut self, parts: &mut [&mut [f32]]) -> Result<Told, WireError> {
        let header = self.connection.receive()?;
        self.understand(header, parts)
    }

    /// Gives the gradients of step `clock`, waits for the parameters after it and writes them into `parts`.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn push_pull(
        &mut self,
        clock: u64,
        head: PushHead,
        gradients: &[&[f32]],
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        self.is_pushed_to = true;
        self.connection
            .send(Kind::Push, clock, &head.encode(), gradients)?;
        self.reply(None, parts, patience)
    }

    /// Leaves in order.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn goodbye(mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Goodbye, 0, &[], &[])
    }

    /// The same with encoded gradients, those of the whole network. `feedback` is taken only while they are encoded, so that what
    /// goes to one shard is sent while what goes to the next is encoded.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Panics
    /// Without a squeeze.
    pub(super) fn squeezed_push_pull(
        &mut self,
        clock: u64,
        head: PushHead,
        gradients: (Salt, &[f32], HeldBack<'_>),
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        self.is_pushed_to = true;
        let (salt, gradients, held) = gradients;
        let squeeze = self.squeeze.as_ref().expect("there are codecs");
        {
            let mut feedback = held.feedback.lock().expect("no codec has panicked");
            squeeze.encode_push(salt, gradients, &mut feedback, &mut self.codes);
        }
        if self.says_held {
            self.say_held(clock + 1, held)?;
        }
        self.connection
            .send_bytes(Kind::Codes, clock, &head.encode(), &self.codes)?;
        self.reply(Some(held), parts, patience)
    }

    /// Says what is held back of the shard's part after the push of the step before `clock`.
    fn say_held(&mut self, clock: u64, held: HeldBack<'_>) -> Result<(), WireError> {
        let squeeze = self.squeeze.as_ref().expect("there are codecs");
        let feedback = held.feedback.lock().expect("no codec has panicked");
        let (of, planes) = (held.of.0.as_bytes(), squeeze.held(&feedback));
        self.connection.send(Kind::Held, clock, of, &planes)
    }

    /// Waits for the answer of a push; `held` is what an encoded one has left.
    pub(super) fn reply(
        &mut self,
        held: Option<HeldBack<'_>>,
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        if !self.wait(patience)? {
            return Ok(Reply::GaveUp.into());
        }
        let mut header = self.connection.receive()?;
        let (mut view, mut keeps) = (None, false);
        self.says_held = false;
        loop {
            match (header.kind, held) {
                (Kind::View, _) => view = Some(self.json(header, "view")?),
                (Kind::Keep, _) => {
                    keeps = true;
                    self.connection.receive_meta(header)?;
                }
                (Kind::Fetch, Some(held)) => {
                    self.connection.receive_meta(header)?;
                    match header.clock {
                        0 => self.says_held = true,
                        clock => self.say_held(clock, held)?,
                    }
                }
                _ => break,
            }
            header = self.connection.receive()?;
        }
        let told = self.understand(header, parts)?;
        // An answer may bring a view itself.
        let view = view.or(told.view);
        Ok(Told {
            view,
            keeps,
            ..told
        })
    }

    /// `false` when patience ran out first.
    fn wait(&mut self, patience: Patience<'_>) -> Result<bool, WireError> {
        while !self.connection.wait_readable(LOOK_EVERY)? {
            if !patience() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn understand(&mut self, header: Header, parts: &mut [&mut [f32]]) -> Result<Told, WireError> {
        let reply = match header.kind {
            Kind::Parameters => {
                let head = AnswerHead::decode(&self.connection.receive_meta(header)?)?;
                self.connection.receive_payload(header, parts)?;
                let reply = Reply::Parameters {
                    clock: header.clock,
                    stats: head.stats,
                };
                let told = Told::from(reply);
                return Ok(Told {
                    slowest: head.slowest,
                    noise: head.noise,
                    ..told
                });
            }
            Kind::Deltas => {
                let head = AnswerHead::decode(&self.connection.receive_meta(header)?)?;
                let squeeze = self
                    .squeeze
                    .as_ref()
                    .ok_or(WireError::Unexpected { got: header.kind })?;
                let limit = squeeze.max_pull_bytes();
                self.connection
                    .receive_bytes(header, limit, &mut self.codes)?;
                squeeze
                    .decode_pull(&self.codes, parts)
                    .map_err(|_| WireError::Malformed("encoded answer"))?;
                let reply = Reply::Parameters {
                    clock: header.clock,
                    stats: head.stats,
                };
                let told = Told::from(reply);
                return Ok(Told {
                    slowest: head.slowest,
                    noise: head.noise,
                    ..told
                });
            }
            Kind::Norm => {
                let square = decode_u64(&self.connection.receive_meta(header)?)?;
                let square = f64::from_bits(square);
                Reply::Norm { square }
            }
            Kind::Moved => {
                let view = Some(self.json(header, "view")?);
                let told = Told::from(Reply::Moved);
                return Ok(Told { view, ..told });
            }
            Kind::Gone => {
                let departed = self.json(header, "list of the departed")?;
                let told = Told::from(Reply::Gone);
                return Ok(Told { departed, ..told });
            }
            Kind::Interrupted => {
                let lost = self.connection.receive_meta(header)? != [0];
                Reply::Interrupted {
                    version: header.clock,
                    lost,
                }
            }
            Kind::Finished => Reply::Finished,
            Kind::Absent => Reply::Absent,
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
