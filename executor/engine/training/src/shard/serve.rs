//! Life of a shard: it listens, has a thread for each connection, and ends when it is not needed
//! any more.

use super::copy::Copies;
use super::exchange::Exchange;
use super::room::Room;
use super::words::Membership;
use crate::stop::StopFlag;
use muster_comm::log;
use muster_comm::wire::near::Door;
use muster_comm::wire::{Connection, WireError};
use muster_compute::clock;
use muster_model::id::{JobId, TaskId};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of connections without a completed handshake. Further ones are closed at once, so
/// that strangers cannot use up the threads.
const STRANGERS_AT_ONCE: usize = 64;

/// Time for which the shard stays after the end of training, so that workers can read it.
const FAREWELL: Duration = Duration::from_secs(3);

/// Time for which a shard that all joined workers have left waits for workers that have not
/// connected. They learn from it that the job has ended.
const LATECOMERS: Duration = Duration::from_secs(5);

/// Receives a message for the job's history.
pub type Tell<'a> = &'a dyn Fn(String);

/// Identity of the shard, and of the job whose tasks are its peers.
#[derive(Debug, Clone)]
pub struct Identity {
    pub job_id: JobId,
    pub task_id: TaskId,
    pub secret: String,
}

/// End of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The coordinator has ended training.
    Finished,
    /// All workers left in order, or the shard was asked to stop. Or the shard has left the view
    /// and handed over all that it held.
    Stopped,
    /// A worker or another shard left without a goodbye.
    PeerLost,
}

/// Why a shard could not start.
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
    near: Option<(Door, UnixListener)>,
}

impl Shard {
    /// Listens on a free port of `host`. No connection is accepted before [`Self::serve`].
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
        let room = Arc::new(Room {
            state_per_parameter: exchange.recipe.optimizer.state_len_per_param() as u32,
            identity,
            exchange: Arc::new(exchange),
            copies: Copies::default(),
            heirs: Mutex::default(),
            strangers: AtomicUsize::new(0),
        });
        Ok(Self {
            room,
            listener,
            address,
            near: None,
        })
    }

    /// Listens in the folder `sockets` as well, where workers of the same node find it and share
    /// memory with it. If that fails, all workers use TCP.
    #[must_use]
    pub fn near(mut self, sockets: &Path) -> Self {
        let opened = Door::open(sockets, self.room.identity.task_id, self.address.port());
        match opened {
            Ok(near) => self.near = Some(near),
            Err(error) => log::line(format_args!(
                "shares no memory, as it cannot listen in {}: {error}",
                sockets.display()
            )),
        }
        self
    }

    /// Returns the address for workers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until training ends. Calls `tell` with messages for the job's history. After `stop`
    /// is set, it serves until the workers have left, because the coordinator still needs its
    /// snapshot. It ends shortly before the end of the grace period at the latest.
    ///
    /// # Errors
    /// [`ShardError::Thread`].
    pub fn serve(self, stop: &StopFlag, tell: Tell<'_>) -> Result<End, ShardError> {
        self.serve_while(stop, &|| true, tell)
    }

    /// Like [`Self::serve`], while it `is_wanted`: a shard that has left the task set ends when no
    /// worker is connected. The coordinator moves its content, if it has any, and stays connected
    /// until then.
    ///
    /// # Errors
    /// [`ShardError::Thread`].
    pub fn serve_while(
        self,
        stop: &StopFlag,
        is_wanted: &dyn Fn() -> bool,
        tell: Tell<'_>,
    ) -> Result<End, ShardError> {
        let Self {
            room,
            listener,
            near,
            ..
        } = self;
        start_accepting(&room, move || {
            let (stream, _) = listener.accept()?;
            Ok(Connection::new(stream))
        })?;
        // Open for as long as the shard serves.
        let _door = match near {
            Some((door, listener)) => {
                start_accepting(&room, move || {
                    let (stream, _) = listener.accept()?;
                    Ok(Ok(Connection::local(stream)))
                })?;
                Some(door)
            }
            None => None,
        };
        let end = watch(&room, stop, is_wanted, tell);
        told(&room, tell);
        Ok(end)
    }
}

/// Returns the membership over this shard and its promoted replicas.
fn membership(room: &Room, limit: Duration) -> Membership {
    let mut all = room.exchanges().into_iter();
    let own = all.next().expect("the shard itself").membership(limit);
    all.fold(own, |sum, heir| {
        let of = heir.membership(Duration::ZERO);
        Membership {
            joined: sum.joined + of.joined,
            left: sum.left + of.left,
            lost: sum.lost + of.lost,
            awaited: sum.awaited + of.awaited,
            finished: sum.finished || of.finished,
            retired: sum.retired && of.retired,
            broken: sum.broken || of.broken,
        }
    })
}

/// Passes on the messages of the exchanges.
fn told(room: &Room, tell: Tell<'_>) {
    let exchanges = room.exchanges().into_iter();
    exchanges
        .flat_map(|exchange| exchange.take_notes())
        .for_each(tell);
}

fn watch(room: &Room, stop: &StopFlag, is_wanted: &dyn Fn() -> bool, tell: Tell<'_>) -> End {
    let mut finished_at: Option<Instant> = None;
    let mut alone_since: Option<Instant> = None;
    let passed =
        |since: Option<Instant>, limit: Duration| since.is_some_and(|at| at.elapsed() >= limit);
    loop {
        told(room, tell);
        room.dismiss_heirs();
        let members = membership(room, Duration::from_millis(100));
        let departed = members.left + members.lost;
        if members.broken {
            return End::PeerLost;
        }
        if members.retired && members.joined == 0 {
            return End::Stopped;
        }
        if members.joined > 0 {
            alone_since = None;
        } else if departed > 0 || members.finished {
            alone_since.get_or_insert_with(clock::now);
        }
        if members.finished {
            // Measured from the same moment for all workers; the waiting ones have just been
            // notified.
            finished_at.get_or_insert_with(clock::now);
            if (members.joined == 0 && members.awaited == 0) || passed(finished_at, FAREWELL) {
                return End::Finished;
            }
            continue;
        }
        let over =
            alone_since.is_some() && (members.awaited == 0 || passed(alone_since, LATECOMERS));
        let told = stop.is_set() && (members.joined == 0 || stop.is_over());
        let forgotten = members.joined == 0 && !is_wanted();
        if over || told || forgotten {
            return if members.lost > 0 && !stop.is_set() {
                End::PeerLost
            } else {
                End::Stopped
            };
        }
    }
}

/// Accepts the connections from `next`, in a separate thread.
fn start_accepting(
    room: &Arc<Room>,
    next: impl Fn() -> io::Result<Result<Connection, WireError>> + Send + 'static,
) -> Result<(), ShardError> {
    let room = Arc::clone(room);
    thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || accept(&next, &room))
        .map_err(ShardError::Thread)?;
    Ok(())
}

fn accept(next: &dyn Fn() -> io::Result<Result<Connection, WireError>>, room: &Arc<Room>) {
    loop {
        // No descriptor left, or a peer that closed the connection before it was accepted: the
        // shard continues.
        let Ok(come) = next() else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        if room.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS_AT_ONCE {
            room.strangers.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let guest = Arc::clone(room);
        let spawned = thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || guest.receive_guest(come));
        if spawned.is_err() {
            room.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
