//! Forecast of the time slices of queued jobs. Whole rounds are simulated from one slice end to the
//! next, as if no job ended and every node executed its orders at once. Which job is suspended for
//! which depends on places, quotas and other waiting jobs, so there is no formula for it.

use super::rotation;
use crate::apply::{apply, promote_guests};
use crate::plan::Action;
use crate::planner::estimate_cache::EstimateCache;
use crate::planner::plan_round_with_cache;
use crate::planner::round_state::RoundState;
use crate::policy::Policy;
use crate::snapshot::ClusterSnapshot;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobState};
use muster_model::task::{Outcome, TaskEvent, TaskState};
use std::collections::BTreeMap;

/// Maximum number of slice ends that are simulated. Later slices are not reported.
const SLICES: u32 = 16;
/// Maximum number of rounds at one slice end: suspensions, then starts and resumptions, then tasks
/// that come up.
const ROUNDS: u32 = 6;

/// Start of the first time slice of queued jobs, Unix ms by job. The policy settings must explain
/// no jobs; otherwise each of these rounds would simulate slices again.
pub(crate) fn turns(mut snapshot: ClusterSnapshot, policy: &Policy) -> BTreeMap<JobId, i64> {
    assert_eq!(
        policy.explained_jobs, 0,
        "a look ahead within one would not end"
    );
    let mut turns = BTreeMap::new();
    let mut memory = EstimateCache::default();
    // The simulation has no reports, so missing ones mean nothing.
    snapshot.jobs.iter_mut().for_each(|job| job.watch = None);
    for _ in 0..SLICES {
        if settle(&mut snapshot, policy, &mut memory, &mut turns).is_none()
            || !snapshot.jobs.iter().any(|job| {
                job.state == JobState::Queued && job.intent == Intent::Run && job.takes_turns()
            })
        {
            break;
        }
        let next_ms = rotation::next_ms(&RoundState::new(&snapshot, policy, &mut memory));
        let Some(next_ms) = next_ms else {
            break;
        };
        snapshot.now_ms = next_ms;
        snapshot
            .jobs
            .iter_mut()
            .for_each(|job| job.refresh_measurements(next_ms));
    }
    turns
}

/// Plans rounds until nothing more is decided at this instant. `None` if a plan cannot be applied
/// to its own snapshot.
fn settle(
    snapshot: &mut ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
    turns: &mut BTreeMap<JobId, i64>,
) -> Option<()> {
    for _ in 0..ROUNDS {
        obey(snapshot);
        let (plan, _) = plan_round_with_cache(snapshot, policy, memory);
        let mut actions = plan.decisions.iter().map(|one| &one.action);
        if actions.all(|action| matches!(action, Action::Wait { .. })) {
            break;
        }
        for decision in &plan.decisions {
            if matches!(decision.action, Action::Start { .. }) {
                turns.entry(decision.job).or_insert(snapshot.now_ms);
            }
        }
        apply(snapshot, &plan).ok()?;
        // A job that has started in pods cannot be suspended from now on.
        snapshot.leave_pods_out_of_turns();
    }
    Some(())
}

fn obey(snapshot: &mut ClusterSnapshot) {
    for job in &mut snapshot.jobs {
        job.leaving.clear();
        for task in &mut job.tasks {
            let event = match task.state {
                TaskState::Assigned => TaskEvent::Up,
                TaskState::Suspending => TaskEvent::StoodStill,
                TaskState::Stopping | TaskState::Ending => TaskEvent::Gone {
                    outcome: Outcome::stopped(),
                },
                TaskState::Running | TaskState::Suspended | TaskState::Released { .. } => continue,
            };
            if let Ok(next) = task.state.clone().apply(event) {
                task.state = next;
            }
        }
    }
    snapshot.jobs.retain(|job| !job.state.phase().is_terminal());
    promote_guests(snapshot);
}
