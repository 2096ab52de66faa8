//! Control messages of a link: wake-up, lost ranks, heartbeat. The end of the socket reports the
//! end of the peer.
//!
//! The kernel closes the sockets of a killed process at once, so a peer's end is detected
//! immediately, also with shared memory.

use super::handshake::PeerStream;
use crate::memory::descriptor_passing;
use muster_compute::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Length of a message in bytes: a tag, a zero byte, a rank in two bytes, little endian.
const WORD_BYTES: usize = 4;

/// Message from one peer to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMessage {
    /// Wake-up: poll the shared memory again.
    Bell,
    /// That rank is lost; leave this view.
    Lost { rank: u16 },
    /// Leave this view, although no rank is lost.
    Regroup,
    /// The sender leaves in order; the data that it has sent must still be read.
    Leave,
    /// The descriptors with this message are the sender's memory.
    Memory,
    /// Heartbeat of the sender's process.
    Alive,
    /// The sender has taken all data that was lent to it for one flow.
    Taken,
}

impl ControlMessage {
    #[must_use]
    pub fn encode(self) -> [u8; WORD_BYTES] {
        let (tag, rank) = match self {
            Self::Bell => (1, 0),
            Self::Lost { rank } => (2, rank),
            Self::Regroup => (3, 0),
            Self::Leave => (4, 0),
            Self::Memory => (5, 0),
            Self::Alive => (6, 0),
            Self::Taken => (7, 0),
        };
        let [low, high] = u16::to_le_bytes(rank);
        [tag, 0, low, high]
    }

    /// Decodes a message. `None` for anything that [`Self::encode`] cannot have written.
    #[must_use]
    pub fn decode(bytes: [u8; WORD_BYTES]) -> Option<Self> {
        let rank = u16::from_le_bytes([bytes[2], bytes[3]]);
        match (bytes[0], bytes[1], rank) {
            (1, 0, 0) => Some(Self::Bell),
            (2, 0, rank) => Some(Self::Lost { rank }),
            (3, 0, 0) => Some(Self::Regroup),
            (4, 0, 0) => Some(Self::Leave),
            (5, 0, 0) => Some(Self::Memory),
            (6, 0, 0) => Some(Self::Alive),
            (7, 0, 0) => Some(Self::Taken),
            _ => None,
        }
    }
}

/// Summary of the messages since the last poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlPoll {
    Nothing,
    /// A wake-up, memory, a heartbeat, a confirmation of lent data, or a leave.
    Something,
    Lost {
        rank: u16,
    },
    Regroup,
    /// The socket ended without a message, or an invalid message arrived.
    Gone,
}

/// Non-blocking control socket of one peer.
#[derive(Debug)]
pub struct ControlSocket {
    /// The heartbeat thread holds a weak reference, which does not keep the socket open.
    stream: Arc<PeerStream>,
    /// Beginning of a message whose rest has not arrived yet.
    partial: Vec<u8>,
    files: VecDeque<OwnedFd>,
    left: bool,
    /// Confirmations of lent data that no caller has consumed yet.
    taken: usize,
}

