//! Why a round decided as it did, for people and for the record; no decision reads it.

use crate::contender::Standing;
use crate::plan::Action;
use crate::round::Decided;
use crate::scale::next_worker_gain;
use crate::snapshot::{Job, Snapshot};
use crate::solve::Problem;
use muster_model::id::{JobId, NodeId};
use muster_model::job::JobPhase;
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What one round saw and why it decided so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundReport {
    pub round: u64,
    pub totals: Totals,
    /// The best step that was refused for want of room: whoever would have got the next GPU.
    pub runner_up: Option<RunnerUp>,
    pub jobs: Vec<JobReport>,
}

/// GPUs of the nodes that are up, after the round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub gpus: u32,
    pub held_gpus: u32,
    pub free_gpus: u32,
    pub waiting_jobs: u32,
}

/// One job in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    pub job: JobId,
    pub name: String,
    /// After the round.
    pub phase: JobPhase,
    /// What it has, or will have once room is made.
    pub workers: u32,
    pub ps_shards: u32,
    /// In words: why it has this size, or why it waits.
    pub why: String,
    /// Seconds saved per share of the cluster by the next worker; `None` when it may have no more.
    pub next_worker_gain: Option<f64>,
    pub speed: SpeedReport,
    /// Steps until it ends, by its bound or by convergence.
    pub steps_left: f64,
    /// The 80 % confidence interval of `steps_left`; `None` in reports from before it was kept.
    #[serde(default)]
    pub steps_left_between: Option<(f64, f64)>,
    /// Seconds until it ends at this size.
    pub time_left_s: f64,
    pub waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    pub job: JobId,
    /// Seconds saved per share of the cluster.
    pub gain: f64,
}

/// How the job's speed was estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedReport {
    /// Of the terms in the order of the speed model's formula; empty while nothing is measured.
    pub coefficients: Vec<f64>,
    /// Sizes that were measured.
    pub points: u32,
    /// Mean relative error of the fit at those sizes; `None` while nothing is measured.
    pub mean_relative_error: Option<f64>,
    /// Predicted speed at the job's size.
    pub steps_per_s: f64,
}

/// Puts a round into words; the snapshot is that after the plan, `actions` are what led to it.
pub(crate) fn report(
    snapshot: &Snapshot,
    decided: &Decided<'_>,
    actions: &[Vec<Action>],
    waiting: Vec<Option<Waiting>>,
) -> RoundReport {
    let problem = Problem::new(snapshot, &decided.contenders);
    let mut stopped = decided.admission.stopped.clone();
    stopped.extend(&decided.resized);
    let budget = problem.budget(&decided.solution.cluster, &stopped);
    let runner_up = decided.solution.runner_up.map(|(index, gain)| RunnerUp {
        job: snapshot.jobs[index].id,
        gain,
    });
    let jobs: Vec<JobReport> = waiting
        .into_iter()
        .enumerate()
        .map(|(index, waiting)| {
            let contender = &decided.contenders[index];
            let phase = decided.settled[index].state.phase();
            let placed = decided.solution.placed.get(&index);
            let size = match placed {
                Some(placed) => placed.size,
                None if contender.stays() && !stopped.contains(&index) => contender.job.size(),
                None => (0, 0),
            };
            let shown = (size.0.max(1), size.1.max(1));
            let estimate = &contender.estimate;
            let next_worker_gain = if size.0 == 0 {
                None
            } else {
                next_worker_gain(contender, size, &budget)
            };
            JobReport {
                job: contender.job.id,
                name: contender.job.name.clone(),
                phase,
                workers: size.0,
                ps_shards: size.1,
                why: why(
                    decided,
                    index,
                    &actions[index],
                    waiting.as_ref(),
                    next_worker_gain,
                    runner_up,
                ),
                next_worker_gain,
                speed: SpeedReport {
                    coefficients: estimate.speed.coefficients(),
                    points: estimate.speed.points(),
                    mean_relative_error: estimate.speed.mean_relative_error,
                    steps_per_s: estimate.speed.steps_per_s(shown.0, shown.1),
                },
                steps_left: estimate.steps_left,
                steps_left_between: Some(estimate.steps_left_between),
                time_left_s: estimate.time_s(shown),
                waiting,
            }
        })
        .collect();
    RoundReport {
        round: snapshot.round,
        totals: totals(snapshot, decided),
        runner_up,
        jobs,
    }
}

fn totals(snapshot: &Snapshot, decided: &Decided<'_>) -> Totals {
    let up = snapshot.nodes.iter().filter(|node| node.up);
    let gpus: u32 = up.clone().map(|node| node.gpus).sum();
    let ids: BTreeSet<NodeId> = up.map(|node| node.id).collect();
    let held = |job: &Job| -> usize {
        job.held_tasks()
            .filter(|task| ids.contains(&task.node))
            .map(|task| task.gpus.len())
            .sum()
    };
    let held_gpus =
        u32::try_from(snapshot.jobs.iter().map(held).sum::<usize>()).unwrap_or(u32::MAX);
    let queued = decided
        .settled
        .iter()
        .filter(|one| one.state.phase() == JobPhase::Queued)
        .count();
    Totals {
        gpus,
        held_gpus,
        free_gpus: gpus.saturating_sub(held_gpus),
        waiting_jobs: u32::try_from(queued).unwrap_or(u32::MAX),
    }
}

fn why(
    decided: &Decided<'_>,
    index: usize,
    actions: &[Action],
    waiting: Option<&Waiting>,
    next_worker_gain: Option<f64>,
    runner_up: Option<RunnerUp>,
) -> String {
    if let Some(waiting) = waiting {
        return waiting.why.to_string();
    }
    if let Some(Action::Stop { why, .. } | Action::Start { why, .. }) = actions
        .iter()
        .rev()
        .find(|action| matches!(action, Action::Stop { .. } | Action::Start { .. }))
    {
        return why.clone();
    }
    match (
        decided.contenders[index].standing,
        next_worker_gain,
        runner_up,
    ) {
        (Standing::Starting, ..) => "starts; it is not resized before it is up".to_owned(),
        (Standing::Running, None, _) => {
            "one worker more would gain nothing, or is not allowed".to_owned()
        }
        (Standing::Running, Some(gain), Some(other)) if other.gain > gain => {
            "one worker more would gain less than another job's".to_owned()
        }
        (Standing::Running, Some(_), _) => {
            "one worker more is not worth a restart, or finds no room".to_owned()
        }
        (Standing::Returning | Standing::Evicted | Standing::Displaced, ..) => {
            "comes back once its tasks are gone".to_owned()
        }
        (Standing::Ending | Standing::Resting | Standing::Queued, ..) => "ends or rests".to_owned(),
    }
}
