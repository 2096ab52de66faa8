//! Byte stream in both directions through memory that two processes map: one ring per direction,
//! and two Unix sockets that wake the peer and report its end.
//!
//! Both sides write to each socket. A byte on the first socket means that data has arrived, a byte
//! on the second that there is room. Only one thread reads each socket, the receiving or the
//! sending one, so no thread consumes the wake-up of another. The end of the first socket means
//! that the peer sends no more, the end of the second that it reads no more. Both end with the
//! peer's process. Data that is in the ring at that time is still read.
//!
//! Threads spin only briefly, because there can be fewer cores than waiting threads.

use crate::memory::SharedMapping;
use crate::memory::ring::{CHUNK, RING_BYTES, RingReader, RingWriter};
use muster_compute::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Length in bytes of the memory that both sides share.
pub const PIPE_BYTES: usize = 2 * RING_BYTES;

/// Number of polls of the ring before the thread sleeps. They take about a microsecond, in which an
/// active peer may send.
const LOOKS: usize = 30;

/// Why a sleep ended.
enum SleepEnd {
    Rung,
    /// Nothing happened within the limit.
    Late,
    Interrupted,
    Ended,
}

/// One side of the stream.
#[derive(Debug)]
pub struct Pipe {
    memory: SharedMapping,
    writer: Mutex<RingWriter>,
    reader: Mutex<RingReader>,
    arrivals: UnixStream,
    room: UnixStream,
    /// Maximum time in which the peer takes nothing; unlimited if `None`.
    patience: Mutex<Option<Duration>>,
}

impl Pipe {
    /// Creates a side from mapped memory and this side's ends of both sockets. `first` is the side
    /// that created the memory: it writes the first ring and reads the second.
    #[must_use]
    pub fn new(memory: SharedMapping, arrivals: UnixStream, room: UnixStream, first: bool) -> Self {
        let (out, back) = if first {
            (0, RING_BYTES)
        } else {
            (RING_BYTES, 0)
        };
        Self {
            memory,
            writer: Mutex::new(RingWriter::new(out)),
            reader: Mutex::new(RingReader::new(back)),
            arrivals,
            room,
            patience: Mutex::default(),
        }
    }

    /// Sends all slices. Bytes of other senders do not come between them.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] if the peer has ended, [`io::ErrorKind::TimedOut`] if it takes
    /// nothing for too long, [`io::ErrorKind::InvalidData`] if it does not follow the protocol of
    /// the ring.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut writer = self.writer();
        let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
        for slice in slices {
            let mut bytes: &[u8] = slice;
            while !bytes.is_empty() {
                let count = writer.fill(&self.memory, bytes)?;
                bytes = &bytes[count..];
                left -= count;
                // Small slices are published together with the following ones, so that the peer is
                // woken once.
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

    fn show(&self, writer: &mut RingWriter) -> io::Result<()> {
        if writer.show(&self.memory)? {
            ring(&self.arrivals)
        } else {
            Ok(())
        }
    }

    fn await_room(&self, writer: &RingWriter, count: usize) -> io::Result<()> {
        let patience = *self.patience.lock().expect("not poisoned");
        // With a time limit, the peer must wake this side after the first byte that it takes.
        let count = patience.map_or(count, |_| 1);
        if !writer.arm(&self.memory, count) {
            return Ok(());
        }
        match sleep(&self.room, patience)? {
            SleepEnd::Rung | SleepEnd::Interrupted => Ok(()),
            SleepEnd::Late => Err(io::ErrorKind::TimedOut.into()),
            SleepEnd::Ended => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Receives until `slices` are full.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the peer ends before, [`io::ErrorKind::InvalidData`] if
    /// it does not follow the protocol of the ring.
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

    /// Waits for data and receives as much of it as fits into `out`. Returns 0 if the peer sends no
    /// more. The thread may sleep until `wanted` bytes are available.
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
            let (count, wake) = reader.read(&self.memory, most, 1, |come| {
                out[..come.len()].copy_from_slice(come)
            })?;
            if wake {
                // The other socket reports a peer that no longer reads.
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
                SleepEnd::Rung | SleepEnd::Interrupted => {}
                SleepEnd::Late => return Err(io::ErrorKind::TimedOut.into()),
                // All data that the peer has sent is in the ring by now.
                SleepEnd::Ended => has_ended = true,
            }
        }
    }

    /// Whether data arrived within `limit`. A signal ends the wait early.
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
                SleepEnd::Rung => {}
                SleepEnd::Late | SleepEnd::Interrupted => return Ok(false),
                SleepEnd::Ended => has_ended = true,
            }
        }
    }

    fn comes_soon(&self, reader: &RingReader) -> io::Result<bool> {
        for _ in 0..LOOKS {
            if reader.filled(&self.memory)? > 0 {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Makes later sends fail after the peer has taken no bytes for `limit`.
    pub fn give_up_sending(&self, limit: Duration) {
        *self.patience.lock().expect("not poisoned") = Some(limit);
    }

    /// Ends sending. The peer sees the end after it has read all data.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn end(&self) -> io::Result<()> {
        self.arrivals.shutdown(Shutdown::Write)
    }

    fn writer(&self) -> MutexGuard<'_, RingWriter> {
        self.writer.lock().expect("no sender panics")
    }

    fn reader(&self) -> MutexGuard<'_, RingReader> {
        self.reader.lock().expect("no receiver panics")
    }
}

/// The socket that ends with the peer's process.
impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

/// Wakes the peer. A full socket is not an error, because the peer has wake-ups that it has not
/// read yet.
fn ring(bell: &UnixStream) -> io::Result<()> {
    match send(bell, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until a wake-up arrives, at most for `limit`.
fn sleep(bell: &UnixStream, limit: Option<Duration>) -> io::Result<SleepEnd> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(bell, PollFlags::IN)], limit.as_ref()) {
        Ok(0) => return Ok(SleepEnd::Late),
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(SleepEnd::Interrupted),
        Err(error) => return Err(error.into()),
    }
    let mut rung = [0; 64];
    match recv(bell, &mut rung[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) | Err(Errno::CONNRESET) => Ok(SleepEnd::Ended),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(SleepEnd::Rung),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
