//! Benchmark of one round: a full queue on an empty cluster, a busy cluster without a change, and a
//! busy cluster with many measurements. The last one has jobs measured at many sizes and epochs. It
//! is the largest load for the estimators.

#[path = "../tests/scene/mod.rs"]
mod scene;

use muster_core::snapshot::{ClusterSnapshot, SpeedPoint};
use muster_core::{plan, policy::Policy};
use muster_model::spec::Convergence;
use scene::Scene;

fn main() {
    divan::main();
}

/// (nodes, GPUs per node, jobs): 64 GPUs with 160 jobs, 2,048 GPUs with 1,280 jobs.
const CLUSTERS: [(u32, u32, u32); 2] = [(16, 4, 160), (256, 8, 1_280)];

fn queued(nodes: u32, gpus: u32, jobs: u32) -> Scene {
    let mut scene = Scene::cluster(nodes, gpus);
    for number in 0..jobs {
        let job = scene.job(&format!("j{number}")).workers(1, 1 + number % 8);
        job.ps_shards(1, 1 + number % 4)
            .steps(1_000 + 997 * u64::from(number));
    }
    scene.snapshot.sort();
    scene
}

fn busy(nodes: u32, gpus: u32, jobs: u32) -> ClusterSnapshot {
    let mut scene = queued(nodes, gpus, jobs);
    for _ in 0..3 {
        scene.round();
        scene.obey();
    }
    for job in &mut scene.snapshot.jobs {
        job.progress.step = 500;
    }
    scene.later(60_000);
    scene.snapshot
}

#[divan::bench(args = CLUSTERS, sample_count = 10)]
fn full_queue(bencher: divan::Bencher<'_, '_>, (nodes, gpus, jobs): (u32, u32, u32)) {
    let scene = queued(nodes, gpus, jobs);
    bencher.bench(|| plan(divan::black_box(&scene.snapshot), &scene.policy));
}

#[divan::bench(args = CLUSTERS, sample_count = 10)]
fn busy_cluster(bencher: divan::Bencher<'_, '_>, (nodes, gpus, jobs): (u32, u32, u32)) {
    let snapshot = busy(nodes, gpus, jobs);
    let policy = Policy::optimus();
    bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
}

/// Returns a cluster whose jobs were measured at eight sizes and over forty epochs and end by
/// convergence.
fn learned(nodes: u32, gpus: u32, jobs: u32) -> ClusterSnapshot {
    let mut snapshot = busy(nodes, gpus, jobs);
    for job in &mut snapshot.jobs {
        job.speeds = (0..8)
            .map(|number: u32| (1 + number % 4, 1 + number / 4))
            .map(|(workers, ps_shards)| SpeedPoint {
                workers,
                ps_shards,
                steps_per_s: 10.0 / (0.9 / f64::from(workers) + 0.1 / f64::from(ps_shards)),
                samples: 100,
            })
            .collect();
        job.progress.epoch_losses = (1..=40)
            .map(|epoch| (epoch, 1.0 / (0.1 * epoch as f64 + 0.4) + 0.25))
            .collect();
        job.progress.convergence = Some(Convergence {
            relative_loss_drop: 0.005,
            epochs: 3,
        });
    }
    snapshot
}

#[divan::bench(args = CLUSTERS, sample_count = 10)]
fn learned_cluster(bencher: divan::Bencher<'_, '_>, (nodes, gpus, jobs): (u32, u32, u32)) {
    let snapshot = learned(nodes, gpus, jobs);
    let policy = Policy::optimus();
    bencher.bench(|| plan(divan::black_box(&snapshot), &policy));
}
