//! The coordinator's membership server: workers report to it and get the same next view from it.
//!
//! Each worker holds one connection to it for its whole life: lines of JSON after a handshake that
//! proves the secret. The end of a connection without a goodbye is a death. The server detects it
//! also for a worker that takes part in no exchange at the moment.

use super::membership_messages::{
    CloseReason, MembershipReply, MembershipRequest, arrives, has_line, send,
};
use muster_comm::fabric::{
    Credentials, Gathering, GroupView, MemberReport, PeerChannel, PeerHello, PeerStream,
};
use muster_comm::log;
use muster_comm::wire::{FrameKind, WireError};
use muster_compute::clock;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Time limit from the acceptance of a connection to the end of its handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Poll interval of waiting threads, for events that do not wake them.
const TICK: Duration = Duration::from_millis(50);

/// Interval at which workers that wait for a view learn that the coordinator's process lives. It is
/// shorter than the smallest silence that a document may set.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Time for which the coordinator waits until the others know of the end.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of connections at one time.
const MAX_CONNECTIONS: usize = 1_024;

/// Maximum length of a line; a report has a few hundred bytes.
const MAX_LINE: u64 = 64 << 10;

/// A running membership server.
#[derive(Debug)]
pub struct MembershipServer {
    shared: Arc<MembershipShared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct MembershipShared {
    credentials: Credentials,
    state: Mutex<MembershipState>,
    changed: Condvar,
    connections: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Debug)]
struct MembershipState {
    gathering: Gathering,
    over: bool,
    /// Members that have died since the coordinator last asked.
    dead: Vec<TaskId>,
}

impl MembershipServer {
    /// Opens a server on a free port of `host`; the first view consists of `workers`.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn open(host: &str, credentials: Credentials, workers: Vec<TaskId>) -> io::Result<Self> {
        let listener = TcpListener::bind((host, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(MembershipShared {
            credentials,
            state: Mutex::new(MembershipState {
                gathering: Gathering::of(workers),
                over: false,
                dead: Vec::new(),
            }),
            changed: Condvar::new(),
            connections: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        listener.set_nonblocking(true)?;
        let accept_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("membership".to_owned())
            .spawn(move || admit(&listener, &accept_thread))?;
        Ok(Self { shared, address })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the workers that take part from the next agreed step boundary on.
    pub fn want(&self, workers: Vec<TaskId>) {
        let mut state = self.shared.lock();
        state.gathering.want(workers);
        self.shared.form(&mut state);
    }

    /// Whether the members must change and all workers that this needs have reported.
    #[must_use]
    pub fn someone_waits(&self) -> bool {
        self.shared.lock().gathering.someone_waits()
    }

    /// Returns the members that have died since the last call.
    #[must_use]
    pub fn take_dead(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.shared.lock().dead)
    }

    /// Reports the coordinator itself and waits for the next view. `tick` is called at intervals
    /// during the wait; an error from it ends the wait.
    ///
    /// # Errors
    /// The reason.
    pub fn next_view(
        &self,
        report: MemberReport,
        mut tick: impl FnMut() -> Result<(), String>,
    ) -> Result<GroupView, String> {
        let (id, left) = (report.member.id, report.view);
        let mut state = self.shared.lock();
        state.gathering.report(report)?;
        self.shared.form(&mut state);
        loop {
            if let Some(view) = state.view_after(left, id) {
                return Ok(view);
            }
            state = self.shared.wait(state);
            drop(state);
            tick()?;
            state = self.shared.lock();
        }
    }

    /// Ends membership: every worker that asks from now on learns of the end.
    pub fn end(&self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }

    /// Like [`Self::end`], and waits briefly for the workers to ask.
    pub fn close(&self) {
        self.end();
        let began = clock::now();
        while self.shared.connections.load(Ordering::Relaxed) > 0 && began.elapsed() < GOODBYE_LIMIT
        {
            let state = self.shared.lock();
            drop(self.shared.wait(state));
        }
    }
}

impl Drop for MembershipServer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }
}

impl MembershipState {
    fn view_after(&self, left: u64, id: TaskId) -> Option<GroupView> {
        let view = self.gathering.view();
        (view.number > left && view.rank_of(id).is_some()).then(|| view.clone())
    }
}

impl MembershipShared {
    fn lock(&self) -> MutexGuard<'_, MembershipState> {
        self.state.lock().expect("no visitor panics with the lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, MembershipState>) -> MutexGuard<'a, MembershipState> {
        let waited = self.changed.wait_timeout(state, TICK);
        waited.expect("no visitor panics with the lock").0
    }

