//! Jobs of a fixed size.

use muster_model::spec::{Consistency, Range};
use muster_sim::scenario::{SimJob, SpeedFormula, TrueSpeed};

/// Returns a job of `seconds` seconds with ten steps each, without shards. Its size does not change
/// its speed.
pub fn fixed_job(name: String, submitted_s: i64, workers: u32, seconds: u64) -> SimJob {
    SimJob {
        name,
        tenant: 0,
        priority: 0,
        submitted_ms: submitted_s * 1_000,
        workers: Range {
            min: workers,
            max: workers,
        },
        ps_shards: Range::NONE,
        gpus_per_worker: 1,
        retries: 0,
        in_place: false,
        consistency: Consistency::default(),
        batch: 128,
        steps: seconds * 10,
        checkpoint_steps: 100,
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: 0.1,
            serial_s: 0.0,
            exchange_s: 0.0,
            per_worker_s: 0.0,
            useful_workers: 1,
        }),
    }
}
