//! Runs the core forward from the cluster's current state, event by event with a round after each,
//! until its jobs have ended.

use super::truth::Truth;
use crate::cancel::Cancel;
use crate::engine::{come_due, measure};
use muster_core::learn::Observation;
use muster_core::policy::Policy;
use muster_core::snapshot::{ClusterSnapshot, Finished, SnapshotJob, SnapshotTask};
use muster_core::{Action, ApplyError, apply, plan};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobState};
use muster_model::task::TaskState;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds from a suspend order until all workers are suspended.
const SUSPEND_MS: i64 = 100;

/// Number of idle rounds after which a run ends; the rounds must also span as many `round_ms`. In
/// an idle round nothing is decided and no event is due. The remaining jobs then do not fit or are
/// stopped by their users. Rounds to the horizon would be tens of thousands. Decisions that depend
/// on time alone, such as the limit on overtaking, have happened by then.
const IDLE_ROUNDS: u32 = 24;

/// Resolution of distant events: their distance divided by this number. Rounds without an event and
/// time slices become longer with the distance. A run thus has some thousand rounds at most.
const FINEST: i64 = 64;

/// Delays of the cluster and horizon of a run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterDelays {
    /// From a start until all tasks are up.
    pub launch_ms: i64,
    /// From a stop order until the tasks are gone.
    pub stop_ms: i64,
    /// Maximum interval between rounds without an event.
    pub round_ms: i64,
    /// Horizon from the time of the snapshot. A job that has not ended by then has no end.
    pub horizon_ms: i64,
}

impl ClusterDelays {
    /// Delays of a typical cluster. The calibration corrects them.
    pub const LIVE: Self = Self {
        launch_ms: 3_000,
        stop_ms: 2_000,
        round_ms: 300_000,
        horizon_ms: 90 * 86_400_000,
    };
}

/// Job that is submitted during the run.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastArrival {
    /// `submitted_ms` is the time of the submission.
    pub job: SnapshotJob,
    pub truth: Truth,
}

/// Result of a job in a run. Unix time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastJobResult {
    pub job: JobId,
    /// Time of the first placement; `None` if the job was placed before the run or never.
    pub start_ms: Option<i64>,
    pub finish_ms: Option<i64>,
    /// GPU-seconds held.
    pub gpu_s: f64,
    /// Number of stops after which the job starts again.
    pub stops: u32,
}

/// Simulation of one future.
#[derive(Debug)]
pub struct ForecastRun {
    snapshot: ClusterSnapshot,
    truths: BTreeMap<JobId, Truth>,
    live: BTreeMap<JobId, ForecastJobState>,
    /// The next one last.
    arrivals: Vec<ForecastArrival>,
    results: BTreeMap<JobId, ForecastJobResult>,
    pace: ClusterDelays,
    from_ms: i64,
    until_ms: i64,
    /// Length of a time slice at the current distance; `None` without time slicing.
    quantum_ms: Option<i64>,
    cancel: Cancel,
}

#[derive(Debug, Clone, Copy, Default)]
struct ForecastJobState {
    /// Time at which the tasks of the current revision are up, suspended or gone.
    due_ms: Option<i64>,
    /// Steps done before the run, and since. `steps` is negative after a loss of earlier steps.
    before: u64,
    steps: f64,
    /// The job was never placed.
    fresh: bool,
    /// Whether the job can be suspended on nodes whose tasks are not pods.
    suspends: bool,
}

impl ForecastJobState {
    /// Steps done in total. A thousandth of a step is tolerance for the rounding of the clock.
    fn step(&self) -> u64 {
        (self.before as f64 + self.steps + 1e-3).floor() as u64
    }

    /// Returns the job to its last checkpoint. `done` are the true steps before the run, which can
    /// differ from the reported steps.
    fn roll_back(&mut self, job: &mut SnapshotJob, done: f64) {
        let kept = job.resumable_step();
        if kept > 0 {
            let lost = job.progress.step.saturating_sub(kept);
            self.steps -= lost as f64;
        } else if job.command.is_some() {
            self.steps = -done;
        }
        job.progress.step = kept;
    }
}

