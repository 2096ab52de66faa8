//! Check of suspensions and resumptions.

use super::violation::Violation;
use super::{Checker, is_gone};
use crate::plan::{Action, RoundPlan};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::task::{Outcome, Role, TaskState};
use std::collections::BTreeSet;

impl<'s> Checker<'s> {
    /// A job gets at most one order per round: after a suspension or resumption, no other of these
    /// and no stop.
    pub(super) fn turned_once(&mut self, plan: &RoundPlan) {
        let mut turned = BTreeSet::new();
        for decision in &plan.decisions {
            let (job, action) = (decision.job, &decision.action);
            let turns = matches!(action, Action::Suspend { .. } | Action::Continue { .. });
            if (turns || matches!(action, Action::Stop { .. })) && turned.contains(&job) {
                let what = "and told something else in the same round";
                self.violations.push(Violation::WrongTurn { job, what });
            }
            if turns {
                turned.insert(job);
            }
        }
    }

    /// Checks that the whole gang runs and can be suspended.
    pub(super) fn suspend(&mut self, job: &'s SnapshotJob) {
        let mut wrong = |what| {
            let violation = Violation::WrongTurn { job: job.id, what };
            self.violations.push(violation);
        };
        if !job.suspends {
            wrong("which cannot be suspended");
        }
        // Kubernetes reserves the resources of a pod, so no other job could use them.
        let is_pod = |task: &SnapshotTask| {
            let mut nodes = self.snapshot.nodes.iter();
            nodes.any(|node| node.id == task.node && node.has_pods())
        };
        if job.held_tasks().any(is_pod) {
            wrong("some of whose tasks are pods");
        }
        if job.exclusive && job.intent != muster_model::job::Intent::Suspend {
            wrong("which is exclusive");
        }
        // A process of a command may have ended before the others.
        let is_done = |task: &SnapshotTask| {
            let outcome = match &task.state {
                TaskState::Released { outcome } => outcome,
                _ => return false,
            };
            job.command.is_some() && *outcome == Outcome::exited(0)
        };
        let is_up = |task: &SnapshotTask| task.state == TaskState::Running;
        let all = job.tasks.iter().all(|task| is_up(task) || is_done(task));
        if !job.leaving.is_empty() || !all || !job.tasks.iter().any(is_up) {
            wrong("not all of whose tasks are up");
        }
    }

    /// Checks that the whole gang is suspended and that all of its GPUs are free.
    pub(super) fn go_on(&mut self, job: &'s SnapshotJob) {
        let mut wrong = |what| {
            let violation = Violation::WrongTurn { job: job.id, what };
            self.violations.push(violation);
        };
        if job.intent != muster_model::job::Intent::Run {
            wrong("against its owner's intent");
        }
        let is_there = |task: &&SnapshotTask| {
            matches!(task.role, Role::Worker { .. }) && !is_gone(&task.state)
        };
        let workers = || job.tasks.iter().filter(is_there);
        if workers().any(|task| task.state != TaskState::Suspended) || workers().next().is_none() {
            wrong("with workers that are not suspended");
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
                if *left < 0 && job.worker.cpu_milli > 0 {
                    let node = task.node;
                    self.violations.push(Violation::CpuExceeded { node });
                }
            }
        }
    }
}
