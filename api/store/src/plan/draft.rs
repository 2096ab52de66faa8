//! A job's row while the actions of a plan are applied to it. Pure: `commit` reads the row before
//! and writes it afterwards.
//!
//! `JobRecord` says what an action does to the fields that snapshots have too. Here are the columns
//! that only rows have, the events and the orders to the tasks.

use super::{CommitRefusal, RevisionIds};
use crate::event::{NewEvent, of_job};
use crate::fault;
use crate::job::not_considered;
use crate::task::LockedTask;
use muster_model::event::Event;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::idle::IdleFinding;
use muster_model::job::{AfterStop, Charge, JobPhase, JobState, RequeueCause};
use muster_model::pace::Suspect;
use muster_model::plan::{Action, JobRecord, PlannedTask};
use muster_model::task::{Role, TaskEvent, TaskState};
use muster_model::verdict::{Finding, Verdict};
use muster_model::wait::Waiting;
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// The columns that actions change, and their further effects.
#[derive(Debug)]
pub(super) struct JobDraft {
    pub id: JobId,
    pub tenant_id: TenantId,
    pub state: JobState,
    pub revision: u64,
    /// Lower bound: the next revision is above it.
    pub revision_floor: u64,
    pub failures: u32,
    pub put_off: u32,
    pub last_failure: Option<String>,
    pub waiting: Option<Waiting>,
    pub not_before: Option<OffsetDateTime>,
    pub started_at: Option<OffsetDateTime>,
    pub placed_at: Option<OffsetDateTime>,
    pub running_since: Option<OffsetDateTime>,
    pub finished_at: Option<OffsetDateTime>,
    pub trained_s: f64,
    pub stopped_at: Option<OffsetDateTime>,
    pub stops: u32,
    pub stop_s: f64,
    pub turn: u64,
    pub turned_at: Option<OffsetDateTime>,
    pub lent: bool,
    pub verdicts: u32,
    pub suspects: Vec<Suspect>,
    pub idle: Option<IdleFinding>,
    pub lost_s: f64,
    /// Maximum seconds for which the job's program may be asked for a checkpoint before a stop;
    /// `None` if its document does not allow that.
    pub request_s: Option<u32>,
    /// Time since which the program is asked for a checkpoint.
    pub asked_at: Option<OffsetDateTime>,
    /// Identifiers of the new revision, if the plan begins one.
    pub ids: RevisionIds,
    /// Tasks of the job that are not released.
    pub held: Vec<LockedTask>,
    pub events: Vec<NewEvent>,
    /// Faults to be charged to nodes.
    pub charges: Vec<fault::FaultCharge>,
    /// Tasks that are released without a report of their nodes.
    pub given_up: Vec<(LockedTask, TaskEvent)>,
    pub start: Option<RevisionStart>,
}

/// A new revision.
#[derive(Debug)]
pub(super) struct RevisionStart {
    /// Tasks that are new in this revision.
    pub tasks: Vec<NewTask>,
    pub from: From,
    pub why: String,
}

/// A task to insert.
#[derive(Debug)]
pub(super) struct NewTask {
    pub id: TaskId,
    pub planned: PlannedTask,
}

/// Predecessor of a revision.
#[derive(Debug)]
pub(super) enum From {
    /// No running task. The new tasks authenticate each other with this secret.
    Nothing { secret: String },
    /// The previous revision, of which all tasks but these remain.
    Before { leave: Vec<TaskId> },
}

