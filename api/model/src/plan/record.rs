//! What an action does to the record of its job.

use super::Action;
use crate::idle::IdleFinding;
use crate::job::{Charge, InvalidTransition, JobEvent, JobState};
use crate::pace::Suspect;
use crate::wait::Waiting;
use time::OffsetDateTime;

/// Time as a job's record contains it.
pub trait RecordTime: Copy {
    fn from_unix_ms(unix_ms: i64) -> Self;
}

/// Unix milliseconds, in snapshots.
impl RecordTime for i64 {
    fn from_unix_ms(unix_ms: i64) -> Self {
        unix_ms
    }
}

/// Date, in rows. Panics for dates thousands of years from now.
impl RecordTime for OffsetDateTime {
    fn from_unix_ms(unix_ms: i64) -> Self {
        Self::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000)
            .expect("a plan adds at most hours to the present")
    }
}

/// Fields of a job that actions change, borrowed from a row or from a snapshot.
#[derive(Debug)]
pub struct JobRecord<'j, T> {
    pub state: &'j mut JobState,
    pub revision: &'j mut u64,
    /// Lower bound: the next revision is above it.
    pub revision_floor: u64,
    /// Restarts that are charged to the job's retries.
    pub failures: &'j mut u32,
    /// Number of consecutive placement rejections.
    pub put_off: &'j mut u32,
    pub waiting: &'j mut Option<Waiting>,
    /// Earliest time of the next start.
    pub not_before: &'j mut Option<T>,
    /// Start of the present revision.
    pub placed: &'j mut Option<T>,
    /// Time since which all tasks run without interruption.
    pub running: &'j mut Option<T>,
    /// Time of the last suspension or continuation in the present revision, or of the return to
    /// the queue.
    pub turned: &'j mut Option<T>,
    /// Whether the GPUs are reserved for another job's time slice.
    pub lent: &'j mut bool,
    /// Number of verdicts on the job's ranks.
    pub verdicts: &'j mut u32,
    pub suspects: &'j mut Vec<Suspect>,
    /// Idleness that the owner has been told.
    pub idle: &'j mut Option<IdleFinding>,
    /// Seconds of work that the job has lost because it was stopped for other jobs.
    pub lost_s: &'j mut f64,
}

