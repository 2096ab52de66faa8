//! Parts of parameters on their way to one worker: a thread of its own sends them, the most urgent first, while the connection's other
//! thread reads what the worker pushes.

use crate::parts::{Order, Queue};
use crate::wire::hello::PartHead;
use crate::wire::{Connection, Kind, WireError};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// What waits for the wire in the system at most: a part that is more urgent has to wait for no more than this.
const UNSENT: u32 = 128 << 10;

/// Part buffers that are kept for the next step: a few of each worker's.
const KEPT: usize = 256;

/// Memory of parts that nobody needs at the moment.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<Vec<f32>>>);

impl Spares {
    /// For a part of so many numbers.
    pub(super) fn take(&self, numbers: usize) -> Vec<f32> {
        let spare = self.0.lock().expect("nobody panics with it").pop();
        let mut spare = spare.unwrap_or_default();
        spare.resize(numbers, 0.0);
        spare
    }

    pub(super) fn give(&self, spare: Vec<f32>) {
        let mut spares = self.0.lock().expect("nobody panics with it");
        if spares.len() < KEPT {
            spares.push(spare);
        }
    }
}

/// A part of the parameters after a step.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The step that comes next.
    pub clock: u64,
    pub numbers: Arc<Vec<f32>>,
}

/// One worker's.
#[derive(Debug)]
pub struct Outbox {
    queue: Queue<Sent>,
    /// Who has it may send a frame on the connection.
    floor: Mutex<()>,
    spares: Arc<Spares>,
}

impl Outbox {
    /// Of this connection. Lives until it is closed.
    ///
    /// # Errors
    /// [`WireError::Io`] when the system has no descriptor or thread left.
    pub(super) fn of(
        connection: &Connection,
        order: Order,
        spares: &Arc<Spares>,
    ) -> Result<Arc<Self>, WireError> {
        connection.limit_unsent(UNSENT)?;
        let mut twin = connection.twin()?;
        let outbox = Arc::new(Self {
            queue: Queue::new(order),
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

    pub(super) fn add(&self, part: usize, what: Sent) {
        self.queue.add(part, what);
    }

    /// Nothing more is sent.
    pub(super) fn close(&self) {
        self.queue.give_up();
    }

    /// Waits until all parts are sent; nobody else sends while the guard lives.
    pub(super) fn floor(&self) -> MutexGuard<'_, ()> {
        self.queue.wait_until_idle();
        self.floor.lock().expect("nobody panics with it")
    }

    fn send_all(&self, connection: &mut Connection) {
        while let Some((part, what)) = self.queue.take() {
            let head = PartHead {
                view: 0,
                part: part as u64,
            };
            let floor = self.floor.lock().expect("nobody panics with it");
            let sent = connection.send(Kind::Part, what.clock, &head.encode(), &[&what.numbers]);
            drop(floor);
            if sent.is_err() {
                // Whoever reads this connection notices too, and says so.
                self.queue.give_up();
                return;
            }
            // The last who has sent it.
            if let Ok(spare) = Arc::try_unwrap(what.numbers) {
                self.spares.give(spare);
            }
        }
    }
}
