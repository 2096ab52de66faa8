//! Common set-up: two tenants, a node with four slots, and helpers for the life of jobs.

use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId, UserId};
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use muster_model::progress::Sample;
use muster_model::task::{Outcome, Role};
use muster_model::tenant::Tenant;
use muster_store::assignment::{self, NodeAssignment};
use muster_store::job::{JobRow, NewJob};
use muster_store::plan::{CommitOutcome, LoadedJob, PlanIds};
use muster_store::pool::StorePool;
use muster_store::report::{NodeReport, ReportOutcome, TaskEvents};
use muster_store::user::User;
use muster_store::{job, node, plan, pool, report, tenant, tenant_scope, user};
use muster_testdb::TestDb;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use uuid::Uuid;

pub struct World {
    pub db: TestDb,
    pub api: StorePool,
    pub scheduler: StorePool,
    pub red: TenantId,
    pub blue: TenantId,
    pub red_user: UserId,
    pub blue_user: UserId,
    pub node: NodeId,
    /// Loader of all rounds of the test. It keeps jobs between them.
    loader: Mutex<plan::Loader>,
}

/// Counter of ids, which increase like UUIDs of version 7.
pub fn id<T: From<Uuid>>() -> T {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))).into()
}

/// Returns the time `seconds` after the tests' epoch.
pub fn at(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("a date")
        + Duration::from_secs(seconds)
}

pub fn spec(name: &str) -> muster_model::spec::JobSpec {
    let text = format!(
        r#"{{"version": "muster/v1", "name": "{name}", "labels": {{"team": "{name}-team", "stage": "test"}},
            "engine": {{"model": {{"kind": "mlp", "hidden": [8]}}, "dataset": {{"name": "fashion-mnist"}},
                        "optimizer": {{"kind": "sgd", "learning_rate": 0.1}}, "batch": 64, "seed": 18446744073709551615}},
            "scale": {{"workers": {{"min": 1, "max": 4}}, "ps_shards": {{"min": 1, "max": 2}}}},
            "stop": {{"epochs": 3}}}}"#
    );
    serde_json::from_str(&text).expect("the document is right")
}

pub fn slots(count: u32) -> Capacity {
    let gpus = (0..count)
        .map(|index| Gpu {
            index,
            kind: GpuKind::CpuSlot,
            model: "cpu".to_owned(),
            memory_bytes: 1 << 30,
            compute_capability: None,
        })
        .collect();
    Capacity {
        gpus,
        cpu_milli: 8_000,
        memory_bytes: 8 << 30,
        rack: None,
        labels: std::collections::BTreeMap::new(),
        driver_suspend: None,
        pods: None,
        isolation: None,
        images: None,
    }
}

pub fn sample(step: u64, epoch: f64, loss: f64, steps_per_s: f64) -> Sample {
    Sample {
        step,
        epoch,
        loss,
        accuracy: Some(0.5),
        examples_per_s: Some(64.0 * steps_per_s),
        steps_per_s,
        compute_ms: Some(1.0),
        exchange_ms: Some(0.5),
        data_ms: Some(0.25),
        workers: 1,
        ps_shards: 1,
        noise_scale: None,
        gain: None,
    }
}

pub fn gone(code: i32) -> Observed {
    Observed::Gone {
        outcome: Outcome::exited(code),
    }
}

