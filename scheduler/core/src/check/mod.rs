//! Independent check of a plan. It uses its own accounting and shares only types with the planner,
//! so one mistake cannot affect both.

mod exclude;
mod gang;
mod gpu_memory;
mod moves;
mod packing;
mod preemption;
mod quota;
mod sound;
mod turns;
mod verdict;
mod violation;

use crate::plan::{Action, JobDecision, RoundPlan};
use crate::policies::name::PolicyName;
use crate::policy::{Policy, PreemptionRules};
use crate::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::job::{AfterStop, JobState};
use muster_model::node::GpuClass;
use muster_model::task::{Outcome, Role, TaskState};
pub use sound::{sound, sound_with};
use std::collections::{BTreeMap, BTreeSet};
pub use violation::Violation;

/// Returns all rules that the plan breaks under the default settings; empty for a correct plan.
#[must_use]
pub fn check(snapshot: &ClusterSnapshot, plan: &RoundPlan) -> Vec<Violation> {
    check_with(snapshot, plan, &Policy::named(PolicyName::Muster))
}

/// Returns all rules that the plan breaks. Of the settings it reads those of stops for other jobs
/// and of GPU memory.
#[must_use]
pub fn check_with(snapshot: &ClusterSnapshot, plan: &RoundPlan, policy: &Policy) -> Vec<Violation> {
    let mut checker = Checker::new(snapshot, policy);
    checker.displacements(plan);
    checker.exclusions(&plan.excluded);
    checker.stops(plan);
    checker.keep_places(plan);
    for decision in &plan.decisions {
        checker.decision(decision);
    }
    checker.left_out(plan);
    checker.turned_once(plan);
    checker.pairs(plan);
    checker.quotas();
    checker.lowered_quotas();
    checker.violations
}

struct Checker<'s> {
    snapshot: &'s ClusterSnapshot,
    /// The best class of GPUs on any node.
    best_class: GpuClass,
    rules: PreemptionRules,
    /// Share of a GPU's memory that must stay free beside suspended programs.
    spare_gpu_memory: Option<f64>,
    states: BTreeMap<JobId, (&'s SnapshotJob, JobState, Option<i64>)>,
    /// Free GPUs of the nodes that take tasks.
    free: BTreeSet<(NodeId, u32)>,
    /// GPUs of jobs that stop, now or by this plan.
    stopping: BTreeSet<(NodeId, u32)>,
    /// CPU in thousandths of a core and memory in bytes of these jobs, by node.
    stopping_room: BTreeMap<NodeId, (i128, i128)>,
    /// GPUs that are reserved as destinations of moving jobs.
    kept: BTreeSet<(NodeId, u32)>,
    cpu_milli: BTreeMap<NodeId, i128>,
    memory_bytes: BTreeMap<NodeId, i128>,
    /// Number of GPUs that this plan starts, by tenant.
    started: BTreeMap<TenantId, u32>,
    /// GPUs on which this plan gives a tenant a second lane.
    seated: BTreeSet<(TenantId, NodeId, u32)>,
    /// Tasks that leave by a resize in place.
    leaving_tasks: BTreeMap<JobId, BTreeSet<TaskId>>,
    violations: Vec<Violation>,
}

impl<'s> Checker<'s> {
    fn new(snapshot: &'s ClusterSnapshot, policy: &Policy) -> Self {
        let mut checker = Self {
            snapshot,
            best_class: snapshot.best_gpu_class(),
            rules: policy.preemption,
            spare_gpu_memory: policy.spare_gpu_memory,
            states: snapshot
                .jobs
                .iter()
                .map(|job| (job.id, (job, job.state.clone(), job.not_before_ms)))
                .collect(),
            free: BTreeSet::new(),
            stopping: BTreeSet::new(),
            stopping_room: BTreeMap::new(),
            kept: BTreeSet::new(),
            cpu_milli: BTreeMap::new(),
            memory_bytes: BTreeMap::new(),
            started: BTreeMap::new(),
            seated: BTreeSet::new(),
            leaving_tasks: BTreeMap::new(),
            violations: Vec::new(),
        };
        for node in snapshot.nodes.iter().filter(|node| node.is_open()) {
            checker
                .free
                .extend((0..node.gpus).map(|gpu| (node.id, gpu)));
            for &gpu in &node.taken {
                checker.free.remove(&(node.id, gpu));
            }
            checker
                .cpu_milli
                .insert(node.id, i128::from(node.cpu_milli));
            checker
                .memory_bytes
                .insert(node.id, i128::from(node.memory_bytes));
        }
        for job in &snapshot.jobs {
            let tasks = job.tasks.iter().chain(&job.leaving);
            for task in tasks.filter(|task| !is_gone(&task.state)) {
                for &gpu in task.gpus.iter().filter(|_| holds(&task.state)) {
                    checker.free.remove(&(task.node, gpu));
                }
                checker.charge(job, task.role, task.node);
                if !holds(&task.state) {
                    checker.idle(job, task.role, task.node);
                }
            }
        }
        checker
    }

    /// The plan may write the reason of being left out only for jobs that the round leaves out.
    fn left_out(&mut self, plan: &RoundPlan) {
        let untold = self.snapshot.left_out.iter().flat_map(|one| &one.untold);
        let untold: BTreeSet<(JobId, u64)> = untold.map(|one| (one.job, one.revision)).collect();
        for stale in plan.behind.iter().flat_map(|behind| &behind.jobs) {
            let is_known = untold.contains(&(stale.job, stale.revision));
            if !is_known || self.states.contains_key(&stale.job) {
                self.violations
                    .push(Violation::UnknownJob { job: stale.job });
            }
        }
    }

