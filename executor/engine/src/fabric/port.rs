//! Where a task's peers reach it, for as long as the task lives: a TCP socket and, for tasks of the same node, a Unix one.
//!
//! One thread accepts and one short-lived thread per stranger reads its greeting; who has proved the secret waits here as a
//! [`Guest`] until this task comes to the view that the guest is for.

use super::FabricError;
use super::hello::{Channel, Credentials, PeerHello, Stream};
use super::view::{Member, Summing};
use crate::clock;
use crate::log;
use crate::wire::near::Door;
use crate::wire::{Kind, WireError};
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

/// From a connection's being accepted to its greeting's being read.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Connections that have not greeted yet, and greeted ones whose view has not come; further ones are closed at once.
const STRANGERS_AT_ONCE: usize = 64;
const GUESTS_AT_ONCE: usize = 1_024;

/// How soon the accepting thread notices that the port is gone.
const STOP_TICK: Duration = Duration::from_millis(100);

/// A peer that has greeted and waits for its welcome.
#[derive(Debug)]
pub struct Guest {
    pub hello: PeerHello,
    pub stream: Stream,
}

/// A listening task.
#[derive(Debug)]
pub struct Port {
    room: Arc<Room>,
    address: SocketAddr,
    local: Option<Door>,
    node: String,
    summing: Option<Box<Summing>>,
}

#[derive(Debug)]
struct Room {
    credentials: Credentials,
    guests: Mutex<Vec<Guest>>,
    came: Condvar,
    strangers: AtomicUsize,
    closed: AtomicBool,
}

impl Port {
    /// Listens on a free port of `host`, and on a socket in `folder` if there is one and it can be written.
    ///
    /// # Errors
    /// [`FabricError::Io`] when TCP cannot be listened on.
    pub fn bind(
        host: &str,
        folder: Option<&Path>,
        credentials: Credentials,
    ) -> Result<Self, FabricError> {
        let listen = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind((host, 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (tcp, address) = listen().map_err(FabricError::io("listen for peers"))?;
        let node = node_name();
        // Without the kernel's name for itself no peer can tell that it is on the same node.
        let folder = folder.filter(|_| !node.is_empty());
        let near = folder.and_then(|folder| {
            let opened = Door::open(folder, credentials.id, address.port());
            let (door, unix) = opened.ok()?;
            unix.set_nonblocking(true).ok()?;
            Some((door, unix))
        });
        let (local, unix) = near.unzip();
        let room = Arc::new(Room {
            credentials,
            guests: Mutex::new(Vec::new()),
            came: Condvar::new(),
            strangers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let acceptor = Arc::clone(&room);
        thread::Builder::new()
            .name("peers".to_owned())
            .spawn(move || accept(&tcp, unix.as_ref(), &acceptor))
            .map_err(FabricError::io("start a thread"))?;
        Ok(Self {
            room,
            address,
            local,
            node,
            summing: None,
        })
    }

    /// Who this task is to its peers.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.room.credentials
    }

    /// From now on the others are told so of this task's GPU.
    #[must_use]
    pub fn saying(mut self, summing: Option<Summing>) -> Self {
        self.summing = summing.map(Box::new);
        self
    }

    /// This task as a member of views.
    #[must_use]
    pub fn member(&self) -> Member {
        Member {
            id: self.room.credentials.id,
            attempt: self.room.credentials.attempt,
            node: self.node.clone(),
            address: self.address,
            local: self.local.as_ref().map(|door| door.path().to_owned()),
            completed: None,
            summing: self.summing.clone(),
        }
    }

    /// Takes the next guest that `wanted` says yes to, waiting until `deadline`.
    pub(super) fn take(
        &self,
        deadline: Instant,
        wanted: impl Fn(&PeerHello) -> bool,
    ) -> Option<Guest> {
        let mut guests = self.room.lock();
        loop {
            if let Some(at) = guests.iter().position(|guest| wanted(&guest.hello)) {
                return Some(guests.swap_remove(at));
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.room.came.wait_timeout(guests, left);
            guests = waited.expect("no greeting panics with the lock").0;
        }
    }

    /// Closes the door on guests of views before `view`.
    pub(super) fn forget_before(&self, view: u64) {
        self.room.lock().retain(|guest| guest.hello.view >= view);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.room.closed.store(true, Ordering::Relaxed);
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Vec<Guest>> {
        self.guests
            .lock()
            .expect("no greeting panics with the lock")
    }

    fn receive(&self, stream: Result<Stream, WireError>) {
        let greeted = stream.and_then(|stream| self.greet(stream));
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        match greeted {
            Ok(guest) => {
                let mut guests = self.lock();
                if guests.len() < GUESTS_AT_ONCE {
                    guests.push(guest);
                }
                self.came.notify_all();
            }
            // A peer that only asks whether this task lives.
            Err(WireError::Closed) => {}
            Err(error) => log::line(format_args!(
                "a connection was closed: {}",
                log::chain(&error)
            )),
        }
    }

    fn greet(&self, mut stream: Stream) -> Result<Guest, WireError> {
        let (header, meta) = stream.receive_greeting(clock::now() + HANDSHAKE_LIMIT)?;
        if header.kind != Kind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: PeerHello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let fits = match hello.channel {
            Channel::Data | Channel::Control => matches!(stream, Stream::Tcp(_)),
            Channel::Local => matches!(stream, Stream::Unix(_)),
            Channel::Office => false,
        };
        let judged = self.credentials.judge(&hello).and_then(|()| {
            fits.then_some(())
                .ok_or_else(|| "that channel goes over another socket".to_owned())
        });
        if let Err(reason) = judged {
            let _ = stream.send_greeting(Kind::Refused, 0, reason.as_bytes());
            return Err(WireError::TurnedAway(reason));
        }
        Ok(Guest { hello, stream })
    }
}

fn accept(tcp: &TcpListener, unix: Option<&UnixListener>, room: &Arc<Room>) {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: STOP_TICK.subsec_nanos().into(),
    };
    while !room.closed.load(Ordering::Relaxed) {
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
            Stream::tcp(stream)
        });
        let local = unix.map(|unix| {
            unix.accept().map(|(stream, _)| {
                stream
                    .set_nonblocking(false)
                    .map_err(|source| WireError::Io {
                        doing: "accept a peer",
                        source,
                    })?;
                Ok(Stream::Unix(stream))
            })
        });
        let mut any = false;
        for stream in [Some(came), local].into_iter().flatten().flatten() {
            any = true;
            if room.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS_AT_ONCE {
                room.strangers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let guest = Arc::clone(room);
            let spawned = thread::Builder::new()
                .name("greeting".to_owned())
                .spawn(move || guest.receive(stream));
            if spawned.is_err() {
                room.strangers.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if !any {
            // Out of descriptors: the connection stays acceptable, and polling it again at once would only burn time.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What the running kernel calls this boot: the same for all tasks of a machine, for no other machine. Empty where unknown.
fn node_name() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