impl World {
    pub async fn new() -> anyhow::Result<Self> {
        let db = TestDb::new().await;
        let api = pool::api(&db.api_url, 8)?;
        let scheduler = pool::scheduler(&db.scheduler_url, 8)?;
        let (red, blue, red_user, blue_user) = (id(), id(), id(), id());
        let mut tx = pool::begin(&api).await?;
        tenant_scope::admin(&mut tx).await?;
        for (id, user_id, name) in [(red, red_user, "red"), (blue, blue_user, "blue")] {
            tenant::create(
                &mut tx,
                &Tenant {
                    id,
                    name: name.to_owned(),
                    gpu_quota: Some(8),
                    weight: muster_model::tenant::EQUAL_WEIGHT,
                    pods: muster_model::tenant::TenantPods::default(),
                    preemption: muster_model::tenant::TenantPreemption::default(),
                    shares_families: false,
                    interactive: false,
                },
                at(0),
            )
            .await?;
            user::create(
                &mut tx,
                &User {
                    id: user_id,
                    tenant_id: id,
                    name: "ann".to_owned(),
                },
                at(0),
            )
            .await?;
        }
        tx.commit().await?;
        let mut tx = pool::begin(&scheduler).await?;
        let node = node::hello(&mut tx, id(), "node-a", &slots(4), at(0))
            .await?
            .id;
        tx.commit().await?;
        Ok(Self {
            db,
            api,
            scheduler,
            red,
            blue,
            red_user,
            blue_user,
            node,
            loader: Mutex::new(plan::Loader::new(1_000)),
        })
    }

    /// Submits a job of the red tenant.
    pub async fn submit(&self, name: &str) -> anyhow::Result<JobId> {
        self.submit_as((self.red, self.red_user), name).await
    }

    /// Submits a job of a tenant's user.
    pub async fn submit_as(
        &self,
        (tenant, user): (TenantId, UserId),
        name: &str,
    ) -> anyhow::Result<JobId> {
        let new = NewJob {
            id: id(),
            tenant_id: tenant,
            submitted_by: user,
            spec: spec(name),
        };
        let mut tx = pool::begin_for(&self.api, tenant).await?;
        job::insert(&mut tx, &new, at(0)).await?;
        tx.commit().await?;
        Ok(new.id)
    }

    pub async fn job(&self, id: JobId) -> anyhow::Result<JobRow> {
        let mut tx = pool::begin_for(&self.api, self.red).await?;
        Ok(job::get(&mut tx, id).await?.expect("the job is there"))
    }

    /// Returns the job as the next round would load it.
    pub async fn loaded(&self, id: JobId, seconds: u64) -> anyhow::Result<LoadedJob> {
        let jobs = self.load_jobs(seconds).await?;
        let mut jobs = jobs.into_iter();
        Ok(jobs
            .find(|job| job.job.id == id)
            .expect("the job has not ended"))
    }

    /// Returns the jobs of the next round. A loader that has kept jobs of earlier rounds must
    /// return the same jobs as a new one.
    pub async fn load_jobs(&self, seconds: u64) -> anyhow::Result<Vec<LoadedJob>> {
        let mut loader = self.loader.lock().await;
        let mut tx = pool::begin_snapshot(&self.scheduler).await?;
        let kept = loader.load(&mut tx, at(seconds)).await?;
        let new = plan::Loader::new(1_000).load(&mut tx, at(seconds)).await?;
        assert_eq!(kept.jobs, new.jobs);
        Ok(kept.jobs)
    }

    pub async fn commit(
        &self,
        decisions: &[JobDecision],
        seconds: u64,
    ) -> anyhow::Result<CommitOutcome> {
        let plan = plan_of(decisions);
        self.commit_plan(&plan, &ids_of(&plan), seconds).await
    }

    pub async fn commit_plan(
        &self,
        plan: &RoundPlan,
        ids: &PlanIds,
        seconds: u64,
    ) -> anyhow::Result<CommitOutcome> {
        let mut tx = pool::begin(&self.scheduler).await?;
        let outcome = plan::commit(&mut tx, plan, ids, at(seconds)).await?;
        tx.commit().await?;
        self.load_jobs(seconds).await?;
        Ok(outcome)
    }

