//! Benchmark of one round: a full queue on an empty cluster, a busy cluster without a change, and
//! one in which a job arrives. Each is measured with and without (`decide`) explanations, which are
//! trial rounds for the first jobs of the queue. A full cluster with time slices is measured with
//! and without the forecast of slices.

#[path = "../tests/scene/mod.rs"]
mod scene;

use muster_core::policies::name::PolicyName;
use muster_core::policy::Slicing;
use muster_core::snapshot::{ClusterSnapshot, SpeedPoint};
use muster_core::{apply, plan, policy::Policy};
use scene::Scene;

fn main() {
    divan::main();
}

/// Nodes, GPUs per node, jobs.
#[derive(Debug, Clone, Copy)]
struct Size(u32, u32, u32);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GPUs, {} jobs", self.0 * self.1, self.2)
    }
}

const SIZES: [Size; 3] = [
    Size(16, 4, 160),
    Size(256, 8, 1_280),
    Size(12_500, 8, 10_000),
];

const SMALL: [Size; 2] = [SIZES[0], SIZES[1]];

fn policy(share: PolicyName, explained_jobs: u32) -> Policy {
    Policy {
        explained_jobs,
        ..Policy::named(share)
    }
}

fn queued(Size(nodes, gpus, jobs): Size) -> Scene {
    let mut scene = Scene::cluster(nodes, gpus);
    // The largest jobs want more workers than there are GPUs: 16 or more.
    let most = (2 * nodes * gpus / jobs).max(8);
    for number in 0..jobs {
        let job = scene
            .job(&format!("j{number}"))
            .workers(1, 1 + number % most);
        job.ps_shards(1, 1 + number % 4)
            .steps(10_000 + 997 * u64::from(number % 1_000));
    }
    scene.snapshot.sort();
    scene
}

/// Plans and applies a round. The independent check is not included.
fn round(scene: &mut Scene) {
    let (plan, _) = plan(&scene.snapshot, &scene.policy);
    apply(&mut scene.snapshot, &plan).expect("the plan follows the states");
}

/// Returns a full cluster whose running jobs were measured at two sizes, for longer than a resize
/// takes.
fn busy(size: Size) -> ClusterSnapshot {
    let mut scene = queued(size);
    scene.policy = policy(PolicyName::Optimus, 0);
    for _ in 0..3 {
        round(&mut scene);
        scene.obey();
    }
    for (number, job) in (0..).zip(&mut scene.snapshot.jobs) {
        job.progress.step = 500 + number % 1_000;
        let (workers, ps_shards) = job.size();
        // The smaller size comes first. A job without workers has no speed.
        let sizes = [workers / 2, workers].into_iter();
        let exponent = 0.6 + 0.03 * (number % 10) as f64;
        let speeds = sizes
            .filter(|&workers| workers > 0)
            .map(|workers| SpeedPoint {
                workers,
                ps_shards,
                steps_per_s: 4.0 * f64::from(workers).powf(exponent),
                samples: 40,
            });
        if workers > 0 {
            job.speeds = speeds.collect();
        }
    }
    scene.later(60_000);
    // Further rounds carry out the resizes that pay.
    round(&mut scene);
    scene.obey();
    round(&mut scene);
    scene.obey();
    round(&mut scene);
    scene.later(60_000);
    scene.snapshot.sort();
    scene.snapshot
}

/// Returns the busy cluster with one more job.
fn arrival(size: Size) -> ClusterSnapshot {
    let mut snapshot = busy(size);
    let number = u32::try_from(snapshot.jobs.len()).expect("few jobs");
    let mut job = scene::job(number, "new", snapshot.now_ms);
    job.workers.max = 4;
    snapshot.jobs.push(job);
    snapshot.sort();
    snapshot
}

mod decide {
    use super::*;

    #[divan::bench(args = SIZES, max_time = 4)]
    fn full_queue_optimus(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = queued(size).snapshot;
        let policy = policy(PolicyName::Optimus, 0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = SIZES, max_time = 4)]
    fn busy_optimus(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = busy(size);
        let policy = policy(PolicyName::Optimus, 0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = SIZES, max_time = 4)]
    fn full_queue_muster(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = queued(size).snapshot;
        let policy = policy(PolicyName::Muster, 0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = SIZES, max_time = 4)]
    fn busy_muster(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = busy(size);
        let policy = policy(PolicyName::Muster, 0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = SIZES, max_time = 4)]
    fn arrival_muster(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = arrival(size);
        let policy = policy(PolicyName::Muster, 0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }
}

mod explained {
    use super::*;

    #[divan::bench(args = SMALL, max_time = 4)]
    fn full_queue(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = queued(size).snapshot;
        let policy = policy(PolicyName::Muster, 16);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = SMALL, max_time = 4)]
    fn busy_cluster(bencher: divan::Bencher<'_, '_>, size: Size) {
        let snapshot = busy(size);
        let policy = policy(PolicyName::Muster, 16);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }
}

mod turns {
    use super::*;
    use muster_model::spec::Range;

    /// Largest number of jobs for which slices are forecast.
    const JOBS: u32 = 64;

    /// Nodes of eight GPUs, and the number of jobs of equal size that hold all GPUs. The others
    /// wait.
    #[derive(Debug, Clone, Copy)]
    struct Full(u32, u32);

    impl std::fmt::Display for Full {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let Self(nodes, run) = self;
            write!(f, "{} GPUs, {run} of {JOBS} jobs run", nodes * 8)
        }
    }

    const FULL: [Full; 4] = [Full(8, 32), Full(8, 8), Full(64, 32), Full(64, 8)];

    fn turning(explained_jobs: u32) -> Policy {
        let slicing = Slicing {
            quantum_ms: 60_000,
            suspended_per_gpu: 3,
        };
        Policy {
            slicing: Some(slicing),
            ..policy(PolicyName::Muster, explained_jobs)
        }
    }

    /// Returns a full cluster whose slices end one after the other. The wait reasons are already
    /// written.
    fn full(Full(nodes, run): Full, jobs: u32, explained_jobs: u32) -> ClusterSnapshot {
        let mut scene = Scene::cluster(nodes, 8);
        scene.policy = turning(explained_jobs);
        let workers = nodes * 8 / run;
        for number in 0..jobs {
            if number == run {
                scene.settle();
                let now_ms = scene.snapshot.now_ms;
                for (place, job) in (0_i64..).zip(&mut scene.snapshot.jobs) {
                    job.running_ms = Some(now_ms - place * 50_000 / i64::from(run));
                }
            }
            let job = scene.job(&format!("j{number}")).workers(workers, workers).0;
            (job.ps_shards, job.progress.max_steps) = (Range::NONE, Some(10_000_000));
        }
        scene.settle();
        scene.later(1_000);
        round(&mut scene);
        scene.snapshot.sort();
        scene.snapshot
    }

    #[divan::bench(args = FULL, max_time = 4)]
    fn decided(bencher: divan::Bencher<'_, '_>, full: Full) {
        let snapshot = self::full(full, JOBS, 0);
        let policy = turning(0);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    /// With one job more than [`JOBS`], no slice is forecast.
    #[divan::bench(args = FULL, max_time = 4)]
    fn explained(bencher: divan::Bencher<'_, '_>, full: Full) {
        let snapshot = self::full(full, JOBS + 1, 16);
        let policy = turning(16);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }

    #[divan::bench(args = FULL, max_time = 4)]
    fn foreseen(bencher: divan::Bencher<'_, '_>, full: Full) {
        let snapshot = self::full(full, JOBS, 16);
        let policy = turning(16);
        bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
    }
}
