//! One connection between a worker and a shard. Frames are sent from the arenas and received into
//! them without a copy, over TCP or through memory that both tasks map.

use super::frame::{FrameError, FrameKind, HEADER_BYTES, Header};
use super::loopback::unbrake;
use super::pipe::Pipe;
use super::stream::{ConnectionStream, Local};
use muster_compute::clock;
use muster_compute::pages;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time without an acknowledgement or a keepalive answer after which the peer's machine is
/// considered lost.
const PEER_SILENCE: Duration = Duration::from_secs(15);

/// Maximum time in which a refused peer reads the reason and closes the connection.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("could not {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer took too long over its greeting")]
    HandshakeTimeout,
    #[error("the peer neither took nor said anything for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("could not read a frame")]
    Frame(#[from] FrameError),
    #[error("the peer sent {got} bytes of payload where {expected} belong")]
    PayloadLength { got: u64, expected: u64 },
    #[error("the peer sent a {got:?} frame where it makes no sense")]
    Unexpected { got: FrameKind },
    #[error("the peer's {0} cannot be read")]
    Malformed(&'static str),
    #[error("the peer refused: {0}")]
    Refused(String),
    #[error("the chief has made the peer the shard that this one was")]
    Adopted,
    #[error("turned the peer away: {0}")]
    TurnedAway(String),
}

impl WireError {
    pub(super) fn refused(reason: &[u8]) -> Self {
        Self::Refused(String::from_utf8_lossy(reason).into_owned())
    }

    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io { doing, source },
        }
    }
}

/// Connection to a peer that exchanges frames.
#[derive(Debug)]
pub struct Connection {
    stream: ConnectionStream,
}

impl Connection {
    /// Wraps a new socket. Turns off Nagle's algorithm, sets keepalive and a user timeout to detect
    /// a vanished machine, and turns off pacing for connections within this machine.
    ///
    /// # Errors
    /// [`WireError::Io`] if the socket refuses its options.
    pub fn new(stream: TcpStream) -> Result<Self, WireError> {
        set_options(&stream).map_err(WireError::io("set up a connection"))?;
        unbrake(&stream);
        Ok(Self {
            stream: ConnectionStream::Tcp(stream),
        })
    }

    /// Wraps an accepted Unix socket of a task of this node, before its handshake.
    #[must_use]
    pub fn local(stream: UnixStream) -> Self {
        Self {
            stream: ConnectionStream::Local(Local::new(stream)),
        }
    }

    /// Wraps a Unix socket to a task of this node before the handshake. The shared memory is sent
    /// with the handshake and [carries](Self::carry) all later frames.
    pub(super) fn offering(stream: UnixStream) -> io::Result<(Self, Pipe)> {
        let (local, pipe) = Local::offer(stream)?;
        Ok((
            Self {
                stream: ConnectionStream::Local(local),
            },
            pipe,
        ))
    }

    /// Maps the memory that a task of this node has sent with its handshake. After the task is
    /// accepted, [`carry`](Self::carry) uses it for all later frames. Returns `None` for a peer
    /// that came by TCP.
    ///
    /// # Errors
    /// [`WireError::Io`] if no memory was sent or it cannot be mapped. The peer then connects by
    /// TCP.
    pub fn take_memory(&mut self) -> Result<Option<Pipe>, WireError> {
        match &mut self.stream {
            ConnectionStream::Local(local) => local
                .accept()
                .map(Some)
                .map_err(WireError::io("map a peer's memory")),
            ConnectionStream::Tcp(_) | ConnectionStream::Shared(_) => Ok(None),
        }
    }

    /// Sends and receives all later frames through this memory.
    pub fn carry(&mut self, pipe: Pipe) {
        self.stream = ConnectionStream::Shared(Arc::new(pipe));
    }

    /// Whether frames use memory that the peer maps too.
    #[must_use]
    pub fn is_shared_memory(&self) -> bool {
        matches!(self.stream, ConnectionStream::Shared(_))
    }

    /// Returns the same connection for a second thread: one thread sends while the other one
    /// receives, or they alternate.
    ///
    /// # Errors
    /// [`WireError::Io`] if no file descriptor is left.
    pub fn twin(&self) -> Result<Self, WireError> {
        let stream = self
            .stream
            .twin()
            .map_err(WireError::io("duplicate a socket"))?;
        Ok(Self { stream })
    }

