//! Detection of stragglers and hangs. A straggler computes at less than half of the median rate
//! (rule of Optimus, Peng et al., EuroSys 2018). A hanging rank reports nothing or does nothing
//! while others wait for it. Only this rank is replaced where the job allows it; otherwise the job
//! restarts.
//!
//! A finding of one round is a suspicion. It becomes a verdict once it has held in every round for
//! the time in the job's document. Each verdict doubles this time for the next, so that ranks are
//! not replaced in a loop. This module never reads other jobs.

use super::cost;
use super::free::{Availability, HostCapacity};
use super::in_place::{self, TaskSetChange};
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::snapshot::{SnapshotJob, SnapshotNode, SnapshotTask};
use muster_model::job::{JobState, RequeueCause};
use muster_model::pace::{Doing, Pace, Suspect, Suspicion, Watch, median};
use muster_model::task::Role;
use muster_model::verdict::{Finding, Remedy, Verdict};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Time without reports after which a rank is silent, in milliseconds. Reports come every two
/// seconds.
const SILENT_MS: i64 = 10_000;
/// Rate of a straggler relative to the median rate.
const SLOW: f64 = 0.5;
/// Multiple of its usual own time after which a step is stuck.
const STUCK_STEPS: f64 = 10.0;
/// Multiple of its longest pause after which a program is silent.
const PAUSES: u64 = 4;
/// Minimum number of reports for a known longest pause.
const FEWEST_REPORTS: u32 = 3;
/// Maximum number of doublings by verdicts: the times grow at most to thirty-two times.
const MOST_DOUBLINGS: u32 = 5;

/// A rank that looks slow or hanging in this round.
#[derive(Debug, Clone, Copy)]
struct SuspectRank<'j> {
    task: &'j SnapshotTask,
    of: Suspicion,
    finding: Finding,
}

/// Decides on ranks that were suspected for long enough, at most one verdict per job.
pub(crate) fn decide_verdicts(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        let Some(found) = due(live, &round.snapshot.nodes, round.now_ms) else {
            continue;
        };
        if let Some(remedy) = remedy(round, index, &found) {
            carry_out(round, index, found, remedy);
        }
    }
}

/// Records the suspected ranks of each job, where they have changed.
pub(crate) fn record_suspects(round: &mut RoundState<'_>) {
    let (snapshot, now_ms) = (round.snapshot, round.now_ms);
    for live in &mut round.jobs {
        let (job, silent) = (live.job, live.actions.is_empty());
        let Some(watch) = job.watch.as_ref().filter(|_| silent && is_watched(live)) else {
            continue;
        };
        // A suspicion from before a justified wait proves nothing after it.
        let found = look(job, watch, &snapshot.nodes, now_ms).unwrap_or_default();
        let suspects = found.iter().map(|one| Suspect {
            task_id: one.task.id,
            of: one.of,
            since_ms: known(watch, one).map_or(now_ms, |known| known.since_ms),
        });
        let suspects: Vec<Suspect> = suspects.collect();
        if suspects != watch.suspects {
            live.take(Action::Suspect { suspects }, now_ms);
        }
    }
}

/// The worst finding that was suspected for long enough, with its duration in milliseconds.
fn due<'a>(
    live: &PlannedJob<'a>,
    nodes: &[SnapshotNode],
    now_ms: i64,
) -> Option<(SuspectRank<'a>, u64)> {
    let job = live.job;
    let watch = job.watch.as_ref().filter(|_| is_watched(live))?;
    let found = look(job, watch, nodes, now_ms)?;
    let due = found.into_iter().filter_map(|one| {
        let since_ms = known(watch, &one)?.since_ms.max(job.slice_began_ms());
        let for_ms = u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0);
        (for_ms >= patience_ms(watch, one.of)).then_some((one, for_ms))
    });
    due.min_by_key(|(one, _)| {
        let own_us = match one.finding {
            Finding::Straggler { own_us, .. } => own_us,
            Finding::Hang { silent_ms, .. } => silent_ms,
            Finding::Idle { idle_ms, .. } => idle_ms,
        };
        (one.of, Reverse(own_us))
    })
}

/// Whether at least two workers run, all tasks are up, and no task joins or leaves.
fn is_watched(live: &PlannedJob<'_>) -> bool {
    let job = live.job;
    let is_command = job.command.is_some();
    let workers = job.tasks.iter().filter(|task| task.is_worker()).count();
    live.scheduling_state == SchedulingState::Running
        && job.state == JobState::Running
        && !live.is_resizing
        && live.leaving_tasks.is_empty()
        && workers >= 2
        && job
            .tasks
            .iter()
            .all(|task| task.is_up() || (is_command && task.state.is_released()))
}

