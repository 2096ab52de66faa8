//! Suspension of a user's program, which needs no support by the program. The kernel stops all its
//! processes (SIGSTOP) and resumes them (SIGCONT). If the GPU driver can, it moves the program's
//! device memory to the host before and back afterwards (`driver`); otherwise the memory stays.
//!
//! The request is in `peers.json`, the result in `standing` and in the task's events. So no daemon
//! needs to run at that moment.

use super::child::own_id;
use super::driver_helper::{DriverHelper, DriverHelperResult};
use super::writer::ShimFileWriter;
use crate::driver::{self, DriverAnswer, DriverOrder};
use crate::events;
use crate::folder::NodeTaskFolder;
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

pub(super) struct ProgramSuspension {
    folder: NodeTaskFolder,
    writer: ShimFileWriter,
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
    is_suspend_requested: bool,
    state: SuspendState,
    /// The last note about the driver, so that it is reported once.
    reported_problem: Option<String>,
    /// The wait for room was reported since the last resume.
    has_reported_wait: bool,
    /// The task was asked to stop and has this many milliseconds.
    ends_within_ms: Option<u64>,
}

enum SuspendState {
    Running,
    /// The driver moves its memory to the host.
    Suspending {
        turn: u64,
        helper: DriverHelper,
    },
    /// The result of a move is unknown, so a helper undoes all of it. Then the program is suspended
    /// for this slice, or resumes.
    Recovering {
        turn: Option<u64>,
        helper: DriverHelper,
    },
    /// Suspended. `moved` is the size of its memory per GPU, which is now on the host.
    Suspended {
        turn: u64,
        moved: Option<BTreeMap<u32, u64>>,
    },
    /// The driver moves the memory back, which needs `needed` bytes per GPU. `is_last`: the task is
    /// to end, so there is no further attempt.
    Resuming {
        needed: BTreeMap<u32, u64>,
        is_last: bool,
        helper: DriverHelper,
    },
    /// The program cannot be resumed. The driver is at fault for this reason, or without one its
    /// GPUs had no room in time.
    Lost {
        driver: Option<String>,
    },
}

/// Remaining treatment of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramState {
    Lives,
    /// The driver does not restore the program: only its end releases it.
    Lost,
}

