//! Inputs of every policy over the live path: rows of the store, snapshot, dense problem, plan.
//!
//! The cluster has two GPU kinds. One job has run for 20 hours on both kinds, with a logged loss
//! and a restart. Another one waits, and twelve have ended.

use crate::support::{Store, sample};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::problem::{ProblemJob, SchedulingProblem};
use muster_core::snapshot::ClusterSnapshot;
use muster_core::{check_with, plan, problem_of};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{AfterStop, Charge, RequeueCause};
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use muster_model::task::{Outcome, Role};
use muster_scheduler::{clock, translate};
use muster_store::plan::{Loader, PlanIds};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{node, pool, report};
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};

/// Inputs that the algorithm of each policy reads, beside nodes, tenants and priorities.
const fn inputs(policy: PolicyName) -> &'static [Input] {
    use Input::{
        Age, Curve, Demand, Demotion, Held, History, Loss, Present, RestartCost, Restarts, Service,
        SpeedByKind, WorkDone, WorkLeft,
    };
    match policy {
        PolicyName::Muster => &[SpeedByKind, WorkLeft, RestartCost, Age],
        PolicyName::Fifo | PolicyName::Srtf | PolicyName::Optimus => &[Curve, WorkLeft],
        PolicyName::Drf => &[Demand],
        PolicyName::Tetris => &[Demand, Curve, WorkLeft],
        PolicyName::Tiresias => &[Service, Demotion],
        PolicyName::TiresiasGittins => &[Service, History],
        PolicyName::Slaq => &[Curve, WorkDone, WorkLeft, Loss],
        PolicyName::Themis => &[Age, Curve],
        PolicyName::Gandiva => &[Curve, Present],
        PolicyName::GavelMaxMin | PolicyName::GavelMaxSum => &[SpeedByKind, Held],
        PolicyName::Sia => &[SpeedByKind, Restarts, RestartCost, Age],
        PolicyName::Pollux => &[Curve, Restarts, RestartCost, Age],
    }
}

#[derive(Debug, Clone, Copy)]
enum Input {
    Age,
    Curve,
    Demand,
    Demotion,
    Held,
    History,
    Loss,
    Present,
    RestartCost,
    Restarts,
    Service,
    SpeedByKind,
    WorkDone,
    WorkLeft,
}

impl Input {
    /// Returns the input of the job in the dense problem, as text.
    fn of(self, problem: &SchedulingProblem, job: &ProblemJob) -> String {
        let curves = &job.outlook.curves;
        match self {
            Self::Age => format!("{}", job.age_s(problem.now_s)),
            Self::Curve => format!(
                "{:?}",
                curves.iter().map(|one| &one.local).collect::<Vec<_>>()
            ),
            Self::Demand => format!("{:?}", (job.unit.cpu_milli, job.unit.memory_bytes)),
            Self::Demotion => format!("{:?}", job.demoted_s),
            Self::Held => format!("{:?}", job.held_s),
            Self::History => format!("{:?}", problem.history_gpu_s),
            Self::Loss => format!("{:?}", job.outlook.loss),
            Self::Present => format!("{}", job.since_s),
            Self::RestartCost => format!("{}", job.restart_s),
            Self::Restarts => format!("{}", job.restarts),
            Self::Service => format!("{}", job.attained_gpu_s),
            Self::SpeedByKind => format!("{}", curves[0].speed(2, 1) / curves[1].speed(2, 1)),
            Self::WorkDone => format!("{}", job.outlook.work_done),
            Self::WorkLeft => format!("{}", job.outlook.work_left),
        }
    }
}

/// Drives jobs through the store at stated times.
pub struct Driver {
    pub store: Store,
    pub nodes: [NodeId; 2],
    /// Seconds of the tests' clock count from here.
    from: OffsetDateTime,
}

impl Driver {
    async fn new() -> anyhow::Result<Self> {
        Self::of([("A100", "A100"), ("H100", "H100")]).await
    }

    /// Two nodes with these names and GPU kinds.
    pub async fn of(named: [(&str, &str); 2]) -> anyhow::Result<Self> {
        let store = Store::new().await;
        let from = clock::now() - Duration::hours(20);
        let mut tx = pool::begin(&store.pool).await?;
        let mut nodes = Vec::new();
        for (name, kind) in named {
            let id = clock::id().into();
            let now = clock::now();
            nodes.push(
                node::hello(&mut tx, id, name, &capacity(kind), now)
                    .await?
                    .id,
            );
        }
        tx.commit().await?;
        let nodes = [nodes[0], nodes[1]];
        Ok(Self { store, nodes, from })
    }

    fn at(&self, seconds: u32) -> OffsetDateTime {
        self.from + Duration::seconds(seconds.into())
    }