impl ForecastRun {
    /// `truths` must contain every job of the snapshot.
    #[must_use]
    pub fn new(
        snapshot: ClusterSnapshot,
        truths: BTreeMap<JobId, Truth>,
        mut arrivals: Vec<ForecastArrival>,
        pace: ClusterDelays,
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
            results: BTreeMap::new(),
            pace,
            snapshot: ClusterSnapshot {
                jobs: Vec::new(),
                ..snapshot.clone()
            },
        };
        for mut job in snapshot.jobs {
            // Simulated tasks send no pace reports, so silence must not lead to a verdict.
            job.watch = None;
            ahead.admit(job);
        }
        ahead
    }

    /// Ends the run early once `cancel` is set. Its results are then not valid.
    #[must_use]
    pub fn cancelled_by(self, cancel: &Cancel) -> Self {
        let cancel = cancel.clone();
        Self { cancel, ..self }
    }

    /// Runs to the end of all jobs or to the horizon.
    ///
    /// # Errors
    /// [`ApplyError`] if a plan of the core does not apply to its own snapshot.
    pub fn run(&mut self, policy: &Policy) -> Result<(), ApplyError> {
        self.run_until(self.until_ms, policy)
    }

    /// Runs to `until_ms`; a later call continues from there.
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
            idle = if is_idle {
                (idle.0 + 1, idle.1)
            } else {
                (0, self.snapshot.now_ms)
            };
        }
        Ok(())
    }

    /// Whether the idle rounds since `since_ms` suffice to end the run.
    fn is_enough(&self, (rounds, since_ms): (u32, i64)) -> bool {
        let least_ms = i64::from(IDLE_ROUNDS).saturating_mul(self.pace.round_ms);
        rounds >= IDLE_ROUNDS && self.snapshot.now_ms - since_ms >= least_ms
    }

    /// Current state of the cluster.
    #[must_use]
    pub fn snapshot(&self) -> &ClusterSnapshot {
        &self.snapshot
    }

    /// Results of all jobs of the snapshot and of all arrivals, ordered by id.
    pub fn results(&self) -> impl Iterator<Item = ForecastJobResult> {
        self.results.values().copied()
    }

    /// Whether only endless jobs remain. Their time slices would continue for ever.
    fn is_done(&self) -> bool {
        self.snapshot
            .jobs
            .iter()
            .all(|job| self.is_endless(job) && !self.live[&job.id].fresh)
            && self.arrivals.is_empty()
    }

    fn is_endless(&self, job: &SnapshotJob) -> bool {
        job.limit_s.is_none() && self.truths[&job.id].is_endless()
    }

    fn admit(&mut self, job: SnapshotJob) {
        let now_ms = self.snapshot.now_ms;
        let stops = !job.leaving.is_empty();
        let due_ms = if stops || any_task_is(&job, &TaskState::Stopping) {
            Some(now_ms + self.pace.stop_ms)
        } else if any_task_is(&job, &TaskState::Suspending) {
            Some(now_ms + SUSPEND_MS)
        } else if any_task_is(&job, &TaskState::Assigned) {
            let up_ms = job.placed_ms.unwrap_or(now_ms) + self.pace.launch_ms;
            Some(up_ms.max(now_ms + 1))
        } else {
            None
        };
        let live = ForecastJobState {
            due_ms,
            before: job.progress.step,
            steps: 0.0,
            fresh: job.revision == 0,
            suspends: job.suspends,
        };
        self.live.insert(job.id, live);
        let result = ForecastJobResult {
            job: job.id,
            start_ms: None,
            finish_ms: None,
            gpu_s: 0.0,
            stops: 0,
        };
        self.results.insert(job.id, result);
        self.snapshot.jobs.push(job);
    }

    /// Time of the next event that is not a decision, before the horizon.
    fn next_ms(&self) -> Option<i64> {
        self.next_of(|_| true)
            .into_iter()
            .chain(self.turn_ms())
            .filter(|&at_ms| at_ms > self.snapshot.now_ms && at_ms < self.until_ms)
            .min()
    }

    /// Same without the events of endless jobs. The end of a time slice alone does not count.
    fn next_of_interest_ms(&self) -> Option<i64> {
        self.next_of(|job| !self.is_endless(job))
    }

    fn next_of(&self, counts: impl Fn(&SnapshotJob) -> bool) -> Option<i64> {
        let jobs = self.snapshot.jobs.iter().filter(|job| counts(job));
        jobs.clone()
            .filter_map(|job| self.live[&job.id].due_ms)
            .chain(jobs.clone().filter_map(|job| job.not_before_ms))
            .chain(jobs.filter_map(|job| self.ends_ms(job)))
            .chain(self.arrivals.last().map(|next| next.job.submitted_ms))
            .filter(|&at_ms| at_ms > self.snapshot.now_ms && at_ms < self.until_ms)
            .min()
    }

    /// End of the next time slice if a job waits for it.
    fn turn_ms(&self) -> Option<i64> {
        let quantum_ms = self.quantum_ms?;
        let jobs = &self.snapshot.jobs;
        if !jobs.iter().any(waits_for_slice) {
            return None;
        }
        jobs.iter()
            .filter(|job| job.state == JobState::Running && job.takes_turns())
            .map(|job| job.slice_began_ms().saturating_add(quantum_ms))
            .filter(|&over_ms| over_ms > self.snapshot.now_ms)
            .min()
    }

    /// Excludes jobs in pods from time slicing, as live. A job whose tasks are no longer pods is
    /// included again.
    fn know_who_stands_still(&mut self) {
        for job in &mut self.snapshot.jobs {
            job.suspends = self.live[&job.id].suspends;
        }
        self.snapshot.leave_pods_out_of_turns();
    }

    /// Policy settings with time slices as coarse as the distance allows.
    fn foreseen(&self, policy: &Policy) -> Policy {
        let mut foreseen = policy.clone();
        if let Some(slicing) = &mut foreseen.slicing {
            let ahead_ms = self.snapshot.now_ms.saturating_sub(self.from_ms);
            let coarse_ms = u64::try_from(ahead_ms / FINEST).unwrap_or(0);
            slicing.quantum_ms = slicing.quantum_ms.max(coarse_ms);
        }
        foreseen
    }

    /// Advances to the time of the next event and applies what happens there.
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
        // Refreshes the measurements; a pair with old values would be separated.
        let jobs = self.snapshot.jobs.iter_mut();
        jobs.for_each(|job| job.refresh_measurements(next_ms));
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

    /// True steps per second of a job that trains; `None` for other jobs.
    fn speed(&self, job: &SnapshotJob) -> Option<f64> {
        let trains = job.finished.is_none()
            && job.state == JobState::Running
            // A job that is resized in place trains while new tasks start.
            && (job.in_place || job.tasks.iter().all(SnapshotTask::is_up));
        trains.then(|| {
            let alone = self.truths[&job.id].steps_per_s(self.kind_of(job), job.up_size());
            alone * self.kept_beside(job)
        })
    }

    /// GPU kind of the job's workers; `None` for jobs that are equally fast on all kinds.
    fn kind_of(&self, job: &SnapshotJob) -> Option<&str> {
        if self.truths[&job.id].kinds.is_empty() {
            return None;
        }
        let mut workers = job.tasks.iter().filter(|task| task.is_worker());
        let worker = workers.find(|task| task.is_up())?;
        let mut nodes = self.snapshot.nodes.iter();
        let node = nodes.find(|node| node.id == worker.node)?;
        Some(&node.gpu_model)
    }

    /// Measured relative rate beside the job that shares the GPU; 1 without one.
    fn kept_beside(&self, job: &SnapshotJob) -> f64 {
        let (Some(known), [task]) = (&job.measured, job.tasks.as_slice()) else {
            return 1.0;
        };
        // Skips the search for jobs that never shared a GPU, which are the most.
        let mut jobs = self.snapshot.jobs.iter();
        let other = (!known.together.is_empty()).then(|| jobs.find(|other| is_beside(other, task)));
        let part = other
            .flatten()
            .and_then(|other| known.part_beside(other.id));
        part.map_or(1.0, |part| part.clamp(0.01, 1.0))
    }

    fn ends_ms(&self, job: &SnapshotJob) -> Option<i64> {
        let speed = self.speed(job)?;
        let left = self.truths[&job.id].steps_left - self.live[&job.id].steps;
        let limit_s = job.limit_s.unwrap_or(f64::INFINITY);
        let left_s = (left / speed).min(limit_s - job.trained_s);
        let left_ms = (left_s * 1000.0).ceil().max(1.0);
        Some(self.snapshot.now_ms.saturating_add(left_ms as i64))
    }

    fn train(&mut self, elapsed_ms: i64) {
        let elapsed_s = elapsed_ms as f64 / 1000.0;
        let speeds: Vec<Option<(f64, Option<String>)>> = self
            .snapshot
            .jobs
            .iter()
            .map(|job| Some((self.speed(job)?, self.kind_of(job).map(str::to_owned))))
            .collect();
        for (job, speed) in self.snapshot.jobs.iter_mut().zip(speeds) {
            if let Some(result) = self.results.get_mut(&job.id) {
                result.gpu_s += f64::from(job.held_gpus()) * elapsed_s;
            }
            job.serve(self.snapshot.now_ms, elapsed_s);
            let (Some((speed, kind)), Some(live)) = (speed, self.live.get_mut(&job.id)) else {
                continue;
            };
            let left = self.truths[&job.id].steps_left;
            job.trained_s += elapsed_s;
            if let Some(lasts) = &mut job.lasts {
                lasts.done_s += elapsed_s;
            }
            live.steps = (live.steps + speed * elapsed_s).min(left);
            job.progress.step = live.step();
            match kind {
                Some(kind) => measure_on(job, kind, speed),
                None => measure(job, speed),
            }
            if live.steps + 1e-3 >= left {
                job.finished = Some(Finished {
                    step: job.progress.step,
                    reason: "its work is done".to_owned(),
                });
            }
        }
    }

    /// Applies the task events that are due: tasks come up, exit or are suspended.
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

    /// Runs a round. Returns whether it decided anything except wait reasons for jobs that are not
    /// endless.
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
        let decided = !plan
            .decisions
            .iter()
            .all(|one| matches!(one.action, Action::Wait { .. }) || endless.contains(&one.job));
        apply(&mut self.snapshot, &plan)?;
        let quantum_ms = policy.slicing.map(|slicing| slicing.quantum_ms);
        self.quantum_ms = quantum_ms.and_then(|ms| i64::try_from(ms).ok());
        self.snapshot.round += 1;
        for decision in &plan.decisions {
            let live = self.live.entry(decision.job).or_default();
            match &decision.action {
                Action::Start { .. } => {
                    live.due_ms = Some(now_ms + self.pace.launch_ms);
                    if let (true, Some(result)) = (live.fresh, self.results.get_mut(&decision.job))
                    {
                        result.start_ms = Some(now_ms);
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
                    if let (AfterStop::Requeue { .. } | AfterStop::Move { .. }, Some(result)) =
                        (then, self.results.get_mut(&decision.job))
                    {
                        result.stops += 1;
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
            let Some(result) = self.results.get_mut(&job.id) else {
                continue;
            };
            if job.state.phase().is_terminal() {
                result.finish_ms = Some(now_ms);
            }
        }
        self.snapshot
            .jobs
            .retain(|job| !job.state.phase().is_terminal());
        Ok(decided)
    }
}

fn any_task_is(job: &SnapshotJob, state: &TaskState) -> bool {
    job.tasks.iter().any(|task| task.state == *state)
}

/// Whether the job waits for GPUs that time slicing can give it.
fn waits_for_slice(job: &SnapshotJob) -> bool {
    let is_kept = matches!(job.state, JobState::Queued | JobState::Suspended);
    is_kept && job.intent == Intent::Run && job.takes_turns()
}

/// Whether the job's only task holds the GPUs of `task` on the other lane.
fn is_beside(job: &SnapshotJob, task: &SnapshotTask) -> bool {
    match job.tasks.as_slice() {
        [its] => {
            its.state.holds_gpus()
                && (its.node, &its.gpus) == (task.node, &task.gpus)
                && its.lane != task.lane
        }
        _ => false,
    }
}

/// Records the speed of a job at its present size on a GPU kind. Without the kind, a job that moves
/// would count as equally fast on its new kind.
fn measure_on(job: &mut SnapshotJob, kind: String, steps_per_s: f64) {
    let (workers, ps_shards) = job.size();
    let mut tasks = job.tasks.iter().filter(|task| task.is_worker());
    let first = tasks.next().map(|task| task.node);
    let nodes = if tasks.all(|task| Some(task.node) == first) {
        1
    } else {
        2
    };
    let is_same = |one: &Observation| {
        let is_in_steps = one.batch.is_none();
        is_in_steps
            && one.gpu_kind == kind
            && one.size() == (workers, ps_shards)
            && one.nodes == nodes
    };
    match job.placed_speeds.iter_mut().find(|one| is_same(one)) {
        Some(known) => known.samples += 1.0,
        None => job.placed_speeds.push(Observation {
            gpu_kind: kind,
            workers,
            ps_shards,
            nodes,
            steps_per_s,
            samples: 1.0,
            batch: None,
        }),
    }
}