/// Milliseconds for which a finding must hold before it is a verdict.
pub(super) fn patience_ms(watch: &Watch, of: Suspicion) -> u64 {
    let ms = match of {
        Suspicion::Straggler => watch.straggler_ms,
        Suspicion::Hang => watch.hang_ms,
    };
    ms << watch.verdicts.min(MOST_DOUBLINGS)
}

fn known<'w>(watch: &'w Watch, found: &SuspectRank<'_>) -> Option<&'w Suspect> {
    let mut suspects = watch.suspects.iter();
    suspects.find(|known| known.task_id == found.task.id && known.of == found.of)
}

/// Ranks that look slow or hanging. `None` while a rank does something that others rightly wait
/// for.
fn look<'j>(
    job: &'j SnapshotJob,
    watch: &Watch,
    nodes: &[SnapshotNode],
    now_ms: i64,
) -> Option<Vec<SuspectRank<'j>>> {
    let ranks: Vec<(&SnapshotTask, &Pace)> = job
        .tasks
        .iter()
        .filter(|task| task.is_worker() && task.is_up())
        .filter_map(|task| Some((task, task.pace.as_ref()?)))
        .collect();
    // A rank that falls silent during such work is no longer excused.
    let is_excused = ranks.iter().any(|(task, pace)| {
        matches!(pace.doing, Doing::Busy | Doing::Standing)
            && silence_ms(job, task, pace, nodes, now_ms) < SILENT_MS
    });
    if is_excused {
        return None;
    }
    let mut found = Vec::new();
    if watch.hang_ms > 0 {
        match job.command {
            Some(_) => found.extend(silent_program(job, &ranks, nodes, now_ms)),
            None => found.extend(hung(job, &ranks, nodes, now_ms)),
        }
    }
    if watch.straggler_ms > 0 {
        found.extend(slow(job, &ranks, now_ms));
    }
    Some(found)
}

/// Milliseconds without a report, up to the last message of the rank's node. Reports of a node
/// without a session may be delayed.
fn silence_ms(
    job: &SnapshotJob,
    task: &SnapshotTask,
    pace: &Pace,
    nodes: &[SnapshotNode],
    now_ms: i64,
) -> i64 {
    let node = nodes.iter().find(|node| node.id == task.node);
    let until_ms = node.and_then(|node| node.seen_ms).unwrap_or(now_ms);
    let since_ms = pace.heard_ms.max(job.workers_began_ms());
    until_ms.min(now_ms).saturating_sub(since_ms)
}

/// Hanging ranks of the built-in engine, which reports in all states. A rank is blocked if it is
/// silent while others report. It is stuck if it works on a step while the others wait or continue
/// without it.
fn hung<'j>(
    job: &'j SnapshotJob,
    ranks: &[(&'j SnapshotTask, &'j Pace)],
    nodes: &[SnapshotNode],
    now_ms: i64,
) -> Vec<SuspectRank<'j>> {
    let silences = ranks
        .iter()
        .map(|(task, pace)| silence_ms(job, task, pace, nodes, now_ms));
    let silences: Vec<i64> = silences.collect();
    let mut found = Vec::new();
    for (place, &(task, pace)) in ranks.iter().enumerate() {
        let others = (0..ranks.len()).filter(|&other| other != place);
        let mut heard = others
            .filter(|&other| silences[other] < SILENT_MS)
            .map(|other| ranks[other].1)
            .peekable();
        if heard.peek().is_none() {
            continue;
        }
        let usual_ms = pace.own_ms.map_or(0.0, |ms| ms * STUCK_STEPS);
        let still_ms = still_ms(job, pace, now_ms);
        let is_stuck = pace.doing == Doing::Working
            && still_ms >= SILENT_MS
            && still_ms as f64 >= usual_ms
            && heard.all(|other| is_patient(job, other, now_ms));
        let silent_ms = if silences[place] >= SILENT_MS {
            silences[place]
        } else if is_stuck {
            still_ms
        } else {
            continue;
        };
        found.push(hang(task, pace, silent_ms));
    }
    found
}

/// Milliseconds since the last step, in the present time slice.
fn still_ms(job: &SnapshotJob, pace: &Pace, now_ms: i64) -> i64 {
    now_ms.saturating_sub(pace.moved_ms.max(job.slice_began_ms()))
}