    pub async fn submit(&self, name: &str) -> JobId {
        let document = serde_json::json!({
            "version": "muster/v1",
            "name": name,
            "engine": {
                "model": { "kind": "mlp", "hidden": [8] },
                "dataset": { "name": "fashion-mnist" },
                "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
                "batch": 64,
            },
            "resources": { "worker": { "cpu_milli": 2000, "memory_bytes": "2Gi" } },
            "scale": { "workers": { "min": 1, "max": 4 } },
            "stop": { "epochs": 1000, "convergence": { "relative_loss_drop": 0.001, "epochs": 2 } },
        });
        self.store.submit_at(document, self.at(0)).await
    }

    /// Commits one action. Returns the ids of the tasks that it creates.
    async fn step(
        &self,
        (job, revision): (JobId, u64),
        action: Action,
        at: u32,
    ) -> anyhow::Result<Vec<TaskId>> {
        let decision = JobDecision {
            job,
            expected_revision: revision,
            action,
        };
        let plan = RoundPlan {
            decisions: vec![decision],
            ..RoundPlan::default()
        };
        let ids = PlanIds::of(&plan, || clock::id().into(), || "5e".repeat(32));
        let mut tx = pool::begin(&self.store.pool).await?;
        let outcome = muster_store::plan::commit(&mut tx, &plan, &ids, self.at(at)).await?;
        assert_eq!(outcome.conflicts, []);
        tx.commit().await?;
        let new = ids.revision(job);
        Ok(new.map_or_else(Vec::new, |new| new.tasks.clone()))
    }

