//! Listening sockets of a task, for its whole life: a TCP socket and, for tasks of the same node, a
//! Unix socket.
//!
//! One thread accepts connections, and one short-lived thread per connection reads its handshake. A
//! peer that has proved the secret waits here as a [`PendingPeer`] until this task joins the view
//! of the connection.

use super::FabricError;
use super::handshake::{Credentials, PeerChannel, PeerHello, PeerStream};
use super::view::{GpuSumSupport, ViewMember};
use crate::log;
use crate::wire::local::LocalListener;
use crate::wire::{FrameKind, WireError};
use muster_compute::clock;
use muster_model::error_chain::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time from accepting a connection to the end of its handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Maximum number of connections without a handshake; `GUESTS_AT_ONCE` is the maximum number of
/// authenticated peers whose view has not begun. Further connections are closed at once.
const STRANGERS_AT_ONCE: usize = 64;
const GUESTS_AT_ONCE: usize = 1_024;

/// Interval at which the accepting thread checks whether the port was dropped.
const STOP_TICK: Duration = Duration::from_millis(100);

/// Authenticated peer that waits for its Welcome.
#[derive(Debug)]
pub struct PendingPeer {
    pub hello: PeerHello,
    pub stream: PeerStream,
}

/// Listening sockets of a task.
#[derive(Debug)]
pub struct PeerPort {
    state: Arc<PortState>,
    address: SocketAddr,
    local: Option<LocalListener>,
    node: String,
    summing: Option<Box<GpuSumSupport>>,
}

#[derive(Debug)]
struct PortState {
    credentials: Credentials,
    pending_peers: Mutex<Vec<PendingPeer>>,
    came: Condvar,
    strangers: AtomicUsize,
    closed: AtomicBool,
}

