//! Suspension of a user's program, which needs no support by the program. The kernel stops all its
//! processes (SIGSTOP) and resumes them (SIGCONT). If the GPU driver can, it moves the program's
//! device memory to the host before and back afterwards (`driver`); otherwise the memory stays.
//!
//! The request is in `peers.json`, the result in `standing` and in the task's events. So no daemon
//! needs to run at that moment.

use super::aide::{Aide, End};
use super::child::own_id;
use super::writer::Writer;
use crate::driver::{self, Answer, Order};
use crate::events;
use crate::folder::TaskFolder;
use crate::process::{self, Stat};
use muster_model::assignment::{Peers, TaskReport};
use muster_model::id::JobId;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Maximum number of passes that stop processes started during the previous pass.
const ROUNDS: u32 = 8;

pub(super) struct Hold {
    folder: TaskFolder,
    writer: Writer,
    job: JobId,
    /// Folder of the driver's records on this node.
    driver: PathBuf,
    /// Time limit of the driver per order; `None` if the driver is not used.
    patience_ms: Option<u64>,
    /// Identity of the `peers.json` that was read last. A rename replaces it, which changes the
    /// identity.
    read: Option<(u64, i64, i64)>,
    /// The newest slice, and whether it requests suspension.
    turn: u64,
    is_wanted: bool,
    stand: Stand,
    /// The last note about the driver, so that it is reported once.
    said: Option<String>,
    /// The wait for room was reported since the last resume.
    has_said_it_waits: bool,
    /// The task was asked to stop and has this many milliseconds.
    ends: Option<u64>,
}

enum Stand {
    Goes,
    /// The driver moves its memory to the host.
    Leaves {
        turn: u64,
        aide: Aide,
    },
    /// The result of a move is unknown, so a helper undoes all of it. Then the program is suspended
    /// for this slice, or resumes.
    Mended {
        turn: Option<u64>,
        aide: Aide,
    },
    /// Suspended. `moved` is the size of its memory per GPU, which is now on the host.
    Stands {
        turn: u64,
        moved: Option<BTreeMap<u32, u64>>,
    },
    /// The driver moves the memory back, which needs `needed` bytes per GPU. `is_last`: the task is
    /// to end, so there is no further attempt.
    Returns {
        needed: BTreeMap<u32, u64>,
        is_last: bool,
        aide: Aide,
    },
    /// The program cannot be resumed. The driver is at fault for this reason, or without one its
    /// GPUs had no room in time.
    Lost {
        driver: Option<String>,
    },
}

/// Remaining treatment of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    /// The driver does not restore the program: only its end releases it.
    Lost,
}

impl Hold {
    pub fn new(
        folder: &TaskFolder,
        writer: Writer,
        data_dir: &Path,
        job: JobId,
        patience_ms: Option<u64>,
    ) -> Self {
        Self {
            folder: folder.clone(),
            writer,
            job,
            driver: driver::folder(data_dir),
            patience_ms,
            read: None,
            turn: 0,
            is_wanted: false,
            stand: Stand::Goes,
            said: None,
            has_said_it_waits: false,
            ends: None,
        }
    }

    /// Continues with what the newest slice requests, without waiting.
    pub fn follow(&mut self) -> Fate {
        if self.ends.is_none() {
            self.read_turn();
        }
        match std::mem::replace(&mut self.stand, Stand::Goes) {
            Stand::Goes if self.is_wanted => self.leave(self.turn),
            Stand::Goes => Fate::Lives,
            Stand::Leaves { turn, aide } => match aide.look() {
                None => self.be(Stand::Leaves { turn, aide }),
                Some(end) => self.has_left(turn, end),
            },
            Stand::Mended { turn, aide } => match aide.look() {
                None => self.be(Stand::Mended { turn, aide }),
                Some(End::Answered(Answer::Back)) => match turn {
                    Some(turn) => self.stand_still(turn, None),
                    None => self.has_returned(),
                },
                Some(end) => self.lose(end),
            },
            Stand::Stands { turn, moved } if self.is_wanted => {
                if turn != self.turn {
                    self.tell(self.turn);
                }
                self.be(Stand::Stands {
                    turn: self.turn,
                    moved,
                })
            }
            Stand::Stands { moved, .. } => self.go_on(moved),
            lost @ Stand::Lost { .. } => {
                self.stand = lost;
                Fate::Lost
            }
            Stand::Returns {
                needed,
                is_last,
                aide,
            } => match aide.look() {
                None => self.be(Stand::Returns {
                    needed,
                    is_last,
                    aide,
                }),
                Some(End::Answered(Answer::NoRoom { why })) if !is_last => {
                    self.has_no_room(needed, &why)
                }
                Some(end) => self.has_come(end),
            },
        }
    }

