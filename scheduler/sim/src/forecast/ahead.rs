//! The core at work on a cluster as it is, until its jobs have ended: from event to event, with a round after each.

use super::truth::Truth;
use crate::cancel::Cancel;
use crate::engine::{come_due, measure};
use muster_core::plan::Decision;
use muster_core::policy::Policy;
use muster_core::snapshot::{Finished, Job, Snapshot, Task};
use muster_core::{Action, ApplyError, apply, plan};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobState};
use muster_model::task::TaskState;
use std::collections::{BTreeMap, BTreeSet};

/// From an order to stand still until all workers do.
const SUSPEND_MS: i64 = 100;

/// After so many rounds, and as long as they take that nothing causes, in which nothing was decided and nothing was to happen, nothing more will: who still waits does not fit, or its
/// owner has stopped it. Rounds to the horizon would be tens of thousands. What depends on time alone, such as how long others may
/// overtake, has come by then.
const IDLE_ROUNDS: u32 = 24;

/// What happens so far ahead is foreseen in no finer pieces than this part of the time until then: rounds that nothing causes and slices of
/// turns both grow with it. So a run is some thousand rounds at most, however long jobs take turns, and a forecast that is off by a
/// sixty-fourth of its distance is as good as any.
const FINEST: i64 = 64;

/// How fast the cluster obeys, and how far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From a start to all tasks up.
    pub launch_ms: i64,
    /// From an order to stop until the tasks are gone.
    pub stop_ms: i64,
    /// Between rounds that nothing else causes.
    pub round_ms: i64,
    /// From the snapshot's instant on; what has not ended by then has no end.
    pub horizon_ms: i64,
}

impl Pace {
    /// What a cluster takes to start and to stop tasks; what it really takes, the calibration learns.
    pub const LIVE: Self = Self {
        launch_ms: 3_000,
        stop_ms: 2_000,
        round_ms: 300_000,
        horizon_ms: 90 * 86_400_000,
    };
}

/// A job that is submitted while the run goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Its `submitted_ms` says when.
    pub job: Job,
    pub truth: Truth,
}

/// What became of a job. Unix time, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    pub job: JobId,
    /// When its first tasks were placed; `None` when they had been before, or never were.
    pub start_ms: Option<i64>,
    pub finish_ms: Option<i64>,
    /// GPU-seconds held.
    pub gpu_s: f64,
    /// Times that it was stopped to go on later.
    pub stops: u32,
}

/// A run.
#[derive(Debug)]
pub struct Ahead {
    snapshot: Snapshot,
    truths: BTreeMap<JobId, Truth>,
    live: BTreeMap<JobId, Live>,
    /// The next one last.
    arrivals: Vec<Arrival>,
    fates: BTreeMap<JobId, Fate>,
    pace: Pace,
    from_ms: i64,
    until_ms: i64,
    /// How long a turn lasts at this distance, if jobs take turns.
    quantum_ms: Option<i64>,
    cancel: Cancel,
}

#[derive(Debug, Clone, Copy, Default)]
struct Live {
    /// When the tasks of the present revision will be up, or gone.
    due_ms: Option<i64>,
    /// Steps done before the run, and since; fewer than none where it lost some of those before.
    before: u64,
    steps: f64,
    /// It was never placed.
    fresh: bool,
    /// Whether it can stand still where its tasks are no pods.
    suspends: bool,
}

impl Live {
    /// All that it has done. A thousandth of a step is rounding of the clock.
    fn step(&self) -> u64 {
        (self.before as f64 + self.steps + 1e-3).floor() as u64
    }

    /// It is told to stop, and begins with what is kept; `done` are the steps before the run, which need not be those that it told.
    fn roll_back(&mut self, job: &mut Job, done: f64) {
        let kept = job.kept_step();
        if kept > 0 {
            let lost = job.progress.step.saturating_sub(kept);
            self.steps -= lost as f64;
        } else if job.command.is_some() {
            self.steps = -done;
        }
        job.progress.step = kept;
    }
}

impl Ahead {
    /// Of every job of the snapshot there must be a truth.
    #[must_use]
    pub fn new(
        snapshot: Snapshot,
        truths: BTreeMap<JobId, Truth>,
        mut arrivals: Vec<Arrival>,
        pace: Pace,
    ) -> Self {
        arrivals.sort_by_key(|arrival| std::cmp::Reverse(arrival.job.submitted_ms));
        let mut ahead = Self {
            from_ms: snapshot.now_ms,
            until_ms: snapshot.now_ms.saturating_add(pace.horizon_ms),
            quantum_ms: None,
            cancel: Cancel::default(),
            truths,
            live: BTreeMap::new(),
            arrivals,
            fates: BTreeMap::new(),
            pace,
            snapshot: Snapshot {
                jobs: Vec::new(),
                ..snapshot.clone()
            },
        };
        for mut job in snapshot.jobs {
            // Nobody reports in what is foreseen, and silence means nothing there.
            job.watch = None;
            ahead.admit(job);
        }
        ahead
    }

