//! Control messages of a link: wake-up, lost ranks, heartbeat. The end of the socket reports the
//! end of the peer.
//!
//! The kernel closes the sockets of a killed process at once, so a peer's end is detected
//! immediately, also with shared memory.

use super::hello::Stream;
use crate::memory::handing;
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
pub enum Word {
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

impl Word {
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
pub enum Heard {
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
pub struct Control {
    /// The heartbeat thread holds a weak reference, which does not keep the socket open.
    stream: Arc<Stream>,
    /// Beginning of a message whose rest has not arrived yet.
    partial: Vec<u8>,
    files: VecDeque<OwnedFd>,
    left: bool,
    /// Confirmations of lent data that no caller has consumed yet.
    taken: usize,
}

impl Control {
    /// Wraps a connected stream.
    ///
    /// # Errors
    /// If the socket cannot be set to non-blocking.
    pub fn new(stream: Stream) -> io::Result<Self> {
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
    pub fn say(&mut self, word: Word) {
        let _ = send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL);
    }

    /// Sends a message that the peer waits for.
    ///
    /// # Errors
    /// If it cannot be sent: the peer has ended, or it has read so little that the socket buffer is
    /// full.
    pub fn say_surely(&mut self, word: Word) -> io::Result<()> {
        match send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL) {
            Ok(WORD_BYTES) => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a [`Word::Taken`] has arrived; the call consumes one.
    pub fn is_taken(&mut self) -> bool {
        let is_taken = self.taken > 0;
        self.taken -= usize::from(is_taken);
        is_taken
    }

    /// Weak reference for the heartbeat thread.
    #[must_use]
    pub fn stream(&self) -> Weak<Stream> {
        Arc::downgrade(&self.stream)
    }

    /// Sends file descriptors of memory.
    ///
    /// # Errors
    /// If the peer has ended or the socket cannot transfer descriptors.
    pub fn hand_over(&mut self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let word = Word::Memory.encode();
        handing::send(&*self.stream, &word, files, SendFlags::empty())?;
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
            if !matches!(self.listen(), Heard::Nothing | Heard::Something) {
                return self.take_file();
            }
        }
    }

    /// Reads all messages that have arrived.
    pub fn listen(&mut self) -> Heard {
        let mut heard = Heard::Nothing;
        loop {
            if self.left {
                return heard;
            }
            let mut bytes = [0; 256];
            let count = match self.read(&mut bytes) {
                Ok(0) => return Heard::Gone,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return heard,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Heard::Gone,
            };
            self.partial.extend_from_slice(&bytes[..count]);
            let whole = self.partial.len() / WORD_BYTES * WORD_BYTES;
            let words: Vec<u8> = self.partial.drain(..whole).collect();
            for word in words.chunks_exact(WORD_BYTES) {
                match Word::decode([word[0], word[1], word[2], word[3]]) {
                    Some(Word::Bell | Word::Memory | Word::Alive) => heard = Heard::Something,
                    Some(Word::Taken) => {
                        self.taken = self.taken.saturating_add(1);
                        heard = Heard::Something;
                    }
                    Some(Word::Leave) => {
                        self.left = true;
                        heard = Heard::Something;
                    }
                    Some(Word::Lost { rank }) => return Heard::Lost { rank },
                    Some(Word::Regroup) => return Heard::Regroup,
                    None => return Heard::Gone,
                }
            }
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = handing::receive(&*self.stream, bytes, &mut self.files)?;
        // Otherwise a peer could exhaust the file descriptors of this process by sending more.
        self.files.truncate(2 * handing::FILES);
        Ok(count)
    }
}

impl AsFd for Control {
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

    fn pair() -> (Control, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Control::new(Stream::Unix(a)).unwrap(), b)
    }

    proptest! {
        #[test]
        fn control_messages_survive_encoding(tag in 1u8..=7, rank: u16) {
            let word = match tag {
                1 => Word::Bell,
                2 => Word::Lost { rank },
                3 => Word::Regroup,
                4 => Word::Leave,
                5 => Word::Memory,
                6 => Word::Alive,
                _ => Word::Taken,
            };
            prop_assert_eq!(Word::decode(word.encode()), Some(word));
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
                if !matches!(heard, Heard::Nothing | Heard::Something) || control.has_left() {
                    break;
                }
            }
        }
    }

    #[test]
    fn orderly_leave_is_not_reported_as_a_loss() {
        let (mut control, peer) = pair();
        assert_eq!(control.listen(), Heard::Nothing);
        drop(peer);
        assert_eq!(control.listen(), Heard::Gone);

        let (mut control, mut peer) = pair();
        peer.write_all(&Word::Leave.encode()).unwrap();
        drop(peer);
        assert_eq!(control.listen(), Heard::Something);
        assert!(control.has_left());
        assert_eq!(control.listen(), Heard::Nothing);
    }

    #[test]
    fn loss_message_precedes_the_end_of_its_sender() {
        let (mut control, mut peer) = pair();
        peer.write_all(&Word::Bell.encode()).unwrap();
        peer.write_all(&Word::Lost { rank: 3 }.encode()).unwrap();
        drop(peer);
        assert_eq!(control.listen(), Heard::Lost { rank: 3 });
    }
}
