//! Forecast of time slices: the wait reason of a job states the start of its slice, and the slice
//! begins then.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::SnapshotJob;
use muster_model::id::JobId;
use muster_model::job::JobState;
use muster_model::spec::Range;
use muster_model::wait::Change;
use proptest::prelude::*;
use std::collections::BTreeMap;

const QUANTUM_MS: i64 = 60_000;
const TICK_MS: i64 = 1_000;

fn turning(nodes: u32, gpus: u32, share: PolicyName) -> Scene {
    let mut scene = Scene::cluster(nodes, gpus);
    scene.policy = Policy {
        slicing: Some(Slicing {
            quantum_ms: QUANTUM_MS as u64,
            suspended_per_gpu: 3,
        }),
        ..Policy::named(share)
    };
    scene
}

/// Submits a job of fixed size without an end.
fn submit<'s>(scene: &'s mut Scene, name: &str, workers: u32) -> &'s mut SnapshotJob {
    let job = scene.job(name).workers(workers, workers).0;
    job.ps_shards = Range::NONE;
    job.progress.max_steps = None;
    job
}

/// Returns the forecast start of a job's slice, or `None` if its smallest change is another one.
fn told(job: &SnapshotJob) -> Option<i64> {
    match job.waiting.as_ref()?.smallest_change.as_ref()? {
        Change::Wait {
            until_unix_ms,
            ended,
        } if ended.is_empty() => Some(*until_unix_ms),
        _ => None,
    }
}

/// Runs one round per second for `ms`, and records when each job was first placed.
fn run(scene: &mut Scene, ms: i64, placed: &mut BTreeMap<JobId, i64>) {
    for _ in 0..ms / TICK_MS {
        scene.settle();
        for job in scene.snapshot.jobs.iter().filter(|job| job.revision > 0) {
            placed.entry(job.id).or_insert(scene.snapshot.now_ms);
        }
        scene.later(TICK_MS);
    }
    scene.settle();
}

#[test]
fn waiting_job_is_told_end_of_blocking_slice() {
    let mut scene = turning(1, 1, PolicyName::Fifo);
    submit(&mut scene, "a", 1);
    scene.settle();
    let began_ms = scene.snapshot.now_ms;
    submit(&mut scene, "b", 1);
    submit(&mut scene, "c", 1);
    scene.later(5_000);
    scene.settle();
    let [first_ms, second_ms] = [1, 2].map(|slices| Some(began_ms + slices * QUANTUM_MS));
    assert_eq!(told(scene.find("b")), first_ms);
    assert_eq!(told(scene.find("c")), second_ms, "after b's slice");
    let waiting = scene.find("b").waiting.clone().expect("it waits");
    let remedy = waiting.remedy().expect("its turn comes");
    assert!(remedy.ends_with("its turn comes then"), "{remedy}");
    // The reason stays, because each round forecasts the same time.
    let before = scene.find("b").waiting.clone();
    run(&mut scene, 30_000, &mut BTreeMap::new());
    assert_eq!(scene.find("b").waiting, before);
    run(&mut scene, 27_000, &mut BTreeMap::new());
    assert_eq!(scene.find("b").state, JobState::Running);
}

#[test]
fn waiting_gang_is_told_end_of_last_blocking_slice() {
    let mut scene = turning(1, 2, PolicyName::Fifo);
    submit(&mut scene, "a", 1);
    let mut placed = BTreeMap::new();
    run(&mut scene, 20_000, &mut placed);
    submit(&mut scene, "b", 1);
    scene.settle();
    let began_ms = scene.snapshot.now_ms;
    submit(&mut scene, "gang", 2);
    scene.settle();
    let at_ms = told(scene.find("gang")).expect("its turn comes");
    assert_eq!(at_ms - began_ms, QUANTUM_MS, "b's slice is the later one");
    run(&mut scene, 2 * QUANTUM_MS, &mut placed);
    let id = scene.find("gang").id;
    assert!((placed[&id] - at_ms).abs() <= 2 * TICK_MS, "{placed:?}");
}