    async fn report(&self, node: usize, report: &NodeReport, at: u32) -> anyhow::Result<()> {
        let mut tx = pool::begin(&self.store.pool).await?;
        report::record(&mut tx, self.nodes[node], report, self.at(at)).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn observe(
        &self,
        (node, revision): (usize, u64),
        tasks: &[TaskId],
        observed: &Observed,
        at: u32,
    ) -> anyhow::Result<()> {
        let statuses = tasks.iter().map(|&id| (id, revision, observed.clone()));
        let report = NodeReport {
            statuses: statuses.collect(),
            ..NodeReport::default()
        };
        self.report(node, &report, at).await
    }

    /// Starts the next revision with `workers` GPUs of one node.
    pub async fn run(
        &self,
        (job, revision): (JobId, u64),
        (node, workers): (usize, u32),
        at: u32,
    ) -> anyhow::Result<Vec<TaskId>> {
        let tasks = (0..workers).map(|rank| PlannedTask {
            role: Role::Worker { rank },
            node: self.nodes[node],
            gpus: vec![rank],
        });
        let action = Action::Start {
            tasks: tasks.collect(),
            why: "there is room".to_owned(),
            lent: false,
        };
        let ids = self.step((job, revision), action, at).await?;
        let next = revision + 1;
        self.observe((node, next), &ids, &Observed::Running, at + 20)
            .await?;
        self.step((job, next), Action::Up, at + 20).await?;
        Ok(ids)
    }

    /// Stops a revision; its tasks are gone a minute later.
    pub async fn stop(
        &self,
        (job, revision): (JobId, u64),
        (node, tasks): (usize, &[TaskId]),
        then: AfterStop,
        at: u32,
    ) -> anyhow::Result<()> {
        let action = Action::Stop {
            then,
            why: "a test".to_owned(),
            charge: Charge::None,
            not_before_ms: None,
        };
        self.step((job, revision), action, at).await?;
        let gone = Observed::Gone {
            outcome: Outcome::exited(0),
        };
        self.observe((node, revision), tasks, &gone, at + 60)
            .await?;
        self.step((job, revision), Action::Release, at + 60).await?;
        Ok(())
    }

    /// Reports a sample of each of these epochs.
    pub async fn train(
        &self,
        (node, revision): (usize, u64),
        (task, workers): (TaskId, u32),
        epochs: std::ops::Range<u32>,
        at: u32,
    ) -> anyhow::Result<()> {
        let speed = if node == 0 { 10.0 } else { 25.0 };
        let events = epochs.map(|epoch| {
            let mut sample = sample();
            sample.step = u64::from(epoch) * 938;
            sample.epoch = f64::from(epoch);
            sample.loss = 1.0 / (0.5 * f64::from(epoch) + 0.2) + 0.1;
            sample.steps_per_s = speed * f64::from(workers).sqrt();
            (sample.workers, sample.ps_shards) = (workers, 0);
            (self.at(at), TaskReport::Progress { sample })
        });
        let events = TaskEvents {
            task_id: task,
            revision,
            first_seq: 0,
            events: events.collect(),
        };
        let report = NodeReport {
            events: vec![events],
            ..NodeReport::default()
        };
        self.report(node, &report, at).await
    }

    pub async fn snapshot(&self) -> anyhow::Result<ClusterSnapshot> {
        let mut tx = pool::begin_snapshot(&self.store.pool).await?;
        let loaded = Loader::new(100).load(&mut tx, clock::now()).await?;
        Ok(translate::snapshot(1, loaded))
    }
}

fn capacity(kind: &str) -> Capacity {
    let gpus = (0..4).map(|index| Gpu {
        index,
        kind: GpuKind::Cuda,
        model: kind.to_owned(),
        memory_bytes: 80 << 30,
        compute_capability: None,
    });
    Capacity {
        gpus: gpus.collect(),
        cpu_milli: 64_000,
        memory_bytes: 64 << 30,
        rack: None,
        labels: BTreeMap::new(),
        driver_suspend: None,
        pods: None,
        isolation: None,
        images: None,
    }
}

/// The same snapshot without what was measured, and with every document at its defaults.
fn without_measurements(snapshot: &ClusterSnapshot) -> ClusterSnapshot {
    let mut bare = snapshot.clone();
    bare.families.clear();
    bare.history_gpu_s.clear();
    for job in &mut bare.jobs {
        job.submitted_ms = bare.now_ms;
        job.revision = job.revision.min(1);
        (job.worker.cpu_milli, job.worker.memory_bytes) = (0, 0);
        job.progress.step = 0;
        job.progress.epoch_losses.clear();
        job.speeds.clear();
        job.placed_speeds.clear();
        (job.family, job.restarts, job.placed_ms) = (None, None, None);
        (job.service, job.trained_s) = (None, 0.0);
    }
    bare
}

#[tokio::test]
async fn every_policy_has_its_inputs_in_live_rounds() -> anyhow::Result<()> {
    let driver = Driver::new().await?;
    for number in 0..12 {
        let ended = driver.submit("ended").await;
        let tasks = driver.run((ended, 0), (1, 2), number * 600).await?;
        let end = number * 600 + 300;
        driver
            .stop((ended, 1), (1, &tasks), AfterStop::Cancel, end)
            .await?;
    }
    // 4 GPUs for 8 hours: demoted after 4 hours. Then 2 GPUs of the other kind.
    let job = driver.submit("trained").await;
    let tasks = driver.run((job, 0), (0, 4), 10).await?;
    driver.train((0, 1), (tasks[0], 4), 1..12, 28_000).await?;
    let cause = RequeueCause::Preempted;
    driver
        .stop((job, 1), (0, &tasks), AfterStop::Requeue { cause }, 28_800)
        .await?;
    let tasks = driver.run((job, 1), (1, 2), 29_000).await?;
    driver.train((1, 2), (tasks[0], 2), 12..24, 40_000).await?;
    driver.submit("waiting").await;

    let mut snapshot = driver.snapshot().await?;
    // A job that is resized in place has a fixed cost of a restart; others have the measured one.
    for one in &mut snapshot.jobs {
        one.in_place = false;
    }
    let bare = without_measurements(&snapshot);
    let index = snapshot.jobs.iter().position(|one| one.id == job);
    let index = index.expect("the job has not ended");
    for &name in PolicyName::ALL {
        let policy = Policy::named(name);
        let (problem, without) = (problem_of(&snapshot, &policy), problem_of(&bare, &policy));
        for input in inputs(name) {
            let [given, default] = [&problem, &without].map(|one| input.of(one, &one.jobs[index]));
            assert_ne!(given, default, "{name:?} reads {input:?}");
        }
        let (decided, _) = plan(&snapshot, &policy);
        let starts = decided.decisions.iter();
        assert!(
            starts.clone().any(|one| one.action.new_tasks().is_some()),
            "{name:?}"
        );
        assert_eq!(check_with(&snapshot, &decided, &policy), [], "{name:?}");
    }

    let problem = problem_of(&snapshot, &Policy::named(PolicyName::Tiresias));
    let dense = &problem.jobs[index];
    let seconds = problem.now_s - translate::unix_ms(driver.at(0)) as f64 / 1_000.0;
    // The tasks hold their GPUs until they are gone.
    let expected_gpu_s = 4.0 * (28_860.0 - 10.0) + 2.0 * (seconds - 29_000.0);
    assert!((dense.attained_gpu_s - expected_gpu_s).abs() < 0.1);
    let demoted_s = dense.demoted_s.expect("demoted") - (problem.now_s - seconds);
    assert!((demoted_s - (10.0 + 14_400.0)).abs() < 0.1, "{demoted_s}");
    // Postgres stores microseconds.
    let mut history = problem.history_gpu_s.iter();
    assert_eq!(history.len(), 12);
    assert!(history.all(|gpu_s| (gpu_s - 720.0).abs() < 1e-3));
    Ok(())
}
