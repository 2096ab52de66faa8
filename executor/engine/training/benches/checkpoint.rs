//! Checkpoints of 400 MB on this machine: writing compared with a plain write and fsync of the same
//! number of bytes, the stall of training compared with a memory copy, and loading compared with
//! `torch.load`. Run by `cargo bench --bench checkpoint`.
//!
//! All sides alternate, so that other load of the machine affects them equally; medians.
//! `MUSTER_BENCH_FOLDER` selects another disk, `MUSTER_TORCH_PYTHON` a Python with PyTorch. Without
//! PyTorch only the engine is measured, and the output says so.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use muster_model::id::{JobId, TenantId};
use muster_model::spec::{CheckpointPolicy, JobSpec};
use muster_training::checkpoint::{
    CheckpointWriter, Contents, DEFAULT_PART_BYTES, DataPosition, JobFolder, LossProgress,
    Manifest, NamedBlock, RANDOMNESS, TaskCounts, WriteKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

const ROUNDS: usize = 7;

/// Parameters with one plane of optimizer state: 400 MB together.
const FLOATS: usize = 50_000_000;
const BLOCK: usize = 5_000_000;
const BYTES: usize = FLOATS * 4 * 2;

fn main() {
    let parent = std::env::var("MUSTER_BENCH_FOLDER").map_or_else(
        |_| PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        PathBuf::from,
    );
    let root = tempfile::tempdir_in(parent).expect("a folder for the bench");
    let folder = JobFolder::new(
        root.path(),
        TenantId(Uuid::from_u128(1)),
        JobId(Uuid::from_u128(2)),
        1,
    );
    folder.claim().expect("the folder is ours");
    let contents = state();
    writing(&folder, root.path(), &contents);
    stalling(&folder, &contents);
    loading(&folder, root.path());
}

fn writing(folder: &JobFolder, root: &Path, contents: &Contents) {
    let raw = root.join("raw");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let began = Instant::now();
        let mut file = File::create(&raw).expect("a file");
        for arena in contents.arenas() {
            let bytes: &[u8] = bytemuck::cast_slice(arena);
            file.write_all(bytes).expect("space on the disk");
        }
        file.sync_all().expect("a disk that syncs");
        bare.push(began.elapsed());
        drop(file);
        fs::remove_file(&raw).expect("removed");

        let began = Instant::now();
        folder
            .write(&mut manifest(round + 1), contents)
            .expect("written");
        ours.push(began.elapsed());
        let policy = CheckpointPolicy {
            keep: 1,
            ..CheckpointPolicy::default()
        };
        folder
            .prune(&policy, &BTreeSet::new(), &mut BTreeMap::new())
            .expect("pruned");
    }
    let (ours, bare) = (median(ours), median(bare));
    println!(
        "write, sums and fsync of 400 MB: {:.0} ms, bare write and fsync {:.0} ms: {:.0} % of its rate (asked 97)",
        ms(ours),
        ms(bare),
        100.0 * bare.as_secs_f64() / ours.as_secs_f64()
    );
}

/// Stall at a step boundary: a copy into memory that the writer returns, with and without a write
/// in progress.
fn stalling(folder: &JobFolder, contents: &Contents) {
    let policy = CheckpointPolicy {
        keep: 1,
        ..CheckpointPolicy::default()
    };
    let mut writer = CheckpointWriter::start(
        folder.clone().into(),
        policy,
        Arc::new(|| Some(BTreeSet::new())),
        FLOATS,
        1,
    )
    .expect("the writer starts");
    let mut target = contents.clone();
    let (mut stalls, mut copies) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let began = Instant::now();
        copy(contents, &mut target);
        copies.push(began.elapsed());

        let began = Instant::now();
        let mut spare = writer.spare();
        spare.fit(FLOATS, 1);
        copy(contents, &mut spare);
        writer.begin(WriteKind::Checkpoint, manifest(100 + round), spare);
        stalls.push(began.elapsed());
        let attempt = writer.wait(Duration::from_secs(600)).expect("in time");
        attempt.outcome.expect("written");
    }
    println!(
        "training stalls for {:.2} memory copies of the state (asked 1.3 at most): {:.0} ms, a copy {:.0} ms",
        median(stalls.clone()).as_secs_f64() / median(copies.clone()).as_secs_f64(),
        ms(median(stalls)),
        ms(median(copies))
    );
}

fn loading(folder: &JobFolder, root: &Path) {
    let python = std::env::var("MUSTER_TORCH_PYTHON").ok();
    let file = root.join("state.pt");
    let made = python.as_ref().is_some_and(|python| {
        let script = format!(
            "import torch; torch.save({{str(i): torch.rand({BLOCK}) for i in range({})}}, r'{}')",
            FLOATS * 2 / BLOCK,
            file.display()
        );
        run(python, &script).is_some()
    });
    if !made {
        println!(
            "SKIPPED: PyTorch's side of loading, since MUSTER_TORCH_PYTHON names no Python that has it"
        );
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let found = folder.newest_sound().expect("readable").newest;
        ours.push(began.elapsed());
        assert!(found.is_some(), "there is one to load");
        drop(found);
        if let (true, Some(python)) = (made, &python) {
            let script = format!(
                "import time, torch; b = time.perf_counter(); torch.load(r'{}'); print(time.perf_counter() - b)",
                file.display()
            );
            let seconds = run(python, &script).expect("it has run before");
            theirs.push(Duration::from_secs_f64(
                seconds.trim().parse().expect("seconds"),
            ));
        }
    }
    let ours = median(ours);
    println!(
        "loading and checking 400 MB: {:.0} ms, {:.1} GB/s",
        ms(ours),
        BYTES as f64 / ours.as_secs_f64() / 1e9
    );
    if made {
        let theirs = median(theirs);
        println!(
            "torch.load of as much: {:.0} ms, {:.1} times ours (asked 8)",
            ms(theirs),
            theirs.as_secs_f64() / ours.as_secs_f64()
        );
    }
}

fn run(python: &str, script: &str) -> Option<String> {
    let output = Command::new(python).args(["-c", script]).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn copy(from: &Contents, to: &mut Contents) {
    for (from, to) in from.arenas().iter().zip(to.arenas_mut()) {
        to.copy_from_slice(from);
    }
}

fn arena(salt: usize) -> Vec<f32> {
    (0..FLOATS)
        .map(|i| ((i * 7919 + salt) % 10_007) as f32 / 10_007.0)
        .collect()
}

fn state() -> Contents {
    Contents {
        parameters: arena(0),
        state: vec![arena(1)],
        extras: Vec::new(),
    }
}

fn manifest(step: u64) -> Manifest {
    let spec: JobSpec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1",
        "name": "bench",
        "engine": {
            "model": { "kind": "mlp", "hidden": [32] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1, "momentum": 0.9 },
            "batch": 32,
            "seed": 7
        },
        "stop": { "epochs": 3 }
    }))
    .expect("a job document");
    let blocks = (0..FLOATS / BLOCK).map(|index| NamedBlock {
        name: format!("block{index}"),
        shape: vec![BLOCK],
        offset: index * BLOCK,
        len: BLOCK,
    });
    Manifest {
        format: Manifest::FORMAT,
        job_id: JobId(Uuid::from_u128(2)),
        revision: 1,
        step,
        position: DataPosition::at(step, 1000, 32_000),
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
        state_planes: vec!["momentum".to_owned()],
        extras: Vec::new(),
        evaluation: None,
        part_bytes: DEFAULT_PART_BYTES,
        files: BTreeMap::new(),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
