//! When the chief's checkpoints are due, and what becomes of those that fail: the writer is a thread of its own, so that neither a
//! slow nor a failing store stops training.

use super::Reporter;
use super::error::WorkerError;
use crate::checkpoint::{
    Attempt, CheckpointError, Contents, Depot, Kind, Manifest, Outcome, Source, Spared, Writer,
};
use crate::clock;
use crate::log;
use crate::stop::StopFlag;
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::Candidate;
use muster_model::progress::Evaluation;
use muster_model::spec::CheckpointPolicy;
use std::thread;
use std::time::{Duration, Instant};

/// After one failed attempt; twice as long after each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// A write that takes longer is told of once.
const SLOW: Duration = Duration::from_secs(30);

/// How long the chief of a job that has lost a peer tries to save its work; somebody else could use its GPUs.
const LAST_STAND: Duration = Duration::from_secs(60);

/// How often those who wait for a write look whether they still may.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The chief's checkpoints.
pub(super) struct Saver<'a> {
    reporter: &'a dyn Reporter,
    policy: CheckpointPolicy,
    writer: Writer,
    /// Step of the newest checkpoint that is safe.
    saved: Option<u64>,
    /// Step of the one that is being written, and since when.
    begun: Option<(u64, Instant)>,
    /// When the newest state that was begun was copied.
    copied_at: Instant,
    /// One is due that could not be begun yet.
    owed: bool,
    failures: u32,
    retry_at: Option<Instant>,
    told_slow: bool,
}

impl<'a> Saver<'a> {
    /// `saved` is the step that training starts from, if there is a checkpoint of it.
    ///
    /// # Errors
    /// When the writer cannot be started.
    pub fn start(
        depot: Depot,
        policy: CheckpointPolicy,
        spared: Spared,
        (parameters, planes): (usize, usize),
        saved: Option<u64>,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, WorkerError> {
        Ok(Self {
            writer: Writer::start(depot, policy.clone(), spared, parameters, planes)?,
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

    /// Step of the newest checkpoint that is safe.
    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Whether to copy the state now, between two steps, at `step` and the first time since `before`. `evaluation` is of this step. One
    /// that is due while the writer is busy or the store fails is due at the first step after.
    ///
    /// # Errors
    /// When a report cannot be kept.
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

    /// Whether one may be begun at `step`, the next one, and the number of steps says so.
    pub fn will_be_due(&self, step: u64) -> bool {
        self.policy.due_by_steps(step.saturating_sub(1), step) && self.may_begin()
    }

    /// Whether nothing is being written, and the store did not fail just now.
    pub fn may_begin(&self) -> bool {
        !self.writer.is_busy() && self.retry_at.is_none_or(|at| clock::now() >= at)
    }

    /// Whether the best by an evaluation stay.
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

    /// Memory for a copy of the state.
    pub fn spare(&mut self) -> Contents {
        self.writer.spare()
    }

    /// Memory of a copy that is not to be written.
    pub fn take_back(&mut self, contents: Contents) {
        self.writer.take_back(contents);
    }

    /// Begins to write a copy, which a source may have yet to bring; training goes on.
    pub fn begin(
        &mut self,
        manifest: Manifest,
        contents: Contents,
        source: Option<Box<dyn Source>>,
    ) {
        let now = clock::now();
        (self.copied_at, self.owed, self.told_slow) = (now, false, false);
        self.begun = Some((manifest.step, now));
        self.writer
            .begin_from(Kind::Checkpoint, manifest, contents, source);
    }

    /// Tells what came of a write that has ended by now.
    ///
    /// # Errors
    /// What training must not go on after: a newer revision has started, or the parameters are no numbers any more.
    pub fn settle(&mut self) -> Result<(), WorkerError> {
        match self.writer.poll() {
            Some(attempt) => self.account(attempt).map(drop),
            None => Ok(()),
        }
    }

    /// Writes and waits, again and again if the store fails, until it is done or there is no time left: until nearly the end of the
    /// grace when told to stop, else at most `limit` if there is one. The model's path, of a model.
    ///
    /// # Errors
    /// The last failure, when time is over; what cannot be better next time at once.
    pub fn write_through(
        &mut self,
        kind: Kind,
        manifest: &Manifest,
        contents: Contents,
        stop: &StopFlag,
        limit: Option<Duration>,
    ) -> Result<Option<String>, WorkerError> {
        let until = limit.map(|limit| clock::now() + limit);
        let over = || stop.is_over() || until.is_some_and(|until| clock::now() >= until);
        // An orderly stop waits for what is being written: it may be all that is saved.
        self.outcome(&over, manifest.step)?;
        let mut contents = Some(contents);
        loop {
            let again = contents.take().unwrap_or_else(|| self.writer.spare());
            self.begun = Some((manifest.step, clock::now()));
            self.writer.begin(kind, manifest.clone(), again);
            let attempt = self.outcome(&over, manifest.step)?;
            match attempt.expect("one was begun") {
                Ok(path) => return Ok(path),
                Err(failure) if over() => return Err(failure.into()),
                Err(_) => self.pause(&over),
            }
        }
    }

    /// Of a job that has lost a peer.
    pub fn last_stand() -> Option<Duration> {
        Some(LAST_STAND)
    }

    /// Waits for the end of what is being written, if anything is.
    fn outcome(
        &mut self,
        over: &dyn Fn() -> bool,
        step: u64,
    ) -> Result<Option<Result<Option<String>, CheckpointError>>, WorkerError> {
        while self.writer.is_busy() {
            if let Some(attempt) = self.writer.wait(LOOK_EVERY) {
                return self.account(attempt).map(Some);
            }
            if over() {
                return Err(CheckpointError::Late { step }.into());
            }
        }
        Ok(None)
    }

    fn pause(&self, over: &dyn Fn() -> bool) {
        while self.retry_at.is_some_and(|at| clock::now() < at) && !over() {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn account(
        &mut self,
        attempt: Attempt,
    ) -> Result<Result<Option<String>, CheckpointError>, WorkerError> {
        self.begun = None;
        let Attempt {
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
            Outcome::Final { model_path } => Ok(Ok(Some(model_path))),
            Outcome::Checkpoint { written, pruned } => {
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
                let error = log::chain(&error);
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
            log::chain(error)
        );
        // The log has every attempt; the job's events have those by which somebody could see that it lasts.
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
