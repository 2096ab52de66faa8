//! Ring of bytes in shared memory with one writer and one reader, each in its own process.
//!
//! Layout from a base offset: the writer's position (u64) at byte 0, the writer's wake-up request
//! (u32) at 64, the reader's position at 128, the reader's wake-up request at 192, data from 4,096
//! on. Positions count bytes since the beginning and only grow. Each field is on its own cache
//! line. Only its own side stores a position; a wake-up request is set by its own side and cleared
//! by either.
//!
//! Sleep and wake-up follow Dekker's pattern. A side that wants to sleep stores the number of bytes
//! it waits for in its request, then reads the other side's position once more. A side that moves
//! its position reads the other side's request afterwards. With sequentially consistent operations
//! at least one of them sees the other's store. A sleeping side does not move its position. So the
//! side that sees a request also sees the right position and can decide whether the request is met.

use super::SharedMapping;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Capacity in bytes. The data stays in the cache between writer and reader. A larger ring gains
/// little, because it still does not cover the time in which the other process is not scheduled.
pub const CAPACITY: usize = 1 << 20;

/// Maximum number of bytes moved at once. The other side can begin with them while the next ones
/// are moved.
pub const CHUNK: usize = 128 << 10;

/// Number of bytes for which a sleep is worthwhile: the other side then moves half a ring before it
/// waits in turn. Both sides cannot wait for this number at the same time.
pub const WORTH: usize = CAPACITY / 2;

const BYTES_AT: usize = 4_096;

/// Length of one ring in bytes.
pub const RING_BYTES: usize = BYTES_AT + CAPACITY;

/// Position of a ring in the memory and this side's own position in the ring.
#[derive(Debug)]
struct RingCursor {
    base: usize,
    position: u64,
}

/// Writing end.
#[derive(Debug)]
pub struct RingWriter {
    half: RingCursor,
    /// Bytes that are written and not yet visible to the reader.
    hidden: usize,
}

/// Reading end.
#[derive(Debug)]
pub struct RingReader(RingCursor);

#[derive(Debug, Clone, Copy)]
enum RingEnd {
    Writer = 0,
    Reader = 128,
}

fn position(memory: &SharedMapping, base: usize, side: RingEnd) -> &AtomicU64 {
    let address = memory.at(base + side as usize, 8).cast::<u64>();
    debug_assert!(address.is_aligned());
    // SAFETY: mapped while `memory` is borrowed, aligned, and used as an atomic by every process.
    unsafe { AtomicU64::from_ptr(address) }
}

fn wanted(memory: &SharedMapping, base: usize, side: RingEnd) -> &AtomicU32 {
    let address = memory.at(base + 64 + side as usize, 4).cast::<u32>();
    debug_assert!(address.is_aligned());
    // SAFETY: as in `position`.
    unsafe { AtomicU32::from_ptr(address) }
}

impl RingCursor {
    /// Number of bytes between the reader's and the writer's position.
    fn filled(&self, memory: &SharedMapping, me: RingEnd) -> io::Result<usize> {
        let filled = match me {
            RingEnd::Writer => self
                .position
                .wrapping_sub(position(memory, self.base, RingEnd::Reader).load(Ordering::SeqCst)),
            RingEnd::Reader => position(memory, self.base, RingEnd::Writer)
                .load(Ordering::SeqCst)
                .wrapping_sub(self.position),
        };
        match usize::try_from(filled) {
            Ok(filled) if filled <= CAPACITY => Ok(filled),
            // Only a faulty peer writes such positions; its data is not trusted either.
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a peer's place in the shared memory makes no sense",
            )),
        }
    }

    /// Publishes this side's position. Returns whether the other side sleeps and its request is now
    /// met.
    fn show(&self, memory: &SharedMapping, me: RingEnd, other: RingEnd) -> io::Result<bool> {
        position(memory, self.base, me).store(self.position, Ordering::SeqCst);
        let wanted = wanted(memory, self.base, other);
        let count = wanted.load(Ordering::SeqCst) as usize;
        if count == 0 {
            return Ok(false);
        }
        let filled = self.filled(memory, me)?;
        let has = match other {
            RingEnd::Writer => CAPACITY - filled,
            RingEnd::Reader => filled,
        };
        Ok(has >= count && wanted.swap(0, Ordering::SeqCst) > 0)
    }

    /// Requests a wake-up once `count` bytes are available or free. Returns `false` if they already
    /// are, or if the peer's position is invalid.
    fn arm(&self, memory: &SharedMapping, me: RingEnd, count: usize) -> bool {
        let wanted = wanted(memory, self.base, me);
        wanted.store(count.clamp(1, WORTH) as u32, Ordering::SeqCst);
        let lacks = self.filled(memory, me).is_ok_and(|filled| {
            let has = match me {
                RingEnd::Writer => CAPACITY - filled,
                RingEnd::Reader => filled,
            };
            has < count.clamp(1, WORTH)
        });
        if !lacks {
            // No wake-up is needed.
            wanted.store(0, Ordering::SeqCst);
        }
        lacks
    }

    /// This side's offset in the ring and the number of bytes until the ring wraps.
    fn place(&self) -> (usize, usize) {
        let at = (self.position % CAPACITY as u64) as usize;
        (at, CAPACITY - at)
    }
}

