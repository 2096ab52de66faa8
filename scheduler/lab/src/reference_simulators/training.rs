//! True training of one job, by Pollux' rules of progress.

use super::application::Application;
use super::rules::SimulatorRules;
use crate::trace::TraceJob;
use muster_core::learn::{BatchLimits, BatchSplit};
use muster_core::problem::{NodeAllocation, gpus_of};

/// Job in the simulator.
#[derive(Debug, Clone)]
pub(super) struct ReferenceTraining<'a> {
    pub application: &'a Application,
    pub rules: SimulatorRules,
    pub trace: &'a TraceJob,
    /// Allocation in order, and the kind of its GPUs.
    pub parts: Vec<NodeAllocation>,
    pub kind: u16,
    pub batch: BatchSplit,
    /// Remaining seconds without progress.
    pub restarting_s: f64,
    /// Work done, in steps of the initial batch size.
    pub progress: f64,
    /// Epochs done.
    pub epoch: u32,
    pub finished_s: Option<f64>,
    /// GPU-seconds held, and seconds held by GPU kind.
    pub held_gpu_s: f64,
    pub held_s: Vec<f64>,
    /// `None` before the first start.
    pub restarts: Option<u32>,
    pub started_s: Option<f64>,
    /// Time of the last change of the allocation.
    pub since_s: f64,
}

impl ReferenceTraining<'_> {
    /// Batch limits on the held GPUs.
    pub(super) fn limits(&self) -> BatchLimits {
        let placement = self.placement();
        self.rules
            .limits_on(self.application, self.kind, &placement)
    }

    pub(super) fn gpus(&self) -> u32 {
        gpus_of(&self.parts)
    }

    /// Whether the allocation has GPUs of several nodes.
    pub(super) fn spans_nodes(&self) -> bool {
        self.parts.len() > 1
    }

    /// GPUs on each node, in the order of the allocation.
    pub(super) fn placement(&self) -> Vec<u32> {
        self.parts.iter().map(|part| part.gpus).collect()
    }

    /// Share of the declared work that is done.
    pub(super) fn share_done(&self, declared: f64) -> f64 {
        (self.progress / declared).clamp(0.0, 1.0)
    }

    /// Trains for `seconds` from `now_s` on. Calls `batch` after every stretch within an epoch.
    pub(super) fn advance(
        &mut self,
        now_s: f64,
        seconds: f64,
        interference: f64,
        batch: impl Fn(&Self) -> BatchSplit,
    ) {
        if self.parts.is_empty() || self.finished_s.is_some() {
            return;
        }
        let delay_s = self.restarting_s.min(seconds);
        self.restarting_s -= delay_s;
        let mut passed_s = delay_s;
        while passed_s < seconds && self.finished_s.is_none() {
            passed_s += self.stretch(now_s + passed_s, seconds - passed_s, interference);
            self.batch = batch(self);
        }
        let held_s = self.finished_s.map_or(seconds, |end_s| end_s - now_s);
        self.held_gpu_s += held_s * f64::from(self.gpus());
        self.held_s[usize::from(self.kind)] += held_s;
    }

    /// Trains for up to `left_s` seconds, at most to the end of the epoch. Returns the seconds
    /// used.
    fn stretch(&mut self, now_s: f64, left_s: f64, interference: f64) -> f64 {
        let goodput = self.goodput() * (1.0 - interference);
        let goal = self.application.progress_until(self.epoch + 1);
        if self.progress + goodput * left_s < goal {
            self.progress += goodput * left_s;
            return left_s;
        }
        self.epoch += 1;
        // The artefact counts whole seconds and rounds halves to even.
        let took_s = ((goal - self.progress) / goodput).round_ties_even();
        self.progress = goal;
        if self.epoch > self.application.epochs.saturating_sub(1) {
            self.finished_s = Some(now_s + took_s);
        }
        took_s
    }

    /// Current work per second.
    pub(super) fn goodput(&self) -> f64 {
        let total = f64::from(self.batch.total(self.gpus()));
        let gain = self
            .application
            .noise(total, self.epoch)
            .gain(total / f64::from(self.application.init_batch));
        gain / self.iteration_s() / self.rules.slowdown(&self.application.name)
    }

    fn iteration_s(&self) -> f64 {
        let measured = &self.application.measured[usize::from(self.kind)];
        iteration_s(measured, &self.placement(), self.batch)
    }

    /// Applies a new allocation. The rules give its cost.
    pub(super) fn reallocate(&mut self, now_s: f64, parts: Vec<NodeAllocation>, kind: u16) {
        if parts == self.parts {
            return;
        }
        let before = (self.kind, self.placement());
        self.parts = parts;
        self.since_s = now_s;
        if self.parts.is_empty() {
            return;
        }
        self.kind = kind;
        let is_same = before == (kind, self.placement());
        if is_same && !self.rules.charges_moves() {
            return;
        }
        self.restarting_s = self.rules.restart_s(&self.application.name);
        self.restarts = Some(self.restarts.map_or(0, |restarts| restarts + 1));
        self.started_s.get_or_insert(now_s);
    }
}

/// Seconds of one optimizer step with its accumulated passes; infinite without measurements.
pub(super) fn iteration_s(
    measured: &super::throughput::ThroughputProfile,
    placement: &[u32],
    batch: BatchSplit,
) -> f64 {
    measured
        .step_time(placement, batch.local)
        .map_or(f64::INFINITY, |time| {
            time.step_s + (time.step_s - time.sync_s) * f64::from(batch.accumulated)
        })
}

/// Placement on as few nodes as possible: whole nodes first, the rest on the last.
pub(super) fn packed(gpus: u32, node_gpus: u32) -> Vec<u32> {
    let mut placement = vec![node_gpus; (gpus / node_gpus) as usize];
    if !gpus.is_multiple_of(node_gpus) {
        placement.push(gpus % node_gpus);
    }
    placement
}
