//! Turns of a user's program, which knows nothing of them: the kernel stops all of its processes (SIGSTOP) and lets them go on (SIGCONT).
//! Their memory stays.
//!
//! What is wanted lies in `peers.json`, what is so in `standing` and in the task's events, so that it does not matter whether a daemon is
//! there at the moment.

use super::child::own_id;
use crate::disk;
use crate::events;
use crate::folder::TaskFolder;
use crate::process::{self, Stat};
use muster_model::assignment::{Peers, TaskReport};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

/// Looks for processes that were started while the others were being stopped.
const ROUNDS: u32 = 8;

pub(super) struct Hold {
    folder: TaskFolder,
    /// By which a new `peers.json` is known, which replaces the older one by a rename.
    read: Option<(u64, i64, i64)>,
    /// The turn in which the program stands still.
    held: Option<u64>,
}

impl Hold {
    pub fn new(folder: &TaskFolder) -> Self {
        Self {
            folder: folder.clone(),
            read: None,
            held: None,
        }
    }

    /// Does what the newest turn asks for.
    pub fn follow(&mut self) {
        let path = self.folder.peers();
        let Ok(metadata) = fs::metadata(&path) else {
            return;
        };
        let version = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        if self.read == Some(version) {
            return;
        }
        let Ok(Some(peers)) = disk::read::<Peers>(&path) else {
            return;
        };
        self.read = Some(version);
        match (self.held, peers.held_turn()) {
            (held, Some(turn)) if held != Some(turn) => {
                stop();
                self.held = Some(turn);
                self.tell(turn);
            }
            (Some(_), None) => {
                self.let_go();
                let turn = peers.turn;
                self.report(&TaskReport::Continued { turn, step: None });
            }
            _ => {}
        }
    }

    /// Lets the program go on, if it stands still.
    pub fn let_go(&mut self) {
        if self.held.take().is_some() {
            let _ = fs::remove_file(self.folder.standing());
            // Whatever state it is in: one that was in the kernel's hands when it was told to stop does so when it comes back, unless this
            // comes before.
            signal_all(Signal::CONT, |_| true);
        }
    }

    /// First for this node, which lets others have the GPU, then for the scheduler, which gives it to them.
    fn tell(&self, turn: u64) {
        if let Err(error) = disk::write_atomically(&self.folder.standing(), &turn) {
            eprintln!("cannot write that the task stands still: {error}");
        }
        self.report(&TaskReport::Suspended { turn, step: None });
    }

    fn report(&self, report: &TaskReport) {
        if let Err(error) = events::append(&self.folder.events(), std::slice::from_ref(report)) {
            eprintln!("cannot keep a report: {error}");
        }
    }
}

/// Whoever is stopped starts nobody: a look that finds nobody running is the last.
fn stop() {
    for _ in 0..ROUNDS {
        if !signal_all(Signal::STOP, |stat| stat.state != 'T') {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Signals those of the task's processes that `wanted` picks; whether there were any.
fn signal_all(signal: Signal, wanted: impl Fn(&Stat) -> bool) -> bool {
    let all = process::descendants(own_id().pid);
    let mut picked = all.iter().filter(|stat| wanted(stat)).peekable();
    let any = picked.peek().is_some();
    for stat in picked {
        let _ = stat.id.signal(signal);
    }
    any
}
