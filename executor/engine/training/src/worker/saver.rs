//! Times of the coordinator's checkpoints, and retries of failed writes. A separate thread writes,
//! so neither a slow nor a failing store stops training.

use super::Reporter;
use super::error::WorkerError;
use crate::checkpoint::{
    CheckpointError, CheckpointStore, CheckpointWriter, Contents, ContentsSource, Manifest,
    ProtectedSteps, WriteAttempt, WriteKind, WriteOutcome,
};
use crate::stop::StopFlag;
use muster_comm::log;
use muster_compute::clock;
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::Candidate;
use muster_model::error_chain::chain;
use muster_model::progress::Evaluation;
use muster_model::spec::CheckpointPolicy;
use std::thread;
use std::time::{Duration, Instant};

/// Back-off after the first failed write; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Duration after which a write in progress is reported once as slow.
const SLOW: Duration = Duration::from_secs(30);

/// Time for which the coordinator of a job that has lost a peer tries to save its state. It is
/// limited because other jobs could use the GPUs.
const LAST_STAND: Duration = Duration::from_secs(60);

/// Poll interval of waits for a write, for the deadline.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time until which a failed write is retried.
struct WriteDeadline<'a> {
    stop: &'a StopFlag,
    /// Limit without a stop request.
    until: Option<Instant>,
}

impl WriteDeadline<'_> {
    fn has_passed(&self) -> bool {
        self.stop.is_over() || self.until.is_some_and(|until| clock::now() >= until)
    }
}

/// The coordinator's checkpoints.
pub(super) struct Saver<'a> {
    reporter: &'a dyn Reporter,
    policy: CheckpointPolicy,
    writer: CheckpointWriter,
    /// Step of the newest stored checkpoint.
    saved: Option<u64>,
    /// Step of the checkpoint that is being written, and its start.
    begun: Option<(u64, Instant)>,
    /// Time of the newest copy of the state.
    copied_at: Instant,
    /// A checkpoint is due that could not begin yet.
    owed: bool,
    failures: u32,
    retry_at: Option<Instant>,
    told_slow: bool,
}

