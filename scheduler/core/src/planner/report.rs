//! The round's report as text, for users and for the record. No decision reads it.

use super::fixpoint::RoundFixpoint;
use super::free::gpus_of;
use super::packing;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::estimate::predicted_batch;
use crate::learn::Spread;
use crate::plan::Action;
use crate::problem::{SizeValue, gpus_of as parts_gpus};
use crate::report::{JobReport, PreemptionReport, RoundReport, RunnerUp, SpeedReport, Totals};
use crate::snapshot::SnapshotNode;
use muster_model::job::JobPhase;
use muster_model::plan::PredictedBatch;
use muster_model::wait::Waiting;
use std::collections::BTreeSet;

/// Builds the report from the state after the plan.
pub(crate) fn report(
    round: &RoundState<'_>,
    fixpoint: &RoundFixpoint,
    waiting: &[Option<Waiting>],
) -> RoundReport {
    let runner_up = runner_up(round, fixpoint);
    let jobs = round.jobs.iter().zip(waiting);
    RoundReport {
        round: round.snapshot.round,
        totals: totals(round),
        runner_up,
        jobs: jobs
            .enumerate()
            .map(|(index, (live, waiting))| {
                let mut report = job(round, fixpoint, live, waiting.as_ref(), runner_up);
                // A shared GPU explains the job's speed at any size.
                if let Some(pair) = packing::pair_report(round, index) {
                    report.why = format!("{}; {pair}", report.why);
                }
                report
            })
            .collect(),
        moves: round.moves.clone(),
        preemptions: preemptions(round),
    }
}

/// Stops for other jobs that this round decided.
fn preemptions(round: &RoundState<'_>) -> Vec<PreemptionReport> {
    let all = round.jobs.iter().flat_map(|live| {
        let costs = live.actions.iter().filter_map(|action| match action {
            Action::Displace { cost } => Some(*cost),
            _ => None,
        });
        costs.map(|cost| PreemptionReport {
            job: live.job.id,
            cost,
            lost_before_s: live.job.lost_s,
        })
    });
    all.collect()
}

fn worth(fixpoint: &RoundFixpoint, live: &PlannedJob<'_>) -> Option<SizeValue> {
    fixpoint.decision.worth.get(live.member?).copied()
}

/// Job that would have received the next GPU.
fn runner_up(round: &RoundState<'_>, fixpoint: &RoundFixpoint) -> Option<RunnerUp> {
    let worths = round.members.iter().zip(&fixpoint.decision.worth);
    let next = worths.map(|(&index, worth)| (worth.next_gain, index));
    let best = next
        .filter(|&(gain, _)| gain > 0.0)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    best.map(|(gain, index)| RunnerUp {
        job: round.jobs[index].job.id,
        gain,
    })
}

fn job(
    round: &RoundState<'_>,
    fixpoint: &RoundFixpoint,
    live: &PlannedJob<'_>,
    waiting: Option<&Waiting>,
    runner_up: Option<RunnerUp>,
) -> JobReport {
    let size = size(round, fixpoint, live);
    let shown = (size.0.max(1), size.1.max(1));
    let estimate = &live.estimate;
    let worth = worth(fixpoint, live).filter(|_| size.0 > 0);
    JobReport {
        job: live.job.id,
        name: live.job.name.clone(),
        phase: live.state.phase(),
        workers: size.0,
        ps_shards: size.1,
        why: why(live, waiting, worth, runner_up),
        last_worker_gain: worth
            .map(|worth| worth.last_gain)
            .filter(|&gain| gain > 0.0),
        next_worker_gain: worth
            .map(|worth| worth.next_gain)
            .filter(|&gain| gain > 0.0),
        speed: SpeedReport {
            coefficients: estimate.speed.coefficients(),
            points: estimate.speed.points(),
            mean_relative_error: estimate.speed.mean_relative_error,
            steps_per_s: estimate.steps_per_s(shown.0, shown.1),
            standard_error: Some(estimate.speed.standard_error(shown.0, shown.1)),
            next_probe: None,
            by_kind: estimate.relative_speeds(shown),
        },
        batch: batch(round, live, size.0),
        steps_left: estimate.steps_left,
        steps_left_between: Some(estimate.steps_left_between),
        time_left_s: estimate.time_s(shown),
        length: estimate.length,
        step: Some(live.job.progress.step),
        waiting: waiting.cloned(),
    }
}

/// Predicted batch with this number of workers, on the GPUs that the job holds.
fn batch(round: &RoundState<'_>, live: &PlannedJob<'_>, workers: u32) -> Option<PredictedBatch> {
    live.job.adaptive?.max_batch?;
    let evidence = round.learned.evidence(live.job)?;
    let held = live.holdings.iter().filter(|held| held.gpus != 0);
    let nodes: BTreeSet<u32> = held.map(|held| held.node).collect();
    let node = &round.snapshot.nodes[*nodes.first()? as usize];
    let spread = if nodes.len() > 1 {
        Spread::Nodes
    } else {
        Spread::OneNode
    };
    predicted_batch(live.job, &evidence, &node.gpu_model, (workers, spread))
}

