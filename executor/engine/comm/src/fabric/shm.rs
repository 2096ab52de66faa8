//! Link through memory that both tasks map: one ring per direction, and a Unix socket for wake-ups
//! and the detection of a lost peer.
//!
//! Wake-ups use a socket and not a futex: one `poll` can then sleep for peers of every kind and
//! also detects a lost peer.

use super::control::{ControlMessage, ControlSocket};
use super::link::{PeerLink, ReceiveSink};
use super::ring::{FloatRingReader, FloatRingWriter, RING_BYTES};
use crate::memory::SharedMapping;
use rustix::event::PollFd;
use std::io;

/// Length in bytes of the memory that two peers share for their rings.
pub const PAIR_BYTES: usize = 2 * RING_BYTES;

/// Link to one peer of the same node.
#[derive(Debug)]
pub struct ShmLink {
    memory: SharedMapping,
    writer: FloatRingWriter,
    reader: FloatRingReader,
    control: ControlSocket,
}

impl ShmLink {
    /// Creates a link. `first` is the side that created the memory: it writes the first ring and
    /// reads the second.
    #[must_use]
    pub fn new(memory: SharedMapping, control: ControlSocket, first: bool) -> Self {
        let (out, back) = if first {
            (0, RING_BYTES)
        } else {
            (RING_BYTES, 0)
        };
        Self {
            memory,
            writer: FloatRingWriter::new(out),
            reader: FloatRingReader::new(back),
            control,
        }
    }
}

impl PeerLink for ShmLink {
    fn try_send(&mut self, floats: &[f32]) -> io::Result<usize> {
        let (count, wake) = self.writer.write(&self.memory, floats)?;
        if wake {
            self.control.say(ControlMessage::Bell);
        }
        if count == 0 && self.control.has_left() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(count)
    }

    fn try_receive(&mut self, sink: ReceiveSink<'_>) -> io::Result<usize> {
        let (count, wake) = self.reader.read(&self.memory, sink)?;
        if wake {
            self.control.say(ControlMessage::Bell);
        }
        if count == 0 && self.control.has_left() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(count)
    }

    fn arm(&mut self, send: bool, receive: bool) -> bool {
        let send_sleeps = !send || self.writer.arm(&self.memory);
        let receive_sleeps = !receive || self.reader.arm(&self.memory);
        send_sleeps && receive_sleeps
    }

    fn watch<'a>(&'a self, _send: bool, _receive: bool, _watched: &mut Vec<PollFd<'a>>) {}

    fn control(&mut self) -> &mut ControlSocket {
        &mut self.control
    }

    fn control_ref(&self) -> &ControlSocket {
        &self.control
    }

    fn is_shared_memory(&self) -> bool {
        true
    }
}
