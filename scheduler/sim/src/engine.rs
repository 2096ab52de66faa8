//! The virtual clock: moves from one thing that happens to the next, and holds a round after each.

use crate::course::{Course, Holds};
use crate::outcome::{Entry, JobOutcome, Outcome};
use crate::scenario::{Incident, Scenario, SimJob, What};
use muster_core::policy::Policy;
use muster_core::snapshot::{Finished, Job, Node, Progress, Snapshot, SpeedPoint, Task, Tenant};
use muster_core::{Action, ApplyError, Plan, Violation, apply, check, plan};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::job::{Intent, JobState};
use muster_model::spec::{PsShardResources, WorkerResources};
use muster_model::task::{Outcome as TaskOutcome, Role, TaskEvent, TaskState};
use uuid::Uuid;

/// Where the nodes' ids begin.
const NODES: u128 = 0x1000;

/// What sums of steps may be off by, so that a job does not end a millisecond late for it.
const ROUNDING_MS: f64 = 1e-4;

/// The planner broke a rule; the simulation is worthless from there on.
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

/// Runs the scenario to its end: every job ended, or its time is up.
///
/// # Errors
/// [`SimError`] when a plan breaks a rule.
pub fn simulate(scenario: &Scenario, policy: &Policy) -> Result<Outcome, SimError> {
    let mut engine = Engine::new(scenario);
    while engine.goes_on() {
        engine.advance();
        engine.round(policy, &mut || 0.0)?;
    }
    Ok(engine.outcome())
}

/// The same with who held what and how long each decision took, by `watch`, which gives seconds on any clock; `tell` hears after
/// every round how many jobs have ended. The timeline stays empty: of a long workload it would be larger than all else.
pub(crate) fn run_course(
    scenario: &Scenario,
    policy: &Policy,
    watch: &mut dyn FnMut() -> f64,
    tell: &mut dyn FnMut(usize),
) -> Result<Course, SimError> {
    let mut engine = Engine::new(scenario);
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
    Ok(Course {
        outcome: engine.outcome(),
        holds: holds.closed,
        decision_s,
    })
}

struct Engine<'s> {
    scenario: &'s Scenario,
    snapshot: Snapshot,
    /// Incidents to come, the next one last.
    incidents: Vec<Incident>,
    /// By the job's number in the scenario, as are `jobs`.
    live: Vec<Live>,
    jobs: Vec<JobOutcome>,
    timeline: Vec<Entry>,
    keeps_timeline: bool,
    /// Numbers of the jobs in order of submission, and how many of them were submitted.
    order: Vec<usize>,
    submitted: usize,
    holds: Holds,
    decision_s: Vec<f64>,
}

/// What the simulator knows of a job beyond the snapshot.
#[derive(Debug, Clone, Default)]
struct Live {
    /// When the tasks of the present revision will be up, or gone.
    due_ms: Option<i64>,
    /// Exact steps done.
    steps: f64,
}

