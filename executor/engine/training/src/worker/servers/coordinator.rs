//! The coordinator's duties between two steps: new workers, lost workers, and reports of changes.

use super::super::context::RosterSource;
use super::super::error::WorkerError;
use super::super::exchange::{WorkerExchange, WorkerStepError};
use super::super::shards::{ReshardingResult, ShardAddress};
use super::super::task_set::{POLL_EVERY, TaskSetWatch, worker_ids};
use super::Servers;
use super::join::addresses;
use crate::checkpoint::TaskCounts;
use muster_comm::assign::ParameterPiece;
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_compute::clock;
use muster_compute::model::Network;
use muster_model::assignment::{Peers, TaskReport};
use muster_model::id::TaskId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of usual steps in which a worker must send its residual; a later one is left out of a
/// checkpoint. The minimum is longer than many steps, because a process may lack a processor for a
/// while.
const STEPS_TO_HEAR: u32 = 8;
const LEAST_HEARING: Duration = Duration::from_secs(3);
const MOST_HEARING: Duration = Duration::from_secs(60);

/// Coordinator's state for view changes.
pub(super) struct ViewChangeState {
    pub blocks: Vec<ParameterPiece>,
    task_set: TaskSetWatch,
    /// Lost workers. A task set that still names them is older than their loss.
    lost: Vec<TaskId>,
    /// Start of the present step, and the usual duration of a step.
    pub began: Instant,
    usual: Option<Duration>,
    /// First step of a new view that is not reported yet.
    resized: Option<u64>,
}

/// The coordinator's decision on departed workers.
pub(super) enum DepartureDecision {
    Stop,
    /// There is nothing to decide yet.
    WaitOn,
    /// Training continues without them; another view begins with the next step.
    GoOn,
}

impl ViewChangeState {
    /// Starts with a first view that follows the task set of `revision`.
    pub fn of(network: &Network, peers: &RosterSource, revision: u64) -> Self {
        Self {
            blocks: pieces(network),
            task_set: TaskSetWatch::new(Arc::clone(peers), POLL_EVERY, revision),
            lost: Vec::new(),
            began: clock::now(),
            usual: None,
            resized: None,
        }
    }

    /// Returns the time for which a checkpoint waits for residuals under SSP and ASP: a few usual
    /// steps.
    pub fn hears_within(&self) -> Duration {
        hearing_limit(self.usual)
    }
}

fn hearing_limit(usual: Option<Duration>) -> Duration {
    usual.map_or(MOST_HEARING, |usual| {
        usual
            .saturating_mul(STEPS_TO_HEAR)
            .clamp(LEAST_HEARING, MOST_HEARING)
    })
}

