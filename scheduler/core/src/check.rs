//! Finds what is wrong with a plan, by its own accounting.
//!
//! It shares no code with the planner beyond the types, so that one mistake cannot hide in both.

use crate::plan::{Action, Decision, Plan, PlannedTask};
use crate::snapshot::{Job, Snapshot, Task};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::job::{AfterStop, JobState, Seat};
use muster_model::pace::Doing;
use muster_model::task::{Outcome, Role, TaskState};
use muster_model::verdict::{Finding, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the plan names job {job}, which the snapshot does not have")]
    UnknownJob { job: JobId },
    #[error("job {job} is decided on at revision {expected}, but has {revision}")]
    WrongRevision {
        job: JobId,
        expected: u64,
        revision: u64,
    },
    #[error("job {job}: {refused}")]
    IllegalTransition { job: JobId, refused: String },
    #[error("job {job} is released while its tasks hold GPUs")]
    ReleasedEarly { job: JobId },
    #[error("job {job} is up, but not all of its tasks are")]
    UpEarly { job: JobId },
    #[error("job {job} starts before {not_before_ms}, the end of its back-off")]
    StartsInBackOff { job: JobId, not_before_ms: i64 },
    #[error("job {job} starts against its owner's intent")]
    StartsAgainstIntent { job: JobId },
    #[error("job {job} starts with {role} {count} times")]
    BrokenGang {
        job: JobId,
        role: &'static str,
        count: u32,
    },
    #[error("job {job} starts with {count} {role}s, outside its range")]
    OutsideRange {
        job: JobId,
        role: &'static str,
        count: u32,
    },
    #[error("{role} of job {job} is given {given} GPUs instead of {needed}")]
    WrongGpus {
        job: JobId,
        role: Role,
        given: usize,
        needed: u32,
    },
    #[error("job {job} starts on node {node}, which takes no tasks")]
    ClosedNode { job: JobId, node: NodeId },
    #[error("GPU {gpu} of node {node} is given to job {job}, but is held or does not exist")]
    GpuNotFree { job: JobId, node: NodeId, gpu: u32 },
    #[error("node {node} is given more CPU than it has")]
    CpuExceeded { node: NodeId },
    #[error("node {node} is given more memory than it has")]
    MemoryExceeded { node: NodeId },
    #[error("tenant {tenant} would hold {held} GPUs, its quota is {quota}")]
    QuotaExceeded {
        tenant: TenantId,
        held: u32,
        quota: u32,
    },
    #[error("job {job} is stopped for another job although none of its kind may displace it")]
    UnjustPreemption { job: JobId },
    #[error("job {job} is told again what it was told before")]
    IdleWait { job: JobId },
    #[error("job {job} is turned, {what}")]
    WrongTurn { job: JobId, what: &'static str },
    #[error("a rank of job {job} is judged, {what}")]
    UnjustVerdict { job: JobId, what: &'static str },
    #[error("job {job} is resized in place, {what}")]
    ImpossibleResize { job: JobId, what: &'static str },
}

/// Everything that is wrong with the plan; empty when nothing is.
#[must_use]
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut checker = Checker::new(snapshot);
    checker.keep_places(plan);
    for decision in &plan.decisions {
        checker.decision(decision);
    }
    checker.quotas();
    checker.lowered_quotas();
    checker.violations
}

struct Checker<'s> {
    snapshot: &'s Snapshot,
    states: BTreeMap<JobId, (&'s Job, JobState, Option<i64>)>,
    /// GPUs that nobody holds, of nodes that take tasks.
    free: BTreeSet<(NodeId, u32)>,
    cpu_milli: BTreeMap<NodeId, i128>,
    memory_bytes: BTreeMap<NodeId, i128>,
    /// GPUs started by this plan.
    started: BTreeMap<TenantId, u32>,
    /// Tasks that resizes in place have told to leave.
    told: BTreeMap<JobId, BTreeSet<TaskId>>,
    violations: Vec<Violation>,
}

fn gpus(seats: &[Seat]) -> impl Iterator<Item = (NodeId, u32)> {
    let of = |seat: &Seat| (seat.node, seat.gpus.clone());
    let each = seats.iter().map(of);
    each.flat_map(|(node, gpus)| gpus.into_iter().map(move |gpu| (node, gpu)))
}

impl<'s> Checker<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let mut checker = Self {
            snapshot,
            states: snapshot
                .jobs
                .iter()
                .map(|job| (job.id, (job, job.state.clone(), job.not_before_ms)))
                .collect(),
            free: BTreeSet::new(),
            cpu_milli: BTreeMap::new(),
            memory_bytes: BTreeMap::new(),
            started: BTreeMap::new(),
            told: BTreeMap::new(),
            violations: Vec::new(),
        };
        for node in snapshot
            .nodes
            .iter()
            .filter(|node| node.up && !node.drained)
        {
            checker
                .free
                .extend((0..node.gpus).map(|gpu| (node.id, gpu)));
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

    /// GPUs to which jobs are on their way are for nobody else, unless one of them is not to be had any more or the job goes no further.
    fn keep_places(&mut self, plan: &Plan) {
        let given_up: BTreeSet<JobId> = plan
            .decisions
            .iter()
            .filter(|decision| match &decision.action {
                Action::Stop { then, .. } => !matches!(then, AfterStop::Move { .. }),
                // Who has stopped starts there, or has lost the place to a lack of CPU or quota.
                Action::Release => true,
                _ => false,
            })
            .map(|decision| decision.job)
            .collect();
        for job in &self.snapshot.jobs {
            let JobState::Stopping {
                then: AfterStop::Move { to },
            } = &job.state
            else {
                continue;
            };
            let gpus: BTreeSet<(NodeId, u32)> = gpus(to).collect();
            let is_open = |seat: &Seat| self.cpu_milli.contains_key(&seat.node);
            let is_there = gpus.is_subset(&self.free) && to.iter().all(is_open);
            if is_there && !given_up.contains(&job.id) {
                self.free.retain(|gpu| !gpus.contains(gpu));
            }
        }
    }

    /// A job that moves is whole where it goes, on what is free now; it has its place there from now on.
    fn moves(&mut self, job: &'s Job, to: &[Seat]) {
        let workers = to
            .iter()
            .filter(|seat| matches!(seat.role, Role::Worker { .. }));
        let count = u32::try_from(workers.count()).unwrap_or(u32::MAX);
        if count < job.workers.min || count > job.workers.max || !job.may_have(count) {
            self.violations.push(Violation::OutsideRange {
                job: job.id,
                role: "worker",
                count,
            });
        }
        for seat in to {
            let node = seat.node;
            if !self.cpu_milli.contains_key(&node) {
                let job = job.id;
                self.violations.push(Violation::ClosedNode { job, node });
            }
            for &gpu in &seat.gpus {
                if !self.free.remove(&(node, gpu)) {
                    let job = job.id;
                    self.violations
                        .push(Violation::GpuNotFree { job, node, gpu });
                }
            }
        }
    }

    fn decision(&mut self, decision: &Decision) {
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

    /// Whether the facts of the snapshot bear the action.
    fn facts(&mut self, job: &'s Job, action: &Action, not_before_ms: Option<i64>) {
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
                then: AfterStop::Move { to },
                ..
            } => self.moves(job, to),
            Action::Resize { leave, join, .. } => self.resize(job, leave, join),
            Action::Suspend { .. } => self.suspend(job),
            Action::Continue { .. } => self.go_on(job),
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
            Action::Judge { verdict } => self.verdict(job, verdict),
            Action::Release
            | Action::Up
            | Action::Stop { .. }
            | Action::Suspect { .. }
            | Action::Hold
            | Action::Resume
            | Action::Cancel
            | Action::Wait { .. } => {}
        }
    }

    /// It is there, not alone, and was told of by its job's document; the job trains.
    fn verdict(&mut self, job: &Job, verdict: &Verdict) {
        let mut wrong = |what| {
            let violation = Violation::UnjustVerdict { job: job.id, what };
            self.violations.push(violation);
        };
        let workers = job.tasks.iter().filter(|task| task.is_worker());
        if workers.clone().count() < 2 {
            wrong("which is alone");
        }
        if !workers.clone().any(|task| task.id == verdict.task_id) {
            wrong("which is not there");
        }
        if job.state != JobState::Running || !job.leaving.is_empty() {
            wrong("while others come or go");
        }
        let now_ms = self.snapshot.now_ms;
        let excused = |task: &Task| {
            task.pace.is_some_and(|pace| {
                matches!(pace.doing, Doing::Busy | Doing::Standing)
                    && now_ms.saturating_sub(pace.heard_ms) < 10_000
            })
        };
        if workers.clone().any(excused) {
            wrong("while others rightly wait");
        }
        let limit_ms = job.watch.as_ref().map_or(0, |watch| match verdict.finding {
            Finding::Straggler { .. } => watch.straggler_ms,
            Finding::Hang { .. } => watch.hang_ms,
        });
        if limit_ms == 0 || verdict.for_ms < limit_ms {
            wrong("earlier than its document says");
        }
    }

    /// The whole gang is up, and can stand still.
    fn suspend(&mut self, job: &'s Job) {
        let mut wrong = |what| {
            let violation = Violation::WrongTurn { job: job.id, what };
            self.violations.push(violation);
        };
        if !job.suspends {
            wrong("which cannot stand still");
        }
        if job.exclusive && job.intent != muster_model::job::Intent::Suspend {
            wrong("which is exclusive");
        }
        // A worker of a command may be done before the others.
        let is_done = |task: &Task| {
            let outcome = match &task.state {
                TaskState::Released { outcome } => outcome,
                _ => return false,
            };
            job.command.is_some() && *outcome == Outcome::Exited { code: 0 }
        };
        let is_up = |task: &Task| task.state == TaskState::Running;
        let all = job.tasks.iter().all(|task| is_up(task) || is_done(task));
        if !job.leaving.is_empty() || !all || !job.tasks.iter().any(is_up) {
            wrong("not all of whose tasks are up");
        }
    }

    /// The whole gang stands still, and every GPU that it had is free.
    fn go_on(&mut self, job: &'s Job) {
        let mut wrong = |what| {
            let violation = Violation::WrongTurn { job: job.id, what };
            self.violations.push(violation);
        };
        if job.intent != muster_model::job::Intent::Run {
            wrong("against its owner's intent");
        }
        let is_there =
            |task: &&Task| matches!(task.role, Role::Worker { .. }) && !is_gone(&task.state);
        let workers = || job.tasks.iter().filter(is_there);
        if workers().any(|task| task.state != TaskState::Suspended) || workers().next().is_none() {
            wrong("not all of whose workers stand still");
        }
        for task in workers() {
            if !self.cpu_milli.contains_key(&task.node) {
                let (job, node) = (job.id, task.node);
                self.violations.push(Violation::ClosedNode { job, node });
            }
            for &gpu in &task.gpus {
                if !self.free.remove(&(task.node, gpu)) {
                    let (job, node) = (job.id, task.node);
                    self.violations
                        .push(Violation::GpuNotFree { job, node, gpu });
                }
            }
            let gpus = u32::try_from(task.gpus.len()).unwrap_or(u32::MAX);
            *self.started.entry(job.tenant).or_default() += gpus;
            if let Some(left) = self.cpu_milli.get_mut(&task.node) {
                *left -= i128::from(job.worker.cpu_milli);
                if *left < 0 {
                    let node = task.node;
                    self.violations.push(Violation::CpuExceeded { node });
                }
            }
        }
    }

    /// Who stands still keeps memory and uses no CPU.
    fn idle(&mut self, job: &Job, role: Role, node: NodeId) {
        let cpu_milli = match role {
            Role::Worker { .. } => job.worker.cpu_milli,
            Role::PsShard { .. } => job.ps_shard.cpu_milli,
        };
        if let Some(left) = self.cpu_milli.get_mut(&node) {
            *left += i128::from(cpu_milli);
        }
    }

    /// A lost shard's copy stands in for it until another one does: its job may be that many below its least, and no more.
    fn fewest_shards(&self, job: &Job, leave: &[TaskId]) -> u32 {
        let is_shard = |task: &&Task| matches!(task.role, Role::PsShard { .. });
        let is_up = |node| self.snapshot.nodes.iter().any(|it| it.id == node && it.up);
        let is_lost = |task: &&Task| is_gone(&task.state) || !is_up(task.node);
        let shards = || job.tasks.iter().filter(is_shard);
        let lost = shards()
            .filter(|task| leave.contains(&task.id))
            .filter(is_lost);
        let there = u32::try_from(shards().count()).unwrap_or(u32::MAX);
        let lost = u32::try_from(lost.count()).unwrap_or(u32::MAX);
        job.ps_shards.min.min(there).saturating_sub(lost).max(1)
    }

    /// Whoever trains on must be there and be led by the chief; together with those who join it must be a whole gang.
    fn resize(&mut self, job: &'s Job, leave: &[TaskId], join: &[PlannedTask]) {
        let told: BTreeSet<TaskId> = leave.iter().copied().collect();
        let known = leave
            .iter()
            .all(|id| job.tasks.iter().any(|task| task.id == *id));
        let stays: Vec<&Task> = job
            .tasks
            .iter()
            .filter(|task| !told.contains(&task.id))
            .collect();
        let chief = Role::Worker { rank: 0 };
        let mut wrong = |what| {
            let violation = Violation::ImpossibleResize { job: job.id, what };
            self.violations.push(violation);
        };
        if !job.in_place {
            wrong("which it cannot be");
        }
        if leave.is_empty() && join.is_empty() {
            wrong("and nothing changes");
        }
        if !known || told.len() != leave.len() {
            wrong("and a task leaves that is not there");
        }
        if stays.iter().any(|task| is_gone(&task.state)) {
            wrong("and counts on a task that is gone");
        }
        if !stays.iter().any(|task| task.role == chief) {
            wrong("and its chief does not stay");
        }
        let roles: Vec<Role> = stays
            .iter()
            .map(|task| task.role)
            .chain(join.iter().map(|task| task.role))
            .collect();
        if roles.iter().collect::<BTreeSet<_>>().len() != roles.len() {
            wrong("and two tasks have one role");
        }
        for (is_worker, role, range) in [
            (true, "worker", job.workers),
            (false, "ps shard", job.ps_shards),
        ] {
            let of_role = roles
                .iter()
                .filter(|role| matches!(role, Role::Worker { .. }) == is_worker);
            let count = u32::try_from(of_role.count()).unwrap_or(u32::MAX);
            let least = match !is_worker && job.replicated {
                true => self.fewest_shards(job, leave),
                false => range.min,
            };
            if count < least || count > range.max || (is_worker && !job.may_have(count)) {
                self.violations.push(Violation::OutsideRange {
                    job: job.id,
                    role,
                    count,
                });
            }
        }
        for task in join {
            self.place(job, task);
        }
        self.told.insert(job.id, told);
    }

    fn start(&mut self, job: &'s Job, tasks: &[PlannedTask]) {
        let mut counts: BTreeMap<(bool, u32), u32> = BTreeMap::new();
        for task in tasks {
            let key = match task.role {
                Role::Worker { rank } => (true, rank),
                Role::PsShard { index } => (false, index),
            };
            *counts.entry(key).or_default() += 1;
            self.place(job, task);
        }
        for (is_worker, role, range) in [
            (true, "worker", job.workers),
            (false, "ps shard", job.ps_shards),
        ] {
            let indices: Vec<(u32, u32)> = counts
                .iter()
                .filter(|((kind, _), _)| *kind == is_worker)
                .map(|((_, index), count)| (*index, *count))
                .collect();
            for (expected, &(index, count)) in (0_u32..).zip(&indices) {
                if index != expected || count != 1 {
                    self.violations.push(Violation::BrokenGang {
                        job: job.id,
                        role,
                        count,
                    });
                }
            }
            let count = u32::try_from(indices.len()).unwrap_or(u32::MAX);
            if count < range.min || count > range.max || (is_worker && !job.may_have(count)) {
                self.violations.push(Violation::OutsideRange {
                    job: job.id,
                    role,
                    count,
                });
            }
        }
    }

    fn place(&mut self, job: &'s Job, task: &PlannedTask) {
        // Only nodes that take tasks have any CPU to give.
        if !self.cpu_milli.contains_key(&task.node) {
            self.violations.push(Violation::ClosedNode {
                job: job.id,
                node: task.node,
            });
        }
        let needed = match task.role {
            Role::Worker { .. } => job.worker.gpus,
            Role::PsShard { .. } => 0,
        };
        let given = task.gpus.len();
        if given != needed as usize {
            self.violations.push(Violation::WrongGpus {
                job: job.id,
                role: task.role,
                given,
                needed,
            });
        }
        for &gpu in &task.gpus {
            if !self.free.remove(&(task.node, gpu)) {
                self.violations.push(Violation::GpuNotFree {
                    job: job.id,
                    node: task.node,
                    gpu,
                });
            }
        }
        *self.started.entry(job.tenant).or_default() += u32::try_from(given).unwrap_or(u32::MAX);
        self.charge(job, task.role, task.node);
        if self.cpu_milli.get(&task.node).is_some_and(|&left| left < 0) {
            self.violations
                .push(Violation::CpuExceeded { node: task.node });
        }
        if self
            .memory_bytes
            .get(&task.node)
            .is_some_and(|&left| left < 0)
        {
            self.violations
                .push(Violation::MemoryExceeded { node: task.node });
        }
    }

    fn charge(&mut self, job: &Job, role: Role, node: NodeId) {
        let (cpu_milli, memory_bytes) = match role {
            Role::Worker { .. } => (job.worker.cpu_milli, job.worker.memory_bytes),
            Role::PsShard { .. } => (job.ps_shard.cpu_milli, job.ps_shard.memory_bytes),
        };
        if let Some(left) = self.cpu_milli.get_mut(&node) {
            *left -= i128::from(cpu_milli);
        }
        if let Some(left) = self.memory_bytes.get_mut(&node) {
            *left -= i128::from(memory_bytes);
        }
    }

    /// A job may be displaced wholly only for a job of strictly higher priority that waits.
    fn preemption(&mut self, job: &Job) {
        let somebody = self.snapshot.jobs.iter().any(|other| {
            other.priority > job.priority
                && matches!(
                    other.state,
                    JobState::Queued
                        | JobState::Stopping { .. }
                        | JobState::Paused
                        | JobState::Running
                        | JobState::Suspended
                        | JobState::Starting
                )
        });
        if !somebody {
            self.violations
                .push(Violation::UnjustPreemption { job: job.id });
        }
    }

    /// A tenant that was within its quota stays within it; one above it (the quota was lowered) starts nothing.
    fn quotas(&mut self) {
        for (tenant, started) in std::mem::take(&mut self.started) {
            let quota = self
                .snapshot
                .tenants
                .iter()
                .find(|one| one.id == tenant)
                .and_then(|one| one.gpu_quota);
            let held: usize = self
                .snapshot
                .jobs
                .iter()
                .filter(|job| job.tenant == tenant)
                .flat_map(|job| job.tasks.iter().chain(&job.leaving))
                .filter(|task| holds(&task.state))
                .map(|task| task.gpus.len())
                .sum();
            let held = u32::try_from(held)
                .unwrap_or(u32::MAX)
                .saturating_add(started);
            if let Some(quota) = quota.filter(|&quota| started > 0 && held > quota) {
                self.violations.push(Violation::QuotaExceeded {
                    tenant,
                    held,
                    quota,
                });
            }
        }
    }

    /// Who keeps running after the plan stays within the quota, also where it was lowered since.
    fn lowered_quotas(&mut self) {
        let mut kept: BTreeMap<TenantId, u32> = BTreeMap::new();
        for (job, state, _) in self.states.values() {
            if matches!(state, JobState::Starting | JobState::Running) {
                // Who is told to leave is on the way out already.
                let told = self.told.get(&job.id);
                let stays = |task: &&Task| {
                    !is_gone(&task.state) && told.is_none_or(|told| !told.contains(&task.id))
                };
                let gpus: usize = job.tasks.iter().filter(stays).map(|t| t.gpus.len()).sum();
                *kept.entry(job.tenant).or_default() += u32::try_from(gpus).unwrap_or(u32::MAX);
            }
        }
        for tenant in &self.snapshot.tenants {
            let held = kept.get(&tenant.id).copied().unwrap_or(0);
            if let Some(quota) = tenant.gpu_quota.filter(|&quota| held > quota) {
                self.violations.push(Violation::QuotaExceeded {
                    tenant: tenant.id,
                    held,
                    quota,
                });
            }
        }
    }
}

/// A program of the user's own may be done before others are up.
fn is_up_or_done(job: &Job, state: &TaskState) -> bool {
    let done = TaskState::Released {
        outcome: Outcome::Exited { code: 0 },
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

/// Whether it holds GPUs and CPU.
fn holds(state: &TaskState) -> bool {
    match state {
        TaskState::Suspended | TaskState::Ending | TaskState::Released { .. } => false,
        TaskState::Assigned | TaskState::Running | TaskState::Suspending | TaskState::Stopping => {
            true
        }
    }
}
