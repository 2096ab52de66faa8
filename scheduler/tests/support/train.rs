//! Training of jobs without nodes: writes the decisions of rounds and the reports of a node
//! directly.

use super::Store;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::AfterStop;
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use muster_model::progress::{Evaluation, Split};
use muster_model::task::{Outcome, Role};
use muster_scheduler::clock;
use muster_store::plan::{self, PlanIds};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{node, report};

/// Job in training.
pub struct Training {
    job: JobId,
    task: TaskId,
    node: NodeId,
    revision: u64,
    lines: u64,
}

impl Training {
    /// Starts the job with one worker.
    pub async fn start(store: &Store, job: JobId) -> Self {
        let revision = store.job(job).await.revision;
        let node = a_node(store).await;
        let mut training = Self {
            job,
            task: clock::id().into(),
            node,
            revision,
            lines: 0,
        };
        let action = Action::Start {
            tasks: vec![PlannedTask {
                role: Role::Worker { rank: 0 },
                node,
                gpus: vec![],
            }],
            why: "room".to_owned(),
            lent: false,
        };
        training.decide(store, action).await;
        training.revision += 1;
        training.observe(store, Observed::Running).await;
        training.decide(store, Action::Up).await;
        training
    }

    /// Reports an evaluation after `epoch` epochs of `per_epoch` steps.
    pub async fn evaluate(&mut self, store: &Store, epoch: u64, per_epoch: u64, accuracy: f64) {
        let evaluation = Evaluation {
            step: epoch * per_epoch,
            epoch: epoch as f64,
            split: Split::Test,
            loss: Some(1.0 - accuracy),
            accuracy: Some(accuracy),
        };
        self.tell(store, TaskReport::Evaluated { evaluation }).await;
    }

    /// Reports the end of the training.
    pub async fn succeed(mut self, store: &Store, step: u64) {
        let finished = TaskReport::Finished {
            step,
            reason: "epochs".to_owned(),
            model_path: "m".to_owned(),
        };
        self.tell(store, finished).await;
        let stop = Action::Stop {
            then: AfterStop::Succeed,
            why: "done".to_owned(),
            charge: muster_model::job::Charge::None,
            not_before_ms: None,
        };
        self.decide(store, stop).await;
        let outcome = Outcome::exited(0);
        self.observe(store, Observed::Gone { outcome }).await;
        self.decide(store, Action::Release).await;
    }

    async fn decide(&self, store: &Store, action: Action) {
        let decision = JobDecision {
            job: self.job,
            expected_revision: self.revision,
            action,
        };
        let plan = RoundPlan {
            decisions: vec![decision],
            ..RoundPlan::default()
        };
        let ids = PlanIds::of(&plan, || self.task, || "s".to_owned());
        let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
        let outcome = plan::commit(&mut tx, &plan, &ids, clock::now()).await;
        assert_eq!(outcome.expect("a commit").conflicts, []);
        tx.commit().await.expect("committed");
    }

    /// Reports a line of the task.
    pub async fn tell(&mut self, store: &Store, told: TaskReport) {
        let events = TaskEvents {
            task_id: self.task,
            revision: self.revision,
            first_seq: self.lines,
            events: vec![(clock::now(), told)],
        };
        self.lines += 1;
        self.report(store, vec![], vec![events]).await;
    }

    async fn observe(&self, store: &Store, observed: Observed) {
        let status = (self.task, self.revision, observed);
        self.report(store, vec![status], vec![]).await;
    }

    async fn report(
        &self,
        store: &Store,
        statuses: Vec<(TaskId, u64, Observed)>,
        events: Vec<TaskEvents>,
    ) {
        let told = NodeReport {
            statuses,
            events,
            logs: vec![],
        };
        let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
        report::record(&mut tx, self.node, &told, clock::now())
            .await
            .expect("recorded");
        tx.commit().await.expect("committed");
    }
}

async fn a_node(store: &Store) -> NodeId {
    let gpu = Gpu {
        index: 0,
        kind: GpuKind::CpuSlot,
        model: "cpu".to_owned(),
        memory_bytes: 1 << 30,
        compute_capability: None,
    };
    let capacity = Capacity {
        gpus: vec![gpu],
        cpu_milli: 8_000,
        memory_bytes: 8 << 30,
        rack: None,
        labels: std::collections::BTreeMap::new(),
        driver_suspend: None,
        pods: None,
        isolation: None,
        images: None,
    };
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    let hello = node::hello(&mut tx, clock::id().into(), "n", &capacity, clock::now()).await;
    tx.commit().await.expect("committed");
    hello.expect("a node").id
}