#[test]
fn no_slice_is_forecast_with_exclusive_job() {
    let mut scene = turning(1, 1, PolicyName::Fifo);
    submit(&mut scene, "a", 1).exclusive = true;
    scene.settle();
    submit(&mut scene, "b", 1);
    scene.settle();
    assert_eq!(told(scene.find("b")), None);
    let mut scene = turning(1, 1, PolicyName::Fifo);
    submit(&mut scene, "a", 1);
    scene.settle();
    submit(&mut scene, "b", 1).exclusive = true;
    scene.settle();
    assert_eq!(told(scene.find("b")), None, "nobody stands still for it");
}

/// The GPUs that it releases are available to others from then on.
#[test]
fn slice_is_forecast_for_job_behind_shrinking_one() {
    let mut scene = turning(1, 2, PolicyName::Optimus);
    let job = submit(&mut scene, "elastic", 1);
    (job.workers.max, job.in_place) = (2, true);
    scene.settle();
    assert_eq!(scene.workers("elastic"), 2);
    scene.later(2 * QUANTUM_MS);
    submit(&mut scene, "b", 1);
    submit(&mut scene, "c", 1);
    scene.round();
    assert!(
        !scene.find("elastic").leaving.is_empty(),
        "it shrinks for b"
    );
    assert!(
        told(scene.find("c")).is_some(),
        "{:?}",
        scene.find("c").waiting
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// If no job arrives or ends in between, each forecast slice begins at its time.
    #[test]
    fn forecast_slices_begin_at_the_forecast_time(
        nodes in 1u32..3, gpus in 1u32..4, muster in any::<bool>(),
        jobs in prop::collection::vec((1u32..4, 0i64..40), 2..8),
    ) {
        let share = if muster { PolicyName::Muster } else { PolicyName::Fifo };
        let mut scene = turning(nodes, gpus, share);
        let mut placed = BTreeMap::new();
        for (number, (workers, pause_s)) in jobs.into_iter().enumerate() {
            submit(&mut scene, &format!("j{number}"), workers.min(nodes * gpus));
            run(&mut scene, pause_s * 1_000, &mut placed);
        }
        let expected: BTreeMap<JobId, i64> = {
            let jobs = scene.snapshot.jobs.iter();
            jobs.filter_map(|job| Some((job.id, told(job)?))).collect()
        };
        let last_ms = expected.values().max().copied().unwrap_or(scene.snapshot.now_ms);
        let ms = last_ms - scene.snapshot.now_ms + QUANTUM_MS;
        run(&mut scene, ms, &mut placed);
        for (job, at_ms) in expected {
            let real_ms = placed.get(&job).copied();
            // A slice ends in the first round after its end, and a small change of the forecast is
            // not written.
            let is_true = real_ms.is_some_and(|real_ms| (real_ms - at_ms).abs() <= 15_000);
            prop_assert!(is_true, "told {at_ms}, placed {real_ms:?}: {:#?}", scene.snapshot.jobs);
        }
    }
}

/// A gang's slice needs the GPU of `j2`, which moves to a GPU whose holder is suspended.
#[test]
fn moved_job_starts_on_gpu_of_suspended_job() {
    let mut scene = turning(2, 3, PolicyName::Muster);
    let mut placed = BTreeMap::new();
    for (name, workers, pause_s) in [("j0", 2, 0), ("j1", 2, 0), ("j2", 1, 0), ("j3", 1, 1)] {
        submit(&mut scene, name, workers);
        run(&mut scene, pause_s * 1_000, &mut placed);
    }
    submit(&mut scene, "gang", 3);
    let revision = scene.find("j2").revision;
    run(&mut scene, QUANTUM_MS, &mut placed);
    assert_eq!(scene.find("gang").state, JobState::Running);
    let moved = scene.find("j2");
    assert_eq!(
        (&moved.state, moved.revision),
        (&JobState::Running, revision + 1)
    );
}
