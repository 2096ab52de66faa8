//! A job's row while the steps of a plan are applied to it. Pure: `commit` reads the row before and
//! writes it afterwards.

use super::{CommitAction, CommitRefusal, NewTask};
use crate::event::{NewEvent, of_job};
use crate::fault;
use crate::job::not_considered;
use crate::task::LockedTask;
use muster_model::event::Event;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::job::{AfterStop, Charge, JobEvent, JobPhase, JobState, RequeueCause};
use muster_model::pace::Suspect;
use muster_model::task::{Outcome, TaskState};
use muster_model::verdict::Finding;
use muster_model::wait::Waiting;
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// The columns that steps change, and their further effects.
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
    /// Tasks of the job that are not released.
    pub held: Vec<LockedTask>,
    pub events: Vec<NewEvent>,
    /// Faults to be charged to nodes.
    pub charges: Vec<fault::FaultCharge>,
    /// Tasks that are released without a report of their nodes, each with its outcome.
    pub given_up: Vec<(LockedTask, Outcome)>,
    /// Whether all tasks are to stop.
    pub stop: bool,
    /// Suspension or continuation of the workers.
    pub turned: Option<SliceChange>,
    pub start: Option<RevisionStart>,
}

/// Change at the start or end of a time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceChange {
    StandStill,
    GoOn {
        /// The host, if the job continues as a guest on the host's GPU.
        beside: Option<JobId>,
    },
}

/// A new revision.
#[derive(Debug)]
pub(super) struct RevisionStart {
    /// Tasks that are new in this revision.
    pub tasks: Vec<NewTask>,
    pub from: Predecessor,
    pub why: String,
}

/// Predecessor of a revision.
#[derive(Debug)]
pub(super) enum Predecessor {
    /// No running task. The new tasks authenticate each other with this secret.
    None { secret: String },
    /// The previous revision, of which all tasks but these remain.
    Revision { leave: Vec<TaskId> },
}