    fn decision(&mut self, decision: &JobDecision) {
        let Some((job, state, not_before_ms)) = self.states.get(&decision.job).cloned() else {
            self.violations
                .push(Violation::UnknownJob { job: decision.job });
            return;
        };
        if decision.expected_revision != job.revision {
            self.violations.push(Violation::WrongRevision {
                job: job.id,
                expected: decision.expected_revision,
                revision: job.revision,
            });
        }
        self.facts(job, &decision.action, not_before_ms);
        let next = match decision.action.event() {
            None => state,
            Some(event) => match state.clone().apply(event) {
                Ok(next) => next,
                Err(refused) => {
                    self.violations.push(Violation::IllegalTransition {
                        job: job.id,
                        refused: refused.to_string(),
                    });
                    state
                }
            },
        };
        let not_before_ms = match &decision.action {
            Action::Stop {
                not_before_ms: Some(until_ms),
                ..
            } => Some(*until_ms),
            _ => not_before_ms,
        };
        self.states.insert(job.id, (job, next, not_before_ms));
    }

    /// Checks that the facts of the snapshot justify the action.
    fn facts(&mut self, job: &'s SnapshotJob, action: &Action, not_before_ms: Option<i64>) {
        match action {
            Action::Start { tasks, .. } => {
                if let Some(not_before_ms) = not_before_ms.filter(|&at| at > self.snapshot.now_ms) {
                    self.violations.push(Violation::StartsInBackOff {
                        job: job.id,
                        not_before_ms,
                    });
                }
                if job.intent != muster_model::job::Intent::Run {
                    self.violations
                        .push(Violation::StartsAgainstIntent { job: job.id });
                }
                self.start(job, tasks);
            }
            Action::Stop {
                then: AfterStop::Move { to, .. },
                ..
            } => self.moves(job, to),
            Action::Resize { leave, join, .. } => self.resize(job, leave, join),
            Action::Suspend { .. } => self.suspend(job),
            Action::Continue { beside: None, .. } => self.go_on(job),
            Action::Continue {
                beside: Some(host), ..
            } => self.go_on_beside(job, *host),
            Action::Release
                if job
                    .tasks
                    .iter()
                    .chain(&job.leaving)
                    .any(|task| !is_gone(&task.state)) =>
            {
                self.violations
                    .push(Violation::ReleasedEarly { job: job.id });
            }
            Action::Up
                if job
                    .tasks
                    .iter()
                    .any(|task| !is_up_or_done(job, &task.state)) =>
            {
                self.violations.push(Violation::UpEarly { job: job.id });
            }
            Action::Stop {
                then: AfterStop::Requeue { cause },
                ..
            } => {
                if *cause == muster_model::job::RequeueCause::Preempted {
                    self.preemption(job);
                }
            }
            Action::Wait { waiting } if job.waiting.as_ref() == Some(waiting) => {
                self.violations.push(Violation::IdleWait { job: job.id });
            }
            Action::GiveUp { tasks, .. } => {
                if !tasks.iter().all(|id| waits_for_node(job, *id)) {
                    self.violations
                        .push(Violation::GivesUpStarted { job: job.id });
                }
            }
            Action::Judge { verdict } => self.verdict(job, verdict),
            Action::Release
            | Action::Up
            | Action::Stop { .. }
            | Action::Displace { .. }
            | Action::Suspect { .. }
            | Action::Idle { .. }
            | Action::Hold
            | Action::Resume
            | Action::Cancel
            | Action::Wait { .. } => {}
        }
    }

    /// Releases the CPU of a suspended task. It keeps its memory.
    fn idle(&mut self, job: &SnapshotJob, role: Role, node: NodeId) {
        let (cpu_milli, _) = asked(job, role);
        if let Some(left) = self.cpu_milli.get_mut(&node) {
            *left += i128::from(cpu_milli);
        }
    }

    fn charge(&mut self, job: &SnapshotJob, role: Role, node: NodeId) {
        let (cpu_milli, memory_bytes) = asked(job, role);
        if let Some(left) = self.cpu_milli.get_mut(&node) {
            *left -= i128::from(cpu_milli);
        }
        if let Some(left) = self.memory_bytes.get_mut(&node) {
            *left -= i128::from(memory_bytes);
        }
    }
}

/// Returns the CPU in thousandths of a core and the memory in bytes that a task of this role
/// requests.
fn asked(job: &SnapshotJob, role: Role) -> (u64, u64) {
    match role {
        Role::Worker { .. } => (job.worker.cpu_milli, job.worker.memory_bytes),
        Role::PsShard { .. } => (job.ps_shard.cpu_milli, job.ps_shard.memory_bytes),
    }
}

fn waits_for_node(job: &SnapshotJob, id: TaskId) -> bool {
    let mut tasks = job.tasks.iter();
    tasks.any(|task| task.id == id && task.state == TaskState::Assigned)
}

/// Whether the task runs. A process of a command may have ended before others are up.
fn is_up_or_done(job: &SnapshotJob, state: &TaskState) -> bool {
    let done = TaskState::Released {
        outcome: Outcome::exited(0),
    };
    *state == TaskState::Running || (job.command.is_some() && *state == done)
}

fn is_gone(state: &TaskState) -> bool {
    match state {
        TaskState::Released { .. } => true,
        TaskState::Assigned
        | TaskState::Running
        | TaskState::Suspending
        | TaskState::Suspended
        | TaskState::Stopping
        | TaskState::Ending => false,
    }
}

/// Whether a task in this state holds GPUs and CPU.
fn holds(state: &TaskState) -> bool {
    match state {
        TaskState::Suspended | TaskState::Ending | TaskState::Released { .. } => false,
        TaskState::Assigned | TaskState::Running | TaskState::Suspending | TaskState::Stopping => {
            true
        }
    }
}
