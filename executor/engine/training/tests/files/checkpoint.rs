//! Checkpoints on disk: complete or absent, verified, fenced.

use muster_model::id::{JobId, TenantId};
use muster_model::progress::{Evaluation, Split};
use muster_model::spec::{
    BatchRule, CheckpointPolicy, Consistency, Dataset, DatasetName, Engine, KeepBest, Measure,
    Model, Optimizer, Schedule,
};
use muster_training::checkpoint::{
    CheckpointError, CheckpointWriter, Contents, DataPosition, JobFolder, LossProgress, Manifest,
    NamedBlock, RANDOMNESS, TaskCounts, WriteKind,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uuid::Uuid;

fn folder(root: &Path, revision: u64) -> JobFolder {
    JobFolder::new(
        root,
        TenantId(Uuid::from_u128(1)),
        JobId(Uuid::from_u128(2)),
        revision,
    )
}

fn block(name: &str, shape: &[usize], offset: usize) -> NamedBlock {
    NamedBlock {
        name: name.to_owned(),
        shape: shape.to_vec(),
        offset,
        len: shape.iter().product(),
    }
}

fn manifest(step: u64, revision: u64) -> Manifest {
    Manifest {
        format: Manifest::FORMAT,
        job_id: JobId(Uuid::from_u128(2)),
        revision,
        step,
        position: DataPosition::at(step, 10, 100),
        engine: Engine {
            model: Model::Mlp { hidden: vec![3] },
            dataset: Dataset::known(DatasetName::FashionMnist),
            optimizer: Optimizer::Sgd {
                learning_rate: 0.1,
                momentum: 0.9,
                nesterov: false,
                weight_decay: 0.0,
            },
            schedule: Schedule::default(),
            clip_norm: None,
            accumulate: None,
            batch: 10,
            batch_rule: BatchRule::Constant,
            max_batch: None,
            hogwild_threads: None,
            precision: None,
            seed: 1,
        },
        consistency: Consistency::default(),
        randomness: RANDOMNESS.to_owned(),
        optimizer_updates: step,
        layout: TaskCounts {
            workers: 2,
            ps_shards: 1,
        },
        curve: LossProgress {
            epoch_losses: vec![0.75, 0.5],
            loss_sum: 1.5,
            correct: 3,
            examples: 4,
        },
        blocks: vec![
            block("dense1.weight", &[4, 3], 0),
            block("dense1.bias", &[3], 12),
        ],
        state_planes: vec!["momentum".to_owned()],
        extras: vec![("worker0.residual".to_owned(), 7)],
        evaluation: None,
        part_bytes: 40,
        files: BTreeMap::new(),
    }
}

fn contents(salt: f32) -> Contents {
    Contents {
        parameters: (0..15).map(|i| i as f32 + salt).collect(),
        state: vec![(0..15).map(|i| -(i as f32) - salt).collect()],
        extras: vec![("worker0.residual".to_owned(), vec![salt; 7])],
    }
}

/// Policy that keeps the newest `keep` checkpoints.
fn newest(keep: u32) -> CheckpointPolicy {
    CheckpointPolicy {
        keep,
        ..CheckpointPolicy::default()
    }
}

fn pruned(folder: &JobFolder, keep: u32) -> Result<Vec<u64>, CheckpointError> {
    folder.prune(&newest(keep), &BTreeSet::new(), &mut BTreeMap::new())
}

fn written(root: &Path, steps: &[u64]) -> JobFolder {
    let folder = folder(root, 1);
    folder.claim().unwrap();
    for &step in steps {
        folder
            .write(&mut manifest(step, 1), &contents(step as f32))
            .unwrap();
    }
    folder
}

#[test]
fn written_checkpoint_is_found_complete() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[]);
    let mut manifest = manifest(25, 1);
    let report = folder.write(&mut manifest, &contents(0.5)).unwrap();
    assert_eq!(report.step, 25);
    assert_eq!(report.epoch, 2.5);
    assert!(report.path.ends_with("/step-0000000025-r1"));

    let search = folder.newest_sound().unwrap();
    let found = search.newest.unwrap();
    assert!(search.damaged.is_empty());
    assert_eq!(found.manifest, manifest);
    assert_eq!(found.contents, contents(0.5));
    assert_eq!(found.written, report);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".tmp")),
        "{left:?}"
    );
}