impl JobDraft {
    /// Applies one action. The first refused action refuses all actions of the job.
    pub fn apply(&mut self, action: &Action, now: OffsetDateTime) -> Result<(), CommitRefusal> {
        assert!(
            self.start.is_none(),
            "a start is the last action of a job in a plan"
        );
        self.permit(action)?;
        let state = self.state.clone();
        let reason = self.waiting.as_ref().map(|waiting| waiting.why.name());
        let running_since = self.running_since;
        self.record().apply(action, now)?;
        if state != self.state {
            self.enter_state(now);
        }
        if let (Some(since), None) = (running_since, self.running_since) {
            self.trained_s += (now - since).as_seconds_f64().max(0.0);
        }
        match action {
            Action::Start { tasks, why, .. } => {
                self.started_at.get_or_insert(now);
                (self.stopped_at, self.asked_at) = (None, None);
                // The job may have been stopped while it was suspended.
                self.turn += self.turn % 2;
                let from = From::Nothing {
                    secret: self.ids.secret.clone(),
                };
                self.start = Some(self.begin_revision(tasks, from, why));
            }
            Action::Resize {
                leave,
                join,
                why,
                charge,
            } => {
                self.note_failure(*charge, why);
                let leave = leave.clone();
                self.start = Some(self.begin_revision(join, From::Before { leave }, why));
            }
            Action::Suspend { why } => self.turn(true, why, now),
            Action::Continue { why, .. } => self.turn(false, why, now),
            Action::Stop {
                then, why, charge, ..
            } => {
                if state == JobState::Running && is_ordered(then) {
                    self.stopped_at = Some(now);
                }
                if state != self.state {
                    self.ask(&state, *charge, now);
                    let event = Event::JobStopRequested {
                        then: then.clone(),
                        why: why.clone(),
                        asks_s: self.asked_at.and(self.request_s),
                    };
                    self.push(event, now);
                }
                self.note_failure(*charge, why);
            }
            Action::Release => {
                self.asked_at = None;
                if let Some(since) = self.stopped_at.take() {
                    self.stops = self.stops.saturating_add(1);
                    self.stop_s += (now - since).as_seconds_f64().max(0.0);
                }
            }
            Action::GiveUp { .. } => self.give_up(action, now),
            Action::Judge { verdict } => self.judge(verdict, now),
            Action::Idle { idle } => {
                let event = idle.map_or(Event::JobActive {}, |finding| Event::JobIdle { finding });
                self.push(event, now);
            }
            // Another reason is an event; another position or remedy is not.
            Action::Wait { waiting } if reason != Some(waiting.why.name()) => {
                let waiting = waiting.clone();
                self.push(Event::JobWaits { waiting }, now);
            }
            Action::Up
            | Action::Hold
            | Action::Resume
            | Action::Cancel
            | Action::Displace { .. }
            | Action::Suspect { .. }
            | Action::Wait { .. } => {}
        }
        Ok(())
    }

    /// Begins a request for a checkpoint where the stop of a running job has one. Rank 0 answers,
    /// so it must run. A stop without a request ends an earlier one.
    fn ask(&mut self, before: &JobState, charge: Charge, now: OffsetDateTime) {
        let mut held = self.held.iter();
        let has_rank_0 = held.any(|held| {
            held.task.role == Role::Worker { rank: 0 } && held.task.state == TaskState::Running
        });
        let asks = match &self.state {
            JobState::Stopping { then } => then.asks_for_checkpoint() && charge == Charge::None,
            _ => false,
        };
        if !asks {
            self.asked_at = None;
        } else if *before == JobState::Running && has_rank_0 && self.request_s.is_some() {
            self.asked_at = Some(now);
        }
    }

    /// Refuses what the job's state alone does not show: tasks that are not released, and a wait
    /// reason of a job that does not wait.
    fn permit(&self, action: &Action) -> Result<(), CommitRefusal> {
        match action {
            Action::Release if !self.held.is_empty() => {
                let tasks = self.held.iter().map(|held| held.task.id).collect();
                Err(CommitRefusal::TasksHeld { tasks })
            }
            Action::Wait { .. } => self.must_wait(),
            _ => Ok(()),
        }
    }

