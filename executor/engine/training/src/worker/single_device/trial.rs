//! Whole jobs in this process, on an emulated GPU and on the CPU.

mod parts;

use super::super::suspension::WANTED_EVERY;
use super::super::{Reporter, WorkerError};
use crate::checkpoint::{CheckpointArena, CheckpointStore, Contents, Manifest};
use crate::stop::StopFlag;
use crate::worker::model::residency::why_not;
use crate::worker::{ExitReason, WorkerContext, run};
use muster_compute::cuda::Device;
use muster_model::assignment::{Peer, Peers, TaskLaunch, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::place::Place;
use muster_model::progress::Evaluation;
use muster_model::task::Role;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

pub(in crate::worker) const STEPS: u64 = 14;

/// Reaction to a report.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outside {
    Nothing,
    /// Suspends the job briefly after the first evaluation.
    Turn,
    /// Stops it after the second evaluation.
    Stop,
    /// Stops it while it is suspended.
    StopInTurn,
    /// Adds a second worker after the second evaluation.
    Company,
}

/// Stores reports and reacts to them.
struct SingleDeviceReporter {
    outside: Outside,
    reports: Mutex<Vec<TaskReport>>,
    turn: Arc<AtomicU64>,
    has_company: Arc<AtomicBool>,
    stop: StopFlag,
}

