//! How a worker gets its next view. The coordinator calls its own membership server
//! ([`MembershipServer`]), every other worker asks that server over a connection
//! ([`MembershipClient`]).

use super::membership_messages::{CloseReason, MembershipReply, MembershipRequest, has_line, send};
use super::membership_server::MembershipServer;
use crate::stop::StopFlag;
use crate::worker::context::{RosterSource, STALL};
use crate::worker::task_set::{TaskSetWatch, worker_ids};
use muster_comm::fabric::{
    Coordinator, Credentials, GroupView, MemberReport, ORDER, PeerChannel, PeerHello, PeerStream,
};
use muster_comm::log;
use muster_comm::wire::{FrameKind, WireError};
use muster_compute::clock;
use muster_model::id::TaskId;
use std::io::{BufRead, BufReader};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Time limit for the connection and the handshake.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

/// Interval at which a waiting worker checks for a stop request.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval at which the coordinator reads the task set.
const TASK_SET_EVERY: Duration = Duration::from_millis(50);

/// The coordinator's access to its own membership server.
pub struct CoordinatorMembership {
    server: MembershipServer,
    stop: StopFlag,
    task_set: Mutex<TaskSetWatch>,
}

impl CoordinatorMembership {
    /// Wraps a server that was opened with the workers of the task set of `revision`.
    #[must_use]
    pub fn new(
        server: MembershipServer,
        peers: RosterSource,
        stop: StopFlag,
        revision: u64,
    ) -> Self {
        let task_set = TaskSetWatch::new(peers, TASK_SET_EVERY, revision);
        Self {
            server,
            stop,
            task_set: Mutex::new(task_set),
        }
    }

    /// Passes a newer task set to the server.
    fn refresh(&self) {
        let mut task_set = self.task_set.lock().expect("nothing panics with the lock");
        if let Some(peers) = task_set.newer() {
            task_set.follow(peers.revision);
            self.server.want(worker_ids(&peers));
        }
    }

    /// Like [`MembershipServer::take_dead`].
    #[must_use]
    pub fn take_dead(&self) -> Vec<TaskId> {
        self.server.take_dead()
    }

    /// Ends membership: no worker gets a view from now on.
    pub fn end(&self) {
        self.server.end();
    }

    /// Reports the end to all workers that ask, and waits for them briefly.
    pub fn close(&self) {
        self.server.close();
    }
}

impl Coordinator for CoordinatorMembership {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        self.server.next_view(report, || {
            self.refresh();
            if self.stop.is_set() {
                Err("this task was asked to stop".to_owned())
            } else {
                Ok(())
            }
        })
    }

    fn someone_waits(&self) -> bool {
        self.refresh();
        self.server.someone_waits()
    }
}

/// Membership client of another worker: its connection to the coordinator's server.
pub struct MembershipClient {
    lines: Mutex<BufReader<PeerStream>>,
    chief: TaskId,
    /// Time within which a coordinator that counts as lost must prove that it lives.
    silence: Duration,
    stop: StopFlag,
    close_reason: OnceLock<CloseReason>,
}

