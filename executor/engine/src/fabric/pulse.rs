//! The sign that this task's process runs, given to every peer of a view by a thread of its own.
//!
//! A step may take as long as it takes: its thread says nothing meanwhile, and the pulse goes on. A process that is stopped, frozen or
//! swapped out has none. So who waits can tell a long step from a peer that will not answer, without knowing how long steps are.
//!
//! A thread that is caught in a loop has a pulse all the same; that is what [`super::Options::stall`] is for.

use super::control::Word;
use super::hello::Stream;
use rustix::net::{SendFlags, send};
use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// Beats in the time after which silence means something.
const BEATS: u32 = 5;

/// A pulse; it ends when this goes, or the last of its links.
#[derive(Debug)]
pub struct Pulse {
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Pulse {
    /// Begins to beat on these streams, often enough that `silence` without a beat is no accident.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(streams: Vec<Weak<Stream>>, silence: Duration) -> io::Result<Self> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&ended);
        let every = silence / BEATS;
        thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || {
                let (lock, changed) = &*told;
                let mut over = lock.lock().expect("nothing panics with the lock");
                while !*over && beat(&streams) {
                    let waited = changed.wait_timeout(over, every);
                    over = waited.expect("nothing panics with the lock").0;
                }
            })?;
        Ok(Self { ended })
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let (lock, changed) = &*self.ended;
        *lock.lock().expect("nothing panics with the lock") = true;
        changed.notify_all();
    }
}

/// Whether any link is left. A full socket swallows a beat: whoever reads it some day finds those of before.
fn beat(streams: &[Weak<Stream>]) -> bool {
    let mut any = false;
    for stream in streams.iter().filter_map(Weak::upgrade) {
        any = true;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(&*stream, &Word::Alive.encode(), flags);
    }
    any
}
