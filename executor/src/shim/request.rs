//! Request for a checkpoint before a stop. The daemon writes it into the task's folder, so no
//! daemon needs to run while the program answers.
//!
//! The program answers by the report of a checkpoint. Only the answer of rank 0 counts. The other
//! tasks of the job wait until the scheduler stops them, or until the time-out has passed.

use super::child::TaskProcess;
use super::supervise::signal_program;
use super::writer::ShimFileWriter;
use crate::clock;
use crate::events::{self, EventPosition, EventTail};
use crate::folder::NodeTaskFolder;
use crate::task_file::TaskFile;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::checkpoint::RequestResult;
use muster_model::spec::{CheckpointOnRequest, RequestSignal};
use muster_model::task::Role;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// Size of one read of the task's events.
const BLOCK_BYTES: usize = 64 << 10;

/// `checkpoint-request.json`: the command is asked for a checkpoint. Programs may poll for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRequest {
    /// Time of the stop if the program does not answer.
    pub until_unix_ms: i64,
    /// Size of the task's events before the request. A report behind it is an answer.
    pub after_byte: u64,
}

impl CheckpointRequest {
    /// Returns a request that begins now.
    #[must_use]
    pub fn begin(options: &CheckpointOnRequest, folder: &NodeTaskFolder) -> Self {
        let timeout_ms = i64::try_from(options.timeout_ms()).unwrap_or(i64::MAX);
        Self {
            until_unix_ms: clock::unix_ms().saturating_add(timeout_ms),
            after_byte: folder.events().metadata().map_or(0, |found| found.len()),
        }
    }
}

/// The request as the shim of a command carries it out.
pub(super) struct ProgramRequest {
    file: TaskFile,
    events: TaskFile,
    writer: ShimFileWriter,
    options: CheckpointOnRequest,
    /// Whether the task is rank 0, whose answer counts.
    is_chief: bool,
    state: RequestState,
}

enum RequestState {
    NotAsked,
    Asked(Box<PendingRequest>),
    Over,
}

struct PendingRequest {
    since_ms: u64,
    tail: EventTail,
    from: EventPosition,
}

impl ProgramRequest {
    /// Returns `None` if the document does not allow requests.
    pub fn new(
        folder: &NodeTaskFolder,
        writer: ShimFileWriter,
        launch: &TaskLaunch,
    ) -> Option<Self> {
        launch.spec.command.as_ref()?;
        Some(Self {
            file: folder.checkpoint_request(),
            events: folder.events(),
            writer,
            options: launch.spec.preemption.checkpoint_on_request?,
            is_chief: launch.role == Role::Worker { rank: 0 },
            state: RequestState::NotAsked,
        })
    }

    /// Whether the program was asked and its answer is awaited.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, RequestState::Asked(_))
    }

    /// Continues with the request, without waiting. Returns whether the task stops now: the program
    /// has answered, its time has passed, or it cannot answer because it does not run.
    pub fn follow(&mut self, now_ms: u64, task: &TaskProcess, is_running: bool) -> bool {
        if matches!(self.state, RequestState::NotAsked) {
            let Ok(Some(request)) = self.file.read::<CheckpointRequest>() else {
                return false;
            };
            if !is_running {
                self.state = RequestState::Over;
                return true;
            }
            if let Some(signal) = self.options.signal {
                signal_program(task, unix_signal(signal));
            }
            self.state = RequestState::Asked(Box::new(PendingRequest {
                since_ms: now_ms,
                tail: EventTail::default(),
                from: EventPosition {
                    line: 0,
                    byte: request.after_byte,
                },
            }));
        }
        let RequestState::Asked(pending) = &mut self.state else {
            return false;
        };
        let waited_ms = now_ms.saturating_sub(pending.since_ms);
        let answer = if self.is_chief {
            pending.reported(&self.events)
        } else {
            None
        };
        let result = match answer {
            Some(step) => RequestResult::Reported { step },
            None if !is_running || waited_ms >= self.options.timeout_ms() => {
                RequestResult::TimedOut
            }
            None => return false,
        };
        self.end_with(result, waited_ms);
        true
    }

    /// Records that the program has ended during the wait. Call it once its output is complete,
    /// which may contain the answer.
    pub fn program_ended(&mut self, now_ms: u64) {
        if let RequestState::Asked(pending) = &mut self.state {
            let waited_ms = now_ms.saturating_sub(pending.since_ms);
            let result = match pending.reported(&self.events) {
                Some(step) => RequestResult::Reported { step },
                None => RequestResult::Ended,
            };
            self.end_with(result, waited_ms);
        }
    }

    /// Ends the wait without a result: the task was stopped for another reason.
    pub fn give_up(&mut self) {
        self.state = RequestState::Over;
    }

    fn end_with(&mut self, result: RequestResult, waited_ms: u64) {
        self.state = RequestState::Over;
        if !self.is_chief {
            return;
        }
        let events = self.events.clone();
        let report = TaskReport::CheckpointRequestEnded { result, waited_ms };
        self.writer.write(move || {
            if let Err(error) = events::append(&events, &[report]) {
                eprintln!("cannot keep the result of a request for a checkpoint: {error}");
            }
        });
    }
}

impl PendingRequest {
    /// Returns the step of the newest checkpoint that was reported since the request.
    fn reported(&mut self, events: &TaskFile) -> Option<u64> {
        let mut newest = None;
        loop {
            // Not readable now: the next call tries again, until the time-out.
            let lines = self.tail.read(events, self.from, BLOCK_BYTES, 0).ok()?;
            for line in &lines.reports {
                if let Ok(TaskReport::CheckpointReported { step, .. }) = serde_json::from_str(line)
                {
                    newest = Some(step);
                }
            }
            self.from = lines.end;
            if lines.is_all {
                return newest;
            }
        }
    }
}

fn unix_signal(signal: RequestSignal) -> Signal {
    match signal {
        RequestSignal::Usr1 => Signal::USR1,
        RequestSignal::Usr2 => Signal::USR2,
        RequestSignal::Hup => Signal::HUP,
    }
}
