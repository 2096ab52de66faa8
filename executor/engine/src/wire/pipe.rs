//! Bytes both ways through memory that two processes map: a ring in each direction, and two Unix sockets as bells and signs of life.
//!
//! On each socket both sides ring: on the first, that something has come; on the second, that there is room. So each is listened to by one
//! thread alone, the one that receives or the one that sends, and none takes another's bell away. The first one's end says that the peer
//! sends no more, the second one's that it reads no more; both end at once with the peer's process. What lies in the ring then is still
//! read.
//!
//! Nobody spins for long: there may be fewer cores than threads that wait.

use crate::clock;
use crate::memory::Shared;
use crate::memory::ring::{CHUNK, RING_BYTES, Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes that both sides share.
pub const PIPE_BYTES: usize = 2 * RING_BYTES;

/// Looks at the ring before going to sleep: a microsecond, in which a peer that is at it may come.
const LOOKS: usize = 30;

/// What ended a sleep.
enum Woken {
    Rung,
    /// Nothing happened for as long as was said.
    Late,
    Interrupted,
    Ended,
}

/// One side of it.
#[derive(Debug)]
pub struct Pipe {
    memory: Shared,
    writer: Mutex<Writer>,
    reader: Mutex<Reader>,
    arrivals: UnixStream,
    room: UnixStream,
    /// How long the peer may take nothing; for ever without.
    patience: Mutex<Option<Duration>>,
}

impl Pipe {
    /// Of memory that both map, and this side's ends of both sockets. `first` is the side that made the memory: it writes the first ring and
    /// reads the second.
    #[must_use]
    pub fn new(memory: Shared, arrivals: UnixStream, room: UnixStream, first: bool) -> Self {
        let (out, back) = match first {
            true => (0, RING_BYTES),
            false => (RING_BYTES, 0),
        };
        Self {
            memory,
            writer: Mutex::new(Writer::new(out)),
            reader: Mutex::new(Reader::new(back)),
            arrivals,
            room,
            patience: Mutex::default(),
        }
    }

    /// Sends all of it; nobody else's bytes come between.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] when the peer is gone, [`io::ErrorKind::TimedOut`] when it takes nothing for too long,
    /// [`io::ErrorKind::InvalidData`] when it is none of ours.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut writer = self.writer();
        let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
        for slice in slices {
            let mut bytes: &[u8] = slice;
            while !bytes.is_empty() {
                let count = writer.fill(&self.memory, bytes)?;
                bytes = &bytes[count..];
                left -= count;
                // Small slices go with those after them: the peer is woken once.
                if count == 0 || writer.hidden() >= CHUNK {
                    self.show(&mut writer)?;
                }
                if count == 0 {
                    self.await_room(&writer, left)?;
                }
            }
        }
        self.show(&mut writer)
    }

    fn show(&self, writer: &mut Writer) -> io::Result<()> {
        match writer.show(&self.memory)? {
            true => ring(&self.arrivals),
            false => Ok(()),
        }
    }

    fn await_room(&self, writer: &Writer, count: usize) -> io::Result<()> {
        let patience = *self.patience.lock().expect("nobody panics with it");
        // Whoever loses patience has to hear of the least that is taken.
        let count = patience.map_or(count, |_| 1);
        if !writer.arm(&self.memory, count) {
            return Ok(());
        }
        match sleep(&self.room, patience)? {
            Woken::Rung | Woken::Interrupted => Ok(()),
            Woken::Late => Err(io::ErrorKind::TimedOut.into()),
            Woken::Ended => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Receives until `slices` are full.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the peer is gone before, [`io::ErrorKind::InvalidData`] when it is none of ours.
    pub fn receive(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
        for slice in slices {
            let mut out: &mut [u8] = slice;
            while !out.is_empty() {
                let count = match self.receive_some(out, left, None)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => count,
                };
                out = &mut out[count..];
                left -= count;
            }
        }
        Ok(())
    }

    /// Receives as much of `out` as there is, once there is anything; none when the peer sends no more. It need not be woken before `wanted`
    /// bytes are there.
    ///
    /// # Errors
    /// As [`Self::receive`]; [`io::ErrorKind::TimedOut`] at the deadline.
    pub fn receive_some(
        &self,
        out: &mut [u8],
        wanted: usize,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        let mut reader = self.reader();
        let mut has_ended = false;
        loop {
            let most = out.len();
            let take = |come: &[u8]| out[..come.len()].copy_from_slice(come);
            let (count, wake) = reader.read(&self.memory, most, 1, take)?;
            if wake {
                // Who reads no more itself is heard of by the other bell.
                let _ = ring(&self.room);
            }
            if count > 0 || has_ended {
                return Ok(count);
            }
            if self.comes_soon(&reader)? || !reader.arm(&self.memory, wanted) {
                continue;
            }
            let limit = deadline.map(|at| at.saturating_duration_since(clock::now()));
            match sleep(&self.arrivals, limit)? {
                Woken::Rung | Woken::Interrupted => {}
                Woken::Late => return Err(io::ErrorKind::TimedOut.into()),
                // What it has said before is in the ring by now.
                Woken::Ended => has_ended = true,
            }
        }
    }

    /// Whether anything has come within `limit`; a signal cuts the wait short.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let reader = self.reader();
        let deadline = clock::now() + limit;
        let mut has_ended = false;
        loop {
            if reader.filled(&self.memory)? > 0 || self.comes_soon(&reader)? {
                return Ok(true);
            }
            if has_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !reader.arm(&self.memory, 1) {
                continue;
            }
            let left = deadline.saturating_duration_since(clock::now());
            match sleep(&self.arrivals, Some(left))? {
                Woken::Rung => {}
                Woken::Late | Woken::Interrupted => return Ok(false),
                Woken::Ended => has_ended = true,
            }
        }
    }

    fn comes_soon(&self, reader: &Reader) -> io::Result<bool> {
        for _ in 0..LOOKS {
            if reader.filled(&self.memory)? > 0 {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// From now on sending fails once the peer has taken nothing for so long.
    pub fn give_up_sending(&self, limit: Duration) {
        *self.patience.lock().expect("nobody panics with it") = Some(limit);
    }

    /// Sends no more; the peer sees the end once it has read everything.
    ///
    /// # Errors
    /// The socket's.
    pub fn end(&self) -> io::Result<()> {
        self.arrivals.shutdown(Shutdown::Write)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("no sender panics")
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().expect("no receiver panics")
    }
}

/// Of the bell that ends with the peer.
impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

/// A full socket swallows it: the peer is then being woken anyway.
fn ring(bell: &UnixStream) -> io::Result<()> {
    match send(bell, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Until the bell is rung, at most for `limit`.
fn sleep(bell: &UnixStream, limit: Option<Duration>) -> io::Result<Woken> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(bell, PollFlags::IN)], limit.as_ref()) {
        Ok(0) => return Ok(Woken::Late),
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Woken::Interrupted),
        Err(error) => return Err(error.into()),
    }
    let mut rung = [0; 64];
    match recv(bell, &mut rung[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) | Err(Errno::CONNRESET) => Ok(Woken::Ended),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(Woken::Rung),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
