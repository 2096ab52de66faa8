//! Virtual clock: advances from one event to the next and runs a round after each.

mod begin;
mod freed;
mod happen;
mod ids;
mod learned;
mod node_speeds;
mod record;
mod service;
mod sharing;

use crate::outcome::{JobOutcome, SimulationOutcome, TimelineEntry};
use crate::scenario::{ChosenBatch, GpuUse, Incident, Scenario, SimJob, TaskPlacement, TrueSpeed};
use crate::simulation_record::{Holds, SimulationRecord};
pub(crate) use ids::node_number;
use ids::{job_id, job_number};
use learned::LearnedFamilies;
use muster_core::learn::Observation;
use muster_core::policy::Policy;
use muster_core::snapshot::{
    ClusterSnapshot, Finished, Restarts, SnapshotJob, SnapshotTask, SpeedPoint,
};
use muster_core::{ApplyError, Violation, apply, check_with, plan};
use muster_model::id::NodeId;
use muster_model::job::JobState;
use muster_model::task::{Outcome as TaskOutcome, TaskEvent, TaskState};
use node_speeds::NodeSpeeds;
use service::ServiceHistory;
use sharing::Companies;
use std::collections::{BTreeMap, BTreeSet};

/// Rounding error of a sum of steps, in milliseconds. Without it a job could end a millisecond
/// late.
const ROUNDING_MS: f64 = 1e-4;

/// The planner broke a rule. The results of the simulation are not valid.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error("check the plan of round {round}: {violations:?}")]
    Check {
        round: u64,
        violations: Vec<Violation>,
    },
    #[error("carry out the plan of round {round}")]
    Apply {
        round: u64,
        #[source]
        source: ApplyError,
    },
}

/// Runs the scenario until all jobs have ended or until `until_ms`.
///
/// # Errors
/// [`SimError`] if a plan breaks a rule.
pub fn simulate(scenario: &Scenario, policy: &Policy) -> Result<SimulationOutcome, SimError> {
    let mut engine = SimulationEngine::new(scenario);
    while engine.goes_on() {
        engine.advance();
        engine.round(policy, &mut || 0.0)?;
    }
    Ok(engine.outcome())
}

/// Same as [`simulate`], with GPUs held over time and the duration of each decision.
///
/// `watch` returns seconds of any clock. `tell` receives the number of ended jobs after every
/// round. The timeline stays empty, because it would dominate the memory of a long workload.
///
/// # Errors
/// [`SimError`] if a plan breaks a rule.
pub fn simulate_recorded(
    scenario: &Scenario,
    policy: &Policy,
    watch: &mut dyn FnMut() -> f64,
    tell: &mut dyn FnMut(usize),
) -> Result<SimulationRecord, SimError> {
    let mut engine = SimulationEngine::new(scenario);
    engine.keeps_timeline = false;
    while engine.goes_on() {
        engine.advance();
        engine.round(policy, watch)?;
        tell(engine.submitted - engine.snapshot.jobs.len());
    }
    let now_ms = engine.snapshot.now_ms;
    let (mut holds, decision_s) = (
        std::mem::take(&mut engine.holds),
        std::mem::take(&mut engine.decision_s),
    );
    for number in 0..scenario.jobs.len() {
        holds.close(number, now_ms);
    }
    Ok(SimulationRecord {
        outcome: engine.outcome(),
        holds: holds.closed,
        decision_s,
    })
}

struct SimulationEngine<'s> {
    scenario: &'s Scenario,
    snapshot: ClusterSnapshot,
    /// Future incidents, the next one last.
    incidents: Vec<Incident>,
    /// Index of each node in the snapshot.
    places: BTreeMap<NodeId, usize>,
    /// By the job's number in the scenario, as is `jobs`.
    live: Vec<SimulatedJob>,
    jobs: Vec<JobOutcome>,
    timeline: Vec<TimelineEntry>,
    keeps_timeline: bool,
    /// Numbers of the jobs in order of submission, and the number of submitted jobs.
    order: Vec<usize>,
    submitted: usize,
    holds: Holds,
    /// Pairs that have shared a GPU since the last round.
    companies: Companies,
    /// By the job's number; empty without `sharing`.
    uses: Vec<GpuUse>,
    decision_s: Vec<f64>,
    learned: LearnedFamilies,
    node_speeds: NodeSpeeds,
    history: ServiceHistory,
}

