//! One round: the stages in their order.

use crate::admit::{Admission, admit};
use crate::contender::{Contender, Standing};
use crate::explain;
use crate::plan::{Action, Decision, Plan};
use crate::policy::Policy;
use crate::report::{self, RoundReport};
use crate::resize;
use crate::settle::{Settled, settle};
use crate::snapshot::Snapshot;
use crate::solve::{Problem, Solution};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, RequeueCause};
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

pub(crate) fn run(snapshot: &Snapshot, policy: &Policy) -> (Plan, RoundReport) {
    let mut decided = decide(snapshot, policy);
    let waiting = explain::waiting(snapshot, policy, &decided);
    for (settled, waiting) in decided.settled.iter_mut().zip(&waiting) {
        if let Some(waiting) = waiting
            && settled.job.waiting.as_ref() != Some(waiting)
        {
            settled.take(Action::Wait {
                waiting: waiting.clone(),
            });
        }
    }
    let report = report::report(snapshot, &decided, waiting);
    (decided.plan(), report)
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
            let (workers, ps_shards) = placed.size;
            let why = format!("{workers} workers and {ps_shards} PS shards fit");
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
    /// The decisions taken so far.
    pub(crate) fn plan(&self) -> Plan {
        let decisions = self
            .settled
            .iter()
            .flat_map(|settled| {
                settled.actions.iter().map(|action| Decision {
                    job: settled.job.id,
                    expected_revision: settled.job.revision,
                    action: action.clone(),
                })
            })
            .collect();
        Plan { decisions }
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
