//! Checkpoints that are mapped: the same values, all of them verified, independent of later changes
//! of the files.

use muster_model::id::{JobId, TenantId};
use muster_model::spec::{CheckpointPolicy, JobSpec};
use muster_training::checkpoint::{
    CheckpointError, Contents, DataPosition, JobFolder, LossProgress, Manifest, NamedBlock,
    RANDOMNESS, SoundCheckpoint, TaskCounts,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Parameters of blocks that are not multiples of a page, in parts that begin and end within a
/// page.
const BLOCKS: [usize; 5] = [400_001, 7, 350_003, 90_010, 200_000];
const PART_BYTES: usize = 1_700_000;
const HELD: usize = 300_001;

fn folder(root: &Path) -> JobFolder {
    let folder = JobFolder::new(
        root,
        TenantId(Uuid::from_u128(1)),
        JobId(Uuid::from_u128(2)),
        1,
    );
    folder.claim().unwrap();
    folder
}

fn arena(len: usize, salt: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7_919 + salt * 104_729) % 100_003) as f32 - 50_000.0)
        .collect()
}

fn contents(salt: usize) -> Contents {
    let len: usize = BLOCKS.iter().sum();
    Contents {
        parameters: arena(len, salt),
        state: vec![arena(len, salt + 1), arena(len, salt + 2)],
        extras: vec![
            ("compress.residual.0".to_owned(), arena(HELD, salt + 3)),
            ("small".to_owned(), arena(11, salt + 4)),
        ],
    }
}

fn manifest(step: u64, format: u32, contents: &Contents) -> Manifest {
    let spec: JobSpec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1",
        "name": "mapped",
        "engine": {
            "model": { "kind": "mlp", "hidden": [32] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "adam", "learning_rate": 0.1 },
            "batch": 32
        },
        "stop": { "epochs": 3 }
    }))
    .unwrap();
    let mut offset = 0;
    let blocks = BLOCKS.iter().enumerate().map(|(index, &len)| {
        offset += len;
        NamedBlock {
            name: format!("block{index}"),
            shape: vec![len],
            offset: offset - len,
            len,
        }
    });
    let extras = contents.extras.iter();
    Manifest {
        format,
        job_id: JobId(Uuid::from_u128(2)),
        revision: 1,
        step,
        position: DataPosition::at(step, 10, 320),
        consistency: spec.exchange.consistency,
        engine: spec.engine().clone(),
        randomness: RANDOMNESS.to_owned(),
        optimizer_updates: step,
        layout: TaskCounts {
            workers: 1,
            ps_shards: 1,
        },
        curve: LossProgress::default(),
        blocks: blocks.collect(),
        state_planes: vec!["first".to_owned(), "second".to_owned()],
        extras: extras
            .map(|(name, values)| (name.clone(), values.len()))
            .collect(),
        evaluation: None,
        part_bytes: PART_BYTES,
        files: BTreeMap::new(),
    }
}

fn write(folder: &JobFolder, step: u64, format: u32) -> Contents {
    let contents = contents(step as usize);
    folder
        .write(&mut manifest(step, format, &contents), &contents)
        .unwrap();
    contents
}

fn newest(folder: &JobFolder) -> SoundCheckpoint {
    folder.newest_sound().unwrap().newest.expect("a sound one")
}

fn files(folder: &JobFolder, step: u64) -> Vec<PathBuf> {
    let place = folder.path().join(format!("step-{step:010}-r1"));
    let entries = fs::read_dir(place).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|is| is == "safetensors"));
    files.sort();
    files
}

#[test]
fn large_arenas_are_mapped_and_hold_what_was_written() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    let written = write(&folder, 3, 3);
    assert!(files(&folder, 3).len() > 5, "arenas are in several parts");
    let found = newest(&folder);
    assert_eq!(found.contents, written);
    let planes = [&found.contents.parameters].into_iter();
    let planes = planes.chain(&found.contents.state);
    assert!(planes.into_iter().all(|plane| plane.is_mapped()));
    let (_, small) = &found.contents.extras[1];
    assert!(!small.is_mapped(), "a page of its own is not worth it");
}

/// Format 2 of earlier releases, in which the position of data in pages differs from the arena's.
#[test]
fn format_2_is_read_too() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    let written = write(&folder, 3, 2);
    assert_eq!(newest(&folder).contents, written);
    let found = folder.newest_sound().unwrap();
    assert!(found.damaged.is_empty());
}

/// The policy removes the checkpoint, the same step is written again, and the folder is removed:
/// loaded values stay the same.
#[test]
fn loaded_values_survive_changes_of_the_files() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    let written = write(&folder, 3, 3);
    let found = newest(&folder);
    assert!(found.contents.parameters.is_mapped());

    // Values of another step under the same name.
    let contents = contents(8);
    folder
        .write(&mut found.manifest.clone(), &contents)
        .unwrap();
    assert_eq!(newest(&folder).contents, contents);
    assert_eq!(found.contents, written, "after it was written again");

    write(&folder, 4, 3);
    let policy = CheckpointPolicy {
        keep: 1,
        ..CheckpointPolicy::default()
    };
    let pruned = folder.prune(&policy, &BTreeSet::new(), &mut BTreeMap::new());
    assert_eq!(pruned.unwrap(), [3]);
    assert_eq!(found.contents, written, "after it was removed");

    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(found.contents, written, "after all of it was removed");
    let copy = found.contents.clone();
    drop(found);
    assert_eq!(copy, written);
    assert!(!copy.parameters.is_mapped());
}

/// One bit, in mapped and in unmapped pages, at the beginning, in the middle and at the end of
/// every part.
#[test]
fn flipped_bit_is_detected_at_any_position() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    write(&folder, 3, 3);
    let aside = folder.path().join("damaged-step-0000000003-r1");
    let place = folder.path().join("step-0000000003-r1");
    for file in files(&folder, 3) {
        let sound = fs::read(&file).unwrap();
        let header = 8 + u64::from_le_bytes(sound[..8].try_into().unwrap()) as usize;
        let (first, last) = (header, sound.len() - 1);
        for at in [first, first + 5_000, (first + last) / 2, last - 4_096, last] {
            let at = at.clamp(first, last);
            let mut bytes = sound.clone();
            bytes[at] ^= 4;
            fs::write(&file, bytes).unwrap();
            let search = folder.newest_sound().unwrap();
            assert!(search.newest.is_none(), "byte {at} of {}", file.display());
            let (_, damage) = &search.damaged[0];
            assert!(
                matches!(damage, CheckpointError::Damaged { path, .. } if *path == file),
                "{damage}"
            );
            fs::rename(&aside, &place).unwrap();
        }
        fs::write(&file, sound).unwrap();
    }
    assert_eq!(newest(&folder).manifest.step, 3);
}