    /// Ends early once `cancel` says so; what it gives then is worthless.
    #[must_use]
    pub fn cancelled_by(self, cancel: &Cancel) -> Self {
        let cancel = cancel.clone();
        Self { cancel, ..self }
    }

    /// To the end of all jobs, or of the horizon.
    ///
    /// # Errors
    /// [`ApplyError`] when the core made a plan that its own snapshot does not bear.
    pub fn run(&mut self, policy: &Policy) -> Result<(), ApplyError> {
        self.run_until(self.until_ms, policy)
    }

    /// As far as this instant; a later call goes on from there.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(&mut self, until_ms: i64, policy: &Policy) -> Result<(), ApplyError> {
        let until_ms = until_ms.min(self.until_ms);
        self.round(policy)?;
        let mut idle = (0, self.snapshot.now_ms);
        while self.snapshot.now_ms < until_ms && !self.is_done() && !self.is_enough(idle) {
            if self.cancel.is_cancelled() {
                break;
            }
            self.advance(until_ms);
            let decided = self.round(policy)?;
            let is_idle = !decided && self.next_of_interest_ms().is_none();
            idle = match is_idle {
                true => (idle.0 + 1, idle.1),
                false => (0, self.snapshot.now_ms),
            };
        }
        Ok(())
    }

    /// After so many idle rounds since then.
    fn is_enough(&self, (rounds, since_ms): (u32, i64)) -> bool {
        let least_ms = i64::from(IDLE_ROUNDS).saturating_mul(self.pace.round_ms);
        rounds >= IDLE_ROUNDS && self.snapshot.now_ms - since_ms >= least_ms
    }

    /// The cluster as it is now.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Of every job that was there or came, by id.
    pub fn fates(&self) -> impl Iterator<Item = Fate> {
        self.fates.values().copied()
    }

    /// Whether only those are left that go on whatever happens: their turns could be foreseen for ever.
    fn is_done(&self) -> bool {
        let goes_on = |job: &Job| self.is_endless(job) && !self.live[&job.id].fresh;
        self.snapshot.jobs.iter().all(goes_on) && self.arrivals.is_empty()
    }

    fn is_endless(&self, job: &Job) -> bool {
        job.limit_s.is_none() && self.truths[&job.id].is_endless()
    }

    fn admit(&mut self, job: Job) {
        let now_ms = self.snapshot.now_ms;
        let states = || job.tasks.iter().map(|task| &task.state);
        let stops = !job.leaving.is_empty();
        let due_ms = if stops || states().any(|state| *state == TaskState::Stopping) {
            Some(now_ms + self.pace.stop_ms)
        } else if states().any(|state| *state == TaskState::Suspending) {
            Some(now_ms + SUSPEND_MS)
        } else if states().any(|state| *state == TaskState::Assigned) {
            let up_ms = job.placed_ms.unwrap_or(now_ms) + self.pace.launch_ms;
            Some(up_ms.max(now_ms + 1))
        } else {
            None
        };
        let live = Live {
            due_ms,
            before: job.progress.step,
            steps: 0.0,
            fresh: job.revision == 0,
            suspends: job.suspends,
        };
        self.live.insert(job.id, live);
        let fate = Fate {
            job: job.id,
            start_ms: None,
            finish_ms: None,
            gpu_s: 0.0,
            stops: 0,
        };
        self.fates.insert(job.id, fate);
        self.snapshot.jobs.push(job);
    }

    /// When something happens next that is not decided, before the horizon.
    fn next_ms(&self) -> Option<i64> {
        self.next_of(|_| true)
            .into_iter()
            .chain(self.turn_ms())
            .filter(|&at_ms| at_ms > self.snapshot.now_ms && at_ms < self.until_ms)
            .min()
    }

    /// The same of those who do not go on whatever happens. That somebody's slice is over is nothing by itself.
    fn next_of_interest_ms(&self) -> Option<i64> {
        self.next_of(|job| !self.is_endless(job))
    }

    fn next_of(&self, counts: impl Fn(&Job) -> bool) -> Option<i64> {
        let jobs = || self.snapshot.jobs.iter().filter(|job| counts(job));
        jobs()
            .filter_map(|job| self.live[&job.id].due_ms)
            .chain(jobs().filter_map(|job| job.not_before_ms))
            .chain(jobs().filter_map(|job| self.ends_ms(job)))
            .chain(self.arrivals.last().map(|next| next.job.submitted_ms))
            .filter(|&at_ms| at_ms > self.snapshot.now_ms && at_ms < self.until_ms)
            .min()
    }

    /// When the first slice from now on is over for which somebody waits.
    fn turn_ms(&self) -> Option<i64> {
        let quantum_ms = self.quantum_ms?;
        let jobs = || self.snapshot.jobs.iter();
        let waits = |job: &Job| {
            let is_kept = matches!(job.state, JobState::Queued | JobState::Suspended);
            is_kept && job.intent == Intent::Run && job.suspends && !job.exclusive
        };
        if !jobs().any(waits) {
            return None;
        }
        jobs()
            .filter(|job| job.state == JobState::Running && job.suspends && !job.exclusive)
            .map(|job| job.turn_began_ms().saturating_add(quantum_ms))
            .filter(|&over_ms| over_ms > self.snapshot.now_ms)
            .min()
    }

    /// As live: whose tasks are pods by now takes no turns, and takes them again where they are none.
    fn know_who_stands_still(&mut self) {
        for job in &mut self.snapshot.jobs {
            job.suspends = self.live[&job.id].suspends;
        }
        self.snapshot.leave_pods_out_of_turns();
    }

    /// The policy as far as it matters at this distance.
    fn foreseen(&self, policy: &Policy) -> Policy {
        let mut foreseen = policy.clone();
        if let Some(slicing) = &mut foreseen.slicing {
            let ahead_ms = self.snapshot.now_ms.saturating_sub(self.from_ms);
            let coarse_ms = u64::try_from(ahead_ms / FINEST).unwrap_or(0);
            slicing.quantum_ms = slicing.quantum_ms.max(coarse_ms);
        }
        foreseen
    }

    /// Moves to the next instant at which something happens, and lets it happen.
    fn advance(&mut self, until_ms: i64) {
        let now_ms = self.snapshot.now_ms;
        let round_ms = self.pace.round_ms.max((now_ms - self.from_ms) / FINEST);
        let next_ms = self
            .next_ms()
            .unwrap_or(i64::MAX)
            .min(now_ms.saturating_add(round_ms))
            .min(until_ms);
        self.train(next_ms - now_ms);
        self.snapshot.now_ms = next_ms;
        // Or a pair would be parted for want of news, half a minute from now.
        let jobs = self.snapshot.jobs.iter_mut();
        jobs.for_each(|job| job.goes_on_as_told(next_ms));
        self.tasks_follow();
        let mut came = false;
        while let Some(next) = self
            .arrivals
            .pop_if(|next| next.job.submitted_ms <= next_ms)
        {
            self.truths.insert(next.job.id, next.truth);
            self.admit(next.job);
            came = true;
        }
        if came {
            self.snapshot.sort();
        }
    }

    /// True steps per second of a job that trains; `None` for one that does not.
    fn speed(&self, job: &Job) -> Option<f64> {
        let trains = job.finished.is_none()
            && job.state == JobState::Running
            // Who has still to come does not hold up the others of a job that is resized in place.
            && (job.in_place || job.tasks.iter().all(Task::is_up));
        let (workers, ps_shards) = job.up_size();
        trains.then(|| {
            let alone = self.truths[&job.id].curve.steps_per_s(workers, ps_shards);
            alone * self.kept_beside(job)
        })
    }

    /// What it was measured to keep of its speed beside the job with which it shares its GPU.
    fn kept_beside(&self, job: &Job) -> f64 {
        let (Some(known), [task]) = (&job.measured, job.tasks.as_slice()) else {
            return 1.0;
        };
        let shares = |other: &&Job| match other.tasks.as_slice() {
            [its] => {
                its.state.holds_gpus()
                    && (its.node, &its.gpus) == (task.node, &task.gpus)
                    && its.lane != task.lane
            }
            _ => false,
        };
        // Who never met anybody shares with nobody, and most are such.
        let mut jobs = self.snapshot.jobs.iter();
        let other = (!known.together.is_empty()).then(|| jobs.find(shares));
        let part = other
            .flatten()
            .and_then(|other| known.part_beside(other.id));
        part.map_or(1.0, |part| part.clamp(0.01, 1.0))
    }

    fn ends_ms(&self, job: &Job) -> Option<i64> {
        let speed = self.speed(job)?;
        let left = self.truths[&job.id].steps_left - self.live[&job.id].steps;
        let limit_s = job.limit_s.unwrap_or(f64::INFINITY);
        let left_s = (left / speed).min(limit_s - job.trained_s);
        let left_ms = (left_s * 1000.0).ceil().max(1.0);
        Some(self.snapshot.now_ms.saturating_add(left_ms as i64))
    }

    fn train(&mut self, elapsed_ms: i64) {
        let elapsed_s = elapsed_ms as f64 / 1000.0;
        let speeds: Vec<Option<f64>> = self
            .snapshot
            .jobs
            .iter()
            .map(|job| self.speed(job))
            .collect();
        for (job, speed) in self.snapshot.jobs.iter_mut().zip(speeds) {
            if let Some(fate) = self.fates.get_mut(&job.id) {
                fate.gpu_s += f64::from(job.held_gpus()) * elapsed_s;
            }
            let (Some(speed), Some(live)) = (speed, self.live.get_mut(&job.id)) else {
                continue;
            };
            let left = self.truths[&job.id].steps_left;
            job.trained_s += elapsed_s;
            if let Some(lasts) = &mut job.lasts {
                lasts.done_s += elapsed_s;
            }
            live.steps = (live.steps + speed * elapsed_s).min(left);
            job.progress.step = live.step();
            measure(job, speed);
            if live.steps + 1e-3 >= left {
                job.finished = Some(Finished {
                    step: job.progress.step,
                    reason: "its work is done".to_owned(),
                });
            }
        }
    }

    /// Tasks come up and go away when their time has come.
    fn tasks_follow(&mut self) {
        let now_ms = self.snapshot.now_ms;
        for job in &mut self.snapshot.jobs {
            let live = self.live.entry(job.id).or_default();
            if live.due_ms.is_none_or(|due_ms| due_ms > now_ms) {
                continue;
            }
            live.due_ms = None;
            come_due(job);
            job.leaving.clear();
        }
    }

    /// Whether anything was decided but who waits for what, of those who do not go on whatever happens.
    fn round(&mut self, policy: &Policy) -> Result<bool, ApplyError> {
        let now_ms = self.snapshot.now_ms;
        let policy = self.foreseen(policy);
        self.know_who_stands_still();
        let (plan, _) = plan(&self.snapshot, &policy);
        let endless: BTreeSet<JobId> = self
            .snapshot
            .jobs
            .iter()
            .filter(|job| self.is_endless(job))
            .map(|job| job.id)
            .collect();
        let waits = |one: &Decision| {
            matches!(one.action, Action::Wait { .. }) || endless.contains(&one.job)
        };
        let decided = !plan.decisions.iter().all(waits);
        apply(&mut self.snapshot, &plan)?;
        let quantum_ms = policy.slicing.map(|slicing| slicing.quantum_ms);
        self.quantum_ms = quantum_ms.and_then(|ms| i64::try_from(ms).ok());
        self.snapshot.round += 1;
        for decision in &plan.decisions {
            let live = self.live.entry(decision.job).or_default();
            match &decision.action {
                Action::Start { .. } => {
                    live.due_ms = Some(now_ms + self.pace.launch_ms);
                    if let (true, Some(fate)) = (live.fresh, self.fates.get_mut(&decision.job)) {
                        fate.start_ms = Some(now_ms);
                    }
                    live.fresh = false;
                }
                Action::Resize { join, .. } => {
                    let pace = &self.pace;
                    let due_ms = if join.is_empty() {
                        pace.stop_ms
                    } else {
                        pace.launch_ms
                    };
                    live.due_ms = Some(now_ms + due_ms);
                }
                Action::Suspend { .. } => live.due_ms = Some(now_ms + SUSPEND_MS),
                Action::Stop { then, .. } => {
                    live.due_ms = Some(now_ms + self.pace.stop_ms);
                    if let (AfterStop::Requeue { .. } | AfterStop::Move { .. }, Some(fate)) =
                        (then, self.fates.get_mut(&decision.job))
                    {
                        fate.stops += 1;
                        let mut jobs = self.snapshot.jobs.iter_mut();
                        if let Some(job) = jobs.find(|job| job.id == decision.job) {
                            live.roll_back(job, self.truths[&decision.job].done);
                        }
                    }
                }
                _ => {}
            }
        }
        for job in &self.snapshot.jobs {
            let Some(fate) = self.fates.get_mut(&job.id) else {
                continue;
            };
            if job.state.phase().is_terminal() {
                fate.finish_ms = Some(now_ms);
            }
        }
        self.snapshot
            .jobs
            .retain(|job| !job.state.phase().is_terminal());
        Ok(decided)
    }
}
