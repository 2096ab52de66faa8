//! The greeting between peers: frames of [`crate::wire`] that prove the secret and name the fences.

use crate::clock;
use crate::wire::hello::same_secret;
use crate::wire::{Connection, FrameError, HEADER_BYTES, Header, Kind, WireError};
use muster_model::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest greeting that is read from a stranger.
pub const MAX_PEER_HELLO_BYTES: u32 = 1024;

/// In which order and pieces floats follow one another on the data connections, which carry nothing else, and what is said of them beside: another
/// number with every change of that, or tasks of two releases would add up what does not belong together.
pub const ORDER: u32 = 4;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Floats over TCP, nothing else.
    Data,
    /// Words beside the floats, and the sign of life.
    Control,
    /// Lines between a worker and the one that keeps the list of members.
    Office,
    /// A Unix socket between tasks of one node: hands memory over, rings the bell, and is the sign of life.
    Local,
}

/// What a peer says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerHello {
    pub job_id: JobId,
    /// Fence: new with every start of the job, as in the launch; hex. It stays while the job is resized in place, so that a task
    /// of a later revision may join those that have stayed.
    pub secret: String,
    /// Fence: the view that the connection is for.
    pub view: u64,
    /// Who speaks, in which attempt, and whom it believes to speak to.
    pub from: TaskId,
    pub attempt: u32,
    pub to: TaskId,
    pub channel: Channel,
    /// [`ORDER`] of who speaks.
    #[serde(default = "first_order")]
    pub order: u32,
}

fn first_order() -> u32 {
    1
}

/// Whom a task takes as its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub job_id: JobId,
    pub secret: String,
    /// This task's own.
    pub id: TaskId,
    pub attempt: u32,
}

impl Credentials {
    /// Why this greeting is not from a task of the same start of the job; the view is judged by who waits for it.
    ///
    /// # Errors
    /// The reason, as the stranger is told it.
    pub fn judge(&self, hello: &PeerHello) -> Result<(), String> {
        // First, and without a word more: who does not know the secret learns nothing about the job.
        if !same_secret(&hello.secret, &self.secret) {
            return Err("the secret is wrong".to_owned());
        }
        if hello.job_id != self.job_id {
            return Err("this task is of another job".to_owned());
        }
        if hello.to != self.id {
            return Err(format!("this is task {}", self.id));
        }
        if hello.order != ORDER {
            let order = hello.order;
            return Err(format!(
                "this task adds up in order {ORDER}, the peer in order {order}: update the executors of both"
            ));
        }
        Ok(())
    }
}