impl RingWriter {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self {
            half: RingCursor { base, position: 0 },
            hidden: 0,
        }
    }

    /// Copies as many bytes as fit, at most one chunk, and returns their number. The reader sees
    /// them after [`show`](Self::show).
    ///
    /// # Errors
    /// If the reader's position is invalid.
    pub fn fill(&mut self, memory: &SharedMapping, bytes: &[u8]) -> io::Result<usize> {
        let free = CAPACITY - self.half.filled(memory, RingEnd::Writer)?;
        let (at, until_wrap) = self.half.place();
        let count = bytes.len().min(free).min(until_wrap).min(CHUNK);
        if count > 0 {
            // SAFETY: this range lies between the writer's position and the reader's position one
            // lap ahead, so the reader does not access it.
            let room = unsafe { memory.bytes_mut(self.half.base + BYTES_AT + at, count) };
            room.copy_from_slice(&bytes[..count]);
            self.half.position += count as u64;
            self.hidden += count;
        }
        Ok(count)
    }

    /// Bytes that are not yet visible to the reader.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Publishes all written bytes. Returns whether the reader must be woken.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn show(&mut self, memory: &SharedMapping) -> io::Result<bool> {
        if std::mem::take(&mut self.hidden) == 0 {
            return Ok(false);
        }
        self.half.show(memory, RingEnd::Writer, RingEnd::Reader)
    }

    /// Requests a wake-up once `count` bytes or [`WORTH`] bytes are free. Returns `false` if they
    /// already are. All written bytes must have been published.
    pub fn arm(&self, memory: &SharedMapping, count: usize) -> bool {
        debug_assert!(self.hidden == 0, "the reader could wait for it");
        self.half.arm(memory, RingEnd::Writer, count)
    }
}