impl<T: RecordTime> JobRecord<'_, T> {
    /// Applies the action at `now`.
    ///
    /// # Errors
    /// [`InvalidTransition`] if the job's state refuses the action; the record is unchanged.
    pub fn apply(&mut self, action: &Action, now: T) -> Result<(), InvalidTransition> {
        let has_run = !matches!(self.state, JobState::Starting | JobState::Stopping { .. });
        if let Some(event) = action.event() {
            self.transition(event, now)?;
        }
        match action {
            Action::Start { lent, .. } => {
                self.begin_revision(now);
                (*self.turned, *self.running, *self.not_before) = (None, None, None);
                *self.lent = *lent;
            }
            Action::Resize { charge, .. } => {
                self.begin_revision(now);
                self.charge(*charge);
            }
            Action::Up => (*self.running, *self.put_off) = (Some(now), 0),
            Action::Suspend { .. } => {
                (*self.running, *self.turned) = (None, Some(now));
                *self.lent = false;
            }
            Action::Continue { lent, .. } => {
                (*self.running, *self.turned) = (Some(now), Some(now));
                *self.lent = *lent;
            }
            Action::Stop {
                charge,
                not_before_ms,
                ..
            } => {
                // A run ends the series of placement rejections; only a refused start continues it.
                if has_run {
                    *self.put_off = 0;
                }
                self.charge(*charge);
                *self.not_before = not_before_ms.map(T::from_unix_ms).or(*self.not_before);
                *self.running = None;
                *self.lent = false;
            }
            Action::Judge { .. } => *self.verdicts += 1,
            Action::Displace { cost } => *self.lost_s += cost.work_ms as f64 / 1_000.0,
            Action::Suspect { suspects } => self.suspects.clone_from(suspects),
            Action::Idle { idle } => *self.idle = *idle,
            Action::Wait { waiting } => *self.waiting = Some(waiting.clone()),
            Action::GiveUp { .. }
            | Action::Release
            | Action::Hold
            | Action::Resume
            | Action::Cancel => {}
        }
        Ok(())
    }

    /// Changes the state. Wait reason, suspected ranks and idleness belong to the earlier one.
    fn transition(&mut self, event: JobEvent, now: T) -> Result<(), InvalidTransition> {
        let next = self.state.clone().apply(event)?;
        let is_requeued = next == JobState::Queued && *self.state != next;
        *self.state = next;
        *self.waiting = None;
        self.suspects.clear();
        *self.idle = None;
        if is_requeued {
            *self.turned = Some(now);
        }
        Ok(())
    }

    fn begin_revision(&mut self, now: T) {
        *self.revision = self.revision_floor.max(*self.revision) + 1;
        *self.placed = Some(now);
    }

    fn charge(&mut self, charge: Charge) {
        match charge {
            Charge::None => {}
            Charge::Refusal => *self.put_off = self.put_off.saturating_add(1),
            Charge::Failure => *self.failures += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Action, Charge, IdleFinding, JobRecord, JobState, RecordTime as _, Suspect, Waiting,
    };
    use crate::id::TaskId;
    use crate::job::{AfterStop, RequeueCause};
    use crate::pace::Suspicion;
    use crate::wait::Wait;
    use time::OffsetDateTime;
    use uuid::Uuid;

    #[derive(Debug, Clone, PartialEq)]
    struct Job {
        state: JobState,
        revision: u64,
        failures: u32,
        put_off: u32,
        waiting: Option<Waiting>,
        not_before: Option<i64>,
        placed: Option<i64>,
        running: Option<i64>,
        turned: Option<i64>,
        lent: bool,
        verdicts: u32,
        suspects: Vec<Suspect>,
        idle: Option<IdleFinding>,
        lost_s: f64,
    }

    impl Job {
        fn queued() -> Self {
            Self {
                state: JobState::Queued,
                revision: 3,
                failures: 0,
                put_off: 2,
                waiting: Some(Waiting {
                    why: Wait::Suspended,
                    smallest_change: None,
                    position: 1,
                }),
                not_before: Some(5),
                placed: Some(1),
                running: None,
                turned: Some(2),
                lent: false,
                verdicts: 0,
                suspects: Vec::new(),
                idle: None,
                lost_s: 1.0,
            }
        }

        fn record(&mut self) -> JobRecord<'_, i64> {
            JobRecord {
                state: &mut self.state,
                revision: &mut self.revision,
                revision_floor: 7,
                failures: &mut self.failures,
                put_off: &mut self.put_off,
                waiting: &mut self.waiting,
                not_before: &mut self.not_before,
                placed: &mut self.placed,
                running: &mut self.running,
                turned: &mut self.turned,
                lent: &mut self.lent,
                verdicts: &mut self.verdicts,
                suspects: &mut self.suspects,
                idle: &mut self.idle,
                lost_s: &mut self.lost_s,
            }
        }

        fn after(mut self, actions: &[Action], now: i64) -> Self {
            for action in actions {
                self.record().apply(action, now).expect("allowed");
            }
            self
        }
    }

    fn start() -> Action {
        Action::Start {
            tasks: Vec::new(),
            why: String::new(),
            lent: true,
        }
    }

    fn stop(charge: Charge, not_before_ms: Option<i64>) -> Action {
        Action::Stop {
            then: AfterStop::Requeue {
                cause: RequeueCause::TaskFailed,
            },
            why: String::new(),
            charge,
            not_before_ms,
        }
    }

    #[test]
    fn start_begins_a_revision_above_the_floor() {
        let job = Job::queued().after(&[start()], 10);
        let expected = Job {
            state: JobState::Starting,
            revision: 8,
            waiting: None,
            not_before: None,
            placed: Some(10),
            turned: None,
            lent: true,
            ..Job::queued()
        };
        assert_eq!(job, expected);
    }

    #[test]
    fn refused_start_continues_the_series_of_rejections() {
        let refused = [start(), stop(Charge::Refusal, Some(90)), Action::Release];
        let job = Job::queued().after(&refused, 10);
        assert_eq!((job.put_off, job.failures), (3, 0));
        assert_eq!((job.not_before, job.turned), (Some(90), Some(10)));
        let ran = [start(), Action::Up, stop(Charge::Failure, None)];
        let job = Job::queued().after(&ran, 10);
        assert_eq!((job.put_off, job.failures), (0, 1));
        assert_eq!((job.not_before, job.running, job.lent), (None, None, false));
    }

    #[test]
    fn transition_ends_suspicions() {
        let task_id = TaskId(Uuid::nil());
        let suspects = vec![Suspect {
            task_id,
            of: Suspicion::Straggler,
            since_ms: 4,
        }];
        let suspect = Action::Suspect {
            suspects: suspects.clone(),
        };
        let job = Job::queued().after(&[start(), Action::Up, suspect], 10);
        assert_eq!(job.suspects, suspects);
        let why = String::new();
        let job = job.after(&[Action::Suspend { why }], 20);
        assert_eq!(job.suspects, []);
        assert_eq!((job.running, job.turned), (None, Some(20)));
    }

    #[test]
    fn refused_action_changes_nothing() {
        let mut job = Job::queued();
        assert!(job.record().apply(&Action::Up, 10).is_err());
        assert_eq!(job, Job::queued());
    }

    #[test]
    fn times_of_rows_and_snapshots_are_the_same() {
        let date = OffsetDateTime::from_unix_ms(1_800_000_000_123);
        assert_eq!(date.unix_timestamp_nanos() / 1_000_000, 1_800_000_000_123);
        assert_eq!(i64::from_unix_ms(1_800_000_000_123), 1_800_000_000_123);
    }
}