    /// The task is to end within this time. Resumes a suspended program; later calls of `follow`
    /// complete the resume.
    pub fn end(&mut self, within_ms: u64) -> Fate {
        self.ends = Some(within_ms);
        self.is_wanted = false;
        self.follow()
    }

    /// Longest time for which the driver may hold a program that was asked to stop; `None` if the
    /// driver does not hold it.
    pub fn keeps_for_ms(&self) -> Option<u64> {
        match self.stand {
            Stand::Leaves { .. } | Stand::Mended { .. } | Stand::Returns { .. } => self.patience_ms,
            Stand::Goes | Stand::Stands { .. } | Stand::Lost { .. } => None,
        }
    }

    fn read_turn(&mut self) {
        let file = self.folder.peers();
        let Some(metadata) = file.metadata() else {
            return;
        };
        let version = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        if self.read == Some(version) {
            return;
        }
        if let Ok(Some(peers)) = file.read::<Peers>() {
            self.read = Some(version);
            self.turn = peers.turn;
            self.is_wanted = peers.held_turn().is_some();
        }
    }

    fn leave(&mut self, turn: u64) -> Fate {
        let Some(patience_ms) = self.patience_ms else {
            return self.stand_still(turn, None);
        };
        match self.send(Order::TakeOff, &BTreeMap::new(), patience_ms) {
            Ok(aide) => self.be(Stand::Leaves { turn, aide }),
            Err(error) => {
                self.say(&error.to_string());
                self.stand_still(turn, None)
            }
        }
    }

    fn has_left(&mut self, turn: u64, end: End) -> Fate {
        match end {
            End::Answered(Answer::Moved { processes: 0, .. }) => self.stand_still(turn, None),
            End::Answered(Answer::Moved { gpus, .. }) => {
                self.said = None;
                self.stand_still(turn, Some(gpus))
            }
            End::Answered(Answer::Unchanged { why }) => {
                self.say(&why);
                self.stand_still(turn, None)
            }
            End::Vanished { why } => {
                self.say(&why);
                self.mend(Some(turn))
            }
            End::Answered(Answer::Back | Answer::NoRoom { .. } | Answer::Lost { .. }) => {
                self.lose(end)
            }
        }
    }

    /// Stops the processes by SIGSTOP, which ends their computation on the GPUs. Their memory
    /// leaves the GPUs only if the driver has moved it before.
    fn stand_still(&mut self, turn: u64, moved: Option<BTreeMap<u32, u64>>) -> Fate {
        if self.ends.is_some() {
            return self.go_on(moved);
        }
        stop();
        self.tell(turn);
        self.be(Stand::Stands { turn, moved })
    }

    fn go_on(&mut self, moved: Option<BTreeMap<u32, u64>>) -> Fate {
        let standing = self.folder.standing();
        self.writer.write(move || drop(standing.remove()));
        // Sent regardless of the process state: a process inside a system call stops when the call
        // returns, unless SIGCONT arrives before.
        signal_all(Signal::CONT, |_| true);
        let Some(needed) = moved else {
            return self.has_returned();
        };
        let patience_ms = self.patience_ms.unwrap_or_default();
        let (order, patience_ms) = match self.ends {
            Some(within_ms) => (Order::BringBackToEnd, patience_ms.min(within_ms)),
            None => (Order::BringBack, patience_ms),
        };
        let is_last = order == Order::BringBackToEnd;
        match self.send(order, &needed, patience_ms) {
            Ok(aide) => self.be(Stand::Returns {
                needed,
                is_last,
                aide,
            }),
            Err(error) => self.lose(End::Vanished {
                why: error.to_string(),
            }),
        }
    }

    /// The program is unchanged, and its memory is safe on the host. It waits until there is room
    /// or until its slice has ended.
    fn has_no_room(&mut self, needed: BTreeMap<u32, u64>, why: &str) -> Fate {
        if !std::mem::replace(&mut self.has_said_it_waits, true) {
            let message = format!("it waits for room on its GPUs: {why}");
            self.report(TaskReport::Note { message });
        }
        if self.is_wanted {
            self.has_said_it_waits = false;
            return self.stand_still(self.turn, Some(needed));
        }
        self.go_on(Some(needed))
    }

