//! One round: the stages in their order.

use crate::admit::{Admission, admit};
use crate::apply::apply;
use crate::contender::{Contender, Standing};
use crate::explain;
use crate::plan::{Action, Decision, Plan};
use crate::policy::Policy;
use crate::report::{self, RoundReport};
use crate::resize;
use crate::settle::{Settled, settle};
use crate::snapshot::{Job, Snapshot};
use crate::solve::{Problem, Solution};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, RequeueCause};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Everything that a round decides, before it is put in words.
pub(crate) struct Decided<'a> {
    /// With the decisions taken.
    pub settled: Vec<Settled<'a>>,
    pub contenders: Vec<Contender<'a>>,
    pub admission: Admission,
    pub solution: Solution,
    /// Running jobs that are resized for speed.
    pub resized: BTreeSet<usize>,
}

/// A plan is complete: it is made in passes, each on the state that the one before leaves, until a pass decides nothing. What a
/// start leaves free is so given away in the same round, and planning again on the state after the plan changes nothing. Two
/// passes are the rule; whatever is left after the last is for the next round.
const MOST_PASSES: usize = 4;

pub(crate) fn run(snapshot: &Snapshot, policy: &Policy) -> (Plan, RoundReport) {
    let mut after = Cow::Borrowed(snapshot);
    let mut actions: Vec<Vec<Action>> = vec![Vec::new(); snapshot.jobs.len()];
    for _ in 0..MOST_PASSES {
        let decided = decide(&after, policy);
        if decided
            .settled
            .iter()
            .all(|settled| settled.actions.is_empty())
        {
            break;
        }
        let plan = decided.plan();
        for (taken, settled) in actions.iter_mut().zip(decided.settled) {
            taken.extend(settled.actions);
        }
        apply(after.to_mut(), &plan).expect("the planner's decisions follow the states");
    }
    let decided = decide(&after, policy);
    let waiting = explain::waiting(&after, policy, &decided);
    for ((taken, job), waiting) in actions.iter_mut().zip(&after.jobs).zip(&waiting) {
        if let Some(waiting) = waiting
            .as_ref()
            .filter(|&waiting| job.waiting.as_ref() != Some(waiting))
        {
            taken.push(Action::Wait {
                waiting: waiting.clone(),
            });
        }
    }
    let report = report::report(&after, &decided, &actions, waiting);
    (
        Plan {
            decisions: decisions(&snapshot.jobs, actions),
        },
        report,
    )
}

fn decisions<'a>(
    jobs: impl IntoIterator<Item = &'a Job>,
    actions: impl IntoIterator<Item = Vec<Action>>,
) -> Vec<Decision> {
    jobs.into_iter()
        .zip(actions)
        .flat_map(|(job, actions)| {
            actions.into_iter().map(|action| Decision {
                job: job.id,
                expected_revision: job.revision,
                action,
            })
        })
        .collect()
}

pub(crate) fn decide<'a>(snapshot: &'a Snapshot, policy: &Policy) -> Decided<'a> {
    let mut settled = settle(snapshot, policy);
    let contenders = Contender::all(snapshot, &settled, policy);
    let admission = admit(snapshot, &contenders, policy);
    let problem = Problem::new(snapshot, &contenders);
    let base = problem
        .solve(&admission.starters, &admission.stopped)
        .expect("who was admitted can be placed at the minimum");
    let resize::Resized { solution, resized } = resize::improve(&problem, &admission, base, policy);
    for &index in admission.stopped.iter().chain(&resized) {
        settled[index].take(stop(snapshot, &admission, &solution, index));
    }
    for (&index, placed) in &solution.placed {
        if placed.at_once && contenders[index].standing == Standing::Queued {
            let why = why_start(&contenders[index], placed.size);
            settled[index].take(Action::Start {
                tasks: placed.tasks.clone(),
                why,
            });
        }
    }
    Decided {
        settled,
        contenders,
        admission,
        solution,
        resized,
    }
}

impl Decided<'_> {
    fn plan(&self) -> Plan {
        let jobs = self.settled.iter().map(|settled| settled.job);
        Plan {
            decisions: decisions(
                jobs,
                self.settled.iter().map(|settled| settled.actions.clone()),
            ),
        }
    }

    /// Whether the job starts in this round.
    pub(crate) fn starts(&self, job: JobId) -> bool {
        self.settled
            .iter()
            .filter(|settled| settled.job.id == job)
            .any(|settled| {
                settled
                    .actions
                    .iter()
                    .any(|action| matches!(action, Action::Start { .. }))
            })
    }
}

fn stop(snapshot: &Snapshot, admission: &Admission, solution: &Solution, index: usize) -> Action {
    let (had, _) = snapshot.jobs[index].size();
    let gets = solution.placed.get(&index).map(|placed| placed.size);
    let size = match gets {
        Some((workers, ps_shards)) => {
            format!("from {had} to {workers} workers and {ps_shards} PS shards")
        }
        None => format!("from {had} workers to the queue"),
    };
    let made_for = admission
        .made_way
        .get(&index)
        .map(|&other| &snapshot.jobs[other].name);
    let displaced = admission.displaced.contains_key(&index);
    let (cause, why) = match made_for {
        Some(name) if displaced => (
            RequeueCause::Preempted,
            format!("{size}: {name} has a higher priority"),
        ),
        Some(name) => (
            RequeueCause::Resize,
            format!("{size}: {name} needs room to start"),
        ),
        None if admission.stopped.contains(&index) => {
            (RequeueCause::Resize, format!("{size}: its node is drained"))
        }
        None => (RequeueCause::Resize, format!("{size}: worth the restart")),
    };
    Action::Stop {
        then: AfterStop::Requeue { cause },
        why,
        charge_failure: false,
        not_before_ms: None,
    }
}

/// Why a job starts with this size, with the figures behind it.
fn why_start(contender: &Contender<'_>, size: (u32, u32)) -> String {
    let (workers, ps_shards) = size;
    let range = contender.job.workers;
    let limit = if workers == range.max {
        "as many workers as it may have".to_owned()
    } else if workers == range.min {
        format!("its minimum of {workers} workers; others gain more by the rest")
    } else {
        format!(
            "{workers} of at most {} workers; others gain more by the rest, or it does not fit",
            range.max
        )
    };
    let speed = &contender.estimate.speed;
    if speed.points() == 0 {
        return format!("{limit}; its speed is not measured yet");
    }
    let steps_per_s = speed.steps_per_s(workers, ps_shards);
    let time_s = contender.estimate.time_s(size);
    format!("{limit}; about {steps_per_s:.1} steps/s and {time_s:.0} s to its end")
}
