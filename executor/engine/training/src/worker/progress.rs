//! Counters of the coordinator between two progress samples.

use crate::checkpoint::TaskCounts;
use muster_comm::log;
use muster_comm::wire::metadata::StepStats;
use muster_compute::clock;
use muster_model::progress::Sample;
use std::time::{Duration, Instant};

/// Time after which a sample of at least `SAMPLE_STEPS` updates is due.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
const SAMPLE_STEPS: u64 = 20;
/// Time after which a sample of any number of updates is due.
const SAMPLE_AT_LATEST: Duration = Duration::from_secs(1);

/// Duration of the phases of one step.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepTimes {
    pub data: Duration,
    pub compute: Duration,
    pub exchange: Duration,
}

/// Measured gradient noise.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoiseReport {
    /// Gradient noise scale in examples, where it was measured.
    pub scale: Option<f64>,
    /// Whether an update counts for several steps, by AdaScale's gain.
    pub gains: bool,
}

/// Sums since the last sample.
#[derive(Debug)]
pub struct ProgressMeter {
    since: Instant,
    /// Steps that the updates count for.
    steps: u64,
    updates: u64,
    stats: StepStats,
    times: StepTimes,
}

impl ProgressMeter {
    #[must_use]
    pub fn start() -> Self {
        Self {
            since: clock::now(),
            steps: 0,
            updates: 0,
            stats: StepStats::default(),
            times: StepTimes::default(),
        }
    }

    /// Counts an update that counts for `steps` steps.
    pub fn add(&mut self, steps: u64, stats: StepStats, times: StepTimes) {
        self.steps += steps;
        self.updates += 1;
        self.stats.add(stats);
        self.times.data += times.data;
        self.times.compute += times.compute;
        self.times.exchange += times.exchange;
    }

    /// Whether a sample is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let elapsed = self.since.elapsed();
        elapsed >= SAMPLE_AT_LATEST || (elapsed >= SAMPLE_EVERY && self.updates >= SAMPLE_STEPS)
    }

    /// Returns the sample since the last one, if there was any step, and starts a new one.
    pub fn take(
        &mut self,
        (step, epoch): (u64, f64),
        TaskCounts { workers, ps_shards }: TaskCounts,
        noise: NoiseReport,
    ) -> Option<Sample> {
        // Averaging workers report the examples of a whole round at its end.
        if self.updates == 0 || self.stats.examples == 0 {
            return None;
        }
        let done = std::mem::replace(self, Self::start());
        if done.stats.dropped > 0 {
            log::line(format_args!(
                "{} gradients came too late and were dropped in {} steps",
                done.stats.dropped, done.updates
            ));
        }
        let examples = done.stats.examples as f64;
        let seconds = done.since.elapsed().as_secs_f64().max(1e-9);
        let [compute_ms, exchange_ms, data_ms] =
            [done.times.compute, done.times.exchange, done.times.data]
                .map(|time| Some(time.as_secs_f64() * 1e3 / done.updates as f64));
        Some(Sample {
            step,
            epoch,
            loss: done.stats.loss_sum / examples,
            accuracy: Some(done.stats.correct as f64 / examples),
            examples_per_s: Some(examples / seconds),
            steps_per_s: done.steps as f64 / seconds,
            compute_ms,
            exchange_ms,
            data_ms,
            workers,
            ps_shards,
            noise_scale: noise.scale,
            gain: noise.gains.then(|| done.steps as f64 / done.updates as f64),
        })
    }
}
