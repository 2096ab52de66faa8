//! Check of suspensions and resumptions.

use super::violation::Violation;
use super::{Checker, is_gone, is_up_or_done};
use crate::plan::{Action, RoundPlan};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::task::TaskState;
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

    fn wrong_turn(&mut self, job: &SnapshotJob, what: &'static str) {
        let job = job.id;
        self.violations.push(Violation::WrongTurn { job, what });
    }

    /// Checks that the whole gang runs and can be suspended.
    pub(super) fn suspend(&mut self, job: &'s SnapshotJob) {
        if !job.suspends {
            self.wrong_turn(job, "which cannot be suspended");
        }
        // Kubernetes reserves the resources of a pod, so no other job could use them.
        let has_pod = job.held_tasks().any(|task| {
            let mut nodes = self.snapshot.nodes.iter();
            nodes.any(|node| node.id == task.node && node.has_pods())
        });
        if has_pod {
            self.wrong_turn(job, "some of whose tasks are pods");
        }
        if job.exclusive && job.intent != muster_model::job::Intent::Suspend {
            self.wrong_turn(job, "which is exclusive");
        }
        if job.intent == muster_model::job::Intent::Run {
            self.may_be_suspended(job);
        }
        let mut tasks = job.tasks.iter();
        let all = tasks.all(|task| is_up_or_done(job, &task.state));
        if !job.leaving.is_empty() || !all || !job.tasks.iter().any(SnapshotTask::is_up) {
            self.wrong_turn(job, "not all of whose tasks are up");
        }
    }

    /// Checks that the whole gang is suspended and that all of its GPUs are free.
    pub(super) fn go_on(&mut self, job: &'s SnapshotJob) {
        if job.intent != muster_model::job::Intent::Run {
            self.wrong_turn(job, "against its owner's intent");
        }
        let tasks = job.tasks.iter();
        let workers: Vec<&SnapshotTask> = tasks
            .filter(|task| task.is_worker() && !is_gone(&task.state))
            .collect();
        let mut states = workers.iter().map(|task| &task.state);
        if workers.is_empty() || states.any(|state| *state != TaskState::Suspended) {
            self.wrong_turn(job, "with workers that are not suspended");
        }
        for task in workers {
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
