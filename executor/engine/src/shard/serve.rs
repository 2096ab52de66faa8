//! A shard's connections: one thread each, blocked most of the time.

use super::exchange::{Answer, Exchange, Push, Refusal};
use crate::clock;
use crate::log;
use crate::stop::StopFlag;
use crate::wire::hello::{Hello, MAX_HELLO_BYTES, StepStats, Welcome, decode_u64, same_secret};
use crate::wire::{Connection, Header, Kind, WireError};
use muster_model::id::JobId;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// From the connection being accepted to its greeting being read.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Connections that have not greeted yet; further ones are closed at once, so that strangers cannot use up threads.
const STRANGERS_AT_ONCE: usize = 64;

/// How long the shard stays for workers to read the end of training.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long a shard that all joined workers have left waits for those still to come: they learn from it that it is over.
const LATECOMERS: Duration = Duration::from_secs(5);

/// Who the shard is, and whom it takes as its peer.
#[derive(Debug, Clone)]
pub struct Identity {
    pub job_id: JobId,
    pub revision: u64,
    pub secret: String,
    pub index: u32,
    pub ps_shards: u32,
    pub workers: u32,
}

/// How a shard's life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The chief said that training is over.
    Finished,
    /// All workers left in order, or the shard was told to stop.
    Stopped,
    /// A worker went away without a word.
    PeerLost,
}

/// Why a shard could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    #[error("could not listen on {host}")]
    Listen {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
}

/// A listening shard.
#[derive(Debug)]
pub struct Shard {
    room: Arc<Room>,
    listener: TcpListener,
    address: SocketAddr,
}

/// What every connection thread sees.
#[derive(Debug)]
struct Room {
    identity: Identity,
    exchange: Exchange,
    parameters: usize,
    state_per_parameter: u32,
    strangers: AtomicUsize,
}

impl Shard {
    /// Listens on a free port of `host`. Nothing is accepted before [`Self::serve`].
    ///
    /// # Errors
    /// [`ShardError::Listen`].
    pub fn bind(host: &str, identity: Identity, exchange: Exchange) -> Result<Self, ShardError> {
        let listen = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind((host, 0))?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|source| ShardError::Listen {
            host: host.to_owned(),
            source,
        })?;
        let (parameters, state_per_parameter) = {
            let tensors = exchange.tensors();
            (
                tensors.parameters().len(),
                tensors.state_per_parameter() as u32,
            )
        };
        let room = Arc::new(Room {
            identity,
            exchange,
            parameters,
            state_per_parameter,
            strangers: AtomicUsize::new(0),
        });
        Ok(Self {
            room,
            listener,
            address,
        })
    }

    /// Where workers reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until training ends. Once `stop` is set it goes on until the workers have left (the chief still needs its
    /// snapshot), at most until the grace is nearly over.
    ///
    /// # Errors
    /// [`ShardError::Thread`].
    pub fn serve(self, stop: &StopFlag) -> Result<End, ShardError> {
        let Self { room, listener, .. } = self;
        let acceptor = Arc::clone(&room);
        thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || accept(&listener, &acceptor))
            .map_err(ShardError::Thread)?;
        Ok(watch(&room.exchange, stop))
    }
}

fn watch(exchange: &Exchange, stop: &StopFlag) -> End {
    let mut finished_at: Option<Instant> = None;
    let mut alone_since: Option<Instant> = None;
    let passed =
        |since: Option<Instant>, limit: Duration| since.is_some_and(|at| at.elapsed() >= limit);
    loop {
        let members = exchange.membership(Duration::from_millis(100));
        let departed = members.left + members.lost;
        if members.joined > 0 {
            alone_since = None;
        } else if departed > 0 || members.finished {
            alone_since.get_or_insert_with(clock::now);
        }
        if members.finished {
            // Measured from the same moment for all: those who wait were told just now.
            finished_at.get_or_insert_with(clock::now);
            if (members.joined == 0 && members.awaited == 0) || passed(finished_at, FAREWELL) {
                return End::Finished;
            }
            continue;
        }
        let over =
            alone_since.is_some() && (members.awaited == 0 || passed(alone_since, LATECOMERS));
        let told = stop.is_set() && (members.joined == 0 || stop.is_over());
        if over || told {
            return if members.lost > 0 && !stop.is_set() {
                End::PeerLost
            } else {
                End::Stopped
            };
        }
    }
}

