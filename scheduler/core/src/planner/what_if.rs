//! Simulation of changes that make other jobs leave, with whole rounds. A trial on the dense state
//! can be wrong for them, because a job may change in between: it is resumed, or charged a failure.

use super::assumed_change::apply_change;
use super::plan_round;
use super::round_state::RoundState;
use super::time_slicing::slice_forecast;
use crate::apply::apply;
use crate::plan::{Action, JobDecision, RoundPlan};
use crate::policy::Policy;
use crate::snapshot::ClusterSnapshot;
use muster_model::id::JobId;
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::Change;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Maximum number of jobs in the snapshot for simulations, each of which takes several rounds.
const MOST_JOBS: usize = 512;
/// Maximum number of jobs for the simulation of time slices, which takes dozens of rounds.
const MOST_TURNING: usize = 64;
/// Number of jobs at the head of the queue for which such changes are simulated. Jobs behind them
/// wait for them anyway.
pub(crate) const IN_FRONT: u32 = 4;
/// Number of rounds: the one with the change, and those after other jobs have left.
const ROUNDS: u32 = 3;

/// Whether changes that make other jobs leave are considered for the job at this position.
pub(crate) fn is_affordable(round: &RoundState<'_>, position: u32) -> bool {
    position <= IN_FRONT && are_few(round)
}

/// Whether there are few enough jobs for simulations.
pub(crate) fn are_few(round: &RoundState<'_>) -> bool {
    round.jobs.len() <= MOST_JOBS
}

/// The cluster after the plan, for simulations.
pub(crate) struct WhatIfState {
    /// `None` if the plan cannot be applied to its own snapshot. Nothing can be simulated then.
    after: Option<ClusterSnapshot>,
    policy: Policy,
    /// Result of [`WhatIfState::turns`].
    turns: OnceCell<BTreeMap<JobId, i64>>,
}

impl WhatIfState {
    /// The plan must be complete, except for wait reasons.
    pub(crate) fn of(round: &RoundState<'_>) -> Self {
        let jobs = round.jobs.iter();
        let decisions = jobs.flat_map(|live| {
            live.actions.iter().map(|action| JobDecision {
                job: live.job.id,
                expected_revision: live.job.revision,
                action: action.clone(),
            })
        });
        let plan = RoundPlan {
            decisions: decisions.collect(),
            ..RoundPlan::default()
        };
        let mut after = round.snapshot.clone();
        let applied = apply(&mut after, &plan);
        Self {
            after: applied.ok().map(|()| after),
            // A simulation within a simulation would not end.
            policy: Policy {
                explained_jobs: 0,
                ..round.policy.clone()
            },
            turns: OnceCell::new(),
        }
    }

    /// Start of the next time slice of queued jobs, Unix ms, if no job ends. A job is missing if it
    /// gets no slice within the simulated ones, or if the cluster has too many jobs.
    pub(crate) fn turns(&self) -> &BTreeMap<JobId, i64> {
        self.turns.get_or_init(|| match &self.after {
            Some(after) if after.jobs.len() <= MOST_TURNING => {
                slice_forecast::turns(after.clone(), &self.policy)
            }
            _ => BTreeMap::new(),
        })
    }

    /// Whether the job starts after the change: in the next round, or once the jobs that it stops
    /// have left.
    pub(crate) fn starts(&self, job: JobId, change: &Change) -> bool {
        let after = self.after.as_ref();
        let Some(mut snapshot) = after.and_then(|after| apply_change(after, job, change)) else {
            return false;
        };
        (0..ROUNDS).any(|_| starts_in_a_round(&mut snapshot, job, &self.policy))
    }

    /// Whether the job starts after the change if it is alone on the cluster.
    pub(crate) fn starts_alone(&self, job: JobId, change: &Change) -> bool {
        let only = self.after.as_ref().and_then(|after| {
            let only = after.jobs.iter().find(|one| one.id == job)?;
            let alone = ClusterSnapshot {
                round: after.round,
                now_ms: after.now_ms,
                nodes: after.nodes.clone(),
                tenants: after.tenants.clone(),
                jobs: vec![only.clone()],
                left_out: Vec::new(),
                families: after.families.clone(),
                history_gpu_s: after.history_gpu_s.clone(),
                priority_classes: after.priority_classes.clone(),
            };
            apply_change(&alone, job, change)
        });
        only.is_some_and(|mut alone| starts_in_a_round(&mut alone, job, &self.policy))
    }
}

fn starts_in_a_round(snapshot: &mut ClusterSnapshot, job: JobId, policy: &Policy) -> bool {
    let (plan, _) = plan_round(snapshot, policy);
    let mut own = plan.decisions.iter().filter(|one| one.job == job);
    if own.any(|one| matches!(one.action, Action::Start { .. })) {
        return true;
    }
    if apply(snapshot, &plan).is_err() {
        return false;
    }
    let jobs = &mut snapshot.jobs;
    jobs.iter_mut().for_each(|job| job.leaving.clear());
    for task in jobs.iter_mut().flat_map(|job| &mut job.tasks) {
        if task.state == TaskState::Stopping {
            let outcome = Outcome::stopped();
            task.state = TaskState::Released { outcome };
        }
    }
    jobs.retain(|job| !job.state.phase().is_terminal());
    false
}