impl Servers<'_> {
    /// Coordinator: whether there is a newer task set to check.
    pub(super) fn may_look(&mut self) -> bool {
        let duties = self.chief.as_mut();
        duties.is_some_and(|duties| duties.task_set.has_newer())
    }

    /// Coordinator: announces the next view if the task set has changed and all new workers wait at
    /// its shards. `from` is its first step.
    pub(super) fn look(&mut self, from: u64) -> Result<bool, WorkerStepError> {
        let Some(duties) = self.chief.as_mut() else {
            return Ok(false);
        };
        let Some(peers) = duties.task_set.newer() else {
            return Ok(false);
        };
        let Some(addresses) = addresses(&peers) else {
            return Ok(false);
        };
        let workers: Vec<TaskId> = worker_ids(&peers)
            .into_iter()
            .filter(|worker| !duties.lost.contains(worker))
            .collect();
        if workers.first() != Some(&self.me.task_id) || addresses.is_empty() {
            // The change cannot be made in place; the scheduler stops this task.
            return Ok(false);
        }
        match self.shards.approach(&addresses) {
            // The shard does not listen yet, or is gone again before it was used.
            Err((_, WireError::Io { .. } | WireError::Closed)) => return Ok(false),
            other => other?,
        }
        let view = self.shards.view().expect("the chief has begun");
        let new: Vec<TaskId> = workers
            .iter()
            .copied()
            .filter(|worker| view.rank(*worker).is_none())
            .collect();
        match self.shards.are_waiting(&new, &addresses) {
            Ok(true) => {}
            // A shard is lost. If it belongs to the present view, the next push handles the loss.
            Ok(false) | Err((_, WireError::Io { .. } | WireError::Closed)) => return Ok(false),
            Err(failure) => return Err(failure.into()),
        }
        self.shards
            .change(peers.revision, workers, &addresses, from, Vec::new())?;
        duties.resized = Some(from);
        duties.task_set.follow(peers.revision);
        self.peers = peers;
        Ok(true)
    }

    /// Coordinator: decides on workers that left in step `step` or never connected.
    pub(super) fn decide(&mut self, step: u64) -> Result<DepartureDecision, WorkerStepError> {
        let duties = self.chief.as_mut().expect("only the chief is told");
        let newest = (self.ctx.peers)();
        let newest = newest.as_ref();
        let mut departed = self.shards.departed().to_vec();
        // A worker that never connected counts as departed only if the task set no longer names it.
        departed.retain(|departed| !departed.never_came || !may_name(newest, departed.task_id));
        if departed.is_empty() {
            return Ok(DepartureDecision::WaitOn);
        }
        // A worker that left in order was asked to stop. If the task set still names it, the whole
        // job stops.
        let goes_on = departed
            .iter()
            .all(|departed| !departed.in_order || !may_name(newest, departed.task_id));
        if !goes_on {
            return Ok(DepartureDecision::Stop);
        }
        let gone: Vec<TaskId> = departed.iter().map(|departed| departed.task_id).collect();
        for departed in departed {
            log::line(format_args!(
                "worker {} left in step {step}; training continues without it",
                departed.task_id
            ));
            if !departed.in_order {
                self.ctx.reporter.report(&TaskReport::PeerGone {
                    task_id: departed.task_id,
                    step,
                })?;
            }
        }
        duties.lost.extend(&gone);
        let view = self.shards.newest().expect("the chief has begun");
        let workers: Vec<TaskId> = view
            .workers
            .iter()
            .copied()
            .filter(|worker| !gone.contains(worker))
            .collect();
        let shards: Vec<ShardAddress> = view
            .shards
            .iter()
            .map(|holder| (holder.task_id, holder.address.clone()))
            .collect();
        let revision = view.revision;
        self.shards
            .change(revision, workers, &shards, step + 1, gone)?;
        duties.resized = Some(step + 1);
        Ok(DepartureDecision::GoOn)
    }

    /// Coordinator: reports a view change whose first step is `step`, and promoted replicas.
    pub(super) fn tell(&mut self, step: u64) -> Result<(), WorkerStepError> {
        let Some(duties) = self.chief.as_mut() else {
            return Ok(());
        };
        let took = duties.began.elapsed();
        duties.began = clock::now();
        let usual = duties.usual;
        let promotions = self.shards.take_promotions();
        let is_usual = promotions.is_empty();
        for (lost, host) in promotions {
            let host = match host {
                Some(host) => format!("PS shard {host}"),
                None => "another PS shard".to_owned(),
            };
            let message = format!(
                "PS shard {lost} is lost; {host} continues as it from its copy by step {step}, and no step is done again. \
                 The step {}",
                compared(took, usual)
            );
            self.ctx.reporter.report(&TaskReport::Note { message })?;
        }
        if duties.resized != Some(step) {
            if is_usual {
                duties.usual = Some(usual.map_or(took, |usual| (usual * 7 + took) / 8));
            }
            return Ok(());
        }
        duties.resized = None;
        duties.usual = None;
        let pause = took.saturating_sub(usual.unwrap_or_default());
        let moved = self.shards.audit()?;
        let TaskCounts { workers, ps_shards } = self.layout();
        log::line(format_args!(
            "resized at step {step}: {workers} workers, {ps_shards} PS shards; its first step {}",
            compared(took, usual)
        ));
        if let Some(moved) = moved {
            audited(moved, step)?;
        }
        Ok(self.ctx.reporter.report(&TaskReport::Resized {
            step,
            workers,
            ps_shards,
            pause_ms: pause.as_millis() as u64,
        })?)
    }
}

/// Whether the task set names this worker, or is not known.
fn may_name(peers: Option<&Peers>, worker: TaskId) -> bool {
    peers.is_none_or(|peers| worker_ids(peers).contains(&worker))
}

/// Compares the duration of a step with an additional task to the usual duration, if it is known.
fn compared(took: Duration, usual: Option<Duration>) -> String {
    let took = milliseconds(took);
    match usual.map(milliseconds) {
        Some(usual) => format!("took {took:.1} ms, a usual one {usual:.1} ms"),
        // It is the first step, or the step before it was the first after another change.
        None => {
            format!("took {took:.1} ms; no step before it has shown yet how long a usual one takes")
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Logs a move of pieces. Different checksums are an error that a restart from the checkpoint
/// repairs.
fn audited(moved: ReshardingResult, step: u64) -> Result<(), WorkerError> {
    if moved.before != moved.after {
        return Err(WorkerError::MovedBadly {
            step,
            before: moved.before,
            after: moved.after,
        });
    }
    log::line(format_args!(
        "{} numbers moved between PS shards in {:.1} ms; parameters and optimizer state are the same to the bit: {:016x}",
        moved.numbers,
        moved.took_us as f64 / 1e3,
        moved.after
    ));
    Ok(())
}

/// Returns the network's blocks for the assignment to shards.
fn pieces(network: &Network) -> Vec<ParameterPiece> {
    network
        .blocks()
        .iter()
        .map(|block| ParameterPiece {
            offset: block.offset,
            len: block.len,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_step_duration_is_reported_if_known() {
        let ms = Duration::from_millis;
        assert_eq!(
            compared(ms(41), Some(ms(30))),
            "took 41.0 ms, a usual one 30.0 ms"
        );
        assert_eq!(
            compared(ms(41), None),
            "took 41.0 ms; no step before it has shown yet how long a usual one takes"
        );
    }

    fn limit_ms(usual_ms: Option<u64>) -> u128 {
        hearing_limit(usual_ms.map(Duration::from_millis)).as_millis()
    }

    #[test]
    fn checkpoint_waits_a_few_usual_steps_for_residuals() {
        assert_eq!(
            limit_ms(Some(2)),
            3_000,
            "a pause of the machine is no silence"
        );
        assert_eq!(limit_ms(Some(1_000)), 8_000);
        assert_eq!(limit_ms(Some(60_000)), 60_000);
        assert_eq!(limit_ms(None), 60_000);
    }
}
