//! Check of stops and suspensions for other jobs.

use super::violation::Violation;
use super::{Checker, is_gone};
use crate::plan::{Action, JobDecision, RoundPlan};
use crate::snapshot::SnapshotJob;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobState, RequeueCause};
use muster_model::plan::PreemptionCost;
use muster_model::spec::AllowedPreemption;
use muster_model::task::Role;
use std::collections::BTreeSet;

/// Maximum difference between the stated work at risk and the work found here, in milliseconds:
/// both are rounded.
const ROUNDING_MS: u64 = 1;

impl<'s> Checker<'s> {
    /// Checks each stop for another job: its stated cost, and the rule that allows it.
    pub(super) fn displacements(&mut self, plan: &RoundPlan) {
        let judged = jobs_of(plan, |action| matches!(action, Action::Judge { .. }));
        let stopped = jobs_of(plan, |action| matches!(action, Action::Stop { .. }));
        let mut stated = BTreeSet::new();
        for decision in &plan.decisions {
            let Some((job, ..)) = self.states.get(&decision.job).cloned() else {
                continue;
            };
            if let Action::Displace { cost } = &decision.action {
                stated.insert(job.id);
                self.displaced(job, cost, stopped.contains(&cost.gainer));
            } else if is_move(job, decision)
                && !judged.contains(&job.id)
                && !self.allows_stop(job)
                && !self.has_other_cause(job)
            {
                self.costly(job, "and is moved, which its document forbids");
            } else if is_stop_of_the_scheduler(job, decision)
                && !stated.contains(&job.id)
                && !judged.contains(&job.id)
                && self.is_protected(job)
                && !self.has_other_cause(job)
            {
                self.costly(job, "without a stated cost");
            }
        }
    }

    fn costly(&mut self, job: &SnapshotJob, what: &'static str) {
        let job = job.id;
        self.violations.push(Violation::CostlyStop { job, what });
    }

    /// Whether a stop for another job needs a justification: work would be lost, or the document
    /// restricts stops.
    fn is_protected(&self, job: &SnapshotJob) -> bool {
        let loses_work = self.work_at_risk_ms(job).is_none_or(|ms| ms > 0);
        loses_work || !self.allows_stop(job)
    }

    fn allows_stop(&self, job: &SnapshotJob) -> bool {
        job.preemption.allowed == AllowedPreemption::Restart && self.has_run(job)
    }

    /// Whether the job has run for its `min_runtime` since the last start or resumption.
    fn has_run(&self, job: &SnapshotJob) -> bool {
        let least_ms = i64::from(job.preemption.min_runtime) * 1_000;
        let started_ms = job.running_ms.or(job.placed_ms);
        let since_ms = started_ms.into_iter().chain(job.turned_ms).max();
        least_ms == 0
            || since_ms.is_some_and(|since_ms| self.snapshot.now_ms - since_ms >= least_ms)
    }

    /// Whether the snapshot shows a reason for a stop that is not another job.
    fn has_other_cause(&self, job: &SnapshotJob) -> bool {
        let open = self.snapshot.nodes.iter().filter(|node| node.is_open());
        let open: BTreeSet<_> = open.map(|node| node.id).collect();
        let mut tasks = job.tasks.iter().chain(&job.leaving);
        let are_nodes_open = tasks.all(|task| open.contains(&task.node));
        let (workers, shards) = sizes(job);
        let is_in_range = (job.workers.min..=job.workers.max).contains(&workers)
            && (job.ps_shards.min..=job.ps_shards.max).contains(&shards)
            && job.may_have(workers);
        let is_whole = job
            .tasks
            .iter()
            .all(|task| !is_gone(&task.state) && task.lane == 0);
        !are_nodes_open
            || !is_in_range
            || !is_whole
            || job.intent != Intent::Run
            || job.failed.is_some()
            || job.finished.is_some()
    }

    /// Milliseconds of work since the last known checkpoint; `None` where only the mean of earlier
    /// losses tells it.
    fn work_at_risk_ms(&self, job: &SnapshotJob) -> Option<u64> {
        if job.command.is_none() {
            return Some(0);
        }
        let started_ms = job.placed_ms.unwrap_or(self.snapshot.now_ms);
        let resumed = job.restarts.map_or(0, |known| known.resumed);
        let since_ms = match job.reported {
            Some(reported) if reported.at_ms > started_ms => reported.at_ms,
            Some(_) => started_ms,
            None if resumed > 0 => {
                let lost_steps = job.restarts.map_or(0.0, |known| known.lost_steps);
                return (lost_steps <= 0.0).then_some(0);
            }
            None => started_ms,
        };
        let unsaved_ms = u64::try_from(self.snapshot.now_ms - since_ms).unwrap_or(0);
        // A program that answered the newest request is asked again before this stop.
        let answers =
            job.state == JobState::Running && job.preemption.checkpoint_on_request.is_some();
        let answer_ms = job.answer_ms.filter(|_| answers);
        Some(answer_ms.map_or(unsaved_ms, |answer_ms| unsaved_ms.min(answer_ms)))
    }