impl MembershipClient {
    /// Connects and performs the handshake.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn connect(
        address: &str,
        chief: TaskId,
        me: &Credentials,
        silence: Duration,
        stop: StopFlag,
    ) -> Result<Arc<Self>, WireError> {
        let mut stream = PeerStream::tcp(dial(address)?)?;
        let hello = PeerHello {
            job_id: me.job_id,
            secret: me.secret.clone(),
            view: 0,
            from: me.id,
            attempt: me.attempt,
            to: chief,
            channel: PeerChannel::Office,
            order: ORDER,
        };
        let hello = serde_json::to_vec(&hello).expect("a greeting is plain data");
        stream.send_greeting(FrameKind::Hello, 0, &hello)?;
        stream.expect_welcome(clock::now() + JOIN_LIMIT)?;
        Ok(Arc::new(Self {
            lines: Mutex::new(BufReader::new(stream)),
            chief,
            silence,
            stop,
            close_reason: OnceLock::new(),
        }))
    }

    /// Returns why there is no further view, once that is known.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason.get().copied()
    }

    /// Leaves in order.
    pub fn goodbye(&self) {
        let mut lines = self.lines.lock().expect("nothing panics with the lock");
        let _ = send(lines.get_mut(), &MembershipRequest::Goodbye);
    }

    /// Waits until the coordinator closes its server, after the job's state is stored.
    pub fn wait_for_the_end(&self) {
        let mut lines = self.lines.lock().expect("nothing panics with the lock");
        while !self.stop.is_set() {
            if has_line(&lines, LOOK_EVERY) {
                let _ = lines.read_until(b'\n', &mut Vec::new());
                return;
            }
        }
    }

    fn ask(&self, report: MemberReport) -> Result<GroupView, CloseReason> {
        let mut lines = self.lines.lock().expect("nothing panics with the lock");
        if self.stop.is_set() {
            return Err(CloseReason::Stopped);
        }
        let asked = clock::now();
        let mut heard = asked;
        let chief_is_lost = report.lost.contains(&self.chief);
        // A message that arrived without a request announces the end.
        if !has_line(&lines, Duration::ZERO) {
            send(lines.get_mut(), &MembershipRequest::Next(report))
                .map_err(|_| CloseReason::ChiefLost)?;
        }
        loop {
            while !has_line(&lines, LOOK_EVERY) {
                if self.stop.is_set() {
                    return Err(CloseReason::Stopped);
                }
                if chief_is_lost && heard.elapsed() > self.silence {
                    log::line("the chief gives no sign of life");
                    return Err(CloseReason::ChiefLost);
                }
            }
            if chief_is_lost && asked.elapsed() > STALL {
                log::line("the chief lives and takes no part any more");
                return Err(CloseReason::ChiefLost);
            }
            let mut line = Vec::new();
            let read = lines.read_until(b'\n', &mut line);
            let told = read.ok().and_then(|_| serde_json::from_slice(&line).ok());
            match told {
                Some(MembershipReply::View(view)) => return Ok(view),
                Some(MembershipReply::Over(close_reason)) => return Err(close_reason),
                Some(MembershipReply::Alive) => heard = clock::now(),
                None => return Err(CloseReason::ChiefLost),
            }
        }
    }
}

impl Coordinator for MembershipClient {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        self.ask(report).map_err(|close_reason| {
            let first = self.close_reason.get_or_init(|| close_reason);
            format!("{first:?}")
        })
    }
}

