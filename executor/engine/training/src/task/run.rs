//! Entry point of a task process: from the command line to an exit code.

use super::events::EventsFile;
use super::folder::TaskFolder;
use crate::document;
use crate::shard::{Identity, Recipe, ShardEnd, ShardExchange, ShardServer};
use crate::stop::StopFlag;
use crate::worker::{self, ExitReason, OwnClip, Reporter, WorkerContext, WorkerError};
use muster_comm::log;
use muster_compute::cuda::{ComputePrecision, Device, DeviceChoice};
use muster_model::assignment::{TaskLaunch, TaskReport, exit_code};
use muster_model::error_chain::chain;
use muster_model::place::Place;
use muster_model::task::Role;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Command line of a task, which the executor passes.
#[derive(Debug, Clone, clap::Parser)]
#[command(
    name = "muster-task",
    version,
    about = "Runs one task of a training job: a worker or a PS shard"
)]
pub struct TaskArgs {
    /// Folder of the task, with task.json and peers.json.
    #[arg(long)]
    pub folder: PathBuf,
    /// Root of the jobs' checkpoints: a folder, or a bucket as s3://bucket/prefix.
    #[arg(long)]
    pub checkpoint_root: Place,
    /// Root folder of the data sets.
    #[arg(long)]
    pub dataset_root: PathBuf,
    /// Address to listen on, as other nodes reach it.
    #[arg(long, default_value = "127.0.0.1")]
    pub listen_host: String,
    /// Folder in which tasks of this job on the same node create their Unix sockets for shared
    /// memory [default: the task's folder, in which PS shards and their workers do not find each
    /// other]
    #[arg(long, env = "MUSTER_SOCKETS")]
    pub sockets: Option<PathBuf>,
    /// Number of compute threads.
    #[arg(long, env = "MUSTER_THREADS", default_value_t = 1)]
    pub threads: usize,
    /// Device to compute on: auto (a GPU if the task has one, else the CPU), cpu, cuda or cuda:N.
    #[arg(long, env = "MUSTER_DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Precision of products on a GPU if the job does not set one: f32, tf32 (f32 values, products
    /// with 10 bits of mantissa) or bf16 (values in bf16 too). Parameters are always f32.
    #[arg(long, env = "MUSTER_PRECISION", default_value = "tf32")]
    pub precision: ComputePrecision,
}

/// Runs the task to its end and returns the exit code of the process.
#[must_use]
pub fn main(options: &TaskArgs) -> i32 {
    let folder = TaskFolder::new(&options.folder);
    let opened = folder
        .launch()
        .map_err(|error| chain(&error))
        .and_then(|launch| {
            Ok((
                launch,
                EventsFile::open(&folder.events_path()).map_err(|error| chain(&error))?,
            ))
        });
    let (launch, events) = match opened {
        Ok(opened) => opened,
        // Without a launch or an event file, only the log can report the error.
        Err(message) => {
            log::line(message);
            return exit_code::FAILED;
        }
    };
    // An expired lease ends the task after the cluster's grace, a requested stop after the grace of
    // the document. The task cannot tell which of them the signal stands for.
    let grace_ms = launch.stop_grace_ms().min(launch.grace_ms);
    let stop = StopFlag::new(Duration::from_millis(grace_ms));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        if let Err(error) = signal_hook::flag::register(signal, stop.raw()) {
            return failed(&events, format!("could not catch signals: {error}"), true);
        }
    }
    log::line(format_args!(
        "{} of job {} at revision {}",
        launch.role, launch.job_id, launch.revision
    ));
    match launch.role {
        Role::Worker { rank } => run_worker(&launch, rank, &folder, options, &events, stop),
        Role::PsShard { .. } => run_shard(&launch, &folder, options, &events, &stop),
    }
}

/// Returns the device to open. Workers without GPUs compute on the CPU, also where the setting of
/// the node names a GPU.
fn device_choice(launch: &TaskLaunch, of_node: DeviceChoice) -> DeviceChoice {
    if launch.spec.resources.worker.gpus == 0 {
        DeviceChoice::Cpu
    } else {
        of_node
    }
}

