//! A link over TCP: one socket for floats, one for words.

use super::control::Control;
use super::hello::Stream;
use super::lend::Lender;
use super::link::{Link, Sink};
use crate::collective::add;
use crate::log;
use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Floats given to one `write`: 1 MiB, past which larger ones gained nothing measurable.
const SEND_CHUNK: usize = 256 << 10;

/// Floats received before they are added, 256 KiB: they are in the second-level cache still when they are. Of smaller ones the system has more to
/// acknowledge.
const ADD_CHUNK: usize = 64 << 10;

/// Kernel buffers per socket and direction; the kernel doubles it for its own book-keeping and caps it at its own limit.
const SOCKET_BUFFER: usize = 4 << 20;

/// Floats to and from one peer over TCP.
#[derive(Debug)]
pub struct TcpLink {
    data: TcpStream,
    control: Control,
    /// Made when it is first asked for.
    lender: Lending,
    /// Bytes of the next float that are sent already.
    sent_head: usize,
    /// Bytes of the next float that are received already, and what they are.
    received_head: usize,
    scratch: Vec<f32>,
}

#[derive(Debug)]
enum Lending {
    NotYet,
    By(Lender),
    /// The system refuses: floats are sent as ever.
    Refused,
}

impl TcpLink {
    /// # Errors
    /// When the sockets refuse their options.
    pub fn new(data: TcpStream, control: Stream) -> io::Result<Self> {
        data.set_nonblocking(true)?;
        let socket = SockRef::from(&data);
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        Ok(Self {
            data,
            control: Control::new(control)?,
            lender: Lending::NotYet,
            sent_head: 0,
            received_head: 0,
            scratch: vec![0.0; ADD_CHUNK],
        })
    }

    /// Whole floats that are sent, once so many bytes more are.
    fn sent(&mut self, count: Option<usize>) -> usize {
        let count = self.sent_head + count.unwrap_or(0);
        self.sent_head = count % 4;
        count / 4
    }

    /// Reads what is added to `out`.
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

    /// Reads into `out`, whose first `received_head` bytes are in place; whole floats in place afterwards.
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

impl Link for TcpLink {
    fn try_send(&mut self, floats: &[f32]) -> io::Result<usize> {
        let chunk = &floats[..floats.len().min(SEND_CHUNK)];
        let bytes: &[u8] = bytemuck::cast_slice(chunk);
        let sent = self.data.write(&bytes[self.sent_head..]);
        Ok(self.sent(nonblocking(sent)?))
    }

    fn try_lend(&mut self, floats: &[f32]) -> io::Result<usize> {
        if matches!(self.lender, Lending::NotYet) {
            self.lender = Lender::new().map_or_else(
                |error| {
                    log::line(format_args!(
                        "large sums are copied to their socket, as they cannot be lent to it: {error}"
                    ));
                    Lending::Refused
                },
                Lending::By,
            );
        }
        let Lending::By(lender) = &mut self.lender else {
            return self.try_send(floats);
        };
        let bytes: &[u8] = bytemuck::cast_slice(floats);
        let lent = lender.lend(&self.data, &bytes[self.sent_head..]);
        Ok(self.sent(nonblocking(lent)?))
    }

    fn try_receive(&mut self, sink: Sink<'_>) -> io::Result<usize> {
        // The beginning of a float whose rest has not come lies where the next call reads on: at the sink's next float, which the
        // caller does not touch in between, or at the scratch's first.
        match sink {
            Sink::Store(out) => self.read(out),
            Sink::Add { own, out } => {
                let room = out.len().min(ADD_CHUNK);
                let count = self.read(&mut out[..room])?;
                add::add_to(&mut out[..count], &own[..count]);
                Ok(count)
            }
            Sink::AddTo(out) => self.add(out),
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

    fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    fn control_ref(&self) -> &Control {
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