fn dial(address: &str) -> Result<TcpStream, WireError> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for resolved in address.to_socket_addrs().map_err(not_connected)? {
        match TcpStream::connect_timeout(&resolved, JOIN_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(not_connected(last))
}

fn not_connected(source: std::io::Error) -> WireError {
    WireError::Io {
        doing: "connect to the chief",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_comm::fabric::ViewMember;
    use muster_model::id::JobId;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use proptest::test_runner::{Config, TestRunner};
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::thread;
    use uuid::Uuid;

    fn credentials(number: u128) -> Credentials {
        Credentials {
            job_id: JobId(Uuid::from_u128(1)),
            secret: "ab".repeat(32),
            id: TaskId(Uuid::from_u128(number)),
            attempt: 1,
        }
    }

    fn report(of: &Credentials, view: u64, lost: &[TaskId]) -> MemberReport {
        MemberReport {
            member: ViewMember {
                id: of.id,
                attempt: of.attempt,
                node: "here".to_owned(),
                address: "127.0.0.1:1".parse().unwrap(),
                local: None,
                completed: (view > 0).then_some(7),
                summing: None,
            },
            view,
            lost: lost.to_vec(),
            between_steps: true,
        }
    }

    /// A link to a coordinator that evaluates breaks. The member waits longer than the silence
    /// after which a frozen coordinator counts as lost.
    #[test]
    fn busy_coordinator_does_not_count_as_lost() {
        let (chief, member) = (credentials(10), credentials(11));
        let roster = vec![chief.id, member.id];
        let server = MembershipServer::open("127.0.0.1", chief.clone(), roster).unwrap();
        let silence = Duration::from_millis(1_200);
        let stop = StopFlag::new(Duration::from_secs(10));
        let address = server.address().to_string();
        let remote = MembershipClient::connect(&address, chief.id, &member, silence, stop).unwrap();
        let first = thread::scope(|scope| {
            let asks = scope.spawn(|| remote.next_view(report(&member, 0, &[])));
            let own = server.next_view(report(&chief, 0, &[]), || Ok(()));
            assert_eq!(asks.join().unwrap(), own);
            own.unwrap().number
        });
        thread::scope(|scope| {
            let lost = [chief.id];
            let member = &member;
            let remote = &remote;
            let asks = scope.spawn(move || remote.next_view(report(member, first, &lost)));
            thread::sleep(2 * silence);
            let own = server.next_view(report(&chief, first, &[]), || Ok(()));
            let theirs = asks.join().unwrap();
            assert_eq!(theirs, own);
            assert_eq!(own.unwrap().members.len(), 2);
        });
        assert_eq!(remote.close_reason(), None);
    }

    /// Records all messages of a worker to its coordinator: the handshake, a request for the next
    /// view and a goodbye.
    fn said(of: &Credentials, chief: TaskId) -> Vec<u8> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = PeerStream::tcp(stream).unwrap();
            let limit = clock::now() + JOIN_LIMIT;
            let (header, meta) = stream.receive_greeting(limit).unwrap();
            stream.send_greeting(FrameKind::Welcome, 0, &[]).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            [&header.encode()[..], &meta, &rest].concat()
        });
        let stop = StopFlag::new(JOIN_LIMIT);
        let remote = MembershipClient::connect(&address, chief, of, JOIN_LIMIT, stop).unwrap();
        let call = MembershipRequest::Next(report(of, 0, &[]));
        send(remote.lines.lock().unwrap().get_mut(), &call).unwrap();
        remote.goodbye();
        drop(remote);
        heard.join().unwrap()
    }

    /// Members get their next view even if other connections send malformed messages.
    #[test]
    fn office_survives_malformed_messages() {
        let (chief, member, guest) = (credentials(10), credentials(11), credentials(12));
        let roster = vec![chief.id, member.id];
        let server = MembershipServer::open("127.0.0.1", chief.clone(), roster).unwrap();
        let address = server.address().to_string();
        let stop = StopFlag::new(Duration::from_secs(10));
        let remote =
            MembershipClient::connect(&address, chief.id, &member, JOIN_LIMIT, stop).unwrap();
        let recorded = said(&guest, chief.id);
        assert!(recorded.len() > 300, "{}", recorded.len());
        let mut view = 0;
        let mut runner = TestRunner::new(Config {
            cases: 256,
            failure_persistence: None,
            ..Config::default()
        });
        let change = (any::<Index>(), any::<u8>(), 0..4u8);
        let strategy = (vec(change, 1..4), any::<Index>(), any::<bool>());
        let view = std::cell::RefCell::new(&mut view);
        runner
            .run(&strategy, |(changes, end, is_cut)| {
                let mut bytes = recorded.clone();
                for (at, byte, how) in changes {
                    let at = at.index(bytes.len());
                    match how {
                        0 => bytes[at] = byte,
                        1 => bytes.insert(at, byte),
                        2 => drop(bytes.remove(at)),
                        // A line without an end.
                        _ => bytes.splice(at..at, vec![b' '; 70_000]).for_each(drop),
                    }
                }
                if is_cut {
                    bytes.truncate(end.index(bytes.len()));
                }
                let mut stream = TcpStream::connect(&address).unwrap();
                // The server may close the connection before all bytes are sent.
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(Shutdown::Write);
                let before = **view.borrow();
                let number = thread::scope(|scope| {
                    let asks = scope.spawn(|| remote.next_view(report(&member, before, &[])));
                    let own = server.next_view(report(&chief, before, &[]), || Ok(()));
                    let theirs = asks.join().unwrap();
                    prop_assert_eq!(&theirs, &own);
                    let next = own.unwrap();
                    prop_assert!(next.rank_of(chief.id).is_some(), "{:?}", next);
                    prop_assert!(next.rank_of(member.id).is_some(), "{:?}", next);
                    Ok(next.number)
                })?;
                **view.borrow_mut() = number;
                Ok(())
            })
            .unwrap();
        assert_eq!(remote.close_reason(), None);
    }
}