impl ProgramSuspension {
    pub fn new(
        folder: &NodeTaskFolder,
        writer: ShimFileWriter,
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
            is_suspend_requested: false,
            state: SuspendState::Running,
            reported_problem: None,
            has_reported_wait: false,
            ends_within_ms: None,
        }
    }

    /// Continues with what the newest slice requests, without waiting.
    pub fn follow(&mut self) -> ProgramState {
        if self.ends_within_ms.is_none() {
            self.read_request();
        }
        match std::mem::replace(&mut self.state, SuspendState::Running) {
            SuspendState::Running if self.is_suspend_requested => self.begin_checkpoint(self.turn),
            SuspendState::Running => ProgramState::Lives,
            SuspendState::Suspending { turn, helper } => match helper.poll() {
                None => self.enter(SuspendState::Suspending { turn, helper }),
                Some(end) => self.checkpoint_ended(turn, end),
            },
            SuspendState::Recovering { turn, helper } => match helper.poll() {
                None => self.enter(SuspendState::Recovering { turn, helper }),
                Some(DriverHelperResult::Answered(DriverAnswer::Back)) => match turn {
                    Some(turn) => self.suspend(turn, None),
                    None => self.resume_ended(),
                },
                Some(end) => self.mark_lost(end),
            },
            SuspendState::Suspended { turn, moved } if self.is_suspend_requested => {
                if turn != self.turn {
                    self.announce_suspension(self.turn);
                }
                self.enter(SuspendState::Suspended {
                    turn: self.turn,
                    moved,
                })
            }
            SuspendState::Suspended { moved, .. } => self.resume(moved),
            lost @ SuspendState::Lost { .. } => {
                self.state = lost;
                ProgramState::Lost
            }
            SuspendState::Resuming {
                needed,
                is_last,
                helper,
            } => match helper.poll() {
                None => self.enter(SuspendState::Resuming {
                    needed,
                    is_last,
                    helper,
                }),
                Some(DriverHelperResult::Answered(DriverAnswer::NoRoom { why })) if !is_last => {
                    self.restore_lacks_room(needed, &why)
                }
                Some(end) => self.restore_ended(end),
            },
        }
    }

    /// Whether the program runs and is not asked to suspend.
    pub fn is_running(&self) -> bool {
        matches!(self.state, SuspendState::Running) && !self.is_suspend_requested
    }

    /// The task is to end within this time. Resumes a suspended program; later calls of `follow`
    /// complete the resume.
    pub fn end(&mut self, within_ms: u64) -> ProgramState {
        self.ends_within_ms = Some(within_ms);
        self.is_suspend_requested = false;
        self.follow()
    }

    /// Longest time for which the driver may hold a program that was asked to stop; `None` if the
    /// driver does not hold it.
    pub fn driver_limit_ms(&self) -> Option<u64> {
        match self.state {
            SuspendState::Suspending { .. }
            | SuspendState::Recovering { .. }
            | SuspendState::Resuming { .. } => self.patience_ms,
            SuspendState::Running | SuspendState::Suspended { .. } | SuspendState::Lost { .. } => {
                None
            }
        }
    }

    fn read_request(&mut self) {
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
            self.is_suspend_requested = peers.held_turn().is_some();
        }
    }

    fn begin_checkpoint(&mut self, turn: u64) -> ProgramState {
        let Some(patience_ms) = self.patience_ms else {
            return self.suspend(turn, None);
        };
        match self.send(DriverOrder::TakeOff, &BTreeMap::new(), patience_ms) {
            Ok(helper) => self.enter(SuspendState::Suspending { turn, helper }),
            Err(error) => {
                self.report_problem(&error.to_string());
                self.suspend(turn, None)
            }
        }
    }

    fn checkpoint_ended(&mut self, turn: u64, end: DriverHelperResult) -> ProgramState {
        match end {
            DriverHelperResult::Answered(DriverAnswer::Moved { processes: 0, .. }) => {
                self.suspend(turn, None)
            }
            DriverHelperResult::Answered(DriverAnswer::Moved { gpus, .. }) => {
                self.reported_problem = None;
                self.suspend(turn, Some(gpus))
            }
            DriverHelperResult::Answered(DriverAnswer::Unchanged { why }) => {
                self.report_problem(&why);
                self.suspend(turn, None)
            }
            DriverHelperResult::Vanished { why } => {
                self.report_problem(&why);
                self.roll_back(Some(turn))
            }
            DriverHelperResult::Answered(
                DriverAnswer::Back | DriverAnswer::NoRoom { .. } | DriverAnswer::Lost { .. },
            ) => self.mark_lost(end),
        }
    }

    /// Stops the processes by SIGSTOP, which ends their computation on the GPUs. Their memory
    /// leaves the GPUs only if the driver has moved it before.
    fn suspend(&mut self, turn: u64, moved: Option<BTreeMap<u32, u64>>) -> ProgramState {
        if self.ends_within_ms.is_some() {
            return self.resume(moved);
        }
        stop_all();
        self.announce_suspension(turn);
        self.enter(SuspendState::Suspended { turn, moved })
    }

    fn resume(&mut self, moved: Option<BTreeMap<u32, u64>>) -> ProgramState {
        let standing = self.folder.standing();
        self.writer.write(move || drop(standing.remove()));
        // Sent regardless of the process state: a process inside a system call stops when the call
        // returns, unless SIGCONT arrives before.
        signal_all(Signal::CONT, |_| true);
        let Some(needed) = moved else {
            return self.resume_ended();
        };
        let patience_ms = self.patience_ms.unwrap_or_default();
        let (order, patience_ms) = match self.ends_within_ms {
            Some(within_ms) => (DriverOrder::BringBackToEnd, patience_ms.min(within_ms)),
            None => (DriverOrder::BringBack, patience_ms),
        };
        let is_last = order == DriverOrder::BringBackToEnd;
        match self.send(order, &needed, patience_ms) {
            Ok(helper) => self.enter(SuspendState::Resuming {
                needed,
                is_last,
                helper,
            }),
            Err(error) => self.mark_lost(DriverHelperResult::Vanished {
                why: error.to_string(),
            }),
        }
    }

    /// The program is unchanged, and its memory is safe on the host. It waits until there is room
    /// or until its slice has ended.
    fn restore_lacks_room(&mut self, needed: BTreeMap<u32, u64>, why: &str) -> ProgramState {
        if !std::mem::replace(&mut self.has_reported_wait, true) {
            let message = format!("it waits for room on its GPUs: {why}");
            self.report(TaskReport::Note { message });
        }
        if self.is_suspend_requested {
            self.has_reported_wait = false;
            return self.suspend(self.turn, Some(needed));
        }
        self.resume(Some(needed))
    }

    fn restore_ended(&mut self, end: DriverHelperResult) -> ProgramState {
        match end {
            DriverHelperResult::Answered(DriverAnswer::Back) => self.resume_ended(),
            DriverHelperResult::Vanished { .. } => self.roll_back(None),
            DriverHelperResult::Answered(_) => self.mark_lost(end),
        }
    }

    fn resume_ended(&mut self) -> ProgramState {
        self.has_reported_wait = false;
        if self.ends_within_ms.is_none() {
            self.report(TaskReport::Continued {
                turn: self.turn,
                step: None,
            });
        }
        self.enter(SuspendState::Running)
    }

    fn send(
        &self,
        order: DriverOrder,
        needed: &BTreeMap<u32, u64>,
        patience_ms: u64,
    ) -> io::Result<DriverHelper> {
        let answer = self.folder.driver();
        // The answer to an earlier order must be gone before this order is sent.
        let removed = self.writer.answer(move || answer.remove())?;
        removed?;
        DriverHelper::send(&self.folder, &self.driver, order, needed, patience_ms)
    }

    fn roll_back(&mut self, turn: Option<u64>) -> ProgramState {
        let patience_ms = self.patience_ms.unwrap_or_default();
        match self.send(DriverOrder::Mend, &BTreeMap::new(), patience_ms) {
            Ok(helper) => self.enter(SuspendState::Recovering { turn, helper }),
            Err(error) => self.mark_lost(DriverHelperResult::Vanished {
                why: error.to_string(),
            }),
        }
    }

    fn enter(&mut self, state: SuspendState) -> ProgramState {
        self.state = state;
        ProgramState::Lives
    }

    fn mark_lost(&mut self, end: DriverHelperResult) -> ProgramState {
        let is_drivers_fault = !matches!(
            end,
            DriverHelperResult::Answered(DriverAnswer::NoRoom { .. })
        );
        if is_drivers_fault {
            let (folder, job) = (self.driver.clone(), self.job);
            self.writer.write(move || {
                if let Err(error) = driver::remember(&folder, job) {
                    eprintln!("cannot remember that the driver has lost the program: {error}");
                }
            });
        }
        let why = match end {
            DriverHelperResult::Answered(
                DriverAnswer::Lost { why }
                | DriverAnswer::NoRoom { why }
                | DriverAnswer::Unchanged { why },
            )
            | DriverHelperResult::Vanished { why } => why,
            DriverHelperResult::Answered(DriverAnswer::Moved { .. } | DriverAnswer::Back) => {
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
        self.state = SuspendState::Lost { driver };
        ProgramState::Lost
    }

    /// Returns the reason why the driver did not restore the program, if that happened.
    pub fn lost_by_driver(&self) -> Option<&str> {
        match &self.state {
            SuspendState::Lost { driver } => driver.as_deref(),
            _ => None,
        }
    }

    /// Reports that the program's memory stays on the GPUs, and why; once per reason, not in each
    /// slice.
    fn report_problem(&mut self, why: &str) {
        if self.reported_problem.as_deref() != Some(why) {
            self.reported_problem = Some(why.to_owned());
            let message = format!("its memory stays on the GPUs while it is suspended: {why}");
            self.report(TaskReport::Note { message });
        }
    }

    /// Announces the suspension: first to this node, which may then start another task on the GPU,
    /// then to the scheduler, which assigns the GPU.
    fn announce_suspension(&self, turn: u64) {
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
fn stop_all() {
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