/// A socket of either kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Takes over a TCP socket with the same options as the rest of the data plane: no Nagle delay, keepalive, user timeout.
    ///
    /// # Errors
    /// [`WireError::Io`] when the socket refuses its options.
    pub fn tcp(stream: TcpStream) -> Result<Self, WireError> {
        let duplicate = stream.try_clone().map_err(io_error("duplicate a socket"))?;
        // The options belong to the socket and stay when the duplicate goes.
        drop(Connection::new(duplicate)?);
        Ok(Self::Tcp(stream))
    }

    /// # Errors
    /// The socket's.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(on),
            Self::Unix(stream) => stream.set_nonblocking(on),
        }
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    /// Sends one frame without payload.
    ///
    /// # Errors
    /// [`WireError`] when the peer is gone.
    pub fn send_greeting(&mut self, kind: Kind, view: u64, meta: &[u8]) -> Result<(), WireError> {
        let header = Header {
            kind,
            clock: view,
            meta_bytes: u32::try_from(meta.len()).expect("small parts are small"),
            payload_bytes: 0,
        };
        let frame = [&header.encode()[..], meta].concat();
        self.write_all(&frame).map_err(io_error("send a greeting"))
    }

    /// Reads one frame without payload before `deadline`, and nothing beyond it.
    ///
    /// # Errors
    /// [`WireError::HandshakeTimeout`] and whatever else may be wrong with it.
    pub fn receive_greeting(&mut self, deadline: Instant) -> Result<(Header, Vec<u8>), WireError> {
        let mut bytes = [0; HEADER_BYTES];
        self.read_before(deadline, &mut bytes)?;
        let header = Header::decode(&bytes)?;
        if header.meta_bytes > MAX_PEER_HELLO_BYTES {
            return Err(FrameError::MetaTooLong(header.meta_bytes).into());
        }
        if header.payload_bytes != 0 {
            return Err(WireError::PayloadLength {
                got: header.payload_bytes,
                expected: 0,
            });
        }
        let mut meta = vec![0; header.meta_bytes as usize];
        self.read_before(deadline, &mut meta)?;
        self.set_read_timeout(None)
            .map_err(io_error("read a greeting"))?;
        Ok((header, meta))
    }

    /// Waits for the peer's consent to a greeting just sent.
    ///
    /// # Errors
    /// [`WireError::Refused`] with the peer's reason, or a broken connection.
    pub fn expect_welcome(&mut self, deadline: Instant) -> Result<(), WireError> {
        let (header, meta) = self.receive_greeting(deadline)?;
        match header.kind {
            Kind::Welcome => Ok(()),
            Kind::Refused => Err(WireError::Refused(
                String::from_utf8_lossy(&meta).into_owned(),
            )),
            got => Err(WireError::Unexpected { got }),
        }
    }

    fn read_before(&mut self, deadline: Instant, mut out: &mut [u8]) -> Result<(), WireError> {
        let doing = "read a greeting";
        while !out.is_empty() {
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(WireError::HandshakeTimeout);
            }
            self.set_read_timeout(Some(left)).map_err(io_error(doing))?;
            match self.read(out) {
                Ok(0) => return Err(WireError::Closed),
                Ok(count) => out = &mut out[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(WireError::HandshakeTimeout);
                }
                Err(error) => return Err(io_error(doing)(error)),
            }
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(out),
            Self::Unix(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> WireError {
    move |source| match source.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => WireError::Closed,
        _ => WireError::Io { doing, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn pair() -> (Stream, Stream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Stream::Unix(a), Stream::Unix(b))
    }

    proptest! {
        /// Whatever a stranger sends, the reader errs or reads a frame of bounded length; it never panics or waits beyond its limit.
        #[test]
        fn arbitrary_bytes_are_read_as_an_error_or_a_small_frame(
            bytes in prop::collection::vec(any::<u8>(), 0..2_000), honest_header: bool, kind in 0u16..20, meta in 0u32..3_000,
        ) {
            let (mut stranger, mut reader) = pair();
            let mut bytes = bytes;
            if honest_header && bytes.len() >= HEADER_BYTES {
                bytes[0..4].copy_from_slice(b"MSTR");
                bytes[4..6].copy_from_slice(&crate::wire::PROTOCOL_VERSION.to_le_bytes());
                bytes[6..8].copy_from_slice(&kind.to_le_bytes());
                bytes[16..20].copy_from_slice(&meta.to_le_bytes());
                bytes[20..28].fill(0);
                let checksum = crc32fast::hash(&bytes[..28]);
                bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
            }
            stranger.write_all(&bytes).unwrap();
            drop(stranger);
            match reader.receive_greeting(clock::now() + Duration::from_secs(5)) {
                Ok((header, meta)) => {
                    prop_assert!(meta.len() <= MAX_PEER_HELLO_BYTES as usize);
                    prop_assert_eq!(header.meta_bytes as usize, meta.len());
                    // A greeting's small part is judged by serde: an error, never a panic.
                    let _ = serde_json::from_slice::<PeerHello>(&meta);
                }
                Err(WireError::Closed | WireError::Frame(_) | WireError::PayloadLength { .. }) => {}
                Err(error) => prop_assert!(false, "{error:?}"),
            }
        }
    }

    #[test]
    fn each_fence_is_judged() {
        let me = Credentials {
            job_id: JobId(Uuid::nil()),
            secret: "s3".into(),
            id: TaskId(Uuid::from_u128(1)),
            attempt: 1,
        };
        let good = PeerHello {
            job_id: JobId(Uuid::nil()),
            secret: "s3".into(),
            view: 1,
            from: TaskId(Uuid::from_u128(2)),
            attempt: 1,
            to: TaskId(Uuid::from_u128(1)),
            channel: Channel::Data,
            order: ORDER,
        };
        assert_eq!(me.judge(&good), Ok(()));
        let wrong = |change: fn(&mut PeerHello)| {
            let mut hello = good.clone();
            change(&mut hello);
            me.judge(&hello).unwrap_err()
        };
        assert_eq!(wrong(|h| h.secret = "s4".into()), "the secret is wrong");
        assert!(wrong(|h| h.to = TaskId(Uuid::nil())).ends_with("0001"));
        assert!(wrong(|h| h.job_id = JobId(Uuid::max())).contains("another job"));
        // A release that adds up in another order says so, and the first one says nothing.
        assert!(wrong(|h| h.order += 1).contains("update the executors"));
        let mut of_the_first = serde_json::to_value(&good).unwrap();
        of_the_first.as_object_mut().unwrap().remove("order");
        let of_the_first = serde_json::from_value(of_the_first).unwrap();
        assert!(me.judge(&of_the_first).is_err());
    }

    #[test]
    fn a_silent_stranger_is_given_up() {
        let (_stranger, mut reader) = pair();
        let error = reader
            .receive_greeting(clock::now() + Duration::from_millis(20))
            .unwrap_err();
        assert!(matches!(error, WireError::HandshakeTimeout), "{error:?}");
    }
}