    fn record(&mut self) -> JobRecord<'_, OffsetDateTime> {
        JobRecord {
            state: &mut self.state,
            revision: &mut self.revision,
            revision_floor: self.revision_floor,
            failures: &mut self.failures,
            put_off: &mut self.put_off,
            waiting: &mut self.waiting,
            not_before: &mut self.not_before,
            placed: &mut self.placed_at,
            running: &mut self.running_since,
            turned: &mut self.turned_at,
            lent: &mut self.lent,
            verdicts: &mut self.verdicts,
            suspects: &mut self.suspects,
            idle: &mut self.idle,
            lost_s: &mut self.lost_s,
        }
    }

    /// Sets what a row has only in some states. A waiting row always has a reason.
    fn enter_state(&mut self, now: OffsetDateTime) {
        let phase = self.state.phase();
        if matches!(phase, JobPhase::Queued | JobPhase::Paused) {
            self.waiting = Some(not_considered());
        }
        if phase.is_terminal() {
            self.finished_at = Some(now);
        }
    }

    /// # Panics
    /// If the caller of the commit has not given one id to each of these tasks.
    fn begin_revision(&self, tasks: &[PlannedTask], from: From, why: &str) -> RevisionStart {
        assert_eq!(
            self.ids.tasks.len(),
            tasks.len(),
            "each new task of {} has an id",
            self.id
        );
        let named = self.ids.tasks.iter().zip(tasks);
        let tasks = named.map(|(&id, task)| NewTask {
            id,
            planned: task.clone(),
        });
        RevisionStart {
            tasks: tasks.collect(),
            from,
            why: why.to_owned(),
        }
    }

    fn judge(&mut self, verdict: &Verdict, now: OffsetDateTime) {
        self.charges.push(fault::FaultCharge {
            node_id: verdict.node_id,
            of: Some((self.id, verdict.task_id)),
            fault: match verdict.finding {
                Finding::Straggler { .. } => NodeFault::Straggler,
                Finding::Hang { .. } | Finding::Idle { .. } => NodeFault::Hang { at_start: false },
            },
            at: now,
            reported_at: None,
        });
        let event = Event::RankJudged {
            verdict: verdict.clone(),
        };
        self.events.push(NewEvent {
            node_id: Some(verdict.node_id),
            ..of_job(now, self.tenant_id, self.id, event)
        });
    }

    /// Charges each node of a task that is given up once. Tasks that have started meanwhile stay.
    fn give_up(&mut self, action: &Action, now: OffsetDateTime) {
        let mut charged = BTreeSet::new();
        for held in std::mem::take(&mut self.held) {
            let event = action.task_event(held.task.id, held.task.role);
            let event = event.filter(|_| held.task.state == TaskState::Assigned);
            let Some(event) = event else {
                self.held.push(held);
                continue;
            };
            let (node_id, task_id) = (held.task.node_id, held.task.id);
            if charged.insert(node_id) {
                self.charges.push(fault::FaultCharge {
                    node_id,
                    of: Some((self.id, task_id)),
                    fault: NodeFault::Hang { at_start: true },
                    at: now,
                    reported_at: None,
                });
            }
            self.given_up.push((held, event));
        }
    }

    /// Appends the event of the state change. It is made after all actions, because it contains the
    /// revision.
    pub fn state_changed(&mut self, before: &JobState, now: OffsetDateTime) {
        if *before != self.state {
            let event = Event::JobStateChanged {
                state: self.state.clone(),
                revision: self.revision,
            };
            self.push(event, now);
        }
    }

    fn push(&mut self, event: Event, now: OffsetDateTime) {
        self.events
            .push(of_job(now, self.tenant_id, self.id, event));
    }

    pub fn must_wait(&self) -> Result<(), CommitRefusal> {
        match self.state.phase() {
            JobPhase::Queued | JobPhase::Paused => Ok(()),
            phase => Err(CommitRefusal::NotWaiting { phase }),
        }
    }

    /// Starts the next time slice (`turn`). Odd numbers mean suspended. A stop may occur in any
    /// slice, so the next one may skip a number.
    fn turn(&mut self, suspended: bool, why: &str, now: OffsetDateTime) {
        self.turn += 1;
        if (self.turn % 2 == 1) != suspended {
            self.turn += 1;
        }
        let why = why.to_owned();
        self.push(Event::JobTurned { suspended, why }, now);
    }

    /// The owner sees the reason of the newest charged failure.
    fn note_failure(&mut self, charge: Charge, why: &str) {
        if charge == Charge::Failure {
            self.last_failure = Some(why.to_owned());
        }
    }
}

/// Whether the scheduler orders the stop, and the time of the stop depends on this job alone. The
/// time of other stops would include the detection of a failure or of an end, or the wait for the
/// jobs at the destination.
fn is_ordered(then: &AfterStop) -> bool {
    matches!(
        then,
        AfterStop::Move {
            until_unix_ms: None,
            ..
        } | AfterStop::Pause
            | AfterStop::Requeue {
                cause: RequeueCause::Resize | RequeueCause::Preempted | RequeueCause::OverQuota
            }
    )
}
