//! Turns of a user's program, which knows nothing of them: the kernel stops all of its processes (SIGSTOP) and lets them go on (SIGCONT).
//! On GPUs the driver moves their device memory to the host before, and back afterwards, where it can (`driver`); where not, it stays.
//!
//! What is wanted lies in `peers.json`, what is so in `standing` and in the task's events, so that it does not matter whether a daemon is
//! there at the moment.

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

/// Looks for processes that were started while the others were being stopped.
const ROUNDS: u32 = 8;

pub(super) struct Hold {
    folder: TaskFolder,
    writer: Writer,
    job: JobId,
    /// The driver's affairs on this node.
    driver: PathBuf,
    /// What the driver may take for each order; `None`: it is not asked.
    patience_ms: Option<u64>,
    /// By which a new `peers.json` is known, which replaces the older one by a rename.
    read: Option<(u64, i64, i64)>,
    /// The newest turn, and whether the program is to stand still in it.
    turn: u64,
    is_wanted: bool,
    stand: Stand,
    /// What was said of the driver last: it is said once.
    said: Option<String>,
    /// That it waits for room was said since it was last told to go on.
    has_said_it_waits: bool,
    /// The task was told to stop, and has so long.
    ends: Option<u64>,
}

enum Stand {
    Goes,
    /// The driver takes it off its GPUs.
    Leaves {
        turn: u64,
        aide: Aide,
    },
    /// Nobody knows how far the driver came, so all of it is undone. Then it stands still in this turn, or goes on.
    Mended {
        turn: Option<u64>,
        aide: Aide,
    },
    /// `moved` was on its GPUs and is on the host.
    Stands {
        turn: u64,
        moved: Option<BTreeMap<u32, u64>>,
    },
    /// The driver brings it back, which needs so much room; or this is the last try, as the task is to end.
    Returns {
        needed: BTreeMap<u32, u64>,
        is_last: bool,
        aide: Aide,
    },
    /// Nothing does; the driver's fault for this reason, or else its GPUs had no room in time.
    Lost {
        driver: Option<String>,
    },
}

/// What is left to do with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    /// The driver has it and does not give it back: only its end frees it.
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

    /// Does what the newest turn asks for, as far as that goes at once.
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

    /// The task is told to end, within this time: the program goes on, if it stands still, and is followed until it does.
    pub fn end(&mut self, within_ms: u64) -> Fate {
        self.ends = Some(within_ms);
        self.is_wanted = false;
        self.follow()
    }

    /// For how long at most the driver may keep a program that was told to end; `None`: it does not have it.
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

    /// The kernel stops it, which frees the GPUs as far as it computes there; their memory only where the driver has moved it before.
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
        // Whatever state it is in: one that was in the kernel's hands when it was told to stop does so when it comes back, unless this
        // comes before.
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

    /// Nothing was done to it, and all that it had is safe on the host. So it waits until there is room, or until its turn is over.
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
        // What the driver has done is the task's end, which says so.
        if driver.is_none() {
            let message = format!(
                "ended, as its GPUs have no room for it: {why}; it goes on from its own checkpoint"
            );
            self.report(TaskReport::Note { message });
        }
        self.stand = Stand::Lost { driver };
        Fate::Lost
    }

    /// Why the driver has not given the program back, if that is what became of it.
    pub fn lost_by_driver(&self) -> Option<&str> {
        match &self.stand {
            Stand::Lost { driver } => driver.as_deref(),
            _ => None,
        }
    }

    /// That its memory stays where it is, and why; once, not in each turn.
    fn say(&mut self, why: &str) {
        if self.said.as_deref() != Some(why) {
            self.said = Some(why.to_owned());
            let message = format!("its memory stays on the GPUs while it is suspended: {why}");
            self.report(TaskReport::Note { message });
        }
    }

    /// First for this node, which lets others have the GPU, then for the scheduler, which gives it to them.
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