    fn form(&self, state: &mut MembershipState) {
        let before: Vec<TaskId> = state
            .gathering
            .view()
            .members
            .iter()
            .map(|m| m.id)
            .collect();
        let known: Vec<bool> = before
            .iter()
            .map(|id| state.gathering.has_gone(*id))
            .collect();
        if state.gathering.next_view().is_some() {
            // Members that the survivors declared dead although their connections still exist. A
            // dismissal is not a death.
            let view = state.gathering.view();
            let kept_all = view
                .members
                .iter()
                .all(|member| before.contains(&member.id));
            let fallen: Vec<TaskId> = before
                .iter()
                .zip(known)
                .filter(|(id, known)| !known && kept_all && view.rank_of(**id).is_none())
                .map(|(id, _)| *id)
                .collect();
            state.dead.extend(fallen);
            self.changed.notify_all();
        }
    }

    /// Performs the handshake, then answers requests until the connection ends.
    fn serve(&self, mut stream: PeerStream) -> Result<(), WireError> {
        let (header, meta) = stream.receive_greeting(clock::now() + HANDSHAKE_LIMIT)?;
        if header.kind != FrameKind::Hello {
            return Err(WireError::Unexpected { got: header.kind });
        }
        let hello: PeerHello =
            serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("greeting"))?;
        let judged = self.credentials.judge(&hello).and_then(|()| {
            (hello.channel == PeerChannel::Office)
                .then_some(())
                .ok_or_else(|| "this is the office".to_owned())
        });
        if let Err(reason) = judged {
            let _ = stream.send_greeting(FrameKind::Refused, 0, reason.as_bytes());
            return Err(WireError::TurnedAway(reason));
        }
        stream.send_greeting(FrameKind::Welcome, 0, &[])?;
        let in_order = self.talk(&mut BufReader::new(stream), hello.from);
        let mut state = self.lock();
        if !state.gathering.has_gone(hello.from) {
            if !in_order && state.gathering.view().rank_of(hello.from).is_some() {
                state.dead.push(hello.from);
            }
            state.gathering.forget(hello.from);
            self.form(&mut state);
        }
        Ok(())
    }

    /// Answers requests. Returns whether the worker has left in order.
    fn talk(&self, lines: &mut BufReader<PeerStream>, id: TaskId) -> bool {
        loop {
            // The worker's next request may be far away, and the coordinator may be gone by then.
            while !has_line(lines, TICK) {
                if self.lock().over {
                    let _ = send(lines.get_mut(), &MembershipReply::Over(CloseReason::Over));
                    return true;
                }
            }
            let mut line = Vec::new();
            let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
            let call = match read {
                Ok(1..) => serde_json::from_slice(&line).ok(),
                _ => None,
            };
            let reply = match call {
                Some(MembershipRequest::Next(report)) if report.member.id == id => {
                    match self.next(report, lines.get_mut()) {
                        Some(reply) => reply,
                        // The worker has sent another message instead of waiting, or is gone.
                        None => continue,
                    }
                }
                Some(MembershipRequest::Goodbye) => return true,
                Some(MembershipRequest::Next(_)) | None => return false,
            };
            let over = matches!(reply, MembershipReply::Over(_));
            if send(lines.get_mut(), &reply).is_err() {
                return false;
            }
            if over {
                // The worker knows of the end and only closes the connection.
                let _ = lines.read_until(b'\n', &mut line);
                return true;
            }
        }
    }

    fn next(&self, mut report: MemberReport, stream: &mut PeerStream) -> Option<MembershipReply> {
        // The coordinator's process lives, because it answers here, even if a link to it broke.
        report.lost.retain(|lost| *lost != self.credentials.id);
        let (id, left) = (report.member.id, report.view);
        let mut reply = clock::now();
        let mut state = self.lock();
        if state.gathering.report(report).is_err() {
            return Some(MembershipReply::Over(CloseReason::Dismissed));
        }
        self.form(&mut state);
        loop {
            if state.over {
                return Some(MembershipReply::Over(CloseReason::Over));
            }
            if let Some(view) = state.view_after(left, id) {
                return Some(MembershipReply::View(view));
            }
            if state.gathering.has_gone(id) {
                return Some(MembershipReply::Over(CloseReason::Dismissed));
            }
            if arrives(stream, Duration::ZERO) {
                return None;
            }
            state = self.wait(state);
            if reply.elapsed() >= ALIVE_EVERY {
                drop(state);
                send(stream, &MembershipReply::Alive).ok()?;
                reply = clock::now();
                state = self.lock();
            }
        }
    }
}

fn admit(listener: &TcpListener, shared: &Arc<MembershipShared>) {
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    while !shared.closed.load(Ordering::Relaxed) {
        if !matches!(
            poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick)),
            Ok(1..)
        ) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else {
            continue;
        };
        if stream.set_nonblocking(false).is_err()
            || shared.connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS
        {
            continue;
        }
        let visited = Arc::clone(shared);
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let spawned = thread::Builder::new()
            .name("visitor".to_owned())
            .spawn(move || {
                if let Err(error) = PeerStream::tcp(stream).and_then(|stream| visited.serve(stream))
                {
                    log::line(format_args!("a visitor was turned away: {}", chain(&error)));
                }
                visited.connections.fetch_sub(1, Ordering::Relaxed);
                visited.changed.notify_all();
            });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