    /// Commits one action, which must succeed. Returns the ids of the tasks that it creates.
    pub async fn step(
        &self,
        job_id: JobId,
        expected_revision: u64,
        action: Action,
        seconds: u64,
    ) -> anyhow::Result<Vec<TaskId>> {
        let plan = plan_of(&[JobDecision {
            job: job_id,
            expected_revision,
            action,
        }]);
        let ids = ids_of(&plan);
        let outcome = self.commit_plan(&plan, &ids, seconds).await?;
        assert_eq!(outcome.conflicts, []);
        let new = ids.revision(job_id);
        Ok(new.map_or_else(Vec::new, |new| new.tasks.clone()))
    }

    /// Returns a worker on each of these slots and one PS shard without a slot. Rank 0 comes first,
    /// the shard last.
    pub fn tasks(&self, gpus: &[u32]) -> Vec<PlannedTask> {
        let workers = gpus.iter().enumerate().map(|(rank, gpu)| {
            let rank = u32::try_from(rank).expect("few workers");
            PlannedTask {
                role: Role::Worker { rank },
                node: self.node,
                gpus: vec![*gpu],
            }
        });
        let shard = PlannedTask {
            role: Role::PsShard { index: 0 },
            node: self.node,
            gpus: Vec::new(),
        };
        workers.chain([shard]).collect()
    }

    /// Starts a job's next revision on these slots. Returns rank 0 and the shard.
    pub async fn start(
        &self,
        job: JobId,
        revision: u64,
        gpus: &[u32],
        seconds: u64,
    ) -> anyhow::Result<(TaskId, TaskId)> {
        let tasks = self.tasks(gpus);
        let ids = self.step(job, revision, start(tasks), seconds).await?;
        Ok((ids[0], ids[ids.len() - 1]))
    }

    /// Returns the node's assignment, with a grace of 500 ms.
    pub async fn assignment(&self) -> anyhow::Result<NodeAssignment> {
        let mut tx = pool::begin(&self.scheduler).await?;
        Ok(assignment::load(&mut tx, self.node, 500).await?)
    }

    pub async fn report(&self, report: &NodeReport, seconds: u64) -> anyhow::Result<ReportOutcome> {
        let mut tx = pool::begin(&self.scheduler).await?;
        let outcome = report::record(&mut tx, self.node, report, at(seconds)).await?;
        tx.commit().await?;
        self.load_jobs(seconds).await?;
        Ok(outcome)
    }

    pub async fn observe(
        &self,
        revision: u64,
        seen: &[(TaskId, Observed)],
        seconds: u64,
    ) -> anyhow::Result<ReportOutcome> {
        let statuses = seen
            .iter()
            .map(|(id, observed)| (*id, revision, observed.clone()))
            .collect();
        self.report(
            &NodeReport {
                statuses,
                ..NodeReport::default()
            },
            seconds,
        )
        .await
    }

    /// Reports lines of one task's event file, from a line number on.
    pub async fn tell(
        &self,
        task_id: TaskId,
        revision: u64,
        first_seq: u64,
        lines: &[TaskReport],
    ) -> anyhow::Result<ReportOutcome> {
        let events = lines.iter().map(|line| (at(50), line.clone())).collect();
        let run = TaskEvents {
            task_id,
            revision,
            first_seq,
            events,
        };
        self.report(
            &NodeReport {
                events: vec![run],
                ..NodeReport::default()
            },
            50,
        )
        .await
    }
}

pub fn plan_of(decisions: &[JobDecision]) -> RoundPlan {
    RoundPlan {
        decisions: decisions.to_vec(),
        ..RoundPlan::default()
    }
}

pub fn ids_of(plan: &RoundPlan) -> PlanIds {
    PlanIds::of(plan, id, || "5e".repeat(32))
}

pub fn start(tasks: Vec<PlannedTask>) -> Action {
    Action::Start {
        tasks,
        why: "there is room".to_owned(),
        lent: false,
    }
}

pub fn stop(then: muster_model::job::AfterStop) -> Action {
    Action::Stop {
        then,
        why: "a test".to_owned(),
        charge: muster_model::job::Charge::None,
        not_before_ms: None,
    }
}
