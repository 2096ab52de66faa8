//! Connects the members of a view with each other.
//!
//! The higher rank connects to the lower one, so that each pair has one connection. Rank 0 only
//! accepts; by induction every rank is accepted and none deadlocks.

use super::control::ControlSocket;
use super::handshake::{ORDER, PeerChannel, PeerHello, PeerStream};
use super::link::PeerLink;
use super::mesh::Mesh;
use super::port::{PeerPort, PendingPeer};
use super::shm::{PAIR_BYTES, ShmLink};
use super::tcp::TcpLink;
use super::view::{GroupView, ViewMember};
use super::{FabricError, FabricOptions};
use crate::memory::SharedMapping;
use crate::wire::{FrameKind, WireError};
use muster_compute::clock;
use std::cmp::Ordering;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval at which a waiting task checks whether the missing peers still listen.
const PROBE_TICK: Duration = Duration::from_millis(250);

/// Time limit of such a check.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// Connects this task with every other member of the view.
///
/// # Errors
/// [`FabricError::Lost`] with a rank that is lost or did not connect within the limit;
/// [`FabricError::NotMember`].
pub(super) fn join(
    port: &PeerPort,
    view: &GroupView,
    options: &FabricOptions,
) -> Result<Mesh, FabricError> {
    let me = port.credentials().id;
    let rank = view.rank_of(me).ok_or(FabricError::NotMember)?;
    let deadline = clock::now() + options.join_limit;
    port.forget_before(view.number);
    let mut mesh = Mesh::new(rank, view.members.len(), options);
    let connected = connect_all(port, view, options, deadline, &mut mesh);
    match connected.and_then(|()| mesh.live()) {
        Ok(()) => Ok(mesh),
        Err(error) => {
            // Peers that are already connected wait for messages. Without this message they would
            // consider this task lost.
            mesh.leave_because(&error);
            Err(error)
        }
    }
}

fn connect_all(
    port: &PeerPort,
    view: &GroupView,
    options: &FabricOptions,
    deadline: Instant,
    mesh: &mut Mesh,
) -> Result<(), FabricError> {
    let rank = mesh.rank();
    for (peer, member) in view.members.iter().enumerate() {
        let meeting = PairRendezvous {
            port,
            view: view.number,
            rank: peer,
            deadline,
        };
        let link = match peer.cmp(&rank) {
            Ordering::Less => meeting.connect(member, options)?,
            Ordering::Equal => continue,
            Ordering::Greater => meeting.accept(member, mesh)?,
        };
        mesh.add(peer, link);
    }
    Ok(())
}

/// Rendezvous of one pair of members.
struct PairRendezvous<'a> {
    port: &'a PeerPort,
    view: u64,
    /// Rank of the peer.
    rank: usize,
    deadline: Instant,
}

