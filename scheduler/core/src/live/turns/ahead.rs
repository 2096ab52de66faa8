//! When whoever waits in the queue comes to its turn: the cluster is taken forward from the end of one slice to the next, with whole rounds, as
//! if nobody ended and every node obeyed at once. Who will be turned out for whom depends on places, quotas and what others wait for, so
//! no formula would say.

use super::{takes_turns, turning};
use crate::apply::{apply, move_up};
use crate::live::memory::Memory;
use crate::live::run_again;
use crate::live::world::World;
use crate::plan::Action;
use crate::policy::Policy;
use crate::snapshot::{Job, Snapshot};
use muster_model::id::JobId;
use muster_model::job::{Intent, JobState};
use muster_model::task::{Outcome, TaskEvent, TaskState};
use std::collections::BTreeMap;

/// So many ends of slices are looked ahead; what is further off is no answer.
const SLICES: u32 = 16;
/// At each of them: some stand still, others start or go on, and those are up.
const ROUNDS: u32 = 6;

/// By job, Unix milliseconds. The policy must explain nothing, or each of these rounds would look ahead in its turn.
pub(crate) fn turns(mut snapshot: Snapshot, policy: &Policy) -> BTreeMap<JobId, i64> {
    assert_eq!(
        policy.explained_jobs, 0,
        "a look ahead within one would not end"
    );
    let mut turns = BTreeMap::new();
    let mut memory = Memory::default();
    // Nobody reports in what is foreseen, and silence means nothing there.
    snapshot.jobs.iter_mut().for_each(|job| job.watch = None);
    let waits =
        |job: &Job| job.state == JobState::Queued && job.intent == Intent::Run && takes_turns(job);
    for _ in 0..SLICES {
        if settle(&mut snapshot, policy, &mut memory, &mut turns).is_none()
            || !snapshot.jobs.iter().any(waits)
        {
            break;
        }
        let next_ms = turning::next_ms(&World::new(&snapshot, policy, &mut memory));
        let Some(next_ms) = next_ms else {
            break;
        };
        snapshot.now_ms = next_ms;
        snapshot
            .jobs
            .iter_mut()
            .for_each(|job| job.goes_on_as_told(next_ms));
    }
    turns
}

/// Rounds until nothing more is decided at this instant; `None` where a plan does not go with its own snapshot.
fn settle(
    snapshot: &mut Snapshot,
    policy: &Policy,
    memory: &mut Memory,
    turns: &mut BTreeMap<JobId, i64>,
) -> Option<()> {
    for _ in 0..ROUNDS {
        obey(snapshot);
        let (plan, _) = run_again(snapshot, policy, memory);
        let is_wait = |action: &Action| matches!(action, Action::Wait { .. });
        if plan.decisions.iter().all(|one| is_wait(&one.action)) {
            break;
        }
        for decision in &plan.decisions {
            if matches!(decision.action, Action::Start { .. }) {
                turns.entry(decision.job).or_insert(snapshot.now_ms);
            }
        }
        apply(snapshot, &plan).ok()?;
        // Whoever has started in pods takes no turns from here on.
        snapshot.leave_pods_out_of_turns();
    }
    Some(())
}

fn obey(snapshot: &mut Snapshot) {
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
    move_up(snapshot);
}
