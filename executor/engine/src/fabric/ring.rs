//! A ring of floats in shared memory, one writer, one reader, each in its own process.
//!
//! Layout from a base offset: the writer's position (u64) at byte 0, the writer's "wake me" (u32) at 64, the reader's position at
//! 128, the reader's "wake me" at 192, floats from 4,096 on. Positions count floats since the beginning and only grow. Each is
//! written by one side, on a cache line of its own.
//!
//! Sleep and wake follow Dekker's pattern: who wants to sleep sets its flag, then looks at the other's position once more; who
//! moves its position looks at the other's flag afterwards. With sequentially consistent operations one of both sees the other.

use super::link::Sink;
use super::memory::Shared;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Floats in flight at most, 1 MiB: stays in the cache between writer and reader, and spans the other's time slice poorly
/// enough that larger ones gained little.
const CAPACITY: usize = 256 << 10;

/// Floats moved at once, 128 KiB: the other side may begin with them while the next are moved.
const CHUNK: usize = 32 << 10;

const FLOATS_AT: usize = 4_096;

/// Bytes of one ring.
pub const RING_BYTES: usize = FLOATS_AT + CAPACITY * 4;

/// Where one ring lies, and this side's own position.
#[derive(Debug)]
struct Half {
    base: usize,
    position: u64,
}

/// The writing end.
#[derive(Debug)]
pub struct Writer(Half);

/// The reading end.
#[derive(Debug)]
pub struct Reader(Half);

#[derive(Debug, Clone, Copy)]
enum Side {
    Writer = 0,
    Reader = 128,
}

fn position(memory: &Shared, base: usize, side: Side) -> &AtomicU64 {
    let address = memory.at(base + side as usize, 8).cast::<u64>();
    debug_assert!(address.is_aligned());
    // SAFETY: mapped for as long as `memory` is borrowed, aligned, and used as an atomic by every process.
    unsafe { AtomicU64::from_ptr(address) }
}

fn asleep(memory: &Shared, base: usize, side: Side) -> &AtomicU32 {
    let address = memory.at(base + 64 + side as usize, 4).cast::<u32>();
    debug_assert!(address.is_aligned());
    // SAFETY: as in `position`.
    unsafe { AtomicU32::from_ptr(address) }
}

impl Half {
    /// How far the writer is ahead of the reader.
    fn filled(&self, memory: &Shared, me: Side) -> io::Result<usize> {
        let filled = match me {
            Side::Writer => self
                .position
                .wrapping_sub(position(memory, self.base, Side::Reader).load(Ordering::SeqCst)),
            Side::Reader => position(memory, self.base, Side::Writer)
                .load(Ordering::SeqCst)
                .wrapping_sub(self.position),
        };
        match usize::try_from(filled) {
            Ok(filled) if filled <= CAPACITY => Ok(filled),
            // Only a peer that is not ours writes such positions; its floats are not to be believed either.
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Moves on by `count`; whether the other side sleeps and must be woken.
    fn advance(&mut self, memory: &Shared, me: Side, other: Side, count: usize) -> bool {
        self.position += count as u64;
        position(memory, self.base, me).store(self.position, Ordering::SeqCst);
        asleep(memory, self.base, other).swap(0, Ordering::SeqCst) == 1
    }

    /// The part of the ring from this side's position on: where it starts, and floats until it wraps.
    fn place(&self) -> (usize, usize) {
        let at = (self.position % CAPACITY as u64) as usize;
        (at, CAPACITY - at)
    }
}

impl Writer {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self(Half { base, position: 0 })
    }

    /// Moves in what fits; how many, and whether the reader must be woken.
    ///
    /// # Errors
    /// The reader's position makes no sense.
    pub fn write(&mut self, memory: &Shared, floats: &[f32]) -> io::Result<(usize, bool)> {
        let free = CAPACITY - self.0.filled(memory, Side::Writer)?;
        let (at, until_wrap) = self.0.place();
        let count = floats.len().min(free).min(until_wrap).min(CHUNK);
        if count == 0 {
            return Ok((0, false));
        }
        // SAFETY: the reader stays behind the writer's position and this part lies ahead of it, less than one turn.
        let room = unsafe { memory.floats_mut(self.0.base + FLOATS_AT, at, count) };
        room.copy_from_slice(&floats[..count]);
        let wake = self.0.advance(memory, Side::Writer, Side::Reader, count);
        Ok((count, wake))
    }

    /// Wants to be woken when there is room; `false` when there is already.
    pub fn arm(&self, memory: &Shared) -> bool {
        asleep(memory, self.0.base, Side::Writer).store(1, Ordering::SeqCst);
        matches!(self.0.filled(memory, Side::Writer), Ok(CAPACITY))
    }
}

impl Reader {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self(Half { base, position: 0 })
    }