/// State of a job that the snapshot does not contain.
#[derive(Debug, Clone, Default)]
struct SimulatedJob {
    /// Time at which the tasks of the current revision are up, suspended or gone.
    due_ms: Option<i64>,
    /// Time of the order that `due_ms` follows.
    ordered_ms: i64,
    /// Exact number of steps done.
    steps: f64,
}

impl<'s> SimulationEngine<'s> {
    fn goes_on(&self) -> bool {
        let is_done = self.submitted == self.order.len() && self.snapshot.jobs.is_empty();
        !is_done && self.snapshot.now_ms < self.scenario.until_ms
    }

    /// Time of the next submission.
    fn arrives_ms(&self) -> Option<i64> {
        let number = *self.order.get(self.submitted)?;
        Some(self.scenario.jobs[number].submitted_ms)
    }

    /// Advances to the time of the next event and applies what happens there.
    fn advance(&mut self) {
        let now_ms = self.snapshot.now_ms;
        // Without jobs no rounds are needed before the next submission.
        let round_ms =
            (!self.snapshot.jobs.is_empty()).then(|| now_ms.saturating_add(self.scenario.round_ms));
        let next_ms = self
            .snapshot
            .jobs
            .iter()
            .flat_map(|job| {
                let due_ms = self.live[job_number(job.id)].due_ms;
                [due_ms, job.not_before_ms, self.ends_ms(job)]
            })
            .flatten();
        let next_ms = next_ms
            .chain(self.arrives_ms())
            .chain(self.incidents.last().map(|incident| incident.at_ms))
            .chain(round_ms)
            .filter(|&at_ms| at_ms > now_ms)
            .min()
            .unwrap_or(self.scenario.until_ms);
        self.train(next_ms - now_ms);
        self.snapshot.now_ms = next_ms;
        self.tasks_follow();
        while self
            .incidents
            .last()
            .is_some_and(|incident| incident.at_ms <= next_ms)
        {
            if let Some(incident) = self.incidents.pop() {
                self.happen(&incident.what);
            }
        }
        self.submit();
    }

    /// Time at which a running job will have done its steps, or its speed changes.
    fn ends_ms(&self, job: &SnapshotJob) -> Option<i64> {
        let (speed, live) = (self.speed(job)?, &self.live[job_number(job.id)]);
        let spec = self.spec(job);
        let until = spec.speed.constant_until(live.steps).min(spec.steps as f64);
        let left = until - live.steps;
        Some(
            self.snapshot
                .now_ms
                .saturating_add((left / speed * 1000.0 - ROUNDING_MS).ceil().max(1.0) as i64),
        )
    }

    /// True steps per second of a job that trains; `None` for other jobs.
    fn speed(&self, job: &SnapshotJob) -> Option<f64> {
        let trains = job.finished.is_none()
            && job.state == JobState::Running
            // A job that is resized in place trains while new tasks start.
            && (job.in_place || job.tasks.iter().all(SnapshotTask::is_up));
        trains.then(|| {
            let live = &self.live[job_number(job.id)];
            let speed = &self.spec(job).speed;
            let alone = speed.steps_per_s(self.placement(job), live.steps);
            let factor = self.node_speeds.factor(job);
            alone * factor * self.kept_across_racks(job) * self.kept_beside(job)
        })
    }

