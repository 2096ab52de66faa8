//! Builder of snapshots: `Scene::cluster(2, 2).job("a").workers(1, 4)`.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use muster_core::snapshot::{
    ClusterSnapshot, Progress, SnapshotJob, SnapshotNode, SnapshotTask, SnapshotTenant, SpeedPoint,
};
use muster_core::{Action, RoundPlan, apply, check_with, plan, policy::Policy};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::packing::Company;
use muster_model::spec::{Consistency, NodeConstraints, PsShardResources, Range, WorkerDemand};
use muster_model::task::{Outcome, Role, TaskEvent, TaskState};
use std::collections::BTreeMap;
use uuid::Uuid;

pub struct Scene {
    pub snapshot: ClusterSnapshot,
    pub policy: Policy,
}

pub struct JobIn<'s>(pub &'s mut SnapshotJob);

impl Scene {
    /// Returns nodes of equal GPUs with ample CPU and memory, and one tenant without a quota.
    pub fn cluster(nodes: u32, gpus: u32) -> Self {
        let nodes = (0..nodes).map(|n| node(n, gpus)).collect();
        let snapshot = ClusterSnapshot {
            round: 1,
            now_ms: 1_000_000,
            nodes,
            tenants: vec![SnapshotTenant {
                id: tenant(0),
                name: "t0".to_owned(),
                gpu_quota: None,
                weight: 1.0,
            }],
            jobs: Vec::new(),
            left_out: Vec::new(),
            families: Vec::new(),
            history_gpu_s: Vec::new(),
            priority_classes: Vec::new(),
        };
        Self {
            snapshot,
            policy: Policy::optimus(),
        }
    }

    /// Adds nodes.
    pub fn add_nodes(&mut self, nodes: u32, gpus: u32) {
        let there = u32::try_from(self.snapshot.nodes.len()).expect("few nodes");
        let new = (there..there + nodes).map(|n| node(n, gpus));
        self.snapshot.nodes.extend(new);
    }

    /// Adds a queued job of one worker and one shard, submitted after the jobs before it.
    pub fn job(&mut self, name: &str) -> JobIn<'_> {
        let number = u32::try_from(self.snapshot.jobs.len()).expect("few jobs");
        let submitted_ms = self.snapshot.now_ms + i64::from(number) - 1_000;
        self.snapshot.jobs.push(job(number, name, submitted_ms));
        JobIn(self.snapshot.jobs.last_mut().expect("just pushed"))
    }

    pub fn find(&mut self, name: &str) -> &mut SnapshotJob {
        self.snapshot
            .jobs
            .iter_mut()
            .find(|job| job.name == name)
            .expect("a job of that name")
    }

    /// Returns the task of a job with a role.
    pub fn task(&mut self, job: &str, role: Role) -> &mut SnapshotTask {
        let mut tasks = self.find(job).tasks.iter_mut();
        let task = tasks.find(|task| task.role == role);
        task.expect("a task of that role")
    }

    /// Plans, checks and applies one round.
    pub fn round(&mut self) -> RoundPlan {
        self.snapshot.sort();
        let (plan, _) = plan(&self.snapshot, &self.policy);
        assert_eq!(
            check_with(&self.snapshot, &plan, &self.policy),
            Vec::new(),
            "in the plan {plan:#?}"
        );
        apply(&mut self.snapshot, &plan).expect("a checked plan can be carried out");
        self.snapshot.round += 1;
        plan
    }

    /// Lets all nodes carry out their orders: tasks start, suspend or end.
    pub fn obey(&mut self) {
        for job in &mut self.snapshot.jobs {
            job.leaving.clear();
            job.put_off = job.put_off_when_up();
            for task in &mut job.tasks {
                match task.state {
                    TaskState::Assigned => task.state = TaskState::Running,
                    TaskState::Suspending => task.state = TaskState::Suspended,
                    TaskState::Stopping | TaskState::Ending => {
                        task.state = gone(Outcome::stopped())
                    }
                    TaskState::Running | TaskState::Suspended | TaskState::Released { .. } => {}
                }
            }
        }
    }

    /// Repeats rounds and [`Self::obey`] until a round decides nothing but wait reasons.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            let plan = self.round();
            let resizing = self.snapshot.jobs.iter().any(SnapshotJob::is_resizing);
            self.obey();
            let quiet = plan
                .decisions
                .iter()
                .all(|one| matches!(one.action, Action::Wait { .. }));
            let still =
                self.snapshot.jobs.iter().all(|job| {
                    !matches!(job.state, JobState::Starting | JobState::Stopping { .. })
                });
            if quiet && still && !resizing {
                return;
            }
        }
        panic!("fifty rounds did not settle {:#?}", self.snapshot.jobs);
    }

    pub fn later(&mut self, by_ms: i64) {
        self.snapshot.now_ms += by_ms;
    }

    /// Returns the number of running workers of a job.
    pub fn workers(&mut self, name: &str) -> u32 {
        let job = self.find(name);
        if job.state.phase() == JobPhase::Running {
            job.size().0
        } else {
            0
        }
    }

    pub fn phase(&mut self, name: &str) -> JobPhase {
        self.find(name).state.phase()
    }

    /// Records a measured speed of a job at a number of workers.
    pub fn measured(&mut self, name: &str, workers: u32, steps_per_s: f64) {
        let job = self.find(name);
        job.speeds.retain(|point| point.workers != workers);
        job.speeds.push(SpeedPoint {
            workers,
            ps_shards: 1,
            steps_per_s,
            samples: 50,
        });
    }
}

