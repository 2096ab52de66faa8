//! Idle programs. A program is idle while none of its processes prints, logs a metric, or uses CPU
//! or GPU. Executors measure it, so the rule needs neither steps nor a second worker.
//!
//! A job is idle once all its tasks are, up to the oldest of their newest reports: a lost report of
//! activity must not end a job in use. It is then flagged, and restarts only if its document says
//! so. An interactive job ends after its time without use. If the use of a GPU is unknown, the job
//! is only flagged.

use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use super::straggler_detection::{fail, patience_ms};
use crate::plan::Action;
use crate::snapshot::{SnapshotNode, SnapshotTask};
use muster_model::idle::{GpuEvidence, IdleFinding, Idleness};
use muster_model::job::{AfterStop, Charge, JobState};
use muster_model::pace::{Suspicion, Watch};
use muster_model::verdict::{Finding, Remedy, Verdict};

/// Share of an interactive job's time without use after which its owner is warned, in percent.
const WARNED_AT_PERCENT: u64 = 80;

/// Time without a report after which an idleness no longer counts. Executors report at least each
/// minute.
const RENEWED_WITHIN_MS: i64 = 5 * 60_000;

/// A job whose tasks are all idle.
struct IdleJob<'a> {
    /// The task that became idle last.
    task: &'a SnapshotTask,
    /// Its GPU evidence is `Unknown` if that of any task is.
    idle: Idleness,
    /// Milliseconds for which all were idle.
    for_ms: u64,
}

impl IdleJob<'_> {
    fn is_gpu_use_known(&self) -> bool {
        self.idle.gpu != GpuEvidence::Unknown
    }

    fn ends_after_ms(&self, watch: &Watch) -> Option<u64> {
        watch.idle_limit_ms.filter(|_| self.is_gpu_use_known())
    }

    /// Whether the history states another idleness, or no end although the job will end.
    fn is_news(&self, known: Option<&IdleFinding>, watch: &Watch) -> bool {
        known.is_none_or(|known| {
            let ends = known.ends_after_ms.is_none() && self.ends_after_ms(watch).is_some();
            known.idle.since_ms != self.idle.since_ms || ends
        })
    }
}

/// Ends interactive jobs without use, and restarts idle programs whose documents say so.
pub(crate) fn end_idle_jobs(round: &mut RoundState<'_>) {
    for index in 0..round.jobs.len() {
        let live = &round.jobs[index];
        let Some(watch) = live.job.watch.as_ref() else {
            continue;
        };
        let found = idle(live, &round.snapshot.nodes, round.now_ms);
        let Some(found) = found.filter(IdleJob::is_gpu_use_known) else {
            continue;
        };
        match watch.idle_limit_ms {
            Some(limit_ms) if found.for_ms >= limit_ms => end(round, index, &found),
            Some(_) => {}
            None => {
                let patience_ms = patience_ms(watch, Suspicion::Hang);
                if watch.restarts_idle && watch.hang_ms > 0 && found.for_ms >= patience_ms {
                    restart(round, index, &found);
                }
            }
        }
    }
}

/// Flags jobs that have been idle for long, and removes the flag of jobs that are active again.
pub(crate) fn record_idle_jobs(round: &mut RoundState<'_>) {
    let (snapshot, now_ms) = (round.snapshot, round.now_ms);
    for live in &mut round.jobs {
        let (job, silent) = (live.job, live.actions.is_empty());
        let Some(watch) = job.watch.as_ref().filter(|_| silent) else {
            continue;
        };
        let found = idle(live, &snapshot.nodes, now_ms);
        let found =
            found.filter(|found| flagged_after_ms(watch).is_some_and(|ms| found.for_ms >= ms));
        let known = watch.idle.as_ref();
        let is_news = found
            .as_ref()
            .map_or(known.is_some(), |found| found.is_news(known, watch));
        if !is_news {
            continue;
        }
        let idle = found.map(|found| IdleFinding {
            role: found.task.role,
            idle: found.idle,
            for_ms: found.for_ms,
            ends_after_ms: found.ends_after_ms(watch),
        });
        live.take(Action::Idle { idle }, now_ms);
    }
}

/// Milliseconds of idleness after which the job is flagged; `None`: never.
fn flagged_after_ms(watch: &Watch) -> Option<u64> {
    match watch.idle_limit_ms {
        Some(limit_ms) => Some(limit_ms / 100 * WARNED_AT_PERCENT),
        None => Some(watch.hang_ms).filter(|ms| *ms > 0),
    }
}

/// Idleness of a running program. `None` if a task is active, or its executor does not measure it.
fn idle<'a>(live: &PlannedJob<'a>, nodes: &[SnapshotNode], now_ms: i64) -> Option<IdleJob<'a>> {
    let job = live.job;
    let runs = live.scheduling_state == SchedulingState::Running
        && job.state == JobState::Running
        && !live.is_resizing
        && live.leaving_tasks.is_empty();
    if job.command.is_none() || !runs {
        return None;
    }
    let mut last: Option<(&SnapshotTask, Idleness)> = None;
    let (mut until_ms, mut is_unknown) = (i64::MAX, false);
    for task in job.tasks.iter().filter(|task| !task.state.is_released()) {
        let idle = task.idle.filter(|_| task.is_up())?;
        // Reports of a node without a session may be delayed.
        let node = nodes.iter().find(|node| node.id == task.node);
        let seen_ms = node.and_then(|node| node.seen_ms).unwrap_or(now_ms);
        if seen_ms.saturating_sub(idle.reported_ms) > RENEWED_WITHIN_MS {
            return None;
        }
        until_ms = until_ms.min(idle.reported_ms);
        is_unknown |= idle.gpu == GpuEvidence::Unknown;
        let since_ms = idle.since_ms.max(job.slice_began_ms());
        if last.is_none_or(|(_, last)| since_ms > last.since_ms) {
            last = Some((task, Idleness { since_ms, ..idle }));
        }
    }
    let (task, mut idle) = last?;
    if is_unknown {
        idle.gpu = GpuEvidence::Unknown;
    }
    Some(IdleJob {
        task,
        idle,
        for_ms: u64::try_from(until_ms.saturating_sub(idle.since_ms)).unwrap_or(0),
    })
}

fn end(round: &mut RoundState<'_>, index: usize, found: &IdleJob<'_>) {
    let finding = IdleFinding {
        role: found.task.role,
        idle: found.idle,
        for_ms: found.for_ms,
        ends_after_ms: None,
    };
    let why = format!("interactive job without use: {}", finding.evidence());
    let stop = Action::Stop {
        then: AfterStop::Succeed,
        why,
        charge: Charge::None,
        not_before_ms: None,
    };
    round.stop(index, stop);
}

fn restart(round: &mut RoundState<'_>, index: usize, found: &IdleJob<'_>) {
    let nodes = &round.snapshot.nodes;
    let node = nodes.iter().find(|node| node.id == found.task.node);
    let verdict = Verdict {
        task_id: found.task.id,
        role: found.task.role,
        node_id: found.task.node,
        node: node.map_or_else(String::new, |node| node.name.clone()),
        finding: Finding::Idle {
            idle: found.idle,
            idle_ms: found.for_ms,
        },
        for_ms: found.for_ms,
        remedy: Remedy::Restarted,
    };
    let why = verdict.to_string();
    let now_ms = round.now_ms;
    round.jobs[index].take(Action::Judge { verdict }, now_ms);
    fail(round, index, why);
}
