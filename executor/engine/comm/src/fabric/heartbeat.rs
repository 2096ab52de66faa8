//! Heartbeat of this task's process, sent to every peer of a view by its own thread.
//!
//! A step can take any time, in which its thread sends nothing, while the heartbeat continues. A
//! process that is stopped, frozen or swapped out sends none. A waiting peer can thus tell a long
//! step from a peer that will not answer, without knowing the duration of steps.
//!
//! A process in an endless loop still sends heartbeats; [`super::FabricOptions::stall`] covers this
//! case.

use super::control::ControlMessage;
use super::handshake::PeerStream;
use rustix::net::{SendFlags, send};
use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// Number of heartbeats within the silence limit.
const BEATS: u32 = 5;

/// Running heartbeat. It ends when this value is dropped, or with the last of its links.
#[derive(Debug)]
pub struct HeartbeatSender {
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl HeartbeatSender {
    /// Starts to send heartbeats on these streams, several within `silence`, so that a silence of
    /// that length is not accidental.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(streams: Vec<Weak<PeerStream>>, silence: Duration) -> io::Result<Self> {
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

impl Drop for HeartbeatSender {
    fn drop(&mut self) {
        let (lock, changed) = &*self.ended;
        *lock.lock().expect("nothing panics with the lock") = true;
        changed.notify_all();
    }
}

/// Sends one heartbeat on each stream. Returns whether any link is left. A full socket drops it:
/// its peer still has earlier heartbeats to read.
fn beat(streams: &[Weak<PeerStream>]) -> bool {
    let mut any = false;
    for stream in streams.iter().filter_map(Weak::upgrade) {
        any = true;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(&*stream, &ControlMessage::Alive.encode(), flags);
    }
    any
}