impl<'s> Engine<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let mut incidents = scenario.incidents.clone();
        incidents.sort_by_key(|incident| std::cmp::Reverse(incident.at_ms));
        let mut order: Vec<usize> = (0..scenario.jobs.len()).collect();
        order.sort_by_key(|&number| scenario.jobs[number].submitted_ms);
        let jobs = scenario.jobs.iter().map(|job| JobOutcome {
            name: job.name.clone(),
            state: JobState::Queued,
            jct_ms: None,
            restarts: 0,
            sizes: Vec::new(),
        });
        let mut engine = Self {
            scenario,
            snapshot: Snapshot {
                round: 0,
                now_ms: -1,
                nodes: (0_u128..)
                    .zip(&scenario.nodes)
                    .map(|(n, node)| Node {
                        id: node_id(n),
                        name: node.name.clone(),
                        up: true,
                        drained: false,
                        seen_ms: None,
                        rack: None,
                        gpus: node.gpus,
                        gpu_model: "gpu".to_owned(),
                        cpu_milli: 1_000_000,
                        memory_bytes: 1 << 44,
                    })
                    .collect(),
                tenants: (0_u128..)
                    .zip(&scenario.tenants)
                    .map(|(n, tenant)| Tenant {
                        id: tenant_id(n),
                        name: tenant.name.clone(),
                        gpu_quota: tenant.gpu_quota,
                        weight: 1.0,
                    })
                    .collect(),
                jobs: Vec::new(),
            },
            incidents,
            live: vec![Live::default(); scenario.jobs.len()],
            jobs: jobs.collect(),
            timeline: Vec::new(),
            keeps_timeline: true,
            order,
            submitted: 0,
            holds: Holds::of(scenario.jobs.len()),
            decision_s: Vec::new(),
        };
        engine.snapshot.sort();
        engine
    }

    fn goes_on(&self) -> bool {
        let is_done = self.submitted == self.order.len() && self.snapshot.jobs.is_empty();
        !is_done && self.snapshot.now_ms < self.scenario.until_ms
    }

    /// When the next job is submitted.
    fn arrives_ms(&self) -> Option<i64> {
        let number = *self.order.get(self.submitted)?;
        Some(self.scenario.jobs[number].submitted_ms)
    }

    /// Moves to the next instant at which something happens, and lets it happen.
    fn advance(&mut self) {
        let now_ms = self.snapshot.now_ms;
        // Nobody there, nothing to decide: the clock runs to the next submission at once.
        let round_ms =
            (!self.snapshot.jobs.is_empty()).then(|| now_ms.saturating_add(self.scenario.round_ms));
        let of_job = |job: &Job| {
            let due_ms = self.live[job_number(job.id)].due_ms;
            [due_ms, job.not_before_ms, self.ends_ms(job)]
        };
        let next_ms = self.snapshot.jobs.iter().flat_map(of_job).flatten();
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

    /// When a running job will have done its steps.
    fn ends_ms(&self, job: &Job) -> Option<i64> {
        let (speed, live) = (self.speed(job)?, &self.live[job_number(job.id)]);
        let left = self.spec(job).steps as f64 - live.steps;
        Some(
            self.snapshot
                .now_ms
                .saturating_add((left / speed * 1000.0 - ROUNDING_MS).ceil().max(1.0) as i64),
        )
    }

    /// True steps per second of a job that trains; `None` for one that does not.
    fn speed(&self, job: &Job) -> Option<f64> {
        let trains = job.finished.is_none()
            && job.state == JobState::Running
            // Who has still to come does not hold up the others of a job that is resized in place.
            && (job.in_place || job.tasks.iter().all(Task::is_up));
        let (workers, ps_shards) = job.up_size();
        trains.then(|| self.spec(job).speed.steps_per_s(workers, ps_shards))
    }

    fn spec(&self, job: &Job) -> &'s SimJob {
        &self.scenario.jobs[job_number(job.id)]
    }

    fn train(&mut self, elapsed_ms: i64) {
        let speeds: Vec<Option<f64>> = self
            .snapshot
            .jobs
            .iter()
            .map(|job| self.speed(job))
            .collect();
        let elapsed_s = elapsed_ms as f64 / 1000.0;
        for (job, speed) in self.snapshot.jobs.iter_mut().zip(speeds) {
            let Some(speed) = speed else { continue };
            let spec = &self.scenario.jobs[job_number(job.id)];
            let live = &mut self.live[job_number(job.id)];
            job.trained_s += elapsed_s;
            live.steps = (live.steps + speed * elapsed_s).min(spec.steps as f64);
            // A thousandth of a step is rounding of the clock.
            job.progress.step = (live.steps + 1e-3).floor() as u64;
            measure(job, speed);
            if job.progress.step >= spec.steps {
                job.finished = Some(Finished {
                    step: spec.steps,
                    reason: "all steps are done".to_owned(),
                });
            }
        }
    }

    /// Tasks come up and go away when their time has come.
    fn tasks_follow(&mut self) {
        for job in &mut self.snapshot.jobs {
            let live = &mut self.live[job_number(job.id)];
            if live
                .due_ms
                .is_none_or(|due_ms| due_ms > self.snapshot.now_ms)
            {
                continue;
            }
            live.due_ms = None;
            come_due(&mut job.tasks);
            job.leaving.clear();
        }
    }

    fn happen(&mut self, what: &What) {
        let intent = |engine: &mut Self, job: usize, intent: Intent| {
            if let Some(job) = engine
                .snapshot
                .jobs
                .iter_mut()
                .find(|one| one.id == job_id(job))
            {
                job.intent = intent;
            }
        };
        match *what {
            What::NodeLost { node } => self.lose(node),
            What::NodeBack { node } => self.node(node, "back", |node| node.up = true),
            What::Drain { node } => self.node(node, "drained", |node| node.drained = true),
            What::Uncordon { node } => self.node(node, "uncordoned", |node| node.drained = false),
            What::Pause { job } => intent(self, job, Intent::Pause),
            What::Resume { job } => intent(self, job, Intent::Run),
            What::Cancel { job } => intent(self, job, Intent::Cancel),
            What::TaskFails { job } => self.fail(job),
        }
    }

    fn node(&mut self, number: usize, what: &str, change: impl Fn(&mut Node)) {
        let name = &self.scenario.nodes[number].name;
        self.snapshot
            .nodes
            .iter_mut()
            .filter(|node| node.name == *name)
            .for_each(change);
        self.tell(name, || what.to_owned());
    }

    fn lose(&mut self, number: usize) {
        self.node(number, "lost", |node| node.up = false);
        let id = node_id(number as u128);
        for job in &mut self.snapshot.jobs {
            let checkpoint_steps = self.scenario.jobs[job_number(job.id)].checkpoint_steps;
            // Who goes on loses nothing; who cannot is stopped by the next round and then goes back to its checkpoint.
            let expendable = |task: &Task| {
                task.node != id
                    || task.state.is_released()
                    || matches!(task.role, Role::Worker { rank } if rank > 0)
            };
            let goes_on = job.in_place && job.tasks.iter().all(expendable);
            let lost = job
                .tasks
                .iter_mut()
                .chain(&mut job.leaving)
                .filter(|task| task.node == id && !task.state.is_released());
            let mut any = false;
            for task in lost {
                follow(
                    &mut task.state,
                    TaskEvent::Gone {
                        outcome: TaskOutcome::NodeLost,
                    },
                );
                any = true;
            }
            if any && !goes_on {
                roll_back(job, &mut self.live[job_number(job.id)], checkpoint_steps);
            }
        }
    }

    fn fail(&mut self, number: usize) {
        let checkpoint_steps = self.scenario.jobs[number].checkpoint_steps;
        let Some(job) = self
            .snapshot
            .jobs
            .iter_mut()
            .find(|one| one.id == job_id(number))
        else {
            return;
        };
        if job.state != JobState::Running || job.finished.is_some() {
            return;
        }
        if let Some(task) = job
            .tasks
            .first_mut()
            .filter(|task| !task.state.is_released())
        {
            follow(
                &mut task.state,
                TaskEvent::Gone {
                    outcome: TaskOutcome::Exited { code: 1 },
                },
            );
            roll_back(job, &mut self.live[job_number(job.id)], checkpoint_steps);
        }
    }

    fn submit(&mut self) {
        while self
            .arrives_ms()
            .is_some_and(|at_ms| at_ms <= self.snapshot.now_ms)
        {
            let number = self.order[self.submitted];
            self.submitted += 1;
            let spec = &self.scenario.jobs[number];
            self.snapshot.jobs.push(job(job_id(number), spec));
            self.tell(&spec.name, || "submitted".to_owned());
        }
        self.snapshot.sort();
    }

    fn round(&mut self, policy: &Policy, watch: &mut dyn FnMut() -> f64) -> Result<(), SimError> {
        let round = self.snapshot.round;
        let began_s = watch();
        let (plan, _) = plan(&self.snapshot, policy);
        self.decision_s.push(watch() - began_s);
        let violations = check(&self.snapshot, &plan);
        if !violations.is_empty() {
            return Err(SimError::Check { round, violations });
        }
        apply(&mut self.snapshot, &plan).map_err(|source| SimError::Apply { round, source })?;
        self.snapshot.round += 1;
        self.record(&plan);
        let now_ms = self.snapshot.now_ms;
        let ended = |job: &Job| job.state.phase().is_terminal();
        for job in self.snapshot.jobs.iter().filter(|job| ended(job)) {
            let outcome = &mut self.jobs[job_number(job.id)];
            outcome.jct_ms = Some(now_ms - job.submitted_ms);
        }
        for job in &self.snapshot.jobs {
            self.jobs[job_number(job.id)].state = job.state.clone();
        }
        self.snapshot.jobs.retain(|job| !ended(job));
        Ok(())
    }

    /// Writes the plan down and sets the times at which tasks will follow it.
    fn record(&mut self, plan: &Plan) {
        let now_ms = self.snapshot.now_ms;
        for decision in &plan.decisions {
            let index = job_number(decision.job);
            let name = &self.scenario.jobs[index].name;
            let live = &mut self.live[index];
            match &decision.action {
                Action::Start { tasks, .. } => {
                    live.due_ms = Some(now_ms + self.scenario.launch_ms);
                    let shards = tasks
                        .iter()
                        .filter(|task| task.role.kind() == "ps_shard")
                        .count();
                    let outcome = &mut self.jobs[index];
                    outcome.restarts += u64::from(!outcome.sizes.is_empty());
                    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                    let (workers, ps_shards) = (count(tasks.len() - shards), count(shards));
                    outcome.sizes.push((now_ms, workers, ps_shards));
                    let places = tasks.iter().map(|task| (task.node, task.gpus.len()));
                    self.holds.open(index, now_ms, places);
                    self.tell(name, || {
                        format!("start {workers} workers, {ps_shards} shards")
                    });
                }
                Action::Resize { join, why, .. } => {
                    let (launch_ms, stop_ms) = (self.scenario.launch_ms, self.scenario.stop_ms);
                    let due_ms = if join.is_empty() { stop_ms } else { launch_ms };
                    live.due_ms = Some(now_ms + due_ms);
                    let jobs = &self.snapshot.jobs;
                    let job = jobs.iter().find(|job| job.id == decision.job);
                    let job = job.expect("it runs");
                    let (workers, ps_shards) = job.size();
                    self.jobs[index].sizes.push((now_ms, workers, ps_shards));
                    let places = job.tasks.iter().map(|task| (task.node, task.gpus.len()));
                    self.holds.open(index, now_ms, places);
                    self.tell(name, || {
                        format!("goes on with {workers} workers, {ps_shards} shards: {why}")
                    });
                }
                Action::Stop { why, .. } => {
                    live.due_ms = Some(now_ms + self.scenario.stop_ms);
                    self.tell(name, || format!("stop: {why}"));
                }
                Action::Release => {
                    self.holds.close(index, now_ms);
                    self.tell(name, || "released".to_owned());
                }
                Action::Up => self.tell(name, || "up".to_owned()),
                Action::Suspend { why } => {
                    live.due_ms = Some(now_ms + self.scenario.suspend_ms);
                    self.tell(name, || format!("stands still: {why}"));
                }
                Action::Continue { why } => self.tell(name, || format!("goes on: {why}")),
                Action::Judge { verdict } => self.tell(name, || verdict.to_string()),
                Action::Suspect { .. } => {}
                Action::Hold => self.tell(name, || "held".to_owned()),
                Action::Resume => self.tell(name, || "resumed".to_owned()),
                Action::Cancel => self.tell(name, || "cancelled".to_owned()),
                Action::Wait { waiting } => self.tell(name, || match &waiting.smallest_change {
                    Some(change) => format!("waits: {} (to start: {change})", waiting.why),
                    None => format!("waits: {}", waiting.why),
                }),
            }
        }
    }

    fn tell(&mut self, subject: &str, what: impl FnOnce() -> String) {
        if self.keeps_timeline {
            self.timeline.push(Entry {
                at_ms: self.snapshot.now_ms,
                subject: subject.to_owned(),
                what: what(),
            });
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            jobs: self.jobs,
            timeline: self.timeline,
            makespan_ms: self.snapshot.now_ms,
            rounds: self.snapshot.round,
        }
    }
}

