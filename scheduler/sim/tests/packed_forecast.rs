//! Forecast of two jobs that share a GPU: the pair continues at its measured rates.

use crate::live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Packing, Policy, Slicing};
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotTask, SpeedPoint};
use muster_model::id::{JobId, TaskId};
use muster_model::job::JobState;
use muster_model::packing::{Company, Measured, Rate, Together};
use muster_model::spec::Range;
use muster_model::task::{Role, TaskState};
use muster_sim::forecast::{ClusterDelays, ForecastRun, believed};
use uuid::Uuid;

const GIB: u64 = 1 << 30;
const STEPS: u64 = 10_000;

fn rate(steps_per_s: f64) -> Rate {
    Rate {
        steps_per_s,
        samples: 50,
    }
}

/// Running job in `lane` with ten steps per second alone and eight beside the other.
fn packed(number: usize, lane: u32, snapshot: &ClusterSnapshot, beside: JobId) -> SnapshotJob {
    let mut job = job(number, -500_000, STEPS);
    job.workers = Range { min: 1, max: 1 };
    job.ps_shards = Range::NONE;
    (job.state, job.revision) = (JobState::Running, 1);
    (job.placed_ms, job.running_ms) = (Some(-400_000), Some(-100_000));
    job.turned_ms = Some(-100_000);
    job.progress.step = 2_000;
    job.tasks = vec![SnapshotTask {
        id: TaskId(Uuid::from_u128(0x9000 + number as u128)),
        role: Role::Worker { rank: 0 },
        node: snapshot.nodes[0].id,
        gpus: vec![0],
        lane,
        state: TaskState::Running,
        pace: None,
        idle: None,
    }];
    job.speeds = vec![SpeedPoint {
        workers: 1,
        ps_shards: 0,
        steps_per_s: 10.0,
        samples: 1_000,
    }];
    job.measured = Some(Box::new(Measured {
        revision: 1,
        peak_bytes: Some(GIB),
        memory_bytes: Some(GIB),
        told_ms: Some(0),
        alone_ms: 200_000,
        busy_alone: Some(0.5),
        alone: rate(10.0),
        together: vec![Together {
            job: beside,
            rate: rate(8.0),
            since_ms: -100_000,
            last_ms: 0,
        }],
        company: Some(Company {
            job: beside,
            since_ms: -100_000,
        }),
        ..Measured::default()
    }));
    job
}

#[test]
fn forecast_keeps_pair_on_gpu_at_measured_rates() {
    let mut snapshot = cluster(1);
    (snapshot.nodes[0].gpus, snapshot.nodes[0].gpu_memory_bytes) = (1, 4 * GIB);
    let ids = [job(0, 0, 1).id, job(1, 0, 1).id];
    let jobs = [
        packed(0, 0, &snapshot, ids[1]),
        packed(1, 1, &snapshot, ids[0]),
    ];
    snapshot.jobs.extend(jobs);
    let policy = Policy {
        slicing: Some(Slicing {
            quantum_ms: 60_000,
            suspended_per_gpu: 3,
        }),
        packing: Some(Packing::default()),
        ..Policy::named(PolicyName::Fifo)
    };
    let truths = believed(&snapshot, &policy);
    let mut ahead = ForecastRun::new(snapshot, truths, Vec::new(), ClusterDelays::LIVE);
    ahead.run(&policy).expect("the core keeps its own rules");
    for result in ahead.results() {
        let end_s = result.finish_ms.expect("it ends") as f64 / 1e3;
        // 8,000 steps at eight per second; with time slicing it would be 1,600 s.
        assert!((990.0..1_020.0).contains(&end_s), "{end_s}");
    }
}
