//! From a view to a mesh: who connects to whom, over what.
//!
//! The higher rank connects to the lower, so that no pair meets twice. Rank 0 only accepts; by induction everyone is welcomed.

use super::control::Control;
use super::hello::{Channel, ORDER, PeerHello, Stream};
use super::link::Link;
use super::mesh::Mesh;
use super::port::{Guest, Port};
use super::shm::{PAIR_BYTES, ShmLink};
use super::tcp::TcpLink;
use super::view::{Member, View};
use super::{FabricError, Options};
use crate::clock;
use crate::memory::Shared;
use crate::wire::{Kind, WireError};
use std::cmp::Ordering;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a task that waits for peers looks whether those still missing live.
const PROBE_TICK: Duration = Duration::from_millis(250);

/// How long such a look may take.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// Connects this task with every other member of the view.
///
/// # Errors
/// [`FabricError::Lost`] with a rank that is dead or did not come within the limit; [`FabricError::NotMember`].
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
            // Those who are connected already wait for words; a bare end would make this task the dead one.
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

/// One pair's coming together.
struct Meeting<'a> {
    port: &'a Port,
    view: u64,
    /// Of the peer.
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

    /// `None` where it does not work and TCP may.
    fn connect_locally(
        &self,
        member: &Member,
        path: &Path,
    ) -> Result<Option<Box<dyn Link>>, FabricError> {
        // Whoever listens at that path is on this kernel; a socket cannot be reached from another.
        let (Ok(stream), Ok(memory)) = (UnixStream::connect(path), Shared::create(PAIR_BYTES))
        else {
            return Ok(None);
        };
        let stream = match self.greet(Stream::Unix(stream), member, Channel::Local) {
            Ok(stream) => stream,
            // The path leads to somebody else here: in containers the same name is not the same file.
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
        // A zero limit is an error of the call and not a refusal.
        let limit = left.max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&member.address, limit).map_err(|_| self.lost())?;
        Stream::tcp(stream).map_err(|_| self.lost())
    }

    /// Greets and waits to be welcomed.
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

    /// Waits for the peer's greeting, and consents to it.
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
            // Whoever has a closed port is dead; one that is merely late has it open.
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