impl RingReader {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self(RingCursor { base, position: 0 })
    }

    /// Number of bytes that are available.
    ///
    /// # Errors
    /// If the writer's position is invalid.
    pub fn filled(&self, memory: &SharedMapping) -> io::Result<usize> {
        self.0.filled(memory, RingEnd::Reader)
    }

    /// Passes available bytes to `take` directly from the ring: at most `most` bytes and one chunk,
    /// rounded down to a multiple of `grain`. Returns their number and whether the writer must be
    /// woken.
    ///
    /// # Errors
    /// As [`Self::filled`].
    pub fn read(
        &mut self,
        memory: &SharedMapping,
        most: usize,
        grain: usize,
        take: impl FnOnce(&[u8]),
    ) -> io::Result<(usize, bool)> {
        let filled = self.filled(memory)?;
        let (at, until_wrap) = self.0.place();
        let count = most.min(filled).min(until_wrap).min(CHUNK) / grain * grain;
        if count == 0 {
            return Ok((0, false));
        }
        // SAFETY: the writer has left this range and returns to it only after the reader's position
        // has passed it.
        take(unsafe { memory.bytes(self.0.base + BYTES_AT + at, count) });
        self.0.position += count as u64;
        let wake = self.0.show(memory, RingEnd::Reader, RingEnd::Writer)?;
        Ok((count, wake))
    }

    /// Requests a wake-up once `count` bytes or [`WORTH`] bytes are available. Returns `false` if
    /// they already are.
    pub fn arm(&self, memory: &SharedMapping, count: usize) -> bool {
        self.0.arm(memory, RingEnd::Reader, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Writes and publishes bytes.
    fn write(writer: &mut RingWriter, memory: &SharedMapping, bytes: &[u8]) -> (usize, bool) {
        let count = writer.fill(memory, bytes).unwrap();
        (count, writer.show(memory).unwrap())
    }

    #[test]
    fn a_stream_longer_than_the_ring_arrives_in_order() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        let total = 3 * CAPACITY + 7;
        let sent: Vec<u8> = (0..total).map(|i| (i * 31 / 7) as u8).collect();
        let mut got = vec![0; total];
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut writer, mut at) = (RingWriter::new(0), 0);
                while at < total {
                    at += write(&mut writer, &memory, &sent[at..]).0;
                    thread::yield_now();
                }
            });
            let (mut reader, mut at) = (RingReader::new(0), 0);
            while at < total {
                let out = &mut got[at..];
                at += reader
                    .read(&memory, total - at, 1, |come| {
                        out[..come.len()].copy_from_slice(come)
                    })
                    .unwrap()
                    .0;
                thread::yield_now();
            }
        });
        assert!(sent == got);
    }

    #[test]
    fn invalid_peer_position_is_an_error() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        for place in [CAPACITY as u64 + 1, 1 << 63, u64::MAX - CAPACITY as u64 - 1] {
            position(&memory, 0, RingEnd::Writer).store(place, Ordering::SeqCst);
            let reader = &mut RingReader::new(0);
            let read = reader.read(&memory, 4, 1, |_| panic!("nothing has come"));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert!(!reader.arm(&memory, 1), "who sleeps does not hear of it");
            // A reader cannot have read bytes that were not written.
            position(&memory, 0, RingEnd::Reader).store(place, Ordering::SeqCst);
            let writer = &mut RingWriter::new(0);
            let error = writer.fill(&memory, &[1]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(!writer.arm(&memory, 1));
        }
    }

    #[test]
    fn unpublished_bytes_are_not_read() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        let (mut writer, mut reader) = (RingWriter::new(0), RingReader::new(0));
        assert_eq!(writer.fill(&memory, &[1, 2]).unwrap(), 2);
        assert_eq!(reader.read(&memory, 4, 1, |_| ()).unwrap().0, 0);
        assert_eq!((writer.hidden(), writer.show(&memory).unwrap()), (2, false));
        let mut got: Vec<u8> = Vec::new();
        reader.read(&memory, 4, 1, |come| got.extend(come)).unwrap();
        assert_eq!(got, [1, 2]);
    }

    #[test]
    fn sleeping_side_is_woken_once_when_its_request_is_met() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        let (mut writer, mut reader) = (RingWriter::new(0), RingReader::new(0));
        assert!(reader.arm(&memory, 3), "nothing has come");
        assert_eq!(write(&mut writer, &memory, &[1]), (1, false));
        assert_eq!(write(&mut writer, &memory, &[2, 3]), (2, true));
        assert_eq!(write(&mut writer, &memory, &[4]), (1, false));
        assert!(!reader.arm(&memory, 1), "something has come");
        let mut got: Vec<u8> = Vec::new();
        reader.read(&memory, 9, 1, |come| got.extend(come)).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);

        let full = vec![0; CAPACITY];
        let mut at = 0;
        while at < CAPACITY {
            at += write(&mut writer, &memory, &full[at..]).0;
        }
        assert!(writer.arm(&memory, CAPACITY), "there is no room");
        let mut wakes = 0;
        for _ in 0..CAPACITY / CHUNK {
            let (count, wake) = reader.read(&memory, CHUNK, 1, |_| ()).unwrap();
            at -= count;
            wakes += usize::from(wake);
            assert_eq!(wakes, usize::from(CAPACITY - at >= WORTH), "{at} left");
        }
    }

    #[test]
    fn read_returns_whole_grains() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        let (mut writer, mut reader) = (RingWriter::new(0), RingReader::new(0));
        write(&mut writer, &memory, &[0; 7]);
        assert_eq!(reader.read(&memory, 9, 4, |_| ()).unwrap().0, 4);
        assert_eq!(reader.read(&memory, 9, 4, |_| ()).unwrap().0, 0);
    }
}