#[test]
fn newest_step_and_then_newest_revision_is_used() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), &[9, 100, 20]);
    let second = folder(root.path(), 2);
    second.claim().unwrap();
    second.write(&mut manifest(100, 2), &contents(7.0)).unwrap();
    let found = second.newest_sound().unwrap().newest.unwrap();
    assert_eq!((found.manifest.step, found.manifest.revision), (100, 2));
    assert_eq!(found.contents, contents(7.0));
}

#[test]
fn damaged_checkpoint_is_detected_and_the_older_one_used() {
    let files = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "optimizer-00002-of-00002.safetensors",
        "extras.safetensors",
        "manifest.json",
        "SHA256SUMS",
    ];
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("emptied", |path| fs::write(path, b"").unwrap()),
        ("cut short", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("changed", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[10] ^= 0x20;
            fs::write(path, bytes).unwrap();
        }),
    ];
    for file in files {
        for (how, harm) in harms {
            let root = tempfile::tempdir().unwrap();
            let folder = written(root.path(), &[10, 20]);
            harm(&folder.path().join("step-0000000020-r1").join(file));
            let search = folder.newest_sound().unwrap();
            assert_eq!(search.newest.unwrap().manifest.step, 10, "{file} {how}");
            assert_eq!(search.damaged[0].0, 20, "{file} {how}");
            assert!(folder.path().join("damaged-step-0000000020-r1").is_dir());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_flipped_bit_in_any_file_passes(file in 0usize..3, at: prop::sample::Index, bit in 0u8..8) {
        let root = tempfile::tempdir().unwrap();
        let folder = written(root.path(), &[20]);
        let path = folder.path().join("step-0000000020-r1").join(["model-00001-of-00002.safetensors", "optimizer-00001-of-00002.safetensors", "manifest.json"][file]);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let search = folder.newest_sound().unwrap();
        prop_assert!(search.newest.is_none());
        prop_assert_eq!(search.damaged.len(), 1);
    }
}

/// A killed writer leaves a folder that is not a checkpoint; the next prune removes it.
#[test]
fn a_half_written_checkpoint_is_invisible() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[10]);
    let half = folder.path().join(".tmp-step-0000000020-r1");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("model.safetensors"), b"half").unwrap();
    assert_eq!(
        folder.newest_sound().unwrap().newest.unwrap().manifest.step,
        10
    );
    folder.write(&mut manifest(20, 1), &contents(1.0)).unwrap();
    pruned(&folder, 5).unwrap();
    assert!(!half.exists());
    assert_eq!(
        folder.newest_sound().unwrap().newest.unwrap().manifest.step,
        20
    );
}

#[test]
fn pruning_keeps_the_newest_steps() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[30, 10, 40, 20]);
    assert_eq!(pruned(&folder, 2).unwrap(), [20, 10]);
    assert_eq!(pruned(&folder, 2).unwrap(), [0u64; 0]);
    assert_eq!(
        pruned(&folder, 0).unwrap(),
        [30],
        "the newest one always stays"
    );
    assert_eq!(
        folder.newest_sound().unwrap().newest.unwrap().manifest.step,
        40
    );
}

/// The measures are read from the manifests, by a process that has not written them.
#[test]
fn best_checkpoints_stay_independent_of_their_age() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[]);
    for (step, accuracy) in [(10, 0.5), (20, 0.9), (30, 0.7), (40, 0.6)] {
        let mut manifest = manifest(step, 1);
        manifest.evaluation = Some(Evaluation {
            step,
            epoch: 1.0,
            split: Split::Test,
            loss: Some(1.0),
            accuracy: Some(accuracy),
        });
        let report = folder.write(&mut manifest, &contents(0.0)).unwrap();
        assert_eq!(report.accuracy, Some(accuracy));
    }
    let policy = CheckpointPolicy {
        keep_best: Some(KeepBest {
            count: 2,
            by: Measure::Accuracy,
            metric: None,
            goal: None,
        }),
        ..newest(1)
    };
    assert_eq!(
        folder
            .prune(&policy, &BTreeSet::new(), &mut BTreeMap::new())
            .unwrap(),
        [10]
    );
}