    fn has_come(&mut self, end: End) -> Fate {
        match end {
            End::Answered(Answer::Back) => self.has_returned(),
            End::Vanished { .. } => self.mend(None),
            End::Answered(_) => self.lose(end),
        }
    }

    fn has_returned(&mut self) -> Fate {
        self.has_said_it_waits = false;
        if self.ends.is_none() {
            self.report(TaskReport::Continued {
                turn: self.turn,
                step: None,
            });
        }
        self.be(Stand::Goes)
    }

    fn send(
        &self,
        order: Order,
        needed: &BTreeMap<u32, u64>,
        patience_ms: u64,
    ) -> io::Result<Aide> {
        let answer = self.folder.driver();
        // The answer to an earlier order must be gone before this order is sent.
        let removed = self.writer.answer(move || answer.remove())?;
        removed?;
        Aide::send(&self.folder, &self.driver, order, needed, patience_ms)
    }

    fn mend(&mut self, turn: Option<u64>) -> Fate {
        let patience_ms = self.patience_ms.unwrap_or_default();
        match self.send(Order::Mend, &BTreeMap::new(), patience_ms) {
            Ok(aide) => self.be(Stand::Mended { turn, aide }),
            Err(error) => self.lose(End::Vanished {
                why: error.to_string(),
            }),
        }
    }

    fn be(&mut self, stand: Stand) -> Fate {
        self.stand = stand;
        Fate::Lives
    }

    fn lose(&mut self, end: End) -> Fate {
        let is_drivers_fault = !matches!(end, End::Answered(Answer::NoRoom { .. }));
        if is_drivers_fault {
            let (folder, job) = (self.driver.clone(), self.job);
            self.writer.write(move || {
                if let Err(error) = driver::remember(&folder, job) {
                    eprintln!("cannot remember that the driver has lost the program: {error}");
                }
            });
        }
        let why = match end {
            End::Answered(
                Answer::Lost { why } | Answer::NoRoom { why } | Answer::Unchanged { why },
            )
            | End::Vanished { why } => why,
            End::Answered(Answer::Moved { .. } | Answer::Back) => {
                "an answer to another order".to_owned()
            }
        };
        let driver = is_drivers_fault.then(|| why.clone());
        // For a fault of the driver the task's outcome contains the reason.
        if driver.is_none() {
            let message = format!(
                "ended, as its GPUs have no room for it: {why}; it continues from its own checkpoint"
            );
            self.report(TaskReport::Note { message });
        }
        self.stand = Stand::Lost { driver };
        Fate::Lost
    }

    /// Returns the reason why the driver did not restore the program, if that happened.
    pub fn lost_by_driver(&self) -> Option<&str> {
        match &self.stand {
            Stand::Lost { driver } => driver.as_deref(),
            _ => None,
        }
    }

    /// Reports that the program's memory stays on the GPUs, and why; once per reason, not in each
    /// slice.
    fn say(&mut self, why: &str) {
        if self.said.as_deref() != Some(why) {
            self.said = Some(why.to_owned());
            let message = format!("its memory stays on the GPUs while it is suspended: {why}");
            self.report(TaskReport::Note { message });
        }
    }

    /// Announces the suspension: first to this node, which may then start another task on the GPU,
    /// then to the scheduler, which assigns the GPU.
    fn tell(&self, turn: u64) {
        let standing = self.folder.standing();
        self.writer.write(move || {
            if let Err(error) = standing.write_atomically(&turn) {
                eprintln!("cannot write that the task is suspended: {error}");
            }
        });
        self.report(TaskReport::Suspended { turn, step: None });
    }

    fn report(&self, report: TaskReport) {
        let events = self.folder.events();
        self.writer.write(move || {
            if let Err(error) = events::append(&events, &[report]) {
                eprintln!("cannot keep a report: {error}");
            }
        });
    }
}

/// Stops all processes of the task. A stopped process starts no others, so a pass that finds none
/// running is the last.
fn stop() {
    for _ in 0..ROUNDS {
        if !signal_all(Signal::STOP, |stat| stat.state != 'T') {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal to the processes of the task that `wanted` selects; returns whether there were
/// any.
fn signal_all(signal: Signal, wanted: impl Fn(&Stat) -> bool) -> bool {
    let all = process::descendants(own_id().pid);
    let mut picked = all.iter().filter(|stat| wanted(stat)).peekable();
    let any = picked.peek().is_some();
    for stat in picked {
        let _ = stat.id.signal(signal);
    }
    any
}
