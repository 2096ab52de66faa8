//! The snapshot buffer: a copy of the shard's state between two steps, which a checkpoint
//! reads while training continues.
//!
//! There is one buffer, and its memory is reused. Each read names the snapshot, so a reader of a
//! replaced snapshot is refused and never gets values of both. Nothing waits for the reader.

use super::messages::RequestRefusal;
use super::tensors::Tensors;
use muster_comm::wire::snapshot::SnapshotRangeHead;
use muster_compute::pages;
use std::sync::{Mutex, MutexGuard};

/// Snapshot buffer of a shard.
#[derive(Debug, Default)]
pub(super) struct SnapshotBuffer(Mutex<SnapshotValues>);

#[derive(Debug, Default)]
struct SnapshotValues {
    version: u64,
    /// Number of snapshots so far; the first is 1.
    count: u64,
    /// Values as in [`Tensors::parts`], concatenated.
    numbers: Vec<f32>,
}

impl SnapshotBuffer {
    /// Replaces the content of the buffer. Returns the number of snapshots so far.
    pub fn copy(&self, version: u64, tensors: &Tensors) -> u64 {
        let parts = tensors.parts();
        let len = parts.iter().map(|part| part.len()).sum();
        let mut copy = self.lock();
        if copy.numbers.capacity() > 2 * len {
            // Sized for pieces that have moved since.
            copy.numbers = Vec::new();
        }
        pages::resize(&mut copy.numbers, len);
        let mut rest = copy.numbers.as_mut_slice();
        for part in parts {
            let (here, tail) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = tail;
        }
        copy.version = version;
        copy.count += 1;
        copy.count
    }

    /// Reads a range of the snapshot with this version and count into `out`.
    pub fn read(
        &self,
        version: u64,
        head: SnapshotRangeHead,
        out: &mut Vec<f32>,
    ) -> Result<(), RequestRefusal> {
        let copy = self.lock();
        let (asked, newest) = ((version, head.count), (copy.version, copy.count));
        if asked != newest {
            return Err(RequestRefusal::OtherCopy { asked, newest });
        }
        let range = usize::try_from(head.from)
            .ok()
            .and_then(|from| copy.numbers.get(from..)?.get(..head.numbers as usize));
        let numbers = range.ok_or(RequestRefusal::NotCopied {
            from: head.from,
            numbers: head.numbers,
            len: copy.numbers.len(),
        })?;
        out.clear();
        out.extend_from_slice(numbers);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotValues> {
        self.0.lock().expect("no connection has panicked with it")
    }
}