/// Size that the job has, or will have once room is made.
fn size(round: &RoundState<'_>, fixpoint: &RoundFixpoint, live: &PlannedJob<'_>) -> (u32, u32) {
    if live.scheduling_state.stays() {
        return live.size;
    }
    let Some(member) = live.member else {
        return (0, 0);
    };
    let gpus = parts_gpus(fixpoint.decision.holds(&round.problem, member));
    let workers = gpus / live.shape.worker.gpus.max(1);
    match workers {
        0 => (0, 0),
        workers => (workers, live.sizing.ps_shards(workers)),
    }
}

fn totals(round: &RoundState<'_>) -> Totals {
    let nodes = &round.snapshot.nodes;
    let up: Vec<&SnapshotNode> = nodes.iter().filter(|node| node.up).collect();
    let gpus: u32 = up.iter().map(|node| node.gpus).sum();
    // Without those that programs outside Muster use.
    let own_gpus: u32 = up.iter().map(|node| node.own_gpus()).sum();
    let held = round.jobs.iter().flat_map(|live| &live.holdings);
    let held_gpus: u32 = held
        .filter(|held| nodes[held.node as usize].up)
        .map(|held| gpus_of(std::slice::from_ref(held)))
        .sum();
    let waiting_jobs = round
        .jobs
        .iter()
        .filter(|live| live.state.phase() == JobPhase::Queued)
        .count();
    let waiting_jobs = u32::try_from(waiting_jobs).unwrap_or(u32::MAX);
    let left_out = round.snapshot.left_out.iter();
    let left_out = left_out.fold(0_u32, |sum, one| sum.saturating_add(one.jobs));
    Totals {
        gpus,
        held_gpus,
        free_gpus: own_gpus.saturating_sub(held_gpus),
        waiting_jobs: waiting_jobs.saturating_add(left_out),
    }
}

fn why(
    live: &PlannedJob<'_>,
    waiting: Option<&Waiting>,
    worth: Option<SizeValue>,
    runner_up: Option<RunnerUp>,
) -> String {
    if let Some(waiting) = waiting {
        return waiting.why.to_string();
    }
    let moves = live.actions.iter().rev().find_map(|action| match action {
        Action::Stop { why, .. }
        | Action::Start { why, .. }
        | Action::Suspend { why }
        | Action::Continue { why, .. }
        | Action::GiveUp { why, .. } => Some(why.clone()),
        _ => None,
    });
    if let Some(why) = moves {
        return why;
    }
    match live.scheduling_state {
        SchedulingState::Suspended => "suspended until its next time slice".to_owned(),
        SchedulingState::Starting => "starts; it is not resized before it is up".to_owned(),
        SchedulingState::Running => {
            let is_largest = live.size.0 >= live.shape.workers.max;
            size_reason(is_largest, worth, runner_up)
        }
        SchedulingState::Returning | SchedulingState::Displaced => {
            "comes back once its tasks are gone".to_owned()
        }
        SchedulingState::Ending | SchedulingState::Resting | SchedulingState::Queued => {
            "ends or rests".to_owned()
        }
    }
}

/// Reason for the present size: its marginal gain compared with the runner-up's. Gains are per GPU,
/// in the policy's own objective.
fn size_reason(is_largest: bool, worth: Option<SizeValue>, runner_up: Option<RunnerUp>) -> String {
    if is_largest {
        return "has the most workers that scale.workers.max allows".to_owned();
    }
    let Some(worth) = worth else {
        return "the policy compares no sizes of this job".to_owned();
    };
    let gain = worth.next_gain;
    if gain <= 0.0 {
        return "one more worker would gain nothing".to_owned();
    }
    match runner_up {
        Some(other) if other.gain > gain => format!(
            "one more worker would gain {gain:.3} per GPU; another job would gain {:.3}",
            other.gain
        ),
        _ => format!(
            "one more worker would gain {gain:.3} per GPU; the change costs more now, or no suitable GPUs are free"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_gain(next_gain: f64) -> Option<SizeValue> {
        Some(SizeValue {
            last_gain: 1.0,
            next_gain,
        })
    }

    #[test]
    fn size_reason_names_the_limit_that_applies() {
        let other = Some(RunnerUp {
            job: "00000000-0000-0000-0000-000000000001"
                .parse()
                .expect("an id"),
            gain: 0.5,
        });
        let reasons = [
            size_reason(true, next_gain(0.0), None),
            size_reason(false, None, other),
            size_reason(false, next_gain(0.0), other),
            size_reason(false, next_gain(0.25), other),
            size_reason(false, next_gain(0.75), other),
        ];
        assert_eq!(
            reasons,
            [
                "has the most workers that scale.workers.max allows",
                "the policy compares no sizes of this job",
                "one more worker would gain nothing",
                "one more worker would gain 0.250 per GPU; another job would gain 0.500",
                "one more worker would gain 0.750 per GPU; the change costs more now, or no suitable GPUs are free",
            ]
        );
    }
}
