//! Two workers train the CNN of `peers/models.py` on this machine: the engine (complete workers
//! with all-reduce, data and updates) compared with PyTorch's DistributedDataParallel over gloo.
//! Measures images per second of wall time with one thread per worker.
//!
//! The sides alternate, so that other load affects both, and medians are compared.
//! `MUSTER_TORCH_PYTHON` names a Python with PyTorch. Without it only the engine is measured, and
//! the output says so. `MUSTER_BENCH_TURNS` sets the number of alternations.

#[path = "shared/noise.rs"]
mod noise;
#[path = "peers/torch.rs"]
mod torch;

use muster_model::assignment::{Peer, Peers, TaskLaunch, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::place::Place;
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use muster_training::stop::StopFlag;
use muster_training::worker::{self, Reporter, WorkerContext};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const WORKERS: u32 = 2;
/// Examples per worker and step.
const BATCH: u32 = 128;
/// Steps of one run.
const STEPS: u64 = 60;
/// Goal for the ratio of images per second, engine to PyTorch.
const GOAL: f64 = 1.3;

fn main() {
    if let Ok(rank) = std::env::var("MUSTER_BENCH_RANK") {
        member(rank.parse().expect("a rank"));
        return;
    }
    let turns = std::env::var("MUSTER_BENCH_TURNS").map_or(5, |text| text.parse().expect("turns"));
    let data = tempfile::tempdir().expect("a folder for the data set");
    noise::write_images(&data.path().join("fashion-mnist"));
    let mut torch = torch::Torch::start("torch_ddp.py");
    if torch.is_none() {
        println!("SKIPPED: PyTorch's side, since MUSTER_TORCH_PYTHON names no Python that has it");
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        ours.push(train(data.path()));
        theirs.extend(torch.as_mut().map(images_per_s));
    }
    println!(
        "images/s of {WORKERS} workers, CNN 32-64, dense 128, {BATCH} images each, medians of {turns} turns:"
    );
    println!("  ours         {:>7.0} {}", median(&ours), spread(&ours));
    if !theirs.is_empty() {
        println!(
            "  PyTorch DDP  {:>7.0} {}",
            median(&theirs),
            spread(&theirs)
        );
        let ratio = median(&ours) / median(&theirs);
        println!("  ours/PyTorch {ratio:>7.2} (goal {GOAL})");
    }
}

fn spread(rates: &[f64]) -> String {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    format!("({least:.0} to {most:.0})")
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn task(rank: u32) -> TaskId {
    TaskId(Uuid::from_u128(u128::from(rank) + 1))
}

/// Task set of the workers, with the coordinator's address when it is known.
fn peers(chief: Option<String>) -> Peers {
    let workers = (0..WORKERS).map(|rank| Peer {
        task_id: task(rank),
        node_id: NodeId(Uuid::nil()),
        address: chief.clone().filter(|_| rank == 0),
    });
    Peers {
        revision: 1,
        workers: workers.collect(),
        ..Peers::default()
    }
}

fn put(folder: &Path, peers: &Peers) -> io::Result<()> {
    let draft = folder.join("peers.draft");
    fs::write(&draft, serde_json::to_vec(peers).expect("plain data"))?;
    fs::rename(draft, folder.join("peers.json"))
}

/// Images per second of one run of the engine, from the coordinator's samples; time before the
/// first step does not count.
fn train(data: &Path) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), &peers(None)).expect("a file");
    let workers = (0..WORKERS).map(|rank| {
        Command::new(std::env::current_exe().expect("this program"))
            .env("MUSTER_BENCH_RANK", rank.to_string())
            .env("FOLDER", folder.path())
            .env("DATA", data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker starts")
    });
    let workers: Vec<Child> = workers.collect();
    let (mut images, mut seconds) = (0.0, 0.0);
    for worker in workers {
        let output = worker.wait_with_output().expect("a worker's output");
        assert!(
            output.status.success(),
            "a worker failed: {}",
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let samples = text.lines().filter_map(|line| line.strip_prefix("sample "));
        let mut before = 0;
        for (at, sample) in samples.enumerate() {
            let (step, rate) = sample.split_once(' ').expect("two numbers");
            let (step, rate): (u32, f64) =
                (step.parse().expect("a step"), rate.parse().expect("a rate"));
            let count = f64::from((step - before) * BATCH * WORKERS);
            before = step;
            // The first sample contains accesses to new memory.
            if at > 0 {
                images += count;
                seconds += count / rate;
            }
        }
    }
    images / seconds
}

fn job() -> JobSpec {
    serde_json::from_value(serde_json::json!({
        "version": "muster/v1",
        "name": "bench",
        "engine": {
            "model": { "kind": "cnn", "channels": [32, 64], "dense": [128] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.01, "momentum": 0.9 },
            "batch": BATCH * WORKERS,
        },
        "exchange": { "topology": "all_reduce" },
        "scale": { "workers": { "min": WORKERS, "max": WORKERS }, "ps_shards": { "min": 0, "max": 0 } },
        "checkpoint": { "every_minutes": null },
        "stop": { "steps": STEPS },
    }))
    .expect("a job document")
}

/// Sends a worker's reports to this bench, and the coordinator's address to the other worker.
struct Teller {
    rank: u32,
    folder: PathBuf,
}

impl Reporter for Teller {
    fn report(&self, report: &TaskReport) -> io::Result<()> {
        match report {
            TaskReport::Listening { address } if self.rank == 0 => {
                put(&self.folder, &peers(Some(address.clone())))
            }
            TaskReport::Progress { sample } => {
                let (step, rate) = (sample.step, sample.examples_per_s.unwrap_or_default());
                writeln!(io::stdout(), "sample {step} {rate}")
            }
            _ => Ok(()),
        }
    }
}

/// Runs one worker of the engine.
fn member(rank: u32) {
    let [folder, data] =
        ["FOLDER", "DATA"].map(|name| PathBuf::from(std::env::var_os(name).expect("a folder")));
    let launch = TaskLaunch {
        task_id: task(rank),
        job_id: JobId(Uuid::nil()),
        tenant_id: TenantId(Uuid::nil()),
        tenant_number: None,
        revision: 1,
        role: Role::Worker { rank },
        workers: WORKERS,
        ps_shards: 0,
        gpus: Vec::new(),
        cpu_milli: 0,
        memory_bytes: 0,
        secret: "ef".repeat(32),
        spec: job(),
        resume_step: None,
        trained_s: 0.0,
        grace_ms: 1_000,
        service_account: None,
        objectives: std::collections::BTreeSet::new(),
        finished_rung: None,
    };
    let own = folder.join(format!("task-{rank}"));
    fs::create_dir_all(&own).expect("a folder");
    let roster = folder.join("peers.json");
    let ctx = WorkerContext {
        device: &muster_compute::cuda::Device::Cpu,
        checkpoint_root: &Place::Folder(folder.join("checkpoints")),
        dataset_root: &data,
        reporter: &Teller { rank, folder },
        stop: StopFlag::new(Duration::from_secs(1)),
        peers: Arc::new(move || serde_json::from_slice(&fs::read(&roster).ok()?).ok()),
        listen_host: "127.0.0.1",
        folder: &own,
        sockets: &own,
        threads: 1,
    };
    worker::run(&launch, rank, &ctx).expect("training");
}

fn images_per_s(torch: &mut torch::Torch) -> f64 {
    let said: serde_json::Value = torch.ask(&format!("run {STEPS}"));
    said["images_per_second"].as_f64().expect("a rate")
}
