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
}

impl Outbox {
    /// Of this connection. Lives until it is closed.
    ///
    /// # Errors
    /// [`WireError::Io`] when the system has no descriptor or thread left.
    pub(super) fn of(connection: &Connection, order: Order) -> Result<Arc<Self>, WireError> {
        connection.limit_unsent(UNSENT)?;
        let mut twin = connection.twin()?;
        let outbox = Arc::new(Self {
            queue: Queue::new(order),
            floor: Mutex::default(),
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
        }
    }
}