/// The time of these tasks has come: those that start are up, those that stop are gone in order.
pub(crate) fn come_due(tasks: &mut [Task]) {
    for task in tasks {
        let event = match task.state {
            TaskState::Assigned => TaskEvent::Up,
            TaskState::Stopping | TaskState::Ending => TaskEvent::Gone {
                outcome: TaskOutcome::Exited { code: 0 },
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

/// The steps since the last checkpoint are lost.
fn roll_back(job: &mut Job, live: &mut Live, checkpoint_steps: u64) {
    let kept = job.progress.step / checkpoint_steps.max(1) * checkpoint_steps.max(1);
    job.progress.step = kept;
    live.steps = kept as f64;
}

pub(crate) fn measure(job: &mut Job, steps_per_s: f64) {
    let (workers, ps_shards) = job.size();
    let known = job
        .speeds
        .iter_mut()
        .find(|one| (one.workers, one.ps_shards) == (workers, ps_shards));
    match known {
        Some(point) => point.samples += 1,
        None => job.speeds.push(SpeedPoint {
            workers,
            ps_shards,
            steps_per_s,
            samples: 1,
        }),
    }
}

fn job(id: JobId, spec: &SimJob) -> Job {
    Job {
        id,
        tenant: tenant_id(spec.tenant as u128),
        name: spec.name.clone(),
        priority: spec.priority,
        submitted_ms: spec.submitted_ms,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        retries: spec.retries,
        not_before_ms: None,
        workers: spec.workers,
        ps_shards: spec.ps_shards,
        worker: WorkerResources {
            gpus: spec.gpus_per_worker,
            ..WorkerResources::default()
        },
        ps_shard: PsShardResources::default(),
        consistency: spec.consistency,
        batch: spec.batch,
        adaptive: None,
        tasks: Vec::new(),
        leaving: Vec::new(),
        in_place: spec.in_place,
        replicated: false,
        suspends: true,
        exclusive: false,
        trial: None,
        turned_ms: None,
        command: None,
        finished: None,
        failed: None,
        progress: Progress {
            step: 0,
            steps_per_epoch: spec.steps.div_ceil(10).max(1),
            max_steps: Some(spec.steps),
            convergence: None,
            epoch_losses: Vec::new(),
        },
        speeds: Vec::new(),
        trained_s: 0.0,
        placed_ms: None,
        power_of_two: false,
        restarts: None,
        waiting: None,
        watch: None,
    }
}

fn node_id(number: u128) -> NodeId {
    NodeId(Uuid::from_u128(NODES + number))
}

/// A node's number in the scenario.
pub(crate) fn node_number(id: NodeId) -> u32 {
    u32::try_from(id.0.as_u128() - NODES).unwrap_or(u32::MAX)
}

fn tenant_id(number: u128) -> TenantId {
    TenantId(Uuid::from_u128(0x2000 + number))
}

fn job_id(number: usize) -> JobId {
    JobId(Uuid::from_u128(0x3000_0000 + ((number as u128) << 64)))
}

/// Its number in the scenario, which its id carries.
fn job_number(id: JobId) -> usize {
    usize::try_from(id.0.as_u128() >> 64).unwrap_or(usize::MAX)
}
