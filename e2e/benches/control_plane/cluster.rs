//! Running jobs on a node, and the reports of its executor.

use anyhow::ensure;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId, UserId};
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use muster_model::progress::Sample;
use muster_model::task::Role;
use muster_model::tenant::Tenant;
use muster_store::job::NewJob;
use muster_store::plan::PlanIds;
use muster_store::pool::{self, StorePool};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::user::User;
use muster_store::{job, node, plan, report, tenant, tenant_scope, user};
use muster_testdb::TestDb;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// Running jobs, one task each, on one node.
pub struct BenchCluster {
    pool: StorePool,
    node: NodeId,
    jobs: Vec<BenchJob>,
    /// Number of the job that sends the next backlog.
    turn: usize,
}

struct BenchJob {
    job: JobId,
    task: TaskId,
    /// Step of the next sample.
    step: u64,
}

impl BenchCluster {
    pub async fn start(db: &TestDb, jobs: u32) -> anyhow::Result<Self> {
        let pool = pool::scheduler(&db.scheduler_url, 1)?;
        let mut tx = pool::begin(&pool).await?;
        let node = node::hello(&mut tx, Uuid::now_v7().into(), "bench", &slots(jobs), now())
            .await?
            .id;
        tx.commit().await?;
        let mut running = Vec::new();
        for (slot, job) in (0..).zip(submit(db, jobs).await?) {
            let task = TaskId(Uuid::now_v7());
            let tasks = vec![PlannedTask {
                role: Role::Worker { rank: 0 },
                node,
                gpus: vec![slot],
            }];
            let why = "there is room".to_owned();
            let start = JobDecision {
                job,
                expected_revision: 0,
                action: Action::Start {
                    tasks,
                    why,
                    lent: false,
                },
            };
            let plan = RoundPlan {
                decisions: vec![start],
                ..RoundPlan::default()
            };
            let ids = PlanIds::of(&plan, || task, || "5e".repeat(32));
            let mut tx = pool::begin(&pool).await?;
            let outcome = plan::commit(&mut tx, &plan, &ids, now()).await?;
            ensure!(outcome.conflicts.is_empty(), "{:?}", outcome.conflicts);
            tx.commit().await?;
            running.push(BenchJob { job, task, step: 1 });
        }
        let cluster = Self {
            pool,
            node,
            jobs: running,
            turn: 0,
        };
        let statuses = cluster
            .jobs
            .iter()
            .map(|job| (job.task, 1, Observed::Running));
        let up = NodeReport {
            statuses: statuses.collect(),
            ..NodeReport::default()
        };
        cluster.record(&[up]).await?;
        Ok(cluster)
    }

    /// The next `samples` samples of one job, the jobs in rotation.
    pub fn backlog(&mut self, samples: u64) -> NodeReport {
        let turn = self.turn % self.jobs.len();
        self.turn += 1;
        NodeReport {
            events: vec![self.jobs[turn].tell(samples)],
            ..NodeReport::default()
        }
    }

    /// The next sample of every job.
    pub fn live(&mut self) -> NodeReport {
        NodeReport {
            events: self.jobs.iter_mut().map(|job| job.tell(1)).collect(),
            ..NodeReport::default()
        }
    }

    /// Records each report in its own transaction, as a node session does.
    pub async fn record(&self, reports: &[NodeReport]) -> anyhow::Result<()> {
        for report in reports {
            let mut tx = pool::begin(&self.pool).await?;
            let outcome = report::record(&mut tx, self.node, report, now()).await?;
            tx.commit().await?;
            let sent: usize = report.events.iter().map(|run| run.events.len()).sum();
            ensure!(outcome.recorded == sent as u64, "{outcome:?} of {sent}");
        }
        Ok(())
    }

    /// Checks that every reported sample is stored.
    pub async fn verify(&self, conn: &mut PgConnection) -> anyhow::Result<()> {
        for job in &self.jobs {
            let kept: i64 =
                sqlx::query_scalar("select count(*) from progress_sample where job_id = $1")
                    .bind(job.job.0)
                    .fetch_one(&mut *conn)
                    .await?;
            ensure!(
                u64::try_from(kept)? == job.step - 1,
                "{kept} samples of {}",
                job.step - 1
            );
        }
        Ok(())
    }
}

impl BenchJob {
    fn tell(&mut self, samples: u64) -> TaskEvents {
        let first = self.step;
        self.step += samples;
        let events = (first..self.step).map(|step| {
            (
                now(),
                TaskReport::Progress {
                    sample: sample(step),
                },
            )
        });
        TaskEvents {
            task_id: self.task,
            revision: 1,
            first_seq: first - 1,
            events: events.collect(),
        }
    }
}

async fn submit(db: &TestDb, jobs: u32) -> anyhow::Result<Vec<JobId>> {
    let (tenant_id, user_id): (TenantId, UserId) = (Uuid::now_v7().into(), Uuid::now_v7().into());
    let api = pool::api(&db.api_url, 1)?;
    let mut tx = pool::begin_for(&api, tenant_id).await?;
    tenant_scope::admin(&mut tx).await?;
    let new = Tenant {
        id: tenant_id,
        name: "samples".to_owned(),
        gpu_quota: None,
        weight: muster_model::tenant::EQUAL_WEIGHT,
        pods: muster_model::tenant::TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    tenant::create(&mut tx, &new, now()).await?;
    let new = User {
        id: user_id,
        tenant_id,
        name: "samples".to_owned(),
    };
    user::create(&mut tx, &new, now()).await?;
    let mut ids = Vec::new();
    for _ in 0..jobs {
        let new = NewJob {
            id: Uuid::now_v7().into(),
            tenant_id,
            submitted_by: user_id,
            spec: serde_json::from_str(crate::DOCUMENT)?,
        };
        job::insert(&mut tx, &new, now()).await?;
        ids.push(new.id);
    }
    tx.commit().await?;
    Ok(ids)
}

fn sample(step: u64) -> Sample {
    let noise = (step.wrapping_mul(2_654_435_761) % 1_000) as f64 / 1_000.0;
    Sample {
        step,
        epoch: step as f64 / 468.75,
        loss: 0.4 + noise / 10.0,
        accuracy: Some(0.8 + noise / 10.0),
        examples_per_s: Some(8_000.0 + noise),
        steps_per_s: 62.5 + noise,
        compute_ms: Some(11.0 + noise),
        exchange_ms: Some(2.0 + noise),
        data_ms: Some(0.5 + noise),
        workers: 1,
        ps_shards: 1,
        noise_scale: None,
        gain: None,
    }
}

fn slots(count: u32) -> Capacity {
    let gpu = |index| Gpu {
        index,
        kind: GpuKind::CpuSlot,
        model: "cpu".to_owned(),
        memory_bytes: 1 << 30,
        compute_capability: None,
    };
    Capacity {
        gpus: (0..count).map(gpu).collect(),
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

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
