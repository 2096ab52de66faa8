//! Words beside the floats: a bell for who sleeps, the news of a loss, and, by the socket's end, the sign of death.
//!
//! The kernel closes a killed process's sockets at once, so a peer's death is seen within a scheduler's tick, in shared memory too.

use super::hello::Stream;
use crate::clock;
use crate::memory::handing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Every word has this length on the wire: a tag, a zero byte, a rank in two bytes, little endian.
const WORD_BYTES: usize = 4;

/// What one peer tells another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Look at the shared memory again.
    Bell,
    /// That rank is dead; leave this view.
    Lost { rank: u16 },
    /// Nobody is dead, but leave this view.
    Regroup,
    /// I leave in order; what I sent is still to be read.
    Leave,
    /// The descriptors with this word are my memory.
    Memory,
    /// My process runs.
    Alive,
    /// All that you have lent me for one flow is taken.
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

    /// `None` for anything that [`Self::encode`] cannot have written.
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

/// What was heard since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// The bell, memory, a sign of life, that something is taken, or a leave.
    Something,
    Lost {
        rank: u16,
    },
    Regroup,
    /// The socket has ended without a word, or spoke nonsense.
    Gone,
}

/// One peer's control socket, not blocking.
#[derive(Debug)]
pub struct Control {
    /// The pulse has it too, but does not keep it open.
    stream: Arc<Stream>,
    /// The beginning of a word whose rest has not come yet.
    partial: Vec<u8>,
    files: VecDeque<OwnedFd>,
    left: bool,
    /// Flows whose floats the peer says to have taken, beyond those that were waited for.
    taken: usize,
}

impl Control {
    /// # Errors
    /// When the socket cannot be set not to block.
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

    /// Says a word. A full socket swallows it: a bell is then pending anyway, and a peer that reads nothing learns of the end by
    /// the socket's end. A dead peer is noticed by who listens.
    pub fn say(&mut self, word: Word) {
        let _ = send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL);
    }

    /// Says a word that the peer waits for.
    ///
    /// # Errors
    /// When it cannot be said: the peer is gone, or has read nothing for as long as a socket's buffer takes to fill.
    pub fn say_surely(&mut self, word: Word) -> io::Result<()> {
        match send(&*self.stream, &word.encode(), SendFlags::NOSIGNAL) {
            Ok(WORD_BYTES) => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the peer has said [`Word::Taken`] once more; that is then over.
    pub fn is_taken(&mut self) -> bool {
        let is_taken = self.taken > 0;
        self.taken -= usize::from(is_taken);
        is_taken
    }

    /// For the pulse.
    #[must_use]
    pub fn stream(&self) -> Weak<Stream> {
        Arc::downgrade(&self.stream)
    }

    /// Hands memory over.
    ///
    /// # Errors
    /// When the peer is gone or the socket is none that can.
    pub fn hand_over(&mut self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let word = Word::Memory.encode();
        handing::send(&*self.stream, &word, files, SendFlags::empty())?;
        Ok(())
    }

    /// The next descriptor that the peer has handed over.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }

    /// Waits until `deadline` for the next descriptor; `None` when none came or the peer is gone.
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

    /// Reads all that has come.
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
        // A peer that keeps handing over files would use up this process's descriptors.
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
        fn a_word_is_what_it_was(tag in 1u8..=7, rank: u16) {
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
        fn arbitrary_bytes_in_arbitrary_parts_never_panic_and_keep_at_most_a_word(
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
    fn a_death_is_heard_and_a_leave_is_none() {
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
    fn the_news_of_a_loss_comes_before_the_end_of_who_brought_it() {
        let (mut control, mut peer) = pair();
        peer.write_all(&Word::Bell.encode()).unwrap();
        peer.write_all(&Word::Lost { rank: 3 }.encode()).unwrap();
        drop(peer);
        assert_eq!(control.listen(), Heard::Lost { rank: 3 });
    }
}