impl PairRendezvous<'_> {
    fn lost(&self) -> FabricError {
        FabricError::Lost { rank: self.rank }
    }

    fn connect(
        &self,
        member: &ViewMember,
        options: &FabricOptions,
    ) -> Result<Box<dyn PeerLink>, FabricError> {
        let same_node = member.node == self.port.member().node;
        if let (true, true, Some(path)) = (options.shared_memory, same_node, &member.local)
            && let Some(link) = self.connect_locally(member, path)?
        {
            return Ok(link);
        }
        let data = self.dial(member)?;
        let PeerStream::Tcp(data) = self.greet(data, member, PeerChannel::Data)? else {
            unreachable!("dialled over TCP");
        };
        let control = self.dial(member)?;
        let control = self.greet(control, member, PeerChannel::Control)?;
        let link = TcpLink::new(data, control).map_err(FabricError::io("set up a peer"))?;
        Ok(Box::new(link))
    }

    /// Connects through shared memory. `None` if this is not possible and TCP may work.
    fn connect_locally(
        &self,
        member: &ViewMember,
        path: &Path,
    ) -> Result<Option<Box<dyn PeerLink>>, FabricError> {
        // The listener at that path runs on this kernel; a Unix socket cannot be reached from
        // another machine.
        let (Ok(stream), Ok(memory)) =
            (UnixStream::connect(path), SharedMapping::create(PAIR_BYTES))
        else {
            return Ok(None);
        };
        let stream = match self.greet(PeerStream::Unix(stream), member, PeerChannel::Local) {
            Ok(stream) => stream,
            // The path belongs to another task here: in containers the same name can be another
            // file.
            Err(FabricError::Greeting(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut control = ControlSocket::new(stream).map_err(FabricError::io("set up a peer"))?;
        let handed = control.hand_over(&[memory.file()]);
        handed.map_err(|_| self.lost())?;
        Ok(Some(Box::new(ShmLink::new(memory, control, true))))
    }

    fn dial(&self, member: &ViewMember) -> Result<PeerStream, FabricError> {
        let left = self.deadline.saturating_duration_since(clock::now());
        // A limit of zero would be an error of the call and not a refusal.
        let limit = left.max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&member.address, limit).map_err(|_| self.lost())?;
        PeerStream::tcp(stream).map_err(|_| self.lost())
    }

    /// Sends the handshake and waits for the Welcome.
    fn greet(
        &self,
        mut stream: PeerStream,
        member: &ViewMember,
        channel: PeerChannel,
    ) -> Result<PeerStream, FabricError> {
        let me = self.port.credentials();
        let hello = PeerHello {
            job_id: me.job_id,
            secret: me.secret.clone(),
            view: self.view,
            from: me.id,
            attempt: me.attempt,
            to: member.id,
            channel,
            order: ORDER,
        };
        let hello = serde_json::to_vec(&hello).expect("a greeting is plain data");
        let greeted = stream
            .send_greeting(FrameKind::Hello, self.view, &hello)
            .and_then(|()| stream.expect_welcome(self.deadline));
        match greeted {
            Ok(()) => Ok(stream),
            Err(WireError::Closed | WireError::HandshakeTimeout | WireError::Io { .. }) => {
                Err(self.lost())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn accept(
        &self,
        member: &ViewMember,
        mesh: &mut Mesh,
    ) -> Result<Box<dyn PeerLink>, FabricError> {
        let first = self.welcome(member, mesh, |channel| channel != PeerChannel::Control)?;
        if first.hello.channel == PeerChannel::Local {
            let mut control =
                ControlSocket::new(first.stream).map_err(FabricError::io("set up a peer"))?;
            let file = self.wait_file(&mut control)?;
            let memory = SharedMapping::open(file, PAIR_BYTES)
                .map_err(FabricError::io("map a peer's memory"))?;
            return Ok(Box::new(ShmLink::new(memory, control, false)));
        }
        let control = self.welcome(member, mesh, |channel| channel == PeerChannel::Control)?;
        let PeerStream::Tcp(data) = first.stream else {
            unreachable!("the port has matched channels and sockets");
        };
        let link = TcpLink::new(data, control.stream).map_err(FabricError::io("set up a peer"))?;
        Ok(Box::new(link))
    }

    /// Waits for the peer's handshake and accepts it.
    fn welcome(
        &self,
        member: &ViewMember,
        mesh: &mut Mesh,
        wanted: impl Fn(PeerChannel) -> bool,
    ) -> Result<PendingPeer, FabricError> {
        loop {
            let now = clock::now();
            let tick = (now + PROBE_TICK).min(self.deadline);
            let guest = self.port.take(tick, |hello| {
                hello.view == self.view
                    && (hello.from, hello.attempt) == (member.id, member.attempt)
                    && wanted(hello.channel)
            });
            if let Some(mut guest) = guest {
                let sent = guest
                    .stream
                    .send_greeting(FrameKind::Welcome, self.view, &[]);
                sent.map_err(|_| self.lost())?;
                return Ok(guest);
            }
            mesh.listen()?;
            // A refused connection means that the peer has ended; a late peer still listens.
            if now >= self.deadline
                || TcpStream::connect_timeout(&member.address, PROBE_LIMIT)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            {
                return Err(self.lost());
            }
        }
    }

    fn wait_file(&self, control: &mut ControlSocket) -> Result<OwnedFd, FabricError> {
        control.wait_file(self.deadline).ok_or_else(|| self.lost())
    }
}
