//! Partitions of parameters for one worker. A separate thread sends them, the most urgent first,
//! while the connection's other thread receives the worker's push.

use muster_comm::partitions::{PartitionOrder, PartitionQueue};
use muster_comm::wire::metadata::PartHead;
use muster_comm::wire::{Connection, FrameKind, WireError};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// Maximum number of unsent bytes in the system. A more urgent partition waits for no more than
/// these.
const UNSENT: u32 = 128 << 10;

/// Maximum number of free buffers, a few for each worker.
const KEPT: usize = 256;

/// Free buffers for partitions.
#[derive(Debug, Default)]
pub struct ShardBufferPool(Mutex<Vec<Vec<f32>>>);

impl ShardBufferPool {
    /// Returns a buffer for `numbers` values.
    pub(super) fn take(&self, numbers: usize) -> Vec<f32> {
        let spare = self.0.lock().expect("not poisoned").pop();
        let mut spare = spare.unwrap_or_default();
        spare.resize(numbers, 0.0);
        spare
    }

    pub(super) fn give(&self, spare: Vec<f32>) {
        let mut spares = self.0.lock().expect("not poisoned");
        if spares.len() < KEPT {
            spares.push(spare);
        }
    }
}

/// A partition of the parameters after a step.
#[derive(Debug, Clone)]
pub struct ParameterPartition {
    /// Next step.
    pub clock: u64,
    pub numbers: Arc<Vec<f32>>,
}

/// Outgoing partitions of one worker.
#[derive(Debug)]
pub struct PartitionOutbox {
    queue: PartitionQueue<ParameterPartition>,
    /// Right to send a frame on the connection.
    floor: Mutex<()>,
    spares: Arc<ShardBufferPool>,
}

impl PartitionOutbox {
    /// Creates the outbox of a connection and starts its thread, which runs until the outbox is
    /// closed.
    ///
    /// # Errors
    /// [`WireError::Io`] when the system has no descriptor or thread left.
    pub(super) fn of(
        connection: &Connection,
        order: PartitionOrder,
        spares: &Arc<ShardBufferPool>,
    ) -> Result<Arc<Self>, WireError> {
        connection.limit_unsent(UNSENT)?;
        let mut twin = connection.twin()?;
        let outbox = Arc::new(Self {
            queue: PartitionQueue::new(order),
            floor: Mutex::default(),
            spares: Arc::clone(spares),
        });
        let inside = Arc::clone(&outbox);
        thread::Builder::new()
            .name("parts".to_owned())
            .spawn(move || inside.send_all(&mut twin))
            .map_err(|source: io::Error| WireError::Io {
                doing: "start a thread for parts",
                source,
            })?;
        Ok(outbox)
    }

    pub(super) fn add(&self, part: usize, what: ParameterPartition) {
        self.queue.add(part, what);
    }

    /// Stops sending.
    pub(super) fn close(&self) {
        self.queue.give_up();
    }

    /// Waits until all partitions are sent; no other thread sends while the guard lives.
    pub(super) fn floor(&self) -> MutexGuard<'_, ()> {
        self.queue.wait_until_idle();
        self.floor.lock().expect("not poisoned")
    }

    fn send_all(&self, connection: &mut Connection) {
        while let Some((part, what)) = self.queue.take() {
            let head = PartHead {
                view: 0,
                part: part as u64,
            };
            let floor = self.floor.lock().expect("not poisoned");
            let sent = connection.send(
                FrameKind::Part,
                what.clock,
                &head.encode(),
                &[&what.numbers],
            );
            drop(floor);
            if sent.is_err() {
                // The thread that reads this connection reports the error.
                self.queue.give_up();
                return;
            }
            // Only the last worker's outbox has the sole reference.
            if let Ok(spare) = Arc::try_unwrap(what.numbers) {
                self.spares.give(spare);
            }
        }
    }
}
