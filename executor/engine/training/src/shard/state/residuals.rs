//! Residuals of the workers' gradients at a shard.

use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Residuals of all workers at a shard.
#[derive(Debug, Default)]
pub struct WorkerResiduals {
    /// Step at whose beginning all workers send their residuals.
    at: Option<u64>,
    /// Residuals that have arrived, for the coordinator.
    by_worker: BTreeMap<TaskId, Vec<f32>>,
    /// Residuals that hold once the push before them is applied.
    coming: BTreeMap<TaskId, UpcomingResidual>,
    /// Workers that were asked for this checkpoint; each is asked once.
    asked: BTreeSet<TaskId>,
    /// Residuals of a checkpoint from the coordinator, which each worker fetches before its first
    /// push.
    dealt: BTreeMap<TaskId, Vec<f32>>,
}

/// Residual after a push that is not applied yet.
#[derive(Debug)]
struct UpcomingResidual {
    /// The step after that of the push.
    clock: u64,
    values: Vec<f32>,
}

impl WorkerResiduals {
    /// Records the announcement that all workers send their residuals before step `clock`.
    pub fn announce(&mut self, clock: u64) {
        self.at = Some(clock);
        self.forget_said();
    }

    /// Returns the announced step.
    pub fn announced(&self) -> Option<u64> {
        self.at
    }

    /// Whether a worker must send its residual before step `clock`.
    pub fn is_due(&self, clock: u64) -> bool {
        self.at == Some(clock)
    }

    /// Ends the collection: keeps the residuals that have arrived.
    pub fn close(&mut self) {
        self.at = None;
        self.coming.clear();
    }

    /// Forgets residuals of steps before `version`. Those of a checkpoint stay until they are
    /// fetched: under SSP and ASP their worker may still connect.
    pub fn forget_before(&mut self, version: u64) {
        if self.at.is_none_or(|at| at < version) {
            self.at = None;
            self.forget_said();
        }
    }

    /// Forgets the residuals from workers, which may belong to previous pieces.
    pub fn forget_said(&mut self) {
        self.by_worker.clear();
        self.coming.clear();
        self.asked.clear();
    }

    /// Stores the residual that a worker has sent.
    pub fn hear(&mut self, worker: TaskId, values: Vec<f32>) {
        self.by_worker.insert(worker, values);
    }

    /// Stores a worker's residual after its push of the step before `clock`, which is not applied
    /// yet.
    pub fn hear_early(&mut self, worker: TaskId, clock: u64, values: Vec<f32>) {
        let coming = UpcomingResidual { clock, values };
        self.coming.insert(worker, coming);
    }

    /// Forgets the residual of a push that will not be applied.
    pub fn forget_early(&mut self, worker: TaskId) {
        self.coming.remove(&worker);
    }

    /// Makes the residual valid that belongs to the worker's push of the step before `clock`, which
    /// is applied now.
    pub fn now_holds(&mut self, worker: TaskId, clock: u64) {
        if self.at.is_none() {
            return;
        }
        match self.coming.remove(&worker) {
            Some(coming) if coming.clock == clock => {
                self.by_worker.insert(worker, coming.values);
            }
            // An earlier residual belongs to an earlier push.
            _ => {
                self.by_worker.remove(&worker);
            }
        }
    }

    /// Returns the residual that a worker has sent.
    pub fn heard(&self, worker: TaskId) -> Option<&Vec<f32>> {
        self.by_worker.get(&worker)
    }

    /// Takes the residual that a worker has sent; empty if it has sent none.
    pub fn take_heard(&mut self, worker: TaskId) -> Vec<f32> {
        self.by_worker.remove(&worker).unwrap_or_default()
    }

    /// Whether to ask a worker whose residual is missing; records that it was asked.
    pub fn ask(&mut self, worker: TaskId) -> bool {
        !self.by_worker.contains_key(&worker) && self.asked.insert(worker)
    }

    /// Stores the residual of a checkpoint for a worker.
    pub fn deal(&mut self, worker: TaskId, values: Vec<f32>) {
        self.dealt.insert(worker, values);
    }

    /// Takes the residual of a checkpoint for a worker; empty if there is none.
    pub fn take_dealt(&mut self, worker: TaskId) -> Vec<f32> {
        self.dealt.remove(&worker).unwrap_or_default()
    }
}