fn accept(listener: &TcpListener, room: &Arc<Room>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Out of descriptors, or a peer that gave up before it was accepted: neither ends the shard.
            Err(_) => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        if room.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS_AT_ONCE {
            room.strangers.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let guest = Arc::clone(room);
        let spawned = thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || guest.receive_guest(stream));
        if spawned.is_err() {
            room.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Why a connection of a greeted worker ended before its time.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Room {
    fn receive_guest(&self, stream: TcpStream) {
        let greeted = Connection::new(stream).and_then(|connection| self.greet(connection));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        let (mut connection, rank) = match greeted {
            Ok(guest) => guest,
            Err(error) => {
                log::line(format_args!(
                    "a connection was closed: {}",
                    log::chain(&error)
                ));
                return;
            }
        };
        match self.attend(&mut connection, rank) {
            Ok(()) => self.exchange.depart(rank, true),
            Err(broken) => {
                log::line(format_args!("lost worker {rank}: {}", log::chain(&broken)));
                self.exchange.depart(rank, false);
                if let Broken::Refused(refusal) = &broken {
                    connection.refuse(&refusal.to_string());
                }
            }
        }
    }

    /// Takes the greeting, and joins the worker when everything agrees. The rank of the worker.
    fn greet(&self, mut connection: Connection) -> Result<(Connection, usize), WireError> {
        let (header, meta) =
            connection.receive_greeting(clock::now() + HANDSHAKE_LIMIT, MAX_HELLO_BYTES)?;
        if header.kind != Kind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: Hello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let rank = hello.rank as usize;
        let accepted = self.judge(&hello).and_then(|()| {
            self.exchange
                .join(rank)
                .map_err(|refusal| refusal.to_string())
        });
        if let Err(reason) = accepted {
            connection.refuse(&reason);
            return Err(WireError::TurnedAway(reason));
        }
        let welcome = serde_json::to_vec(&Welcome {
            state_per_parameter: self.state_per_parameter,
        })
        .expect("a welcome is plain data");
        if let Err(error) = connection.send(Kind::Welcome, 0, &welcome, &[]) {
            self.exchange.depart(rank, false);
            return Err(error);
        }
        Ok((connection, rank))
    }

    fn judge(&self, hello: &Hello) -> Result<(), String> {
        let me = &self.identity;
        // First, and without a word more: who does not know the secret learns nothing about the job.
        if !same_secret(&hello.secret, &me.secret) {
            return Err("the secret is wrong".to_owned());
        }
        if hello.job_id != me.job_id {
            return Err("this shard serves another job".to_owned());
        }
        if hello.revision != me.revision {
            return Err(format!("this shard serves revision {}", me.revision));
        }
        let layout = (hello.workers, hello.shard, hello.ps_shards);
        if layout != (me.workers, me.index, me.ps_shards) || hello.rank >= me.workers {
            return Err(format!(
                "this is shard {} of {} for {} workers",
                me.index, me.ps_shards, me.workers
            ));
        }
        if hello.parameters != self.parameters as u64 {
            return Err(format!("this shard holds {} parameters", self.parameters));
        }
        Ok(())
    }

    /// Serves one worker until it says goodbye.
    fn attend(&self, connection: &mut Connection, rank: usize) -> Result<(), Broken> {
        let mut buffer: Vec<f32> = Vec::new();
        loop {
            let header = connection.receive()?;
            match header.kind {
                Kind::Push => {
                    let push = self.receive_push(connection, header, buffer)?;
                    let answer = self.exchange.push(rank, header.clock, push)?;
                    buffer = self.reply(connection, answer)?;
                }
                Kind::Pull => {
                    let answer = self.exchange.pull(rank);
                    buffer = self.reply(connection, answer)?;
                }
                Kind::Init => self.receive_init(connection, header, rank)?,
                Kind::Snapshot => self.exchange.snapshot(rank, |version, updates, tensors| {
                    connection
                        .send(
                            Kind::SnapshotData,
                            version,
                            &updates.to_le_bytes(),
                            &tensors.parts(),
                        )
                        .map_err(Broken::from)
                })?,
                Kind::Done => self.exchange.finish(rank)?,
                Kind::Goodbye => return Ok(()),
                got => return Err(WireError::Unexpected { got }.into()),
            }
        }
    }

    fn receive_push(
        &self,
        connection: &mut Connection,
        header: Header,
        mut gradients: Vec<f32>,
    ) -> Result<Push, WireError> {
        let stats = StepStats::decode(&connection.receive_meta(header)?)?;
        gradients.resize(self.parameters, 0.0);
        connection.receive_payload(header, &mut [&mut gradients])?;
        Ok(Push { gradients, stats })
    }

    fn receive_init(
        &self,
        connection: &mut Connection,
        header: Header,
        rank: usize,
    ) -> Result<(), Broken> {
        let updates = decode_u64(&connection.receive_meta(header)?)?;
        self.exchange.init(rank, header.clock, updates, |parts| {
            connection
                .receive_payload(header, parts)
                .map_err(Broken::from)
        })?;
        Ok(connection.send(Kind::Ready, header.clock, &[], &[])?)
    }

    /// Sends the answer; the buffer comes back for the next push.
    fn reply(&self, connection: &mut Connection, answer: Answer) -> Result<Vec<f32>, WireError> {
        match answer {
            Answer::Parameters {
                clock,
                stats,
                buffer,
                copied,
            } => {
                let meta = stats.encode();
                if copied {
                    connection.send(Kind::Parameters, clock, &meta, &[&buffer])?;
                } else {
                    let tensors = self.exchange.tensors();
                    connection.send(Kind::Parameters, clock, &meta, &[tensors.parameters()])?;
                }
                Ok(buffer)
            }
            Answer::Interrupted {
                version,
                lost,
                buffer,
            } => {
                connection.send(Kind::Interrupted, version, &[u8::from(lost)], &[])?;
                Ok(buffer)
            }
            Answer::Finished => {
                connection.send(Kind::Finished, 0, &[], &[])?;
                Ok(Vec::new())
            }
        }
    }
}
