//! A worker's connection to one PS shard.

use crate::clock;
use crate::wire::hello::{Hello, StepStats, Welcome, decode_u64};
use crate::wire::{Connection, Header, Kind, WireError};
use std::net::{TcpStream, ToSocketAddrs};
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
    /// The step cannot be completed as a worker has left; `lost` when not in order.
    Interrupted { version: u64, lost: bool },
    /// The chief has ended training.
    Finished,
    /// Nobody answered in the time there was.
    GaveUp,
}

/// One greeted connection.
#[derive(Debug)]
pub struct Link {
    connection: Connection,
    state_per_parameter: usize,
}

impl Link {
    /// Connects and greets.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] with the shard's reason when it takes this worker for a stranger.
    pub fn join(address: &str, hello: &Hello) -> Result<Self, WireError> {
        let mut connection = Connection::new(connect(address)?)?;
        let greeting = serde_json::to_vec(hello).expect("a greeting is plain data");
        connection.send(Kind::Hello, 0, &greeting, &[])?;
        let (header, meta) = connection.receive_greeting(clock::now() + JOIN_LIMIT, 4096)?;
        match header.kind {
            Kind::Welcome => {
                let welcome: Welcome =
                    serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("welcome"))?;
                Ok(Self {
                    connection,
                    state_per_parameter: welcome.state_per_parameter as usize,
                })
            }
            Kind::Refused => Err(WireError::Refused(
                String::from_utf8_lossy(&meta).into_owned(),
            )),
            got => Err(WireError::Unexpected { got }),
        }
    }

    /// Values of optimizer state that the shard keeps per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.state_per_parameter
    }

    /// Chief: gives the shard its content, parameters first, then plane by plane the optimizer's state.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn init(&mut self, step: u64, updates: u64, content: &[&[f32]]) -> Result<(), WireError> {
        self.connection
            .send(Kind::Init, step, &updates.to_le_bytes(), content)?;
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Ready => Ok(()),
            _ => Err(self.unexpected(header)),
        }
    }

    /// Waits for the shard's parameters and writes them into `parts`.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn pull(
        &mut self,
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Reply, WireError> {
        self.connection.send(Kind::Pull, 0, &[], &[])?;
        self.reply(parts, patience)
    }

    /// Gives the gradients of step `clock`, waits for the parameters after it and writes them into `parts`.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn push_pull(
        &mut self,
        clock: u64,
        stats: StepStats,
        gradients: &[&[f32]],
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Reply, WireError> {
        self.connection
            .send(Kind::Push, clock, &stats.encode(), gradients)?;
        self.reply(parts, patience)
    }

    /// Chief: reads everything the shard holds into `content`; its version and updates.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn snapshot(&mut self, content: &mut [&mut [f32]]) -> Result<(u64, u64), WireError> {
        self.connection.send(Kind::Snapshot, 0, &[], &[])?;
        let header = self.connection.receive()?;
        if header.kind != Kind::SnapshotData {
            return Err(self.unexpected(header));
        }
        let updates = decode_u64(&self.connection.receive_meta(header)?)?;
        self.connection.receive_payload(header, content)?;
        Ok((header.clock, updates))
    }

    /// Chief: training is over.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn done(&mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Done, 0, &[], &[])
    }

    /// Leaves in order.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn goodbye(mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Goodbye, 0, &[], &[])
    }

    fn reply(
        &mut self,
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Reply, WireError> {
        while !self.connection.wait_readable(LOOK_EVERY)? {
            if !patience() {
                return Ok(Reply::GaveUp);
            }
        }
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Parameters => {
                let stats = StepStats::decode(&self.connection.receive_meta(header)?)?;
                self.connection.receive_payload(header, parts)?;
                Ok(Reply::Parameters {
                    clock: header.clock,
                    stats,
                })
            }
            Kind::Interrupted => {
                let lost = self.connection.receive_meta(header)? != [0];
                Ok(Reply::Interrupted {
                    version: header.clock,
                    lost,
                })
            }
            Kind::Finished => Ok(Reply::Finished),
            _ => Err(self.unexpected(header)),
        }
    }

    fn unexpected(&mut self, header: Header) -> WireError {
        if header.kind != Kind::Refused {
            return WireError::Unexpected { got: header.kind };
        }
        match self.connection.receive_meta(header) {
            Ok(reason) => WireError::Refused(String::from_utf8_lossy(&reason).into_owned()),
            Err(error) => error,
        }
    }
}

fn connect(address: &str) -> Result<TcpStream, WireError> {
    let io = |source| WireError::Io {
        doing: "connect to a PS shard",
        source,
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for resolved in address.to_socket_addrs().map_err(io)? {
        match TcpStream::connect_timeout(&resolved, JOIN_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(io(last))
}