fn listen(host: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((host, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl PeerPort {
    /// Listens on a free port of `host`, and on a Unix socket in `folder` if that is given and
    /// writable.
    ///
    /// # Errors
    /// [`FabricError::Io`] if TCP cannot be listened on.
    pub fn bind(
        host: &str,
        folder: Option<&Path>,
        credentials: Credentials,
    ) -> Result<Self, FabricError> {
        let (tcp, address) = listen(host).map_err(FabricError::io("listen for peers"))?;
        let node = node_name();
        // Without a name of the machine, no peer can detect that it is on the same node.
        let folder = folder.filter(|_| !node.is_empty());
        let near = folder.and_then(|folder| {
            let opened = LocalListener::open(folder, credentials.id, address.port());
            let (door, unix) = opened.ok()?;
            unix.set_nonblocking(true).ok()?;
            Some((door, unix))
        });
        let (local, unix) = near.unzip();
        let state = Arc::new(PortState {
            credentials,
            pending_peers: Mutex::new(Vec::new()),
            came: Condvar::new(),
            strangers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let acceptor = Arc::clone(&state);
        thread::Builder::new()
            .name("peers".to_owned())
            .spawn(move || accept(&tcp, unix.as_ref(), &acceptor))
            .map_err(FabricError::io("start a thread"))?;
        Ok(Self {
            state,
            address,
            local,
            node,
            summing: None,
        })
    }

    /// Credentials by which peers know this task.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.state.credentials
    }

    /// Sets the description of this task's GPU that is sent to the other members.
    #[must_use]
    pub fn saying(mut self, summing: Option<GpuSumSupport>) -> Self {
        self.summing = summing.map(Box::new);
        self
    }

    /// This task as a member of views.
    #[must_use]
    pub fn member(&self) -> ViewMember {
        ViewMember {
            id: self.state.credentials.id,
            attempt: self.state.credentials.attempt,
            node: self.node.clone(),
            address: self.address,
            local: self.local.as_ref().map(|door| door.path().to_owned()),
            completed: None,
            summing: self.summing.clone(),
        }
    }

    /// Takes the next pending peer that `wanted` accepts, and waits for it until `deadline`.
    pub(super) fn take(
        &self,
        deadline: Instant,
        wanted: impl Fn(&PeerHello) -> bool,
    ) -> Option<PendingPeer> {
        let mut pending_peers = self.state.lock();
        loop {
            if let Some(at) = pending_peers.iter().position(|peer| wanted(&peer.hello)) {
                return Some(pending_peers.swap_remove(at));
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.state.came.wait_timeout(pending_peers, left);
            pending_peers = waited.expect("no greeting panics with the lock").0;
        }
    }

    /// Closes the connections of pending peers for views before `view`.
    pub(super) fn forget_before(&self, view: u64) {
        self.state.lock().retain(|peer| peer.hello.view >= view);
    }
}

impl Drop for PeerPort {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }
}

impl PortState {
    fn lock(&self) -> MutexGuard<'_, Vec<PendingPeer>> {
        self.pending_peers
            .lock()
            .expect("no greeting panics with the lock")
    }

    fn receive(&self, stream: Result<PeerStream, WireError>) {
        let greeted = stream.and_then(|stream| self.greet(stream));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        match greeted {
            Ok(peer) => {
                let mut pending_peers = self.lock();
                if pending_peers.len() < GUESTS_AT_ONCE {
                    pending_peers.push(peer);
                }
                self.came.notify_all();
            }
            // A connection that only checks whether this task listens.
            Err(WireError::Closed) => {}
            Err(error) => log::line(format_args!("a connection was closed: {}", chain(&error))),
        }
    }

    fn greet(&self, mut stream: PeerStream) -> Result<PendingPeer, WireError> {
        let (header, meta) = stream.receive_greeting(clock::now() + HANDSHAKE_LIMIT)?;
        if header.kind != FrameKind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: PeerHello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let fits = match hello.channel {
            PeerChannel::Data | PeerChannel::Control => matches!(stream, PeerStream::Tcp(_)),
            PeerChannel::Local => matches!(stream, PeerStream::Unix(_)),
            PeerChannel::Office => false,
        };
        let judged = self.credentials.judge(&hello).and_then(|()| {
            fits.then_some(())
                .ok_or_else(|| "that channel goes over another socket".to_owned())
        });
        if let Err(reason) = judged {
            let _ = stream.send_greeting(FrameKind::Refused, 0, reason.as_bytes());
            return Err(WireError::TurnedAway(reason));
        }
        Ok(PendingPeer { hello, stream })
    }
}

fn accept(tcp: &TcpListener, unix: Option<&UnixListener>, state: &Arc<PortState>) {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: STOP_TICK.subsec_nanos().into(),
    };
    while !state.closed.load(Ordering::Relaxed) {
        let mut watched = vec![PollFd::new(tcp, PollFlags::IN)];
        watched.extend(unix.map(|unix| PollFd::new(unix, PollFlags::IN)));
        if !matches!(poll(&mut watched, Some(&tick)), Ok(1..)) {
            continue;
        }
        let came = tcp.accept().map(|(stream, _)| {
            stream
                .set_nonblocking(false)
                .map_err(|source| WireError::Io {
                    doing: "accept a peer",
                    source,
                })?;
            PeerStream::tcp(stream)
        });
        let local = unix.map(|unix| {
            unix.accept().map(|(stream, _)| {
                stream
                    .set_nonblocking(false)
                    .map_err(|source| WireError::Io {
                        doing: "accept a peer",
                        source,
                    })?;
                Ok(PeerStream::Unix(stream))
            })
        });
        let mut any = false;
        for stream in [Some(came), local].into_iter().flatten().flatten() {
            any = true;
            if state.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS_AT_ONCE {
                state.strangers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let peer = Arc::clone(state);
            let spawned = thread::Builder::new()
                .name("greeting".to_owned())
                .spawn(move || peer.receive(stream));
            if spawned.is_err() {
                state.strangers.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if !any {
            // No file descriptor is left: the connection stays acceptable, and polling again at
            // once would only use processor time.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Boot id of the running kernel: the same for all tasks of a machine, different on every other
/// machine. Empty if it cannot be read.
fn node_name() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