impl JobIn<'_> {
    pub fn workers(self, min: u32, max: u32) -> Self {
        self.0.workers = Range { min, max };
        self
    }

    pub fn ps_shards(self, min: u32, max: u32) -> Self {
        self.0.ps_shards = Range { min, max };
        self
    }

    pub fn gpus(self, per_worker: u32) -> Self {
        self.0.worker.gpus = per_worker;
        self
    }

    pub fn priority(self, priority: i32) -> Self {
        self.0.priority = priority;
        self
    }

    pub fn tenant(self, number: u32) -> Self {
        self.0.tenant = tenant(number);
        self
    }

    pub fn steps(self, steps: u64) -> Self {
        self.0.progress.max_steps = Some(steps);
        self
    }

    /// Makes the job resizable in place.
    pub fn in_place(self) -> Self {
        self.0.in_place = true;
        self
    }

    /// Sets the range of shards, with a replica of each.
    pub fn replicated(self, min: u32, max: u32) -> Self {
        self.0.ps_shards = Range { min, max };
        self.0.replicated = true;
        self.in_place()
    }

    pub fn retries(self, retries: u32) -> Self {
        self.0.retries = retries;
        self
    }
}

/// Returns the number of stops in a plan.
pub fn stops(plan: &RoundPlan) -> usize {
    plan.decisions
        .iter()
        .filter(|one| matches!(one.action, Action::Stop { .. }))
        .count()
}

/// Returns the other job on the GPU of a job of one worker, and the time since which both are
/// there.
pub fn company(snapshot: &ClusterSnapshot, job: &SnapshotJob) -> Option<Company> {
    let [task] = job.tasks.as_slice() else {
        return None;
    };
    let other = snapshot.jobs.iter().find(|other| {
        let mut tasks = other.held_tasks().filter(|it| it.state.holds_gpus());
        other.id != job.id && tasks.any(|it| it.node == task.node && it.gpus == task.gpus)
    })?;
    Some(Company {
        job: other.id,
        since_ms: came_ms(job).max(came_ms(other)),
    })
}

/// Returns the time at which a job last started or resumed.
fn came_ms(job: &SnapshotJob) -> i64 {
    job.turned_ms.max(job.placed_ms).unwrap_or(0)
}

pub fn node(number: u32, gpus: u32) -> SnapshotNode {
    SnapshotNode {
        id: NodeId(Uuid::from_u128(0x1000 + u128::from(number))),
        name: format!("node-{number:02}"),
        up: true,
        drained: false,
        seen_ms: None,
        freed: Vec::new(),
        gpu_memory_bytes: 0,
        compute_capability: None,
        driver_suspend: false,
        rack: None,
        excluded: false,
        cordoned: false,
        taken: Vec::new(),
        faults: Vec::new(),
        gpus,
        gpu_model: "gpu".to_owned(),
        cpu_slots: false,
        labels: BTreeMap::new(),
        pods: None,
        images: false,
        cpu_milli: 64_000,
        memory_bytes: 1 << 40,
        speed: None,
    }
}

pub fn tenant(number: u32) -> TenantId {
    TenantId(Uuid::from_u128(0x2000 + u128::from(number)))
}

pub fn gone(outcome: Outcome) -> TaskState {
    TaskState::Running
        .apply(TaskEvent::Gone { outcome })
        .expect("a running task can go")
}

pub fn job(number: u32, name: &str, submitted_ms: i64) -> SnapshotJob {
    SnapshotJob {
        id: JobId(Uuid::from_u128(0x3000_0000 + (u128::from(number) << 64))),
        tenant: tenant(0),
        name: name.to_owned(),
        priority: 0,
        priority_class: None,
        submitted_ms,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        put_off: 0,
        retries: 3,
        not_before_ms: None,
        after: Vec::new(),
        array_limit: None,
        workers: Range { min: 1, max: 1 },
        ps_shards: Range { min: 1, max: 1 },
        worker: WorkerDemand {
            gpus: 1,
            cpu_milli: 100,
            memory_bytes: 1 << 30,
        },
        ps_shard: PsShardResources {
            cpu_milli: 100,
            memory_bytes: 1 << 28,
        },
        pods: false,
        image: false,
        constraints: NodeConstraints::default(),
        consistency: Consistency::default(),
        batch: 128,
        adaptive: None,
        tasks: Vec::new(),
        leaving: Vec::new(),
        in_place: false,
        replicated: false,
        suspends: true,
        exclusive: false,
        preemption: Default::default(),
        reported: None,
        answer_ms: None,
        lost_s: 0.0,
        lent: false,
        trial: None,
        asked: None,
        turned_ms: None,
        command: None,
        limit_s: None,
        finished: None,
        failed: None,
        unfit: Vec::new(),
        progress: Progress {
            step: 0,
            steps_per_epoch: 468,
            max_steps: Some(20_000),
            convergence: None,
            epoch_losses: Vec::new(),
        },
        speeds: Vec::new(),
        placed_speeds: Vec::new(),
        family: None,
        trained_s: 0.0,
        service: None,
        lasts: None,
        ran: None,
        placed_ms: None,
        running_ms: None,
        power_of_two: false,
        restarts: None,
        waiting: None,
        watch: None,
        measured: None,
    }
}