    /// Placement of the tasks that are up.
    fn placement(&self, job: &SnapshotJob) -> TaskPlacement<'_> {
        let workers = job
            .tasks
            .iter()
            .filter(|task| task.is_up() && task.is_worker());
        let nodes: BTreeSet<NodeId> = workers.map(|task| task.node).collect();
        let first = nodes.first().and_then(|node| self.places.get(node));
        let (workers, ps_shards) = job.up_size();
        TaskPlacement {
            kind: first.map_or("", |&index| &self.snapshot.nodes[index].gpu_model),
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            workers,
            ps_shards,
        }
    }

    /// Factor on the job's speed by its racks; 1 in one rack.
    fn kept_across_racks(&self, job: &SnapshotJob) -> f64 {
        let across = self.scenario.across_racks;
        if across < 1.0 && self.is_across_racks(job) {
            across
        } else {
            1.0
        }
    }

    fn is_across_racks(&self, job: &SnapshotJob) -> bool {
        let nodes = &self.snapshot.nodes;
        let tasks = job.tasks.iter().filter(|task| task.is_up());
        let mut racks = tasks.map(|task| {
            let node = nodes.iter().find(|node| node.id == task.node);
            node.and_then(|node| node.rack.as_deref())
        });
        let first = racks.next();
        racks.any(|rack| Some(rack) != first)
    }

    fn spec(&self, job: &SnapshotJob) -> &'s SimJob {
        &self.scenario.jobs[job_number(job.id)]
    }

    fn train(&mut self, elapsed_ms: i64) {
        let speeds: Vec<Option<f64>> = self
            .snapshot
            .jobs
            .iter()
            .map(|job| self.speed(job))
            .collect();
        if let Some(sharing) = &self.scenario.sharing {
            self.tell_use(sharing, &speeds, self.snapshot.now_ms + elapsed_ms);
        }
        let jobs = self.snapshot.jobs.iter().zip(&speeds);
        let chosen: Vec<Option<ChosenBatch>> = jobs
            .map(|(job, speed)| speed.and_then(|_| self.chosen(job)))
            .collect();
        let samples = self.samples(&speeds, &chosen);
        let elapsed_s = elapsed_ms as f64 / 1000.0;
        let now_ms = self.snapshot.now_ms;
        let observed = speeds.into_iter().zip(samples).zip(chosen);
        let trained = self.snapshot.jobs.iter_mut().zip(observed);
        for (job, ((speed, seen), chosen)) in trained {
            job.serve(now_ms, elapsed_s);
            let Some(speed) = speed else { continue };
            let spec = &self.scenario.jobs[job_number(job.id)];
            let live = &mut self.live[job_number(job.id)];
            job.trained_s += elapsed_s;
            live.steps = (live.steps + speed * elapsed_s).min(spec.steps as f64);
            // Tolerance of a thousandth of a step for the rounding of the clock.
            job.progress.step = (live.steps + 1e-3).floor() as u64;
            if let Some(adaptive) = &mut job.adaptive {
                adaptive.noise = chosen.map(|chosen| chosen.noise).or(adaptive.noise);
            }
            // The rate beside another job is not one of the job's speeds.
            if !self.companies.contains_key(&job.id) {
                measure(job, speed);
                self.learned.observe(job, &seen);
                if let Some(seen) = seen.first() {
                    self.node_speeds.observe(job, &seen.gpu_kind, speed);
                }
                self.learned.noise(job);
            }
            if job.progress.step >= spec.steps {
                job.finished = Some(Finished {
                    step: spec.steps,
                    reason: "all steps are done".to_owned(),
                });
            }
        }
    }

    /// Batch that the coordinator of a job has chosen; `None` if the batch is constant.
    fn chosen(&self, job: &SnapshotJob) -> Option<ChosenBatch> {
        match &self.spec(job).speed {
            TrueSpeed::Formula(_) | TrueSpeed::Table(_) => None,
            TrueSpeed::Goodput(table) => {
                let live = &self.live[job_number(job.id)];
                table.chosen(self.placement(job), live.steps)
            }
        }
    }

    /// Samples of the jobs that train and have a family.
    fn samples(
        &self,
        speeds: &[Option<f64>],
        chosen: &[Option<ChosenBatch>],
    ) -> Vec<Vec<Observation>> {
        let jobs = self.snapshot.jobs.iter().zip(speeds).zip(chosen);
        let samples = jobs.map(|((job, speed), chosen)| {
            let speed = speed.filter(|_| job.family.is_some());
            speed.map_or_else(Vec::new, |speed| {
                learned::samples(self.placement(job), speed, *chosen)
            })
        });
        samples.collect()
    }

    /// Applies the task events that are due: tasks come up, exit or are suspended.
    fn tasks_follow(&mut self) {
        let mut gone = Vec::new();
        for job in &mut self.snapshot.jobs {
            let live = &mut self.live[job_number(job.id)];
            if live
                .due_ms
                .is_none_or(|due_ms| due_ms > self.snapshot.now_ms)
            {
                continue;
            }
            live.due_ms = None;
            let before = freed::held(job);
            let since_s = (self.snapshot.now_ms - live.ordered_ms) as f64 / 1000.0;
            if let Some(measured) = restart_of(job, since_s) {
                self.learned.restarted(job, &measured);
            }
            come_due(job);
            let after = freed::held(job);
            let is_for_others =
                matches!(&job.state, JobState::Stopping { then } if then.is_for_others());
            if !is_for_others {
                gone.extend(before.into_iter().filter(|held| !after.contains(held)));
            }
            // Tasks that left in a shrink do not count as released GPUs: a resize gave them to
            // another job.
            job.leaving.clear();
            if job.are_workers_suspended() {
                self.holds.close(job_number(job.id), self.snapshot.now_ms);
            }
        }
        self.give_back(&gone);
    }

    fn submit(&mut self) {
        while self
            .arrives_ms()
            .is_some_and(|at_ms| at_ms <= self.snapshot.now_ms)
        {
            let number = self.order[self.submitted];
            self.submitted += 1;
            let spec = &self.scenario.jobs[number];
            self.snapshot.jobs.push(begin::job(job_id(number), spec));
            self.tell(&spec.name, || "submitted".to_owned());
        }
        self.snapshot.sort();
    }

    fn round(&mut self, policy: &Policy, watch: &mut dyn FnMut() -> f64) -> Result<(), SimError> {
        self.inherit();
        self.snapshot.families = self.learned.families();
        let full_samples = policy.full_weight_samples.max(1) as f64;
        self.node_speeds.compare(&mut self.snapshot, full_samples);
        let round = self.snapshot.round;
        let began_s = watch();
        let (plan, _) = plan(&self.snapshot, policy);
        self.decision_s.push(watch() - began_s);
        let violations = check_with(&self.snapshot, &plan, policy);
        if !violations.is_empty() {
            return Err(SimError::Check { round, violations });
        }
        apply(&mut self.snapshot, &plan).map_err(|source| SimError::Apply { round, source })?;
        self.snapshot.round += 1;
        self.record(&plan);
        let now_ms = self.snapshot.now_ms;
        for job in self.snapshot.jobs.iter().filter(|job| has_ended(job)) {
            let outcome = &mut self.jobs[job_number(job.id)];
            outcome.jct_ms = Some(now_ms - job.submitted_ms);
            self.history
                .add(job.service.map_or(0.0, |service| service.gpu_s));
        }
        if self.snapshot.jobs.iter().any(has_ended) {
            self.snapshot.history_gpu_s = self.history.values();
        }
        for job in &self.snapshot.jobs {
            self.jobs[job_number(job.id)].state = job.state.clone();
        }
        self.snapshot.jobs.retain(|job| !has_ended(job));
        self.companies = match self.scenario.sharing {
            Some(_) => sharing::companies(&self.snapshot),
            None => Companies::new(),
        };
        Ok(())
    }
}

