//! Link over TCP: one socket for floats, one for control messages.

use super::control::ControlSocket;
use super::handshake::PeerStream;
use super::link::{PeerLink, ReceiveSink};
use super::zero_copy::ZeroCopySender;
use crate::collective::add;
use crate::log;
use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Maximum number of floats per `write` (1 MiB); larger ones gained nothing measurable.
const SEND_CHUNK: usize = 256 << 10;

/// Maximum number of floats received before they are added (256 KiB), so that they are still in the
/// second-level cache. Smaller reads cause more acknowledgements.
const ADD_CHUNK: usize = 64 << 10;

/// Size in bytes of the kernel buffer per socket and direction. The kernel doubles it for its own
/// bookkeeping and limits it.
const SOCKET_BUFFER: usize = 4 << 20;

/// Link to one peer over TCP.
#[derive(Debug)]
pub struct TcpLink {
    data: TcpStream,
    control: ControlSocket,
    /// Created on first use.
    sender: ZeroCopyState,
    /// Bytes of the next float that have already been sent.
    sent_head: usize,
    /// Number of bytes of the next float that have already been received. They are in the
    /// destination or the first bytes of `scratch`.
    received_head: usize,
    scratch: Vec<f32>,
}

#[derive(Debug)]
enum ZeroCopyState {
    NotYet,
    By(ZeroCopySender),
    /// The system refuses zero-copy sends; floats are copied.
    Refused,
}

impl TcpLink {
    /// Creates a link from two sockets.
    ///
    /// # Errors
    /// If the sockets refuse their options.
    pub fn new(data: TcpStream, control: PeerStream) -> io::Result<Self> {
        data.set_nonblocking(true)?;
        let socket = SockRef::from(&data);
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        Ok(Self {
            data,
            control: ControlSocket::new(control)?,
            sender: ZeroCopyState::NotYet,
            sent_head: 0,
            received_head: 0,
            scratch: vec![0.0; ADD_CHUNK],
        })
    }

    /// Number of whole floats that were sent, after `count` more bytes.
    fn sent(&mut self, count: Option<usize>) -> usize {
        let count = self.sent_head + count.unwrap_or(0);
        self.sent_head = count % 4;
        count / 4
    }

    /// Receives floats and adds them to `out`.
    fn add(&mut self, out: &mut [f32]) -> io::Result<usize> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let room = out.len().min(scratch.len());
        let read = self.read(&mut scratch[..room]);
        if let Ok(count) = read {
            add::add_to(&mut out[..count], &scratch[..count]);
            if self.received_head > 0 {
                scratch[0] = scratch[count];
            }
        }
        self.scratch = scratch;
        read
    }

    /// Reads into `out`, whose first `received_head` bytes are already there. Returns the number of
    /// whole floats in `out`.
    fn read(&mut self, out: &mut [f32]) -> io::Result<usize> {
        let head = self.received_head;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        let count = match nonblocking(self.data.read(&mut bytes[head..]))? {
            None => return Ok(0),
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => head + count,
        };
        self.received_head = count % 4;
        Ok(count / 4)
    }
}

impl PeerLink for TcpLink {
    fn try_send(&mut self, floats: &[f32]) -> io::Result<usize> {
        let chunk = &floats[..floats.len().min(SEND_CHUNK)];
        let bytes: &[u8] = bytemuck::cast_slice(chunk);
        let sent = self.data.write(&bytes[self.sent_head..]);
        Ok(self.sent(nonblocking(sent)?))
    }

    fn try_lend(&mut self, floats: &[f32]) -> io::Result<usize> {
        if matches!(self.sender, ZeroCopyState::NotYet) {
            self.sender = ZeroCopySender::new().map_or_else(
                |error| {
                    log::line(format_args!(
                        "large sums are copied to their socket, as they cannot be lent to it: {error}"
                    ));
                    ZeroCopyState::Refused
                },
                ZeroCopyState::By,
            );
        }
        let ZeroCopyState::By(sender) = &mut self.sender else {
            return self.try_send(floats);
        };
        let bytes: &[u8] = bytemuck::cast_slice(floats);
        let lent = sender.lend(&self.data, &bytes[self.sent_head..]);
        Ok(self.sent(nonblocking(lent)?))
    }

    fn try_receive(&mut self, sink: ReceiveSink<'_>) -> io::Result<usize> {
        // The first bytes of an incomplete float are where the next call continues to read: at the
        // sink's next float, which the caller does not change in between, or at the first float of
        // `scratch`.
        match sink {
            ReceiveSink::Store(out) => self.read(out),
            ReceiveSink::Add { own, out } => {
                let room = out.len().min(ADD_CHUNK);
                let count = self.read(&mut out[..room])?;
                add::add_to(&mut out[..count], &own[..count]);
                Ok(count)
            }
            ReceiveSink::AddTo(out) => self.add(out),
        }
    }

    fn arm(&mut self, _send: bool, _receive: bool) -> bool {
        true
    }

    fn watch<'a>(&'a self, send: bool, receive: bool, watched: &mut Vec<PollFd<'a>>) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, send);
        flags.set(PollFlags::IN, receive);
        watched.push(PollFd::new(&self.data, flags));
    }

    fn control(&mut self) -> &mut ControlSocket {
        &mut self.control
    }

    fn control_ref(&self) -> &ControlSocket {
        &self.control
    }

    fn is_shared_memory(&self) -> bool {
        false
    }
}

fn nonblocking(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