/// Whether a rank waits for others, or has done a step recently.
fn is_patient(job: &SnapshotJob, pace: &Pace, now_ms: i64) -> bool {
    pace.doing == Doing::Waiting || still_ms(job, pace, now_ms) < SILENT_MS
}

/// Hang of a program. Its ranks wait for each other inside of it: if all are silent, one of them
/// hangs. Which one is unknown and makes no difference, so the first silent rank is named.
fn silent_program<'j>(
    job: &'j SnapshotJob,
    ranks: &[(&'j SnapshotTask, &'j Pace)],
    nodes: &[SnapshotNode],
    now_ms: i64,
) -> Option<SuspectRank<'j>> {
    let all_silent = ranks.iter().all(|(task, pace)| {
        let pause_ms = i64::try_from(pace.longest_gap_ms.saturating_mul(PAUSES));
        let silent_ms = silence_ms(job, task, pace, nodes, now_ms);
        pace.reports >= FEWEST_REPORTS && silent_ms >= SILENT_MS.max(pause_ms.unwrap_or(i64::MAX))
    });
    let first = ranks
        .iter()
        .min_by_key(|(task, pace)| (pace.heard_ms, task.role));
    let (task, pace) = first.filter(|_| all_silent)?;
    let silent_ms = silence_ms(job, task, pace, nodes, now_ms);
    Some(hang(task, pace, silent_ms))
}

fn hang<'j>(task: &'j SnapshotTask, pace: &Pace, silent_ms: i64) -> SuspectRank<'j> {
    let finding = Finding::Hang {
        step: pace.step,
        silent_ms: u64::try_from(silent_ms).unwrap_or(0),
    };
    SuspectRank {
        task,
        of: Suspicion::Hang,
        finding,
    }
}

fn slow<'j>(
    job: &'j SnapshotJob,
    ranks: &[(&'j SnapshotTask, &'j Pace)],
    now_ms: i64,
) -> Vec<SuspectRank<'j>> {
    let rates = ranks.iter().filter(|(_, pace)| {
        pace.heard_ms > job.workers_began_ms()
            && now_ms.saturating_sub(pace.heard_ms) < 2 * SILENT_MS
    });
    let rates: Vec<(&SnapshotTask, f64)> = rates
        .filter_map(|(task, pace)| Some((*task, 1_000.0 / pace.own_ms?)))
        .collect();
    let workers = job.tasks.iter().filter(|task| task.is_worker()).count();
    // The median of a minority of the ranks is not reliable.
    if rates.len() < 2 || rates.len() * 2 <= workers {
        return Vec::new();
    }
    let median = median(rates.iter().map(|(_, rate)| *rate).collect());
    let slow = rates
        .into_iter()
        .filter(|&(_, rate)| rate < SLOW * median)
        .map(|(task, rate)| SuspectRank {
            task,
            of: Suspicion::Straggler,
            finding: Finding::Straggler {
                own_us: step_us(rate),
                median_us: step_us(median),
            },
        });
    slow.collect()
}

fn step_us(steps_per_s: f64) -> u64 {
    (1e6 / steps_per_s) as u64
}

/// Remedy for a rank, if one helps.
enum StragglerRemedy {
    InPlace(TaskSetChange, Remedy),
    /// Whether the restart is charged, because it may be the job's own fault.
    Restart {
        charged: bool,
    },
}