/// The start or the stop that ends now, `since_s` seconds after its order. The stop of a finished
/// job is no part of a restart.
fn restart_of(job: &SnapshotJob, since_s: f64) -> Option<Restarts> {
    match job.state {
        JobState::Starting => Some(Restarts {
            starts: 1,
            start_s: since_s,
            ..Restarts::default()
        }),
        JobState::Stopping { .. } if job.finished.is_none() => Some(Restarts {
            stops: 1,
            stop_s: since_s,
            ..Restarts::default()
        }),
        _ => None,
    }
}

fn has_ended(job: &SnapshotJob) -> bool {
    job.state.phase().is_terminal()
}

/// Applies the due events to all tasks: starting tasks are up, stopping tasks have exited without
/// an error.
pub(crate) fn come_due(job: &mut SnapshotJob) {
    job.put_off = job.put_off_when_up();
    for task in &mut job.tasks {
        let event = match task.state {
            TaskState::Assigned => TaskEvent::Up,
            // A program in `Ending` would exit by itself; the simulation treats both alike.
            TaskState::Stopping | TaskState::Ending => TaskEvent::Gone {
                outcome: TaskOutcome::stopped(),
            },
            TaskState::Suspending => TaskEvent::StoodStill,
            TaskState::Running | TaskState::Suspended | TaskState::Released { .. } => continue,
        };
        follow(&mut task.state, event);
    }
}

fn follow(state: &mut TaskState, event: TaskEvent) {
    // An event that the task's state refuses (up after gone) changes nothing.
    if let Ok(next) = state.clone().apply(event) {
        *state = next;
    }
}

pub(crate) fn measure(job: &mut SnapshotJob, steps_per_s: f64) {
    let (workers, ps_shards) = job.size();
    let known = job
        .speeds
        .iter_mut()
        .find(|one| (one.workers, one.ps_shards) == (workers, ps_shards));
    match known {
        Some(point) => {
            point.samples += 1;
            if job.adaptive.is_some() {
                point.steps_per_s = steps_per_s;
            }
        }
        None => job.speeds.push(SpeedPoint {
            workers,
            ps_shards,
            steps_per_s,
            samples: 1,
        }),
    }
}