impl Reporter for SingleDeviceReporter {
    fn report(&self, report: &TaskReport) -> io::Result<()> {
        match (self.outside, report) {
            (Outside::Turn | Outside::StopInTurn, TaskReport::Evaluated { .. }) => {
                self.turn.fetch_max(1, Ordering::Relaxed);
                // The coordinator polls the slice number at intervals; a fast machine ends the job
                // within one.
                thread::sleep(WANTED_EVERY);
            }
            (Outside::Turn, TaskReport::Suspended { .. }) => self.turn.store(2, Ordering::Relaxed),
            (Outside::StopInTurn, TaskReport::Suspended { .. }) => self.stop.set(),
            (Outside::Stop, TaskReport::Evaluated { evaluation }) if evaluation.step == 6 => {
                self.stop.set();
            }
            (Outside::Company, TaskReport::Evaluated { evaluation }) if evaluation.step == 6 => {
                self.has_company.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        self.reports.lock().unwrap().push(report.clone());
        Ok(())
    }
}

/// A job and its folders.
pub(in crate::worker) struct TrialJob {
    pub(in crate::worker) root: tempfile::TempDir,
}

impl TrialJob {
    pub(in crate::worker) fn new() -> Self {
        Self::with_images(96)
    }

    /// Creates a job with `count` training images.
    pub(in crate::worker) fn with_images(count: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        write_images(&root.path().join("data/fashion-mnist"), count);
        Self { root }
    }

    /// Runs a revision to its end. Returns its reports.
    fn run(
        &self,
        mut launch: TaskLaunch,
        revision: u64,
        device: &Device,
        outside: Outside,
    ) -> Result<(ExitReason, Vec<TaskReport>), WorkerError> {
        launch.revision = revision;
        let turn = Arc::new(AtomicU64::new(0));
        let has_company = Arc::new(AtomicBool::new(false));
        let stop = StopFlag::new(Duration::from_secs(20));
        let told = SingleDeviceReporter {
            outside,
            reports: Mutex::default(),
            turn: Arc::clone(&turn),
            has_company: Arc::clone(&has_company),
            stop: stop.clone(),
        };
        let folder = self.root.path().join("task");
        fs::create_dir_all(&folder).unwrap();
        let worker = Peer {
            task_id: launch.task_id,
            node_id: NodeId(Uuid::from_u128(1)),
            address: None,
        };
        let peers = Peers {
            revision,
            workers: vec![worker.clone()],
            ..Peers::default()
        };
        let company = Peers {
            revision: revision + 1,
            workers: vec![worker.clone(), worker],
            ..Peers::default()
        };
        let ending = run(
            &launch,
            0,
            &WorkerContext {
                checkpoint_root: &Place::Folder(self.root.path().join("checkpoints")),
                dataset_root: &self.root.path().join("data"),
                reporter: &told,
                stop,
                peers: Arc::new(move || {
                    let known = if has_company.load(Ordering::Relaxed) {
                        &company
                    } else {
                        &peers
                    };
                    Some(Peers {
                        turn: turn.load(Ordering::Relaxed),
                        ..known.clone()
                    })
                }),
                listen_host: "127.0.0.1",
                folder: &folder,
                sockets: &folder,
                threads: 1,
                device,
            },
        )?;
        Ok((ending, told.reports.into_inner().unwrap()))
    }

    /// Returns the newest checkpoint.
    pub(in crate::worker) fn kept(
        &self,
        launch: &TaskLaunch,
    ) -> (Manifest, Contents<CheckpointArena>) {
        let place = Place::Folder(self.root.path().join("checkpoints"));
        let store = CheckpointStore::open(&place, launch.tenant_id, launch.job_id, 99).unwrap();
        let found = store.newest_sound().unwrap().newest.expect("a checkpoint");
        (found.manifest, found.contents)
    }
}

/// Returns a launch with twelve steps per epoch. Evaluations and checkpoints are due within rounds.
pub(in crate::worker) fn launch(more: &Value) -> TaskLaunch {
    let mut document = json!({
        "version": "muster/v1",
        "name": "alone",
        "engine": {
            "model": { "kind": "mlp", "hidden": [12] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "adam", "learning_rate": 0.004 },
            "schedule": { "warmup_steps": 3, "decay": { "kind": "cosine", "total_steps": 20 } },
            "batch": 8,
            "seed": 7
        },
        "exchange": { "topology": "all_reduce" },
        "checkpoint": { "every_steps": 5, "every_minutes": null, "keep": 100 },
        "evaluate": { "every_steps": 3 },
        "stop": { "steps": STEPS },
    });
    merge(&mut document, more);
    TaskLaunch {
        task_id: TaskId(Uuid::from_u128(0x30)),
        job_id: JobId(Uuid::from_u128(0x10)),
        tenant_id: TenantId(Uuid::from_u128(0x20)),
        tenant_number: None,
        revision: 1,
        role: Role::Worker { rank: 0 },
        workers: 1,
        ps_shards: 0,
        gpus: Vec::new(),
        cpu_milli: 100,
        memory_bytes: 1 << 30,
        secret: format!("{:064x}", 0xabcd),
        spec: serde_json::from_value(document).unwrap(),
        resume_step: None,
        trained_s: 0.0,
        grace_ms: 20_000,
        service_account: None,
        objectives: std::collections::BTreeSet::new(),
        finished_rung: None,
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Returns the next pseudo-random number.
fn next(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

/// Ten classes, each a bar at its own height with noise.
fn write_images(folder: &Path, count: u32) {
    fs::create_dir_all(folder).unwrap();
    let mut noise = 1_u64;
    for (prefix, count) in [("train", count), ("t10k", 20)] {
        let mut images = vec![0, 0, 8, 3];
        let mut labels = vec![0, 0, 8, 1];
        for side in [count, 28, 28] {
            images.extend(side.to_be_bytes());
        }
        labels.extend(count.to_be_bytes());
        for _ in 0..count {
            let label = next(&mut noise) % 10;
            labels.push(label as u8);
            for pixel in 0..28 * 28 {
                let is_bar = pixel / 56 == label + 2;
                images.push((u32::from(is_bar) * 45 + next(&mut noise) % 200) as u8);
            }
        }
        fs::write(folder.join(format!("{prefix}-images-idx3-ubyte")), images).unwrap();
        fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), labels).unwrap();
    }
}

pub(in crate::worker) fn evaluations(reports: &[TaskReport]) -> Vec<Evaluation> {
    reports
        .iter()
        .filter_map(|report| match report {
            TaskReport::Evaluated { evaluation } => Some(evaluation.clone()),
            _ => None,
        })
        .collect()
}

fn bits(plane: &[f32]) -> Vec<u32> {
    plane.iter().map(|x| x.to_bits()).collect()
}

pub(in crate::worker) fn assert_same(
    what: &str,
    found: &Contents<CheckpointArena>,
    expected: &Contents<CheckpointArena>,
) {
    assert!(
        bits(&found.parameters) == bits(&expected.parameters),
        "{what}: parameters"
    );
    assert_eq!(found.state.len(), expected.state.len());
    for (found, expected) in found.state.iter().zip(&expected.state) {
        assert!(bits(found) == bits(expected), "{what}: the optimizer's");
    }
}

/// Returns the relative distance of `found` from `expected`.
pub(in crate::worker) fn apart(expected: &[f32], found: &[f32]) -> f64 {
    let differences = expected.iter().zip(found).map(|(e, f)| e - f);
    norm(differences) / norm(expected.iter().copied())
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    let squares = values.map(|x| f64::from(x).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn device_resident_job_trains_like_cpu_job() {
    let launch = launch(&json!({}));
    let (on_cpu, on_gpu) = (TrialJob::new(), TrialJob::new());
    let (_, expected) = on_cpu
        .run(launch.clone(), 1, &Device::Cpu, Outside::Nothing)
        .unwrap();
    let (ending, found) = on_gpu
        .run(launch.clone(), 1, &Device::Emulated, Outside::Nothing)
        .unwrap();
    assert_eq!(ending, ExitReason::Finished);
    assert!(
        !found
            .iter()
            .any(|report| matches!(report, TaskReport::Listening { .. })),
        "it waits for nobody"
    );
    let (expected, found) = (evaluations(&expected), evaluations(&found));
    let steps: Vec<u64> = found.iter().map(|evaluation| evaluation.step).collect();
    assert_eq!(steps, [3, 6, 9, 12, STEPS]);
    assert_eq!(found.len(), expected.len());
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found.step, expected.step);
        let expected_loss = expected.loss.expect("measured");
        let off = (found.loss.expect("measured") - expected_loss).abs() / expected_loss;
        assert!(off < 1e-4, "{found:?}, not {expected:?}");
    }
    let ((_, expected), (manifest, found)) = (on_cpu.kept(&launch), on_gpu.kept(&launch));
    assert_eq!((manifest.step, manifest.optimizer_updates), (STEPS, STEPS));
    let (loss, plain) = (&manifest.curve, &on_cpu.kept(&launch).0.curve);
    let off = (loss.epoch_losses[0] - plain.epoch_losses[0]).abs() / plain.epoch_losses[0];
    assert!(off < 1e-4, "{loss:?}, not {plain:?}");
    assert_eq!(found.state.len(), 2);
    let planes = expected.state.iter().zip(&found.state);
    for (expected, found) in planes.chain([(&expected.parameters, &found.parameters)]) {
        let apart = apart(expected, found);
        assert!(apart < 1e-3, "{apart} apart");
    }
}

/// Stops, stops during a suspension, new workers and a suspension leave the bits unchanged.
#[test]
fn stop_resume_and_suspension_keep_the_bits() {
    let straight = TrialJob::new();
    let launch = launch(&json!({}));
    straight
        .run(launch.clone(), 1, &Device::Emulated, Outside::Nothing)
        .unwrap();
    let (_, expected) = straight.kept(&launch);
    for outside in [Outside::StopInTurn, Outside::Company] {
        assert_resumes(&launch, &expected, &TrialJob::new(), outside);
    }
    assert_undisturbed(&launch, &expected, 96);
}

/// Compares a suspended run, and a stopped and resumed one, with `expected`.
fn assert_undisturbed(launch: &TaskLaunch, expected: &Contents<CheckpointArena>, images: u32) {
    let turning = TrialJob::with_images(images);
    let (_, reports) = turning
        .run(launch.clone(), 1, &Device::Emulated, Outside::Turn)
        .unwrap();
    assert!(
        reports
            .iter()
            .any(|report| matches!(report, TaskReport::Continued { turn: 2, .. })),
        "{reports:?}"
    );
    assert_same("in turns", &turning.kept(launch).1, expected);
    let stopped = TrialJob::with_images(images);
    assert_resumes(launch, expected, &stopped, Outside::Stop);
}

fn assert_resumes(
    launch: &TaskLaunch,
    expected: &Contents<CheckpointArena>,
    job: &TrialJob,
    outside: Outside,
) {
    let device = &Device::Emulated;
    let (ending, reports) = job.run(launch.clone(), 1, device, outside).unwrap();
    assert_eq!(ending, ExitReason::Interrupted, "{reports:?}");
    let Some(&TaskReport::Interrupted { step }) = reports.last() else {
        panic!("{reports:?}");
    };
    assert!((1..STEPS).contains(&step), "{step}");
    let (manifest, _) = job.kept(launch);
    assert_eq!((manifest.step, manifest.optimizer_updates), (step, step));
    let resumed = TaskLaunch {
        resume_step: Some(step),
        ..launch.clone()
    };
    let (ending, reports) = job.run(resumed, 2, device, Outside::Nothing).unwrap();
    assert_eq!(ending, ExitReason::Finished);
    assert!(reports.contains(&TaskReport::Ready { from_step: step }));
    assert_same("resumed", &job.kept(launch).1, expected);
}

/// A checkpoint of the CPU continues on the GPU, and the reverse.
#[test]
fn checkpoint_continues_across_cpu_and_device() {
    let launch = launch(&json!({}));
    let straight = TrialJob::new();
    straight
        .run(launch.clone(), 1, &Device::Cpu, Outside::Nothing)
        .unwrap();
    let (_, expected) = straight.kept(&launch);
    for devices in [
        [Device::Cpu, Device::Emulated],
        [Device::Emulated, Device::Cpu],
    ] {
        let job = TrialJob::new();
        job.run(launch.clone(), 1, &devices[0], Outside::Stop)
            .unwrap();
        let (manifest, _) = job.kept(&launch);
        assert!(manifest.step < STEPS);
        let resumed = TaskLaunch {
            resume_step: Some(manifest.step),
            ..launch.clone()
        };
        job.run(resumed, 2, &devices[1], Outside::Nothing).unwrap();
        let (manifest, found) = job.kept(&launch);
        assert_eq!((manifest.step, manifest.optimizer_updates), (STEPS, STEPS));
        let apart = apart(&expected.parameters, &found.parameters);
        assert!(apart < 1e-3, "{devices:?}: {apart} apart");
    }
}

/// Returns the step at which a job with a far too large learning rate diverges.
fn diverges_at(more: &Value, device: &Device) -> u64 {
    let mut launch = launch(more);
    let mut document = serde_json::to_value(&launch.spec).unwrap();
    document["engine"]["optimizer"] = json!({ "kind": "sgd", "learning_rate": 1e30 });
    launch.spec = serde_json::from_value(document).unwrap();
    match TrialJob::new().run(launch, 1, device, Outside::Nothing) {
        Err(WorkerError::Diverged { step }) => step,
        ended => panic!("{ended:?}"),
    }
}

/// Also on the CPU, and with clipping, where the norm is not finite.
#[test]
fn diverged_loss_names_its_step() {
    for more in [
        json!({}),
        json!({ "engine": { "clip_norm": 1.0, "accumulate": 3 } }),
    ] {
        let step = diverges_at(&more, &Device::Emulated);
        assert!((1..8).contains(&step), "{step}");
        assert_eq!(step, diverges_at(&more, &Device::Cpu), "{more}");
    }
}

#[test]
fn document_that_needs_host_gradients_gives_reason() {
    assert_eq!(why_not(&launch(&json!({}))), None);
    for (more, wanted) in [
        (
            json!({ "exchange": { "topology": "parameter_server" } }),
            "exchange.topology",
        ),
        (
            json!({ "exchange": { "averaging": { "kind": "local_sgd", "every": 2 } } }),
            "exchange.averaging",
        ),
        (
            json!({ "exchange": { "compression": { "codec": { "kind": "one_bit" } } } }),
            "exchange.compression",
        ),
        (
            json!({ "scale": { "workers": { "min": 1, "max": 2 } } }),
            "scale.workers",
        ),
        (
            json!({ "engine": { "hogwild_threads": 2 } }),
            "engine.hogwild_threads",
        ),
        (
            json!({ "engine": { "batch_rule": "adascale" } }),
            "engine.batch_rule",
        ),
    ] {
        let why = why_not(&launch(&more)).expect("a reason");
        assert!(why.contains(wanted), "{why}: {more}");
    }
}
