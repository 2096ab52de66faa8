//! The planner: from a snapshot to a plan of decisions, through the dense problem that every policy
//! decides on.
//!
//! Stages, with their modules:
//!
//! - `bad_nodes`: nodes that take no new tasks.
//! - `settle`: facts to transitions.
//! - `world`, `outlook`, `memory`: the snapshot as a dense problem.
//! - `over_quota`, `out_of_range`: quotas and ranges that were changed while jobs run.
//! - `verdict`: hangs and stragglers.
//! - `choose`, `calm`: the policy's answer, the guard around it, and hysteresis.
//! - `pass`: stops, starts and resizes. It uses `gang`, `place`, `in_place` and `resize`.
//! - `moving`, `defragment`, `cost`: migrations and their costs.
//! - `shards`: number of PS shards of jobs whose workers stay.
//! - `turns`, `packing`: time slicing, and jobs that share a GPU.
//! - `explain`, `remedy`, `change`, `rehearse`: wait reasons and smallest changes.
//! - `words`: the report.

mod bad_nodes;
mod calm;
mod change;
mod choose;
mod cost;
mod defragment;
mod explain;
mod free;
mod gang;
mod in_place;
mod memory;
mod moving;
mod out_of_range;
mod outlook;
mod over_quota;
mod packing;
mod pass;
mod place;
mod rehearse;
mod remedy;
mod resize;
mod settle;
mod shards;
mod standing;
mod turns;
mod verdict;
mod words;
mod world;

use crate::plan::{Action, JobDecision, RoundPlan};
use crate::policy::Policy;
use crate::report::RoundReport;
use crate::snapshot::ClusterSnapshot;
pub use change::apply_change;
use explain::is_news;
pub use memory::EstimateCache;
use muster_model::wait::Waiting;
use world::RoundState;

pub(crate) fn run(snapshot: &ClusterSnapshot, policy: &Policy) -> (RoundPlan, RoundReport) {
    run_again(snapshot, policy, &mut EstimateCache::default())
}

/// Plans a round with the estimates of the last one.
pub(crate) fn run_again(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    let excluded = bad_nodes::judge(snapshot, &policy.bad_nodes);
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

fn decide(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    let mut world = RoundState::new(snapshot, policy, memory);
    let mut rest = pass::settle_down(&mut world);
    if defragment::moves(&mut world, &rest) {
        rest = pass::settle_again(&mut world);
    }
    if turns::go_on_with_the_rest(&mut world, &mut rest) {
        rest = pass::settle_again(&mut world);
    }
    if out_of_range::grow(&mut world, &rest) {
        rest = pass::settle_again(&mut world);
    }
    if shards::adopt(&mut world, &rest) {
        rest = pass::settle_again(&mut world);
    }
    packing::pack(&mut world);
    turns::after(&mut world, &rest);
    packing::follow(&mut world);
    verdict::suspect(&mut world);
    let waiting = explain::waiting(&mut world, &rest);
    let report = words::report(&world, &rest, &waiting);
    let mut decisions = Vec::new();
    for (live, waiting) in world.jobs.into_iter().zip(waiting) {
        let (job, silent) = (live.job, live.actions.is_empty());
        let decided = |action| JobDecision {
            job: job.id,
            expected_revision: job.revision,
            action,
        };
        decisions.extend(live.actions.into_iter().map(decided));
        // Every transition clears the job's wait reason.
        let told = job.waiting.as_ref().filter(|_| silent);
        let is_news = |waiting: &Waiting| told.is_none_or(|told| is_news(told, waiting, policy));
        if let Some(waiting) = waiting.filter(is_news) {
            decisions.push(decided(Action::Wait { waiting }));
        }
    }
    let plan = RoundPlan {
        decisions,
        excluded: Vec::new(),
        behind: explain::behind(snapshot),
    };
    (plan, report)
}
