//! A large cluster in Postgres: nodes, tenants, and jobs whose tasks report what they measure.

use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::progress::Sample;
use muster_model::task::{Outcome, Role};
use muster_model::tenant::{EQUAL_WEIGHT, Tenant, TenantPods, TenantPreemption};
use muster_scheduler::clock;
use muster_store::assignment;
use muster_store::job::{self, NewJob};
use muster_store::pool::{self, StorePool};
use muster_store::report::{self, NodeReport, TaskEvents};
use muster_store::{node, tenant, user};
use muster_testdb::TestDb;
use std::collections::BTreeMap;

const TENANTS: usize = 20;
/// Grace period of stopped tasks.
const GRACE_MS: u64 = 5_000;

/// Numbers of nodes, GPUs per node, and jobs.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub nodes: u32,
    pub gpus: u32,
    pub jobs: u32,
}

pub struct BenchCluster {
    _database: TestDb,
    pub scheduler: StorePool,
    api: StorePool,
    tenants: Vec<(TenantId, muster_model::id::UserId)>,
    nodes: Vec<NodeId>,
    submitted: u32,
    /// Reported lines of each task.
    lines: BTreeMap<muster_model::id::TaskId, u64>,
}

impl BenchCluster {
    /// Creates the cluster with all jobs queued.
    pub async fn new(size: Size) -> anyhow::Result<Self> {
        let database = TestDb::new().await;
        let owner = pool::owner(&database.owner_url, 2)?;
        let mut tx = pool::begin(&owner).await?;
        let mut tenants = Vec::new();
        for number in 0..TENANTS {
            let owned = Tenant {
                id: clock::id().into(),
                name: format!("tenant-{number}"),
                gpu_quota: None,
                weight: EQUAL_WEIGHT,
                pods: TenantPods::default(),
                preemption: TenantPreemption::default(),
                shares_families: false,
                interactive: false,
            };
            tenant::create(&mut tx, &owned, clock::now()).await?;
            let member = user::User {
                id: clock::id().into(),
                tenant_id: owned.id,
                name: "ada".to_owned(),
            };
            user::create(&mut tx, &member, clock::now()).await?;
            tenants.push((owned.id, member.id));
        }
        tx.commit().await?;
        let mut cluster = Self {
            scheduler: pool::scheduler(&database.scheduler_url, 8)?,
            api: pool::api(&database.api_url, 2)?,
            _database: database,
            tenants,
            nodes: Vec::new(),
            submitted: 0,
            lines: BTreeMap::new(),
        };
        let capacity = gpus(size.gpus);
        let mut tx = pool::begin(&cluster.scheduler).await?;
        for number in 0..size.nodes {
            let name = format!("node-{number}");
            let id = clock::id().into();
            let node = node::hello(&mut tx, id, &name, &capacity, clock::now()).await?;
            cluster.nodes.push(node.id);
        }
        tx.commit().await?;
        for _ in 0..size.jobs {
            cluster.submit().await?;
        }
        Ok(cluster)
    }

    /// Submits the next job: an elastic job of one of 60 families.
    pub async fn submit(&mut self) -> anyhow::Result<JobId> {
        let number = self.submitted;
        self.submitted += 1;
        let (tenant_id, submitted_by) = self.tenants[number as usize % TENANTS];
        let new = NewJob {
            id: clock::id().into(),
            tenant_id,
            submitted_by,
            spec: serde_json::from_value(document(number))?,
        };
        let mut tx = pool::begin_for(&self.api, tenant_id).await?;
        let job = job::insert(&mut tx, &new, clock::now()).await?;
        tx.commit().await?;
        Ok(job.id)
    }

