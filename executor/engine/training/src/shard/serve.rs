//! Life of a shard: it listens, has a thread for each connection, and ends when it is not needed
//! any more.

use super::connections::ShardAcceptor;
use super::exchange::ShardExchange;
use super::identity::Identity;
use super::messages::Membership;
use super::replica::ReplicaStore;
use crate::stop::StopFlag;
use muster_comm::log;
use muster_comm::wire::local::LocalListener;
use muster_comm::wire::{Connection, WireError};
use muster_compute::clock;
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
pub type HistorySink<'a> = &'a dyn Fn(String);

/// End of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardEnd {
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
pub struct ShardServer {
    acceptor: Arc<ShardAcceptor>,
    listener: TcpListener,
    address: SocketAddr,
    near: Option<(LocalListener, UnixListener)>,
}

impl ShardServer {
    /// Listens on a free port of `host`. No connection is accepted before [`Self::serve`].
    ///
    /// # Errors
    /// [`ShardError::Listen`].
    pub fn bind(
        host: &str,
        identity: Identity,
        exchange: ShardExchange,
    ) -> Result<Self, ShardError> {
        let (listener, address) = listen(host).map_err(|source| ShardError::Listen {
            host: host.to_owned(),
            source,
        })?;
        let acceptor = Arc::new(ShardAcceptor {
            state_per_parameter: exchange.rules.recipe.optimizer.state_len_per_param() as u32,
            identity,
            exchange: Arc::new(exchange),
            copies: ReplicaStore::default(),
            promoted_exchanges: Mutex::default(),
            strangers: AtomicUsize::new(0),
        });
        Ok(Self {
            acceptor,
            listener,
            address,
            near: None,
        })
    }

    /// Listens in the folder `sockets` as well, where workers of the same node find it and share
    /// memory with it. If that fails, all workers use TCP.
    #[must_use]
    pub fn near(mut self, sockets: &Path) -> Self {
        let opened =
            LocalListener::open(sockets, self.acceptor.identity.task_id, self.address.port());
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
    pub fn serve(self, stop: &StopFlag, tell: HistorySink<'_>) -> Result<ShardEnd, ShardError> {
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
        tell: HistorySink<'_>,
    ) -> Result<ShardEnd, ShardError> {
        let Self {
            acceptor,
            listener,
            near,
            ..
        } = self;
        start_accepting(&acceptor, move || {
            let (stream, _) = listener.accept()?;
            Ok(Connection::new(stream))
        })?;
        // Open for as long as the shard serves.
        let _door = match near {
            Some((door, listener)) => {
                start_accepting(&acceptor, move || {
                    let (stream, _) = listener.accept()?;
                    Ok(Ok(Connection::local(stream)))
                })?;
                Some(door)
            }
            None => None,
        };
        let end = watch(&acceptor, stop, is_wanted, tell);
        told(&acceptor, tell);
        Ok(end)
    }
}

fn listen(host: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((host, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Returns the membership over this shard and its promoted replicas.
fn membership(acceptor: &ShardAcceptor, limit: Duration) -> Membership {
    let mut all = acceptor.exchanges().into_iter();
    let own = all.next().expect("the shard itself").membership(limit);
    all.fold(own, |sum, promoted| {
        let of = promoted.membership(Duration::ZERO);
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
fn told(acceptor: &ShardAcceptor, tell: HistorySink<'_>) {
    let exchanges = acceptor.exchanges().into_iter();
    exchanges
        .flat_map(|exchange| exchange.take_notes())
        .for_each(tell);
}

fn has_passed(since: Option<Instant>, limit: Duration) -> bool {
    since.is_some_and(|at| at.elapsed() >= limit)
}

fn watch(
    acceptor: &ShardAcceptor,
    stop: &StopFlag,
    is_wanted: &dyn Fn() -> bool,
    tell: HistorySink<'_>,
) -> ShardEnd {
    let mut finished_at: Option<Instant> = None;
    let mut alone_since: Option<Instant> = None;
    loop {
        told(acceptor, tell);
        acceptor.dismiss_promoted();
        let members = membership(acceptor, Duration::from_millis(100));
        let departed = members.left + members.lost;
        if members.broken {
            return ShardEnd::PeerLost;
        }
        if members.retired && members.joined == 0 {
            return ShardEnd::Stopped;
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
            if (members.joined == 0 && members.awaited == 0) || has_passed(finished_at, FAREWELL) {
                return ShardEnd::Finished;
            }
            continue;
        }
        let over =
            alone_since.is_some() && (members.awaited == 0 || has_passed(alone_since, LATECOMERS));
        let told = stop.is_set() && (members.joined == 0 || stop.is_over());
        let forgotten = members.joined == 0 && !is_wanted();
        if over || told || forgotten {
            return if members.lost > 0 && !stop.is_set() {
                ShardEnd::PeerLost
            } else {
                ShardEnd::Stopped
            };
        }
    }
}

/// Accepts the connections from `next`, in a separate thread.
fn start_accepting(
    acceptor: &Arc<ShardAcceptor>,
    next: impl Fn() -> io::Result<Result<Connection, WireError>> + Send + 'static,
) -> Result<(), ShardError> {
    let acceptor = Arc::clone(acceptor);
    thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || accept(&next, &acceptor))
        .map_err(ShardError::Thread)?;
    Ok(())
}

fn accept(
    next: &dyn Fn() -> io::Result<Result<Connection, WireError>>,
    acceptor: &Arc<ShardAcceptor>,
) {
    loop {
        // No descriptor left, or a peer that closed the connection before it was accepted: the
        // shard continues.
        let Ok(come) = next() else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        if acceptor.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS_AT_ONCE {
            acceptor.strangers.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let guest = Arc::clone(acceptor);
        let spawned = thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || guest.receive_guest(come));
        if spawned.is_err() {
            acceptor.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