impl<'a> Saver<'a> {
    /// Starts the writer. `saved` is the step at which training starts, if it has a checkpoint.
    ///
    /// # Errors
    /// When the writer cannot be started.
    pub fn start(
        store: CheckpointStore,
        policy: CheckpointPolicy,
        spared: ProtectedSteps,
        (parameters, planes): (usize, usize),
        saved: Option<u64>,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, WorkerError> {
        Ok(Self {
            writer: CheckpointWriter::start(store, policy.clone(), spared, parameters, planes)?,
            reporter,
            policy,
            saved,
            begun: None,
            copied_at: clock::now(),
            owed: false,
            failures: 0,
            retry_at: None,
            told_slow: false,
        })
    }

    /// Returns the step of the newest stored checkpoint.
    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Whether to copy the state now, after `step` steps; `before` is the step of the previous
    /// call, and `evaluation` is of this step. A checkpoint that is due while the writer is busy or
    /// the store fails is due again at the first step afterwards.
    ///
    /// # Errors
    /// When a report cannot be stored.
    pub fn due(
        &mut self,
        (before, step): (u64, u64),
        evaluation: Option<&Evaluation>,
    ) -> Result<bool, WorkerError> {
        let by_time = self
            .policy
            .every_minutes
            .is_some_and(|every| self.copied_at.elapsed().as_secs_f64() >= every * 60.0);
        let wanted =
            self.policy.due_by_steps(before, step) || by_time || self.is_best(step, evaluation);
        let held = self.saved == Some(step) || self.begun.is_some_and(|(begun, _)| begun == step);
        self.owed |= wanted && !held;
        if self.owed && self.writer.is_busy() {
            self.tell_slow()?;
        }
        Ok(self.owed && self.may_begin())
    }

    /// Whether a checkpoint is due by the number of steps at `step`, the next step, and may begin
    /// now.
    pub fn will_be_due(&self, step: u64) -> bool {
        self.policy.due_by_steps(step.saturating_sub(1), step) && self.may_begin()
    }

    /// Whether no write is in progress and no back-off after a failure is running.
    pub fn may_begin(&self) -> bool {
        !self.writer.is_busy() && self.retry_at.is_none_or(|at| clock::now() >= at)
    }

    /// Whether the best checkpoints by evaluation are kept.
    pub fn keeps_best(&self) -> bool {
        self.policy.keep_best.is_some()
    }

    fn is_best(&self, step: u64, evaluation: Option<&Evaluation>) -> bool {
        evaluation.is_some_and(|evaluation| {
            let new = Candidate {
                step,
                loss: evaluation.loss,
                accuracy: evaluation.accuracy,
            };
            let present = self.writer.present().iter().copied();
            self.policy.would_be_best(new, present)
        })
    }

    /// Returns memory for a copy of the state.
    pub fn spare(&mut self) -> Contents {
        self.writer.spare()
    }

    /// Takes back the memory of a copy that is not written.
    pub fn take_back(&mut self, contents: Contents) {
        self.writer.take_back(contents);
    }

    /// Starts to write a copy, whose contents a source may still have to deliver. Training
    /// continues.
    pub fn begin(
        &mut self,
        manifest: Manifest,
        contents: Contents,
        source: Option<Box<dyn ContentsSource>>,
    ) {
        let now = clock::now();
        (self.copied_at, self.owed, self.told_slow) = (now, false, false);
        self.begun = Some((manifest.step, now));
        self.writer
            .begin_from(WriteKind::Checkpoint, manifest, contents, source);
    }

    /// Processes the result of a write that has ended.
    ///
    /// # Errors
    /// When training must not continue: a newer revision has started, or the parameters are not
    /// finite.
    pub fn settle(&mut self) -> Result<(), WorkerError> {
        match self.writer.poll() {
            Some(attempt) => self.account(attempt).map(drop),
            None => Ok(()),
        }
    }

    /// Writes and waits, and retries failures of the store until the deadline. After a stop request
    /// the deadline is shortly before the end of the grace period; otherwise it is `limit`, if set.
    /// Returns the path of a final model.
    ///
    /// # Errors
    /// The last failure at the deadline; at once an error that a retry cannot repair.
    pub fn write_through(
        &mut self,
        kind: WriteKind,
        manifest: &Manifest,
        contents: Contents,
        stop: &StopFlag,
        limit: Option<Duration>,
    ) -> Result<Option<String>, WorkerError> {
        let deadline = WriteDeadline {
            stop,
            until: limit.map(|limit| clock::now() + limit),
        };
        // An orderly stop waits for a write in progress: it may be all that is saved.
        self.outcome(&deadline, manifest.step)?;
        let mut contents = Some(contents);
        loop {
            let again = contents.take().unwrap_or_else(|| self.writer.spare());
            self.begun = Some((manifest.step, clock::now()));
            self.writer.begin(kind, manifest.clone(), again);
            let attempt = self.outcome(&deadline, manifest.step)?;
            match attempt.expect("one was begun") {
                Ok(path) => return Ok(path),
                Err(failure) if deadline.has_passed() => return Err(failure.into()),
                Err(_) => self.pause(&deadline),
            }
        }
    }

    /// Returns the time limit of a job that has lost a peer.
    pub fn last_stand() -> Option<Duration> {
        Some(LAST_STAND)
    }

    /// Waits for the result of a write in progress, if there is one.
    fn outcome(
        &mut self,
        deadline: &WriteDeadline<'_>,
        step: u64,
    ) -> Result<Option<Result<Option<String>, CheckpointError>>, WorkerError> {
        while self.writer.is_busy() {
            if let Some(attempt) = self.writer.wait(LOOK_EVERY) {
                return self.account(attempt).map(Some);
            }
            if deadline.has_passed() {
                return Err(CheckpointError::Late { step }.into());
            }
        }
        Ok(None)
    }

    fn pause(&self, deadline: &WriteDeadline<'_>) {
        while self.retry_at.is_some_and(|at| clock::now() < at) && !deadline.has_passed() {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn account(
        &mut self,
        attempt: WriteAttempt,
    ) -> Result<Result<Option<String>, CheckpointError>, WorkerError> {
        self.begun = None;
        let WriteAttempt {
            step,
            took,
            outcome,
        } = attempt;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.is_passing() => {
                self.failed(step, &error)?;
                return Ok(Err(error));
            }
            Err(error) => return Err(error.into()),
        };
        self.recovered()?;
        match outcome {
            WriteOutcome::Final { model_path } => Ok(Ok(Some(model_path))),
            WriteOutcome::Checkpoint { written, pruned } => {
                log::line(format_args!(
                    "checkpoint of step {step}: {} bytes in {} ms",
                    written.bytes,
                    took.as_millis()
                ));
                self.saved = Some(step);
                self.report(&TaskReport::CheckpointWritten {
                    checkpoint: *written,
                })?;
                self.pruned(pruned)?;
                Ok(Ok(None))
            }
        }
    }

    fn pruned(&self, pruned: Result<Vec<u64>, CheckpointError>) -> Result<(), WorkerError> {
        match pruned {
            Ok(steps) => steps
                .into_iter()
                .try_for_each(|step| self.report(&TaskReport::CheckpointPruned { step })),
            Err(error) if error.is_passing() => {
                let error = chain(&error);
                log::line(format_args!("old checkpoints were not removed: {error}"));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&mut self, step: u64, error: &CheckpointError) -> Result<(), WorkerError> {
        let wait = LAST_RETRY.min(FIRST_RETRY * 2u32.saturating_pow(self.failures.min(16)));
        self.failures += 1;
        self.retry_at = Some(clock::now() + wait);
        self.owed = true;
        let message = format!(
            "the checkpoint of step {step} was not written, another attempt follows in {} s: {}",
            wait.as_secs(),
            chain(error)
        );
        // The log has every attempt. The job's events have attempts 1, 2, 4, 8 and so on, which
        // show that the failure persists.
        if self.failures.is_power_of_two() {
            return self.note(message);
        }
        log::line(message);
        Ok(())
    }

    fn recovered(&mut self) -> Result<(), WorkerError> {
        self.retry_at = None;
        match std::mem::take(&mut self.failures) {
            0 => Ok(()),
            count => self.note(format!(
                "checkpoints are written again, after {count} attempts that failed"
            )),
        }
    }

    fn tell_slow(&mut self) -> Result<(), WorkerError> {
        match self.begun {
            Some((step, since)) if !self.told_slow && since.elapsed() >= SLOW => {
                self.told_slow = true;
                self.note(format!(
                    "the checkpoint of step {step} has been written for {} s already, and the next one waits for it",
                    since.elapsed().as_secs()
                ))
            }
            _ => Ok(()),
        }
    }

    fn note(&self, message: String) -> Result<(), WorkerError> {
        log::line(&message);
        self.report(&TaskReport::Note { message })
    }

    fn report(&self, report: &TaskReport) -> Result<(), WorkerError> {
        Ok(self.reporter.report(report)?)
    }
}
