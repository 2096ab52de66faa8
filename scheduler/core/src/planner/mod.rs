//! The planner: from a snapshot to a plan of decisions, through the dense problem that every policy
//! decides on.
//!
//! [`stages`] lists the stages in their order. Modules:
//!
//! - `bad_nodes`: nodes that take no new tasks.
//! - `observations`: facts to transitions.
//! - `round_state`, `planned_job`, `scheduling_state`, `scaling_model`, `estimate_cache`: the
//!   snapshot as a dense problem.
//! - `queue_order`: the order of waiting jobs.
//! - `evacuation`: jobs on drained nodes, lost PS shards.
//! - `quota_enforcement`, `range_enforcement`: quotas and ranges that were changed while jobs run.
//! - `straggler_detection`: hangs and stragglers. `idleness`: idle programs and interactive jobs.
//! - `preemption`: stops for other jobs, their cost and their rule.
//! - `policy_guard`, `hysteresis`: the policy's answer, the guard around it, and hysteresis.
//! - `passes`, `fixpoint`: stops, starts and resizes until nothing changes, and the result. They
//!   use `gang`, `place`, `in_place` and `resize`. `passes::exchange`: jobs that exchange GPUs.
//! - `cpu_only`: jobs whose workers use no GPUs.
//! - `migration`, `defragment`, `cost`: migrations and their costs.
//! - `shards`: number of PS shards of jobs whose workers stay.
//! - `time_slicing`, `packing`, `gpu_memory`: time slicing, jobs that share a GPU, and the memory
//!   that suspended programs keep there.
//! - `explain`, `unblocking_changes`, `assumed_change`, `what_if`: wait reasons and smallest
//!   changes.
//! - `report`: the report.

mod assumed_change;
mod bad_nodes;
mod cost;
mod cpu_only;
mod defragment;
mod estimate_cache;
mod evacuation;
mod explain;
mod fixpoint;
mod forbidden_gpus;
mod free;
mod gang;
mod gpu_memory;
mod hysteresis;
mod idleness;
mod in_place;
mod job_nodes;
mod learned;
mod migration;
mod observations;
mod packing;
mod passes;
mod place;
mod place_by_cpu;
mod planned_job;
mod policy_guard;
mod preemption;
mod queue_order;
mod quota_enforcement;
mod range_enforcement;
mod report;
mod resize;
mod restart_times;
mod round_state;
mod scaling_model;
mod scheduling_state;
mod shards;
mod stages;
mod straggler_detection;
mod time;
mod time_slicing;
mod unblocking_changes;
mod what_if;

use crate::plan::{Action, JobDecision, RoundPlan};
use crate::policy::Policy;
use crate::problem::SchedulingProblem;
use crate::report::RoundReport;
use crate::snapshot::{ClusterSnapshot, SnapshotJob};
pub use assumed_change::apply_change;
pub use estimate_cache::EstimateCache;
use explain::is_news;
use round_state::RoundState;

pub(crate) fn plan_round(snapshot: &ClusterSnapshot, policy: &Policy) -> (RoundPlan, RoundReport) {
    plan_round_with_cache(snapshot, policy, &mut EstimateCache::default())
}

/// Plans a round with the estimates of the last one.
pub(crate) fn plan_round_with_cache(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    let excluded = bad_nodes::to_exclude(snapshot, &policy.bad_nodes);
    let resting = bad_nodes::resting(snapshot, policy);
    if excluded.is_empty() && resting.is_empty() {
        return decide(snapshot, policy, memory);
    }
    let mut closed = snapshot.clone();
    for node in &mut closed.nodes {
        node.excluded |= excluded.iter().any(|one| one.node == node.id);
        node.cordoned |= resting.contains(&node.id);
    }
    let (plan, report) = decide(&closed, policy, memory);
    (RoundPlan { excluded, ..plan }, report)
}

/// Returns the problem that the policy reads at the start of the round.
#[must_use]
pub fn problem(snapshot: &ClusterSnapshot, policy: &Policy) -> SchedulingProblem {
    RoundState::new(snapshot, policy, &mut EstimateCache::default()).problem
}

fn decide(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    let mut round = RoundState::new(snapshot, policy, memory);
    let fixpoint = stages::run(&mut round);
    let waiting = explain::waiting(&mut round, &fixpoint);
    let report = report::report(&round, &fixpoint, &waiting);
    let explained_jobs = explain::explained_jobs(&round);
    let mut decisions = Vec::new();
    for (live, waiting) in round.jobs.into_iter().zip(waiting) {
        let (job, silent) = (live.job, live.actions.is_empty());
        let actions = live.actions.into_iter();
        decisions.extend(actions.map(|action| decision(job, action)));
        // Every transition clears the job's wait reason.
        let previous = job.waiting.as_ref().filter(|_| silent);
        if let Some(waiting) = waiting
            && previous.is_none_or(|previous| is_news(previous, &waiting, explained_jobs))
        {
            decisions.push(decision(job, Action::Wait { waiting }));
        }
    }
    let plan = RoundPlan {
        decisions,
        excluded: Vec::new(),
        behind: explain::behind(snapshot),
    };
    (plan, report)
}

fn decision(job: &SnapshotJob, action: Action) -> JobDecision {
    JobDecision {
        job: job.id,
        expected_revision: job.revision,
        action,
    }
}
