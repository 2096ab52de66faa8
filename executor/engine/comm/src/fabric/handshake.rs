//! Handshake between peers: frames of [`crate::wire`] that prove the secret and contain the fences.

use crate::wire::metadata::same_secret;
use crate::wire::{Connection, FrameError, FrameKind, HEADER_BYTES, Header, WireError};
use muster_compute::clock;
use muster_model::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Maximum length in bytes of a handshake that is read from an unauthenticated peer.
pub const MAX_PEER_HELLO_BYTES: u32 = 1024;

/// Version of the summation order: order and pieces in which floats follow on the data connections,
/// and the control messages about them. The data connections carry no other information. The number
/// must change with every change of the order; otherwise tasks of two releases would add values
/// that do not belong together.
pub const ORDER: u32 = 4;

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerChannel {
    /// Floats over TCP only.
    Data,
    /// Control messages and heartbeat.
    Control,
    /// Lines between a worker and the membership server.
    Office,
    /// Unix socket between tasks of one node: transfer of memory, control messages and heartbeat.
    Local,
}

/// First message of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerHello {
    pub job_id: JobId,
    /// Fence: secret of the launch in hex, new with every start of the job. It stays the same when
    /// the job is resized in place, so that a task of a later revision can join the remaining ones.
    pub secret: String,
    /// Fence: number of the view of this connection.
    pub view: u64,
    /// Sender, its attempt, and the task that it wants to reach.
    pub from: TaskId,
    pub attempt: u32,
    pub to: TaskId,
    pub channel: PeerChannel,
    /// [`ORDER`] of the sender.
    #[serde(default = "first_order")]
    pub order: u32,
}

fn first_order() -> u32 {
    1
}

/// Facts that a peer must match to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub job_id: JobId,
    pub secret: String,
    /// Id of this task.
    pub id: TaskId,
    pub attempt: u32,
}

impl Credentials {
    /// Checks that a handshake comes from a task of the same start of the job. The task that waits
    /// for a view checks the view's number.
    ///
    /// # Errors
    /// The reason, as it is sent to the peer.
    pub fn judge(&self, hello: &PeerHello) -> Result<(), String> {
        // Checked first and without details: a peer without the secret learns nothing about the
        // job.
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

/// Socket of either kind.
#[derive(Debug)]
pub enum PeerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl PeerStream {
    /// Wraps a TCP socket and sets the same options as in the parameter exchange: no Nagle delay,
    /// keepalive, user timeout.
    ///
    /// # Errors
    /// [`WireError::Io`] if the socket refuses its options.
    pub fn tcp(stream: TcpStream) -> Result<Self, WireError> {
        let duplicate = stream.try_clone().map_err(io_error("duplicate a socket"))?;
        // The options belong to the socket and remain after the duplicate is closed.
        drop(Connection::new(duplicate)?);
        Ok(Self::Tcp(stream))
    }

    /// Sets or clears the non-blocking mode.
    ///
    /// # Errors
    /// The error of the socket.
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
    /// [`WireError`] if the connection is broken.
    pub fn send_greeting(
        &mut self,
        kind: FrameKind,
        view: u64,
        meta: &[u8],
    ) -> Result<(), WireError> {
        let header = Header {
            kind,
            clock: view,
            meta_bytes: u32::try_from(meta.len()).expect("small parts are small"),
            payload_bytes: 0,
        };
        let frame = [&header.encode()[..], meta].concat();
        self.write_all(&frame).map_err(io_error("send a greeting"))
    }

    /// Reads one frame without payload before `deadline`, and no bytes after it.
    ///
    /// # Errors
    /// [`WireError::HandshakeTimeout`] at the deadline, or another [`WireError`] if the frame is
    /// invalid or the connection is broken.
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

    /// Waits for the peer's Welcome after a handshake was sent.
    ///
    /// # Errors
    /// [`WireError::Refused`] with the peer's reason, or the error of a broken connection.
    pub fn expect_welcome(&mut self, deadline: Instant) -> Result<(), WireError> {
        let (header, meta) = self.receive_greeting(deadline)?;
        match header.kind {
            FrameKind::Welcome => Ok(()),
            FrameKind::Refused => Err(WireError::Refused(
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

impl Read for PeerStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(out),
            Self::Unix(stream) => stream.read(out),
        }
    }
}

impl Write for PeerStream {
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

impl AsFd for PeerStream {
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

    fn pair() -> (PeerStream, PeerStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (PeerStream::Unix(a), PeerStream::Unix(b))
    }

    proptest! {
        /// For arbitrary input the reader returns an error or a frame of limited length. It never
        /// panics or exceeds its time limit.
        #[test]
        fn arbitrary_bytes_are_an_error_or_a_small_frame(
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
                    // Serde parses the metadata: the result may be an error, but never a panic.
                    let _ = serde_json::from_slice::<PeerHello>(&meta);
                }
                Err(WireError::Closed | WireError::Frame(_) | WireError::PayloadLength { .. }) => {}
                Err(error) => prop_assert!(false, "{error:?}"),
            }
        }
    }

    #[test]
    fn handshake_with_a_wrong_fence_is_refused() {
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
            channel: PeerChannel::Data,
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
        // A release with another order sends its number; the first release sends none.
        assert!(wrong(|h| h.order += 1).contains("update the executors"));
        let mut of_the_first = serde_json::to_value(&good).unwrap();
        of_the_first.as_object_mut().unwrap().remove("order");
        let of_the_first = serde_json::from_value(of_the_first).unwrap();
        assert!(me.judge(&of_the_first).is_err());
    }

    #[test]
    fn silent_peer_times_out() {
        let (_stranger, mut reader) = pair();
        let error = reader
            .receive_greeting(clock::now() + Duration::from_millis(20))
            .unwrap_err();
        assert!(matches!(error, WireError::HandshakeTimeout), "{error:?}");
    }
}