impl ControlSocket {
    /// Wraps a connected stream.
    ///
    /// # Errors
    /// If the socket cannot be set to non-blocking.
    pub fn new(stream: PeerStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: Arc::new(stream),
            partial: Vec::new(),
            files: VecDeque::new(),
            left: false,
            taken: 0,
        })
    }

    /// Whether the peer has left in order.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Sends a message and ignores errors. If the socket is full, a wake-up is pending anyway, and
    /// a peer that does not read detects the end by the end of the socket. A lost peer is detected
    /// by reading.
    pub fn say(&mut self, word: ControlMessage) {
        let _ = send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL);
    }

    /// Sends a message that the peer waits for.
    ///
    /// # Errors
    /// If it cannot be sent: the peer has ended, or it has read so little that the socket buffer is
    /// full.
    pub fn say_surely(&mut self, word: ControlMessage) -> io::Result<()> {
        match send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL) {
            Ok(WORD_BYTES) => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a [`ControlMessage::Taken`] has arrived; the call consumes one.
    pub fn is_taken(&mut self) -> bool {
        let is_taken = self.taken > 0;
        self.taken -= usize::from(is_taken);
        is_taken
    }

    /// Weak reference for the heartbeat thread.
    #[must_use]
    pub fn stream(&self) -> Weak<PeerStream> {
        Arc::downgrade(&self.stream)
    }

    /// Sends file descriptors of memory.
    ///
    /// # Errors
    /// If the peer has ended or the socket cannot transfer descriptors.
    pub fn hand_over(&mut self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let word = ControlMessage::Memory.encode();
        descriptor_passing::send(&*self.stream, &word, files, SendFlags::empty())?;
        Ok(())
    }

    /// Returns the next descriptor that the peer has sent.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }

    /// Waits until `deadline` for the next descriptor. `None` if none arrived or the peer has left.
    pub fn wait_file(&mut self, deadline: Instant) -> Option<OwnedFd> {
        loop {
            if let Some(file) = self.take_file() {
                return Some(file);
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() || self.left {
                return None;
            }
            let limit = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(
                &mut [PollFd::new(&*self.stream, PollFlags::IN)],
                Some(&limit),
            );
            if !matches!(self.listen(), ControlPoll::Nothing | ControlPoll::Something) {
                return self.take_file();
            }
        }
    }

    /// Reads all messages that have arrived.
    pub fn listen(&mut self) -> ControlPoll {
        let mut heard = ControlPoll::Nothing;
        loop {
            if self.left {
                return heard;
            }
            let mut bytes = [0; 256];
            let count = match self.read(&mut bytes) {
                Ok(0) => return ControlPoll::Gone,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return heard,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return ControlPoll::Gone,
            };
            self.partial.extend_from_slice(&bytes[..count]);
            let whole = self.partial.len() / WORD_BYTES * WORD_BYTES;
            let words: Vec<u8> = self.partial.drain(..whole).collect();
            for word in words.chunks_exact(WORD_BYTES) {
                match ControlMessage::decode([word[0], word[1], word[2], word[3]]) {
                    Some(ControlMessage::Bell | ControlMessage::Memory | ControlMessage::Alive) => {
                        heard = ControlPoll::Something
                    }
                    Some(ControlMessage::Taken) => {
                        self.taken = self.taken.saturating_add(1);
                        heard = ControlPoll::Something;
                    }
                    Some(ControlMessage::Leave) => {
                        self.left = true;
                        heard = ControlPoll::Something;
                    }
                    Some(ControlMessage::Lost { rank }) => return ControlPoll::Lost { rank },
                    Some(ControlMessage::Regroup) => return ControlPoll::Regroup,
                    None => return ControlPoll::Gone,
                }
            }
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = descriptor_passing::receive(&*self.stream, bytes, &mut self.files)?;
        // Otherwise a peer could exhaust the file descriptors of this process by sending more.
        self.files.truncate(2 * descriptor_passing::FILES);
        Ok(count)
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (ControlSocket, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (ControlSocket::new(PeerStream::Unix(a)).unwrap(), b)
    }

    proptest! {
        #[test]
        fn control_messages_survive_encoding(tag in 1u8..=7, rank: u16) {
            let word = match tag {
                1 => ControlMessage::Bell,
                2 => ControlMessage::Lost { rank },
                3 => ControlMessage::Regroup,
                4 => ControlMessage::Leave,
                5 => ControlMessage::Memory,
                6 => ControlMessage::Alive,
                _ => ControlMessage::Taken,
            };
            prop_assert_eq!(ControlMessage::decode(word.encode()), Some(word));
        }

        #[test]
        fn arbitrary_control_bytes_never_panic(
            bytes in prop::collection::vec(0u8..8, 0..600), cut in 1usize..9,
        ) {
            let (mut control, mut peer) = pair();
            for part in bytes.chunks(cut) {
                peer.write_all(part).unwrap();
                let heard = control.listen();
                prop_assert!(control.partial.len() < WORD_BYTES);
                if !matches!(heard, ControlPoll::Nothing | ControlPoll::Something) || control.has_left() {
                    break;
                }
            }
        }
    }

    #[test]
    fn orderly_leave_is_not_reported_as_a_loss() {
        let (mut control, peer) = pair();
        assert_eq!(control.listen(), ControlPoll::Nothing);
        drop(peer);
        assert_eq!(control.listen(), ControlPoll::Gone);

        let (mut control, mut peer) = pair();
        peer.write_all(&ControlMessage::Leave.encode()).unwrap();
        drop(peer);
        assert_eq!(control.listen(), ControlPoll::Something);
        assert!(control.has_left());
        assert_eq!(control.listen(), ControlPoll::Nothing);
    }

    #[test]
    fn loss_message_precedes_the_end_of_its_sender() {
        let (mut control, mut peer) = pair();
        peer.write_all(&ControlMessage::Bell.encode()).unwrap();
        peer.write_all(&ControlMessage::Lost { rank: 3 }.encode())
            .unwrap();
        drop(peer);
        assert_eq!(control.listen(), ControlPoll::Lost { rank: 3 });
    }
}
