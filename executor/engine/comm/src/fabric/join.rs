//! Connects the members of a view with each other.
//!
//! The higher rank connects to the lower one, so that each pair has one connection. Rank 0 only
//! accepts; by induction every rank is accepted and none deadlocks.

use super::control::Control;
use super::hello::{Channel, ORDER, PeerHello, Stream};
use super::link::Link;
use super::mesh::Mesh;
use super::port::{Guest, Port};
use super::shm::{PAIR_BYTES, ShmLink};
use super::tcp::TcpLink;
use super::view::{Member, View};
use super::{FabricError, Options};
use crate::memory::Shared;
use crate::wire::{Kind, WireError};
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
pub(super) fn join(port: &Port, view: &View, options: &Options) -> Result<Mesh, FabricError> {
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
    port: &Port,
    view: &View,
    options: &Options,
    deadline: Instant,
    mesh: &mut Mesh,
) -> Result<(), FabricError> {
    let rank = mesh.rank();
    for (peer, member) in view.members.iter().enumerate() {
        let meeting = Meeting {
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
struct Meeting<'a> {
    port: &'a Port,
    view: u64,
    /// Rank of the peer.
    rank: usize,
    deadline: Instant,
}

impl Meeting<'_> {
    fn lost(&self) -> FabricError {
        FabricError::Lost { rank: self.rank }
    }

    fn connect(&self, member: &Member, options: &Options) -> Result<Box<dyn Link>, FabricError> {
        let same_node = member.node == self.port.member().node;
        if let (true, true, Some(path)) = (options.shared_memory, same_node, &member.local)
            && let Some(link) = self.connect_locally(member, path)?
        {
            return Ok(link);
        }
        let data = self.dial(member)?;
        let Stream::Tcp(data) = self.greet(data, member, Channel::Data)? else {
            unreachable!("dialled over TCP");
        };
        let control = self.dial(member)?;
        let control = self.greet(control, member, Channel::Control)?;
        let link = TcpLink::new(data, control).map_err(FabricError::io("set up a peer"))?;
        Ok(Box::new(link))
    }

    /// Connects through shared memory. `None` if this is not possible and TCP may work.
    fn connect_locally(
        &self,
        member: &Member,
        path: &Path,
    ) -> Result<Option<Box<dyn Link>>, FabricError> {
        // The listener at that path runs on this kernel; a Unix socket cannot be reached from
        // another machine.
        let (Ok(stream), Ok(memory)) = (UnixStream::connect(path), Shared::create(PAIR_BYTES))
        else {
            return Ok(None);
        };
        let stream = match self.greet(Stream::Unix(stream), member, Channel::Local) {
            Ok(stream) => stream,
            // The path belongs to another task here: in containers the same name can be another
            // file.
            Err(FabricError::Greeting(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut control = Control::new(stream).map_err(FabricError::io("set up a peer"))?;
        let handed = control.hand_over(&[memory.file()]);
        handed.map_err(|_| self.lost())?;
        Ok(Some(Box::new(ShmLink::new(memory, control, true))))
    }

    fn dial(&self, member: &Member) -> Result<Stream, FabricError> {
        let left = self.deadline.saturating_duration_since(clock::now());
        // A limit of zero would be an error of the call and not a refusal.
        let limit = left.max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&member.address, limit).map_err(|_| self.lost())?;
        Stream::tcp(stream).map_err(|_| self.lost())
    }

    /// Sends the handshake and waits for the Welcome.
    fn greet(
        &self,
        mut stream: Stream,
        member: &Member,
        channel: Channel,
    ) -> Result<Stream, FabricError> {
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
            .send_greeting(Kind::Hello, self.view, &hello)
            .and_then(|()| stream.expect_welcome(self.deadline));
        match greeted {
            Ok(()) => Ok(stream),
            Err(WireError::Closed | WireError::HandshakeTimeout | WireError::Io { .. }) => {
                Err(self.lost())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&self, member: &Member, mesh: &mut Mesh) -> Result<Box<dyn Link>, FabricError> {
        let first = self.welcome(member, mesh, |channel| channel != Channel::Control)?;
        if first.hello.channel == Channel::Local {
            let mut control =
                Control::new(first.stream).map_err(FabricError::io("set up a peer"))?;
            let file = self.wait_file(&mut control)?;
            let memory =
                Shared::open(file, PAIR_BYTES).map_err(FabricError::io("map a peer's memory"))?;
            return Ok(Box::new(ShmLink::new(memory, control, false)));
        }
        let control = self.welcome(member, mesh, |channel| channel == Channel::Control)?;
        let Stream::Tcp(data) = first.stream else {
            unreachable!("the port has matched channels and sockets");
        };
        let link = TcpLink::new(data, control.stream).map_err(FabricError::io("set up a peer"))?;
        Ok(Box::new(link))
    }

    /// Waits for the peer's handshake and accepts it.
    fn welcome(
        &self,
        member: &Member,
        mesh: &mut Mesh,
        wanted: impl Fn(Channel) -> bool,
    ) -> Result<Guest, FabricError> {
        loop {
            let now = clock::now();
            let tick = (now + PROBE_TICK).min(self.deadline);
            let guest = self.port.take(tick, |hello| {
                hello.view == self.view
                    && (hello.from, hello.attempt) == (member.id, member.attempt)
                    && wanted(hello.channel)
            });
            if let Some(mut guest) = guest {
                let sent = guest.stream.send_greeting(Kind::Welcome, self.view, &[]);
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

    fn wait_file(&self, control: &mut Control) -> Result<OwnedFd, FabricError> {
        control.wait_file(self.deadline).ok_or_else(|| self.lost())
    }
}