    /// Checks a stated cost. `gainer_stops`: this plan stops the other job too, which then waits.
    fn displaced(&mut self, job: &SnapshotJob, cost: &PreemptionCost, gainer_stops: bool) {
        let gainer = self.states.get(&cost.gainer).cloned();
        let gainer = gainer.filter(|(_, state, _)| gainer_stops || *state != JobState::Running);
        let Some((gainer, ..)) = gainer else {
            self.costly(job, "and the job that gains does not wait");
            return;
        };
        if cost.borne_by != job.tenant || cost.gained_by != gainer.tenant {
            self.costly(job, "with the wrong tenants in its cost");
        }
        let held = job.tasks.iter().filter(|task| !is_gone(&task.state));
        let held: usize = held.map(|task| task.gpus.len()).sum();
        if cost.gpus as usize != held {
            self.costly(job, "with the wrong number of GPUs in its cost");
        }
        let found_ms = self.work_at_risk_ms(job);
        if found_ms.is_some_and(|found_ms| found_ms.abs_diff(cost.work_ms) > ROUNDING_MS) {
            self.costly(job, "with wrong work at risk in its cost");
        }
        if !self.allows_stop(job) {
            self.costly(job, "against its document");
        }
        if gainer.priority > job.priority {
            return;
        }
        if job.exclusive {
            self.costly(
                job,
                "although it is exclusive and the other one does not precede it",
            );
        }
        if cost.work_ms == 0 {
            return;
        }
        let work_gpu_ms = cost.work_ms.saturating_mul(held as u64);
        if work_gpu_ms as f64 > self.rules.risk_share * cost.gain_gpu_ms as f64 {
            self.costly(job, "which gains too little for the work at risk");
        }
        let lost_ms = job.lost_s * 1_000.0 + cost.work_ms as f64;
        let most_ms = self.rules.lost_share * job.trained_s * 1_000.0;
        if lost_ms > most_ms + ROUNDING_MS as f64 {
            self.costly(job, "although it has lost too much to others already");
        }
    }

    /// A job whose document forbids it, or that has not run long enough, is not suspended for
    /// others. A guest on a shared GPU is suspended for the sake of the pair.
    pub(super) fn may_be_suspended(&mut self, job: &'s SnapshotJob) {
        if job.tasks.iter().any(|task| task.lane > 0) {
            return;
        }
        if job.preemption.allowed == AllowedPreemption::Never {
            self.costly(job, "and is suspended, which its document forbids");
        }
        if !self.has_run(job) {
            self.costly(job, "and is suspended before its min_runtime");
        }
    }
}

/// Jobs with such an action in the plan.
fn jobs_of(plan: &RoundPlan, is_wanted: impl Fn(&Action) -> bool) -> BTreeSet<JobId> {
    let decisions = plan.decisions.iter();
    let wanted = decisions.filter(|one| is_wanted(&one.action));
    wanted.map(|one| one.job).collect()
}

/// Whether the decision moves a running job.
fn is_move(job: &SnapshotJob, decision: &JobDecision) -> bool {
    let moves = matches!(
        decision.action,
        Action::Stop {
            then: AfterStop::Move { .. },
            ..
        }
    );
    moves && job.state == JobState::Running
}

/// Whether the decision stops a running job by a choice of the scheduler.
fn is_stop_of_the_scheduler(job: &SnapshotJob, decision: &JobDecision) -> bool {
    let Action::Stop { then, .. } = &decision.action else {
        return false;
    };
    let is_choice = matches!(
        then,
        AfterStop::Requeue {
            cause: RequeueCause::Resize | RequeueCause::Preempted
        }
    );
    is_choice && job.state == JobState::Running
}

/// Numbers of workers and shards of the present revision.
fn sizes(job: &SnapshotJob) -> (u32, u32) {
    let workers = job.tasks.iter();
    let workers = workers.filter(|task| matches!(task.role, Role::Worker { .. }));
    let workers = u32::try_from(workers.count()).unwrap_or(u32::MAX);
    let all = u32::try_from(job.tasks.len()).unwrap_or(u32::MAX);
    (workers, all - workers)
}