/// A new revision removes unfinished folders and keeps complete checkpoints.
#[test]
fn claim_removes_remains_of_killed_writers() {
    let root = tempfile::tempdir().unwrap();
    let old = written(root.path(), &[10]);
    let half = old.path().join(".tmp-step-0000000020-r1");
    fs::create_dir(&half).unwrap();
    folder(root.path(), 2).claim().unwrap();
    assert!(!half.exists());
    assert!(old.path().join("step-0000000010-r1").exists());
}

#[test]
fn the_same_step_can_be_written_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[10]);
    folder.write(&mut manifest(10, 1), &contents(3.0)).unwrap();
    let found = folder.newest_sound().unwrap().newest.unwrap();
    assert_eq!(found.contents, contents(3.0));
}

#[test]
fn an_older_revision_can_neither_claim_write_nor_prune() {
    let root = tempfile::tempdir().unwrap();
    let old = written(root.path(), &[10, 20]);
    folder(root.path(), 3).claim().unwrap();
    let (mut manifest, contents) = (manifest(30, 1), contents(0.0));
    for result in [
        old.claim(),
        old.write(&mut manifest, &contents).map(drop),
        old.write_final(&mut manifest, &contents).map(drop),
        pruned(&old, 1).map(drop),
    ] {
        assert!(
            matches!(result, Err(CheckpointError::Fenced { own: 1, newest: 3 })),
            "{result:?}"
        );
    }
    let newest = folder(root.path(), 3)
        .newest_sound()
        .unwrap()
        .newest
        .unwrap();
    assert_eq!(
        newest.manifest.step, 20,
        "nothing of the stale writer is in place"
    );
}

#[test]
fn parameters_that_are_not_finite_are_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[]);
    let mut diverged = contents(0.0);
    diverged.parameters[7] = f32::NAN;
    let refused = folder.write(&mut manifest(5, 1), &diverged);
    assert!(matches!(refused, Err(CheckpointError::Diverged)));
    assert!(folder.newest_sound().unwrap().newest.is_none());
    let left = fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let begun = left
        .iter()
        .find(|name| name.to_string_lossy().contains("step"));
    assert_eq!(begun, None, "what was begun is gone again");
}

#[test]
fn model_file_is_self_contained() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[]);
    let path = folder
        .write_final(&mut manifest(30, 1), &contents(0.25))
        .unwrap();
    let bytes = fs::read(root.path().join(path)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("dense1.weight").unwrap().shape(), [4, 3]);
    let bias: Vec<f32> = tensors
        .tensor("dense1.bias")
        .unwrap()
        .data()
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(bias, [12.25, 13.25, 14.25]);
}

/// Waits until the writer has memory to spare.
fn spare_memory(writer: &mut CheckpointWriter) -> Contents {
    loop {
        let memory = writer.spare();
        if !memory.parameters.is_empty() {
            return memory;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A caller that takes the memory of a write that has just ended still receives the outcome.
#[test]
fn outcome_is_kept_when_the_memory_is_taken_first() {
    let root = tempfile::tempdir().unwrap();
    let folder = written(root.path(), &[]);
    let spared = Arc::new(|| Some(BTreeSet::new()));
    let mut writer = CheckpointWriter::start(folder.into(), newest(3), spared, 15, 1).unwrap();
    drop(spare_memory(&mut writer));
    writer.begin(WriteKind::Checkpoint, manifest(7, 1), contents(0.5));
    let back = spare_memory(&mut writer);
    assert_eq!(back.parameters, contents(0.5).parameters);
    assert!(writer.is_busy(), "nobody was told yet");
    let attempt = writer.poll().expect("it has ended");
    assert_eq!(attempt.step, 7);
    assert!(attempt.outcome.is_ok());
    assert!(!writer.is_busy() && writer.poll().is_none());
}