    /// Takes what has come, straight from the ring into the sink; how many, and whether the writer must be woken.
    ///
    /// # Errors
    /// The writer's position makes no sense.
    pub fn read(&mut self, memory: &Shared, mut sink: Sink<'_>) -> io::Result<(usize, bool)> {
        let filled = self.0.filled(memory, Side::Reader)?;
        let (at, until_wrap) = self.0.place();
        let count = sink.room().min(filled).min(until_wrap).min(CHUNK);
        if count == 0 {
            return Ok((0, false));
        }
        // SAFETY: the writer is past this part and comes back to it only once the reader's position has passed it.
        let come = unsafe { memory.floats(self.0.base + FLOATS_AT, at, count) };
        sink.take(0, come);
        let wake = self.0.advance(memory, Side::Reader, Side::Writer, count);
        Ok((count, wake))
    }

    /// Wants to be woken when something has come; `false` when something has already.
    pub fn arm(&self, memory: &Shared) -> bool {
        asleep(memory, self.0.base, Side::Reader).store(1, Ordering::SeqCst);
        matches!(self.0.filled(memory, Side::Reader), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_stream_longer_than_the_ring_arrives_in_order() {
        let memory = Shared::create(RING_BYTES).unwrap();
        let total = 3 * CAPACITY + 7;
        let sent: Vec<f32> = (0..total).map(|i| (i % 65_536) as f32).collect();
        let mut got = vec![0.0; total];
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut writer, mut at) = (Writer::new(0), 0);
                while at < total {
                    at += writer.write(&memory, &sent[at..]).unwrap().0;
                    thread::yield_now();
                }
            });
            let (mut reader, mut at) = (Reader::new(0), 0);
            while at < total {
                at += reader.read(&memory, Sink::Store(&mut got[at..])).unwrap().0;
                thread::yield_now();
            }
        });
        assert!(sent == got);
    }

    #[test]
    fn a_position_that_makes_no_sense_is_an_error() {
        let memory = Shared::create(RING_BYTES).unwrap();
        position(&memory, 0, Side::Writer).store(CAPACITY as u64 + 1, Ordering::SeqCst);
        let mut out = [0.0; 4];
        assert!(Reader::new(0).read(&memory, Sink::Store(&mut out)).is_err());
        position(&memory, 0, Side::Reader).store(1, Ordering::SeqCst);
        assert!(Writer::new(0).write(&memory, &out).is_err());
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let memory = Shared::create(RING_BYTES).unwrap();
        let (mut writer, mut reader) = (Writer::new(0), Reader::new(0));
        assert!(reader.arm(&memory), "nothing has come");
        assert_eq!(writer.write(&memory, &[1.0]).unwrap(), (1, true));
        assert_eq!(writer.write(&memory, &[2.0]).unwrap(), (1, false));
        assert!(!reader.arm(&memory), "something has come");
        let mut out = [0.0; 4];
        assert_eq!(reader.read(&memory, Sink::Store(&mut out)).unwrap().0, 2);
        assert_eq!(out[..2], [1.0, 2.0]);
    }
}