    /// Reports that all tasks of all nodes run, and a sample of each first worker.
    pub async fn run_tasks(&mut self) -> anyhow::Result<()> {
        for node in self.nodes.clone() {
            let mut tx = pool::begin(&self.scheduler).await?;
            let assigned = assignment::load(&mut tx, node, GRACE_MS).await?;
            let mut report = NodeReport::default();
            for task in &assigned.tasks {
                let launch = &task.launch;
                let status = if task.stop {
                    let outcome = Outcome::exited(0);
                    Observed::Gone { outcome }
                } else {
                    Observed::Running
                };
                report
                    .statuses
                    .push((launch.task_id, launch.revision, status));
                if task.stop {
                    continue;
                }
                let first_seq = self.lines.entry(launch.task_id).or_default();
                let mut events = Vec::new();
                if *first_seq == 0 {
                    events.push(TaskReport::Ready { from_step: 0 });
                }
                if launch.role == (Role::Worker { rank: 0 }) {
                    let step = 100 * (*first_seq + 1);
                    let workers = task.peers.workers.len();
                    events.push(TaskReport::Progress {
                        sample: sample(step, workers),
                    });
                }
                let lines = events.len() as u64;
                report.events.push(TaskEvents {
                    task_id: launch.task_id,
                    revision: launch.revision,
                    first_seq: *first_seq,
                    events: events
                        .into_iter()
                        .map(|event| (clock::now(), event))
                        .collect(),
                });
                *first_seq += lines;
            }
            report::record(&mut tx, node, &report, clock::now()).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Reports that the tasks of one running job on one node have ended well. Returns whether one
    /// was there.
    pub async fn end_one(&mut self, node: usize) -> anyhow::Result<bool> {
        let node = self.nodes[node % self.nodes.len()];
        let mut tx = pool::begin(&self.scheduler).await?;
        let assigned = assignment::load(&mut tx, node, GRACE_MS).await?;
        let alone = assigned
            .tasks
            .iter()
            .find(|task| !task.stop && task.peers.workers.len() == 1);
        let Some(task) = alone else {
            return Ok(false);
        };
        let launch = &task.launch;
        let outcome = Outcome::exited(0);
        let finished = TaskReport::Finished {
            step: 1_000_000,
            reason: "all steps are done".to_owned(),
            model_path: "model".to_owned(),
        };
        let first_seq = self.lines.get(&launch.task_id).copied().unwrap_or(0);
        let report = NodeReport {
            statuses: vec![(launch.task_id, launch.revision, Observed::Gone { outcome })],
            events: vec![TaskEvents {
                task_id: launch.task_id,
                revision: launch.revision,
                first_seq,
                events: vec![(clock::now(), finished)],
            }],
            ..NodeReport::default()
        };
        report::record(&mut tx, node, &report, clock::now()).await?;
        tx.commit().await?;
        Ok(true)
    }
}

fn gpus(count: u32) -> Capacity {
    let gpus = (0..count).map(|index| Gpu {
        index,
        kind: GpuKind::Cuda,
        model: "A100".to_owned(),
        memory_bytes: 80 << 30,
        compute_capability: None,
    });
    Capacity {
        gpus: gpus.collect(),
        cpu_milli: 128_000,
        memory_bytes: 1 << 40,
        rack: None,
        labels: BTreeMap::new(),
        driver_suspend: None,
        pods: None,
        isolation: None,
        images: None,
    }
}

/// Returns the document of job `number`. Jobs want 1 to 8 workers; every fourth has a fixed size.
fn document(number: u32) -> serde_json::Value {
    let most = 1 << (number % 4);
    let least = if number % 4 == 3 { most } else { 1 };
    serde_json::json!({
        "version": "muster/v1",
        "name": format!("job-{number}"),
        "engine": {
            "model": { "kind": "mlp", "hidden": [8 + 8 * (number % 3)] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
            "batch": 64,
        },
        "scale": { "workers": { "min": least, "max": most } },
        "stop": { "steps": 100_000 + 997 * (number % 1_000) },
    })
}

fn sample(step: u64, workers: usize) -> Sample {
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    Sample {
        step,
        epoch: step as f64 / 900.0,
        loss: 1.0,
        accuracy: Some(0.5),
        examples_per_s: None,
        steps_per_s: 10.0 * f64::from(workers).powf(0.8),
        compute_ms: None,
        exchange_ms: None,
        data_ms: None,
        workers,
        ps_shards: 0,
        noise_scale: None,
        gain: None,
    }
}