fn remedy(
    round: &RoundState<'_>,
    index: usize,
    (found, _): &(SuspectRank<'_>, u64),
) -> Option<StragglerRemedy> {
    let live = &round.jobs[index];
    let hangs = found.of == Suspicion::Hang;
    let is_command = live.job.command.is_some();
    if !is_command && !in_place::is_able(live) {
        return None;
    }
    let places = live.job.tasks.iter().zip(&live.places);
    let own = places.filter(|(task, _)| task.id == found.task.id);
    let own = own.map(|(_, place)| *place).next()?;
    let elsewhere = elsewhere(round, live, own);
    if is_command {
        let helps = hangs || (elsewhere.is_some() && may_restart_again(round, live));
        return helps.then_some(StragglerRemedy::Restart { charged: hangs });
    }
    // Only the coordinator (rank 0) knows the progress, so its replacement is a restart.
    if found.task.role == (Role::Worker { rank: 0 }) {
        let helps = hangs || elsewhere.is_some();
        return helps.then_some(StragglerRemedy::Restart { charged: hangs });
    }
    let mut change = TaskSetChange {
        leave: vec![found.task.id],
        join: Vec::new(),
    };
    if let Some((node, gpus)) = elsewhere {
        change
            .join
            .push((Role::Worker { rank: unused(live) }, node, gpus));
        return Some(StragglerRemedy::InPlace(change, Remedy::Replaced));
    }
    if live.size.0 > live.shape.workers.min.max(1) {
        return Some(StragglerRemedy::InPlace(change, Remedy::LeftOut));
    }
    // A slow worker is better than none.
    hangs.then_some(StragglerRemedy::Restart { charged: true })
}

/// Whether a slow program may be restarted again, without a charge. A program that loses all work
/// since its start restarts once. One that continues from a checkpoint restarts a limited number of
/// times, because it may be slow by itself.
fn may_restart_again(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let verdicts = live.job.watch.as_ref().map_or(0, |watch| watch.verdicts);
    let forgets = cost::at_risk_s(live, round.now_ms) > 0.0;
    verdicts < if forgets { 1 } else { MOST_DOUBLINGS }
}

/// Free GPUs for one worker on another node of the same kind. Nodes of the job come first, then
/// nodes in its racks.
fn elsewhere(round: &RoundState<'_>, live: &PlannedJob<'_>, own: u32) -> Option<(u32, u64)> {
    let gpus = live.shape.worker.gpus;
    let held = round.held[live.tenant as usize];
    if round
        .quota(live)
        .is_some_and(|quota| held.saturating_add(gpus) > quota)
    {
        return None;
    }
    let room = HostCapacity::worker(&live.shape.worker);
    let kind = round.free.get(own as usize)?.kind;
    let places = live.places.iter();
    let racks: BTreeSet<u32> = places
        .filter_map(|place| Some(round.free.get(*place as usize)?.rack))
        .collect();
    let nodes = (0_u32..).zip(&round.free).filter(|(node, there)| {
        *node != own && there.open && there.kind == kind && there.has(gpus, room, Availability::Now)
    });
    let (node, there) = nodes.min_by_key(|(node, there)| {
        let (is_beside, is_near) = (live.places.contains(node), racks.contains(&there.rack));
        (!is_beside, !is_near, *node)
    })?;
    let mut there = *there;
    Some((node, there.take_gpus(gpus, Availability::Now)))
}

/// Lowest unused rank, the leaving one counted as used: reports of the two must not be confused.
fn unused(live: &PlannedJob<'_>) -> u32 {
    let tasks = &live.job.tasks;
    let unused = (1..).find(|&rank| {
        let role = Role::Worker { rank };
        tasks.iter().all(|task| task.role != role)
    });
    unused.unwrap_or(u32::MAX)
}

fn carry_out(
    round: &mut RoundState<'_>,
    index: usize,
    (found, for_ms): (SuspectRank<'_>, u64),
    cure: StragglerRemedy,
) {
    let nodes = &round.snapshot.nodes;
    let node = nodes.iter().find(|node| node.id == found.task.node);
    let remedy = match &cure {
        StragglerRemedy::InPlace(_, remedy) => *remedy,
        StragglerRemedy::Restart { .. } => Remedy::Restarted,
    };
    let verdict = Verdict {
        task_id: found.task.id,
        role: found.task.role,
        node_id: found.task.node,
        node: node.map_or_else(String::new, |node| node.name.clone()),
        finding: found.finding,
        for_ms,
        remedy,
    };
    let why = verdict.to_string();
    let now_ms = round.now_ms;
    round.jobs[index].take(Action::Judge { verdict }, now_ms);
    match cure {
        StragglerRemedy::InPlace(change, _) => round.resize(index, &change, why),
        StragglerRemedy::Restart { charged: false } => {
            round.stop(index, Action::requeue(RequeueCause::Resize, why));
        }
        StragglerRemedy::Restart { charged: true } => fail(round, index, why),
    }
}

/// Charges a failure, as for a task that failed by itself.
pub(super) fn fail(round: &mut RoundState<'_>, index: usize, why: String) {
    let live = &mut round.jobs[index];
    let job = live.job;
    let failed = round
        .policy
        .after_failure(round.now_ms, job.failures, job.retries, why);
    if let Action::Stop {
        not_before_ms: Some(until_ms),
        ..
    } = failed
    {
        live.not_before_ms = Some(until_ms);
    }
    round.stop(index, failed);
}