    /// Limits the unsent bytes in the socket's send buffer to `bytes`, so that an urgent frame does
    /// not wait behind many bytes that were sent earlier.
    ///
    /// # Errors
    /// [`WireError::Io`] if the socket refuses the option.
    pub fn limit_unsent(&self, bytes: u32) -> Result<(), WireError> {
        self.stream
            .limit_unsent(bytes)
            .map_err(WireError::io("limit what waits for the wire"))
    }

    /// Makes later sends fail after the peer has accepted no bytes for `limit`. A slow peer that
    /// accepts some bytes does not fail.
    ///
    /// # Errors
    /// [`WireError::Io`] if the socket refuses the option.
    pub fn give_up_sending(&self, limit: Duration) -> Result<(), WireError> {
        self.stream
            .give_up_sending(limit)
            .map_err(WireError::io("limit how long sending waits"))
    }

    /// Sends one frame. The slices of `payload` are sent one after the other as one payload.
    ///
    /// # Errors
    /// [`WireError::Closed`] or [`WireError::Io`].
    pub fn send(
        &mut self,
        kind: FrameKind,
        clock: u64,
        meta: &[u8],
        payload: &[&[f32]],
    ) -> Result<(), WireError> {
        let floats: usize = payload.iter().map(|part| part.len()).sum();
        let header = Header {
            kind,
            clock,
            meta_bytes: u32::try_from(meta.len()).expect("small parts are small"),
            payload_bytes: floats as u64 * 4,
        }
        .encode();
        let mut slices = Vec::with_capacity(2 + payload.len());
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(meta));
        slices.extend(
            payload
                .iter()
                .map(|part| IoSlice::new(bytemuck::cast_slice(part))),
        );
        self.stream
            .send(&mut slices)
            .map_err(WireError::io("send a frame"))
    }

    /// Sends one frame with a payload of bytes.
    ///
    /// # Errors
    /// [`WireError::Closed`] or [`WireError::Io`].
    pub fn send_bytes(
        &mut self,
        kind: FrameKind,
        clock: u64,
        meta: &[u8],
        payload: &[u8],
    ) -> Result<(), WireError> {
        let header = Header {
            kind,
            clock,
            meta_bytes: u32::try_from(meta.len()).expect("small parts are small"),
            payload_bytes: payload.len() as u64,
        }
        .encode();
        let mut slices = [header.as_slice(), meta, payload].map(IoSlice::new);
        self.stream
            .send(&mut slices)
            .map_err(WireError::io("send a frame"))
    }

    /// Reads a payload of at most `limit` bytes into `out`.
    ///
    /// # Errors
    /// [`WireError::PayloadLength`] before any byte is read if the payload is longer.
    pub fn receive_bytes(
        &mut self,
        header: Header,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        if header.payload_bytes > limit as u64 {
            return Err(WireError::PayloadLength {
                got: header.payload_bytes,
                expected: limit as u64,
            });
        }
        pages::resize(out, header.payload_bytes as usize);
        self.stream
            .receive(&mut [IoSliceMut::new(out)])
            .map_err(WireError::io("read a payload"))
    }

    /// Waits for the header of the next frame, without a time limit.
    ///
    /// # Errors
    /// [`WireError`] if the connection is broken or the bytes are not a valid header.
    pub fn receive(&mut self) -> Result<Header, WireError> {
        let mut bytes = [0; HEADER_BYTES];
        self.stream
            .receive(&mut [IoSliceMut::new(&mut bytes)])
            .map_err(WireError::io("read a frame's header"))?;
        Ok(Header::decode(&bytes)?)
    }

    /// Waits up to `limit` for bytes from the peer. Returns `false` if none arrived, so that a task
    /// can poll its stop flag between two waits.
    ///
    /// # Errors
    /// [`WireError`] if the connection is broken.
    pub fn wait_readable(&mut self, limit: Duration) -> Result<bool, WireError> {
        // A signal ends the wait early: the caller then polls its stop flag.
        self.stream
            .wait(limit)
            .map_err(WireError::io("wait for a frame"))
    }

    /// Reads the metadata of the frame whose header was received last.
    ///
    /// # Errors
    /// [`WireError`] if the connection is broken.
    pub fn receive_meta(&mut self, header: Header) -> Result<Vec<u8>, WireError> {
        // `decode` has checked the length against its limit.
        let mut meta = vec![0; header.meta_bytes as usize];
        self.stream
            .receive(&mut [IoSliceMut::new(&mut meta)])
            .map_err(WireError::io("read a frame"))?;
        Ok(meta)
    }

    /// Returns the error for a frame that is not the expected answer: the peer's reason if it
    /// refuses.
    pub fn unexpected(&mut self, header: Header) -> WireError {
        match header.kind {
            FrameKind::Refused => match self.receive_meta(header) {
                Ok(reason) => WireError::refused(&reason),
                Err(error) => error,
            },
            FrameKind::Adopted => WireError::Adopted,
            got => WireError::Unexpected { got },
        }
    }

    /// Reads the payload of the frame into `parts`. Their total length must equal the payload's.
    ///
    /// # Errors
    /// [`WireError::PayloadLength`] before any byte is read if the lengths differ.
    pub fn receive_payload(
        &mut self,
        header: Header,
        parts: &mut [&mut [f32]],
    ) -> Result<(), WireError> {
        let floats: usize = parts.iter().map(|part| part.len()).sum();
        let expected = floats as u64 * 4;
        if header.payload_bytes != expected {
            return Err(WireError::PayloadLength {
                got: header.payload_bytes,
                expected,
            });
        }
        let mut slices: Vec<IoSliceMut<'_>> = parts
            .iter_mut()
            .map(|part| IoSliceMut::new(bytemuck::cast_slice_mut(part)))
            .collect();
        self.stream
            .receive(&mut slices)
            .map_err(WireError::io("read a payload"))
    }

    /// Reads one frame without payload before `deadline`, with metadata of at most
    /// `max_meta_bytes`. Used for handshakes: an unauthenticated peer can cost the reader neither
    /// more time nor more memory.
    ///
    /// # Errors
    /// [`WireError::HandshakeTimeout`] at the deadline, or another [`WireError`] if the frame is
    /// invalid or the connection is broken.
    pub fn receive_greeting(
        &mut self,
        deadline: Instant,
        max_meta_bytes: u32,
    ) -> Result<(Header, Vec<u8>), WireError> {
        let mut bytes = [0; HEADER_BYTES];
        self.stream.receive_before(deadline, &mut bytes)?;
        let header = Header::decode(&bytes)?;
        if header.meta_bytes > max_meta_bytes {
            return Err(FrameError::MetaTooLong(header.meta_bytes).into());
        }
        if header.payload_bytes != 0 {
            return Err(WireError::PayloadLength {
                got: header.payload_bytes,
                expected: 0,
            });
        }
        let mut meta = vec![0; header.meta_bytes as usize];
        self.stream.receive_before(deadline, &mut meta)?;
        Ok((header, meta))
    }

    /// Sends the reason of the refusal, then reads and discards the bytes that the peer has already
    /// sent. Closing a socket with unread bytes would reset the connection and lose the reason.
    pub fn refuse(mut self, reason: &str) {
        if self
            .send(FrameKind::Refused, 0, reason.as_bytes(), &[])
            .is_err()
            || self.stream.end().is_err()
        {
            return;
        }
        let deadline = clock::now() + REFUSAL_LIMIT;
        let mut sink = vec![0; 64 << 10];
        while self.stream.receive_before(deadline, &mut sink).is_ok() {}
    }
}

/// The socket that ends when the peer's process ends.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
        .with_retries(5);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(PEER_SILENCE))
}

/// Connects to `host:port` and tries each address of the name in turn.
///
/// # Errors
/// [`WireError::Io`] with the failure of the last address.
pub fn connect(address: &str, limit: Duration) -> Result<TcpStream, WireError> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for resolved in address.to_socket_addrs().map_err(not_connected)? {
        match TcpStream::connect_timeout(&resolved, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(not_connected(last))
}

fn not_connected(source: io::Error) -> WireError {
    WireError::Io {
        doing: "connect to a PS shard",
        source,
    }
}