impl JobDraft {
    /// Applies one step. The first refused step refuses all steps of the job.
    pub fn apply(
        &mut self,
        action: &CommitAction,
        now: OffsetDateTime,
    ) -> Result<(), CommitRefusal> {
        assert!(
            self.start.is_none(),
            "a start is the last step of a job in a plan"
        );
        match action {
            CommitAction::Start {
                tasks,
                secret,
                why,
                lent,
            } => {
                self.move_on(JobEvent::Start, now)?;
                self.revision = self.revision.max(self.revision_floor) + 1;
                self.started_at.get_or_insert(now);
                self.placed_at = Some(now);
                self.turned_at = None;
                self.lent = *lent;
                self.stopped_at = None;
                // The job may have been stopped while it was suspended.
                self.turn += self.turn % 2;
                self.not_before = None;
                self.start = Some(RevisionStart {
                    tasks: tasks.clone(),
                    from: Predecessor::None {
                        secret: secret.clone(),
                    },
                    why: why.clone(),
                });
            }
            CommitAction::Resize {
                leave,
                join,
                why,
                charge,
            } => {
                self.move_on(JobEvent::Resize, now)?;
                self.revision = self.revision.max(self.revision_floor) + 1;
                self.charge(*charge, why);
                self.placed_at = Some(now);
                self.start = Some(RevisionStart {
                    tasks: join.clone(),
                    from: Predecessor::Revision {
                        leave: leave.clone(),
                    },
                    why: why.clone(),
                });
            }
            CommitAction::Suspend { why } => {
                self.move_on(JobEvent::Suspend, now)?;
                self.end_running(now);
                self.lent = false;
                self.turn(SliceChange::StandStill, why, now);
            }
            CommitAction::Continue { why, beside, lent } => {
                self.move_on(JobEvent::Continue, now)?;
                self.running_since = Some(now);
                self.lent = *lent;
                self.turn(SliceChange::GoOn { beside: *beside }, why, now);
            }
            CommitAction::Up => {
                self.move_on(JobEvent::AllRunning, now)?;
                self.running_since = Some(now);
                self.put_off = 0;
            }
            CommitAction::Stop {
                then,
                why,
                charge,
                not_before,
            } => {
                let before = self.state.clone();
                self.move_on(JobEvent::Stop { then: then.clone() }, now)?;
                // Measure only stops that the scheduler orders. Otherwise the time would include
                // the detection of a failure or an end.
                let is_told = matches!(
                    then,
                    AfterStop::Move { .. }
                        | AfterStop::Pause
                        | AfterStop::Requeue {
                            cause: RequeueCause::Resize
                                | RequeueCause::Preempted
                                | RequeueCause::OverQuota
                        }
                );
                if is_told && matches!(before, JobState::Running) {
                    self.stopped_at = Some(now);
                }
                if before != self.state {
                    let event = Event::JobStopRequested {
                        then: then.clone(),
                        why: why.clone(),
                    };
                    self.events
                        .push(of_job(now, self.tenant_id, self.id, event));
                }
                self.end_running(now);
                self.lent = false;
                // A job that has run starts to count placement rejections anew. Only a refused
                // start keeps the count.
                if !matches!(before, JobState::Starting | JobState::Stopping { .. }) {
                    self.put_off = 0;
                }
                self.charge(*charge, why);
                self.not_before = not_before.or(self.not_before);
                self.stop = true;
            }
            CommitAction::Release => {
                if !self.held.is_empty() {
                    let tasks = self.held.iter().map(|held| held.task.id).collect();
                    return Err(CommitRefusal::TasksHeld { tasks });
                }
                self.move_on(JobEvent::Released, now)?;
                if let Some(since) = self.stopped_at.take() {
                    self.stops = self.stops.saturating_add(1);
                    self.stop_s += (now - since).as_seconds_f64().max(0.0);
                }
            }
            CommitAction::Hold => self.move_on(JobEvent::Hold, now)?,
            CommitAction::Resume => self.move_on(JobEvent::Resume, now)?,
            CommitAction::Cancel => self.move_on(JobEvent::Cancel, now)?,
            CommitAction::GiveUp { tasks, why } => self.give_up(tasks, why, now),
            CommitAction::Judge { verdict } => {
                self.verdicts += 1;
                self.charges.push(fault::FaultCharge {
                    node_id: verdict.node_id,
                    of: Some((self.id, verdict.task_id)),
                    fault: match verdict.finding {
                        Finding::Straggler { .. } => NodeFault::Straggler,
                        Finding::Hang { .. } => NodeFault::Hang { at_start: false },
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
            CommitAction::Suspect { suspects } => self.suspects.clone_from(suspects),
            CommitAction::Wait { waiting } => {
                self.may_wait()?;
                self.wait(waiting, now);
            }
        }
        Ok(())
    }

    fn give_up(&mut self, tasks: &[TaskId], why: &str, now: OffsetDateTime) {
        let is_late = |held: &mut LockedTask| {
            tasks.contains(&held.task.id) && held.task.state == TaskState::Assigned
        };
        let mut charged = BTreeSet::new();
        for late in self.held.extract_if(.., is_late) {
            let (node_id, task_id) = (late.task.node_id, late.task.id);
            if charged.insert(node_id) {
                self.charges.push(fault::FaultCharge {
                    node_id,
                    of: Some((self.id, task_id)),
                    fault: NodeFault::Hang { at_start: true },
                    at: now,
                    reported_at: None,
                });
            }
            self.given_up.push((late, Outcome::refused(why.to_owned())));
        }
    }

    /// Appends the event of the state change. It is made after all steps, because it contains the
    /// revision.
    pub fn state_changed(&mut self, before: &JobState, now: OffsetDateTime) {
        if *before != self.state {
            let event = Event::JobStateChanged {
                state: self.state.clone(),
                revision: self.revision,
            };
            self.events
                .push(of_job(now, self.tenant_id, self.id, event));
        }
    }

    /// Refuses a wait reason for a job that is neither queued nor paused.
    pub fn may_wait(&self) -> Result<(), CommitRefusal> {
        match self.state.phase() {
            JobPhase::Queued | JobPhase::Paused => Ok(()),
            phase => Err(CommitRefusal::NotWaiting { phase }),
        }
    }

    /// Sets the wait reason. Another reason is an event; another position or remedy is not.
    fn wait(&mut self, waiting: &Waiting, now: OffsetDateTime) {
        if self
            .waiting
            .as_ref()
            .is_none_or(|old| old.why.name() != waiting.why.name())
        {
            let event = Event::JobWaits {
                waiting: waiting.clone(),
            };
            self.events
                .push(of_job(now, self.tenant_id, self.id, event));
        }
        self.waiting = Some(waiting.clone());
    }

    fn move_on(&mut self, event: JobEvent, now: OffsetDateTime) -> Result<(), CommitRefusal> {
        let before = self.state.clone();
        self.state = before.clone().apply(event)?;
        // Suspected ranks refer to the previous task set.
        self.suspects.clear();
        if before == self.state {
            return Ok(());
        }
        let phase = self.state.phase();
        self.waiting = matches!(phase, JobPhase::Queued | JobPhase::Paused).then(not_considered);
        if phase.is_terminal() {
            self.finished_at = Some(now);
        }
        if phase == JobPhase::Queued {
            self.turned_at = Some(now);
        }
        Ok(())
    }

    /// Starts the next time slice (`turn`). Odd numbers mean suspended. A stop may occur in any
    /// slice, so the next one may skip a number.
    fn turn(&mut self, turned: SliceChange, why: &str, now: OffsetDateTime) {
        let suspended = turned == SliceChange::StandStill;
        self.turn += 1;
        if (self.turn % 2 == 1) != suspended {
            self.turn += 1;
        }
        self.turned_at = Some(now);
        self.turned = Some(turned);
        let why = why.to_owned();
        let event = Event::JobTurned { suspended, why };
        self.events
            .push(of_job(now, self.tenant_id, self.id, event));
    }

    fn charge(&mut self, charge: Charge, why: &str) {
        match charge {
            Charge::None => {}
            Charge::Refusal => self.put_off = self.put_off.saturating_add(1),
            Charge::Failure => {
                self.failures += 1;
                self.last_failure = Some(why.to_owned());
            }
        }
    }

    fn end_running(&mut self, now: OffsetDateTime) {
        if let Some(since) = self.running_since.take() {
            self.trained_s += (now - since).as_seconds_f64().max(0.0);
        }
    }
}
