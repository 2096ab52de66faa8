//! Transport of a connection: TCP, or memory that both tasks map after a handshake over a Unix
//! socket.

use super::connection::WireError;
use super::pipe::{PIPE_BYTES, Pipe};
use crate::memory::{SharedMapping, descriptor_passing};
use muster_compute::clock;
use rustix::net::SendFlags;
use socket2::SockRef;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of slices in one `writev` or `readv` call. The limit of the kernel is 1024.
const SLICES_PER_CALL: usize = 64;

/// One side of a connection.
#[derive(Debug)]
pub(super) enum ConnectionStream {
    Tcp(TcpStream),
    Local(Local),
    Shared(Arc<Pipe>),
}

/// Unix socket before its handshake is accepted.
#[derive(Debug)]
pub(super) struct Local {
    stream: UnixStream,
    /// File descriptors to send with the next bytes.
    offered: Vec<OwnedFd>,
    /// File descriptors that were received.
    come: Vec<OwnedFd>,
}

impl Local {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            offered: Vec::new(),
            come: Vec::new(),
        }
    }

    /// Creates the memory of a pipe. The peer receives it with the first bytes.
    pub fn offer(stream: UnixStream) -> io::Result<(Self, Pipe)> {
        let memory = SharedMapping::create(PIPE_BYTES)?;
        let (room, theirs) = UnixStream::pair()?;
        let offered = vec![memory.file().try_clone_to_owned()?, theirs.into()];
        let pipe = Pipe::new(memory, stream.try_clone()?, room, true);
        let local = Self {
            offered,
            ..Self::new(stream)
        };
        Ok((local, pipe))
    }

    /// Maps the memory that the peer has sent.
    pub fn accept(&mut self) -> io::Result<Pipe> {
        let mut files = std::mem::take(&mut self.come).into_iter();
        let (Some(memory), Some(room), None) = (files.next(), files.next(), files.next()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a peer came without the memory that belongs to its greeting",
            ));
        };
        let memory = SharedMapping::open(memory, PIPE_BYTES)?;
        // Both sockets are used with non-blocking calls only, so any descriptor that the peer sends
        // is harmless.
        let (arrivals, room) = (self.stream.try_clone()?, room.into());
        Ok(Pipe::new(memory, arrivals, room, false))
    }
}

impl Read for Local {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = descriptor_passing::receive(&self.stream, out, &mut self.come)?;
        // Otherwise a peer could exhaust the file descriptors of this process by sending more.
        self.come.truncate(descriptor_passing::FILES);
        Ok(count)
    }
}

impl Write for Local {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let files = std::mem::take(&mut self.offered);
        if files.is_empty() {
            return self.stream.write(bytes);
        }
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        descriptor_passing::send(&self.stream, bytes, &files, SendFlags::empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ConnectionStream {
    /// The same transport for a second thread.
    pub fn twin(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Local(local) => Self::Local(Local::new(local.stream.try_clone()?)),
            Self::Shared(pipe) => Self::Shared(Arc::clone(pipe)),
        })
    }

    /// Limits the unsent bytes in the send buffer. A ring needs no limit: the peer can read its
    /// content at once.
    pub fn limit_unsent(&self, bytes: u32) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_tcp_notsent_lowat(bytes),
            Self::Local(_) | Self::Shared(_) => Ok(()),
        }
    }

    pub fn give_up_sending(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(limit)),
            Self::Local(local) => local.stream.set_write_timeout(Some(limit)),
            Self::Shared(pipe) => {
                pipe.give_up_sending(limit);
                Ok(())
            }
        }
    }

    pub fn send(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => write_all(stream, slices),
            Self::Local(local) => write_all(local, slices),
            Self::Shared(pipe) => pipe.send(slices),
        }
    }

    pub fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => read_all(stream, slices),
            Self::Local(local) => read_all(local, slices),
            Self::Shared(pipe) => pipe.receive(slices),
        }
    }

    /// Whether data arrived within `limit`. A signal ends the wait early.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let socket = match self {
            Self::Shared(pipe) => return pipe.wait(limit),
            Self::Tcp(_) | Self::Local(_) => SockRef::from(self),
        };
        socket.set_read_timeout(Some(limit))?;
        let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
        socket.set_read_timeout(None)?;
        match peeked {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            // Calls on a socket with a timeout are not restarted after a signal.
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Fills `out` before `deadline`.
    pub fn receive_before(
        &mut self,
        deadline: Instant,
        mut out: &mut [u8],
    ) -> Result<(), WireError> {
        let doing = "read a greeting";
        while !out.is_empty() {
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(WireError::HandshakeTimeout);
            }
            match self.receive_some(out, left) {
                Ok(0) => return Err(WireError::Closed),
                Ok(count) => out = &mut out[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Err(WireError::HandshakeTimeout),
                Err(error) => return Err(WireError::io(doing)(error)),
            }
        }
        match self {
            Self::Shared(_) => Ok(()),
            Self::Tcp(_) | Self::Local(_) => SockRef::from(&*self)
                .set_read_timeout(None)
                .map_err(WireError::io(doing)),
        }
    }

    fn receive_some(&mut self, out: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Self::Shared(pipe) => pipe.receive_some(out, 1, Some(clock::now() + limit)),
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(out)
            }
            Self::Local(local) => {
                local.stream.set_read_timeout(Some(limit))?;
                local.read(out)
            }
        }
    }

    /// Ends sending; the peer may still send.
    pub fn end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Local(local) => local.stream.shutdown(Shutdown::Write),
            Self::Shared(pipe) => pipe.end(),
        }
    }
}

/// The socket that ends with the peer's process.
impl AsFd for ConnectionStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Local(local) => local.stream.as_fd(),
            Self::Shared(pipe) => pipe.as_fd(),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn write_all(stream: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(SLICES_PER_CALL);
        match stream.write_vectored(&slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_all(stream: &mut impl Read, mut slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(SLICES_PER_CALL);
        match stream.read_vectored(&mut slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => IoSliceMut::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
