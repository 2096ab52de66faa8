//! A change for which others must go first, rehearsed with whole rounds: what a trial on the dense world says of it can be wrong where
//! a job in between changes what it waits for (its owner resumes it, it is charged a failure).

use super::change::apply_change;
use super::run;
use super::turns::ahead;
use super::world::World;
use crate::apply::apply;
use crate::plan::{Action, Decision, Plan};
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use muster_model::id::JobId;
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::Change;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Each rehearsal is some rounds, so it is for clusters of at most so many jobs,
const MOST_JOBS: usize = 512;
/// of at most so many where turns are foreseen, which takes dozens of rounds,
const MOST_TURNING: usize = 64;
/// and for so many who wait in front: those behind wait for these anyway.
const IN_FRONT: u32 = 4;
/// The round of the change, and those after others have gone.
const ROUNDS: u32 = 3;

/// Whether changes for which others go are looked for at all, for the job at this place of the queue.
pub(crate) fn is_affordable(world: &World<'_>, position: u32) -> bool {
    position <= IN_FRONT && are_few(world)
}

/// Whether the jobs are few enough for rehearsals.
pub(crate) fn are_few(world: &World<'_>) -> bool {
    world.jobs.len() <= MOST_JOBS
}

/// The cluster after the plan, for rehearsals.
pub(crate) struct Stage {
    /// `None` when the plan does not go with its own snapshot: nothing can be rehearsed then.
    after: Option<Snapshot>,
    policy: Policy,
    /// See [`Stage::turns`].
    turns: OnceCell<BTreeMap<JobId, i64>>,
}

impl Stage {
    /// The plan must be complete but for what waiting jobs are told.
    pub(crate) fn of(world: &World<'_>) -> Self {
        let jobs = world.jobs.iter();
        let decisions = jobs.flat_map(|live| {
            live.actions.iter().map(|action| Decision {
                job: live.job.id,
                expected_revision: live.job.revision,
                action: action.clone(),
            })
        });
        let plan = Plan {
            decisions: decisions.collect(),
            ..Plan::default()
        };
        let mut after = world.snapshot.clone();
        let applied = apply(&mut after, &plan);
        Self {
            after: applied.ok().map(|()| after),
            // A rehearsal within a rehearsal would not end.
            policy: Policy {
                explained_jobs: 0,
                ..world.policy.clone()
            },
            turns: OnceCell::new(),
        }
    }

    /// When each of those in the queue comes to its turn, Unix milliseconds, if everybody goes on; who is not among them does not come to it
    /// within some slices, or is one of too many.
    pub(crate) fn turns(&self) -> &BTreeMap<JobId, i64> {
        self.turns.get_or_init(|| match &self.after {
            Some(after) if after.jobs.len() <= MOST_TURNING => {
                ahead::turns(after.clone(), &self.policy)
            }
            _ => BTreeMap::new(),
        })
    }

    /// Whether the job starts after the change, in the next round or once those have gone whom it stops.
    pub(crate) fn starts(&self, job: JobId, change: &Change) -> bool {
        let after = self.after.as_ref();
        let Some(mut snapshot) = after.and_then(|after| apply_change(after, job, change)) else {
            return false;
        };
        (0..ROUNDS).any(|_| starts_in_a_round(&mut snapshot, job, &self.policy))
    }

    /// Whether the job starts after the change if nobody else is there.
    pub(crate) fn starts_alone(&self, job: JobId, change: &Change) -> bool {
        let only = self.after.as_ref().and_then(|after| {
            let only = after.jobs.iter().find(|one| one.id == job)?;
            let alone = Snapshot {
                round: after.round,
                now_ms: after.now_ms,
                nodes: after.nodes.clone(),
                tenants: after.tenants.clone(),
                jobs: vec![only.clone()],
                left_out: Vec::new(),
            };
            apply_change(&alone, job, change)
        });
        only.is_some_and(|mut alone| starts_in_a_round(&mut alone, job, &self.policy))
    }
}

fn starts_in_a_round(snapshot: &mut Snapshot, job: JobId, policy: &Policy) -> bool {
    let (plan, _) = run(snapshot, policy);
    let is_start = |one: &Decision| one.job == job && matches!(one.action, Action::Start { .. });
    if plan.decisions.iter().any(is_start) {
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