fn run_worker(
    launch: &TaskLaunch,
    rank: u32,
    folder: &TaskFolder,
    options: &TaskArgs,
    events: &EventsFile,
    stop: StopFlag,
) -> i32 {
    // The executor sets this variable to the task's GPUs, on nodes that have GPUs.
    let granted = std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|gpus| !gpus.is_empty());
    let precision = document::precision(launch.spec.engine(), options.precision);
    let choice = device_choice(launch, options.device);
    let device = match Device::open(choice, granted, precision) {
        Ok((device, why)) => {
            if let Some(why) = why {
                log::line(format_args!("the task's GPU cannot be used: {why}"));
            }
            log::line(format_args!("computes on {device}"));
            device
        }
        Err(error) => return failed(events, chain(&error), true),
    };
    let ctx = WorkerContext {
        device: &device,
        checkpoint_root: &options.checkpoint_root,
        dataset_root: &options.dataset_root,
        reporter: events,
        stop,
        peers: {
            let folder = folder.clone();
            Arc::new(move || folder.peers())
        },
        listen_host: &options.listen_host,
        folder: &options.folder,
        sockets: options.sockets.as_ref().unwrap_or(&options.folder),
        threads: options.threads,
    };
    match worker::run(launch, rank, &ctx) {
        Ok(ExitReason::Finished | ExitReason::Interrupted) => exit_code::DONE,
        Ok(ExitReason::PeerLost) => exit_code::PEER_LOST,
        Err(error) => {
            let retryable = error.is_retryable();
            failed(events, chain(&error), retryable)
        }
    }
}

fn run_shard(
    launch: &TaskLaunch,
    folder: &TaskFolder,
    options: &TaskArgs,
    events: &EventsFile,
    stop: &StopFlag,
) -> i32 {
    let engine = launch.spec.engine();
    let network = match document::network(engine) {
        Ok(network) => network,
        Err(error) => return failed(events, chain(&WorkerError::Network(error)), false),
    };
    let recipe = Recipe {
        optimizer: document::optimizer(engine),
        blocks: network.blocks().to_vec(),
        threads: options.threads,
        codecs: launch.spec.exchange.compression.codecs().cloned(),
        seed: engine.seed,
    };
    let consistency = launch.spec.exchange.consistency;
    let mut exchange = ShardExchange::new(
        launch.task_id,
        recipe,
        consistency,
        engine.targets_per_step(),
    )
    .clipped(OwnClip::of_sum(&launch.spec).is_some());
    let identity = Identity {
        job_id: launch.job_id,
        task_id: launch.task_id,
        secret: launch.secret.clone(),
    };
    if launch.spec.exchange.shard_replicas > 0 {
        exchange = exchange.with_replication(identity.clone());
    }
    let mut shard = match ShardServer::bind(&options.listen_host, identity, exchange) {
        Ok(shard) => shard,
        Err(error) => return failed(events, chain(&error), true),
    };
    if let Some(sockets) = &options.sockets {
        shard = shard.near(sockets);
    }
    let address = shard.address().to_string();
    log::line(format_args!("listens on {address}"));
    if let Err(error) = events.report(&TaskReport::Listening { address }) {
        return failed(events, format!("could not keep a report: {error}"), true);
    }
    let ended = shard.serve_while(stop, &|| is_wanted(launch, folder), &|message| {
        if let Err(error) = events.report(&TaskReport::Note { message }) {
            log::line(format_args!("could not keep a report: {error}"));
        }
    });
    match ended {
        Ok(ShardEnd::Finished | ShardEnd::Stopped) => exit_code::DONE,
        Ok(ShardEnd::PeerLost) => exit_code::PEER_LOST,
        Err(error) => failed(events, chain(&error), true),
    }
}

/// Whether the job still needs this shard: no newer task set is known that lacks it.
fn is_wanted(launch: &TaskLaunch, folder: &TaskFolder) -> bool {
    let newer = folder
        .peers()
        .filter(|peers| peers.revision > launch.revision);
    newer.is_none_or(|peers| {
        let mut shards = peers.ps_shards.iter();
        shards.any(|peer| peer.task_id == launch.task_id)
    })
}

fn failed(events: &EventsFile, message: String, retryable: bool) -> i32 {
    log::line(format_args!("failed: {message}"));
    let report = TaskReport::Failed {
        message,
        retryable,
        lacks: None,
    };
    if let Err(error) = events.report(&report) {
        log::line(format_args!("could not keep the report of it: {error}"));
    }
    exit_code::FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn launch(gpus: u32) -> TaskLaunch {
        serde_json::from_value(json!({
            "task_id": "01890000-0000-7000-8000-000000000001", "job_id": "01890000-0000-7000-8000-000000000002",
            "tenant_id": "01890000-0000-7000-8000-000000000003", "revision": 1, "role": { "kind": "worker", "rank": 0 },
            "workers": 1, "ps_shards": 0, "gpus": [], "cpu_milli": 0, "memory_bytes": 0, "secret": "00",
            "resume_step": null, "trained_s": 0.0, "grace_ms": 1,
            "spec": {
                "version": "muster/v1", "name": "a", "command": { "argv": ["true"] },
                "resources": { "worker": { "gpus": gpus } },
            },
        }))
        .expect("a launch")
    }

    #[test]
    fn worker_without_gpus_ignores_the_gpu_of_the_node_setting() {
        let of_node = DeviceChoice::Cuda(1);
        assert_eq!(device_choice(&launch(0), of_node), DeviceChoice::Cpu);
        assert_eq!(device_choice(&launch(1), of_node), of_node);
    }
}
