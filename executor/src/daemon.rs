//! Assembly of the daemon: devices, ledger, the node loop on its own thread and the session. Also
//! the order in which they end.

use crate::activity::{ActivityMonitor, ActivitySources};
use crate::artifact::{ArtifactClient, ArtifactStore, OutputUploads};
use crate::code_cache::CodeCache;
use crate::config::{ExecutorConfig, RuntimeKind};
use crate::device::{self, CapacitySettings, GpuHealthMonitor};
use crate::disk;
use crate::disk_monitor::DiskMonitor;
use crate::driver;
use crate::error::ExecutorError;
use crate::image::Images;
use crate::isolation;
use crate::launch::Launcher;
use crate::ledger::Ledger;
use crate::limits::CgroupLimits;
use crate::loop_event::NodeLoopEvent;
use crate::metrics::ExecutorMetrics;
use crate::node::NodeLoop;
use crate::remote::RemoteSessions;
use crate::runtime::{PodRuntime, ProcessRuntime, Runtime};
use crate::secret_client::{SchedulerLink, SecretClient};
use crate::session::{Dialer, Endpoints, SessionContext};
use crate::tracking::Tracking;
use crate::usage_sampler::UsageSampler;
use crate::watcher::TaskFolderWatcher;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs the daemon until SIGTERM or SIGINT. Tasks then continue under their shims, and the next
/// executor adopts them. With `stop_tasks_on_exit` the daemon stops them first; a second signal
/// ends that wait.
///
/// # Errors
/// If the data folder cannot be used, or if another executor uses it.
pub async fn run(config: ExecutorConfig) -> Result<(), ExecutorError> {
    fs::create_dir_all(&config.data_dir).map_err(ExecutorError::write(&config.data_dir))?;
    let _lock = lock(&config)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ExecutorError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ExecutorError::Signals)?;
    let wanted = CapacitySettings {
        cpu_slots: config.cpu_slots,
        cpu_slot_model: Some(&config.cpu_slot_model),
        cpu_milli: config.cpu_milli,
        memory_bytes: config.memory_bytes,
        counted: config.pod_gpus.zip(config.pod_gpu_resource.as_deref()),
    };
    let mut capacity = device::discover(wanted);
    capacity.rack.clone_from(&config.rack);
    capacity.labels.clone_from(&config.labels);
    capacity.driver_suspend = driver::of_node(&config, &capacity);
    capacity.isolation = isolation::of_node(&config)?;
    capacity.pods = Some(config.runtime == RuntimeKind::Pod);
    capacity.images = isolation::image_support(&config, &capacity)?;
    let limits = CgroupLimits::discover(config.cgroup_root.as_deref());
    let mut ledger = Ledger::open(&config.data_dir)?;
    let identity = ledger.identity()?;
    let credential = ledger.credential()?;
    if let Some(warning) = muster_clock::warning() {
        tracing::warn!("{warning}");
    }
    tracing::info!(
        node.name = config.node_name,
        gpus = capacity.gpus.len(),
        tasks = ledger.entries.len(),
        "started"
    );
    let metrics = ExecutorMetrics::of(&ledger, capacity.gpus.len());
    let shown = show(&config, &metrics).await?;
    // Pods have addresses of their own. For processes of this machine the loopback is enough.
    let reports_at = match config.runtime {
        RuntimeKind::Process => None,
        RuntimeKind::Pod => config.listen_host.parse().ok(),
    };
    let link = SchedulerLink::default();
    let secrets = SecretClient {
        link: link.clone(),
        node_name: config.node_name.clone(),
        credential: credential.clone(),
    };
    let artifacts = ArtifactStore::new(
        ArtifactClient {
            link: link.clone(),
            node_name: config.node_name.clone(),
            credential: credential.clone(),
        },
        config.checkpoint_root.clone(),
        config.task_user.is_some(),
    );
    let (outputs, queue) = OutputUploads::new();
    let tracking = Tracking::open(
        &config.data_dir,
        reports_at.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        CodeCache::new(&config.data_dir, config.checkpoint_root.clone()),
        (secrets, artifacts.clone()),
    )?;
    let reports_to = tracking.address()?;
    // With `pod_gpus` the device plugin chooses the GPUs of a pod and makes them visible.
    let has_gpus = device::has_cuda(&capacity) && config.pod_gpus.is_none();
    let (loop_events, taken) = mpsc::channel();
    let runtime: Box<dyn Runtime> = match config.runtime {
        RuntimeKind::Process => {
            let processes = ProcessRuntime::new(&config, limits)?;
            processes.correct(&mut ledger);
            wake_at_ends(loop_events.clone())?;
            Box::new(processes)
        }
        RuntimeKind::Pod => {
            let pods = PodRuntime::start(&config, has_gpus, loop_events.clone()).await?;
            pods.correct(&mut ledger);
            Box::new(pods)
        }
    };
    let images = match config.runtime {
        RuntimeKind::Process => Some(Images::open(&config, loop_events.clone())?),
        RuntimeKind::Pod => None,
    };
    let launcher = Launcher::new(
        config.clone(),
        capacity.clone(),
        reports_to,
        (runtime, images),
    );
    let usage_sampler = UsageSampler::default();
    // A pod has process ids of its own namespace, so the use of GPUs by pods is not measured.
    if config.runtime == RuntimeKind::Process {
        usage_sampler.run(&capacity);
    }
    let watcher = TaskFolderWatcher::new(loop_events.clone());
    let remote = RemoteSessions::new(&config, Endpoints::new(&config), &credential);
    let activity = ActivityMonitor::default();
    // Processes of pods are not visible.
    if config.runtime == RuntimeKind::Process {
        activity.run(ActivitySources {
            runs: tracking.runs(),
            sessions: remote.clone(),
            has_gpus: device::has_cuda(&capacity),
        });
    }
    let measured = (usage_sampler.clone(), activity, metrics.clone());
    let disk_monitor = DiskMonitor::of(&config);
    disk_monitor.watch(loop_events.clone())?;
    let node = NodeLoop::new(
        config.clone(),
        ledger,
        launcher,
        (tracking.runs(), outputs),
        watcher,
        measured,
        disk_monitor.clone(),
    );
    let stop_tasks = config.stop_tasks_on_exit;
    let health = GpuHealthMonitor::default();
    if has_gpus {
        health.watch();
    }
    let known = SessionContext {
        generation: node.generation(),
        identity,
        credential,
        health,
        usage_sampler,
        metrics,
        disk_monitor,
        link,
        remote,
    };
    let dialer = Dialer::new(config, &capacity, loop_events.clone(), known);
    let (ended, mut node_ended) = oneshot::channel::<()>();
    thread::Builder::new()
        .name("node".to_owned())
        .spawn(move || {
            node.run(&taken);
            drop(ended);
        })
        .map_err(ExecutorError::Thread)?;
    let uploads = tokio::spawn(queue.serve(artifacts, loop_events.clone()));
    let session = tokio::spawn(dialer.run());
    let mut tracking = tokio::spawn(tracking.serve());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // The loop ends by itself only if an invariant is broken. The daemon exits, and its
        // successor reads the disk.
        _ = &mut node_ended => {}
        ended = &mut tracking => tracing::error!(?ended, "programs' reports are not taken any more"),
    }
    tracing::info!(stop_tasks, "leaving");
    let _ = loop_events.send(NodeLoopEvent::Leave { stop_tasks });
    tokio::select! {
        _ = &mut node_ended => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    session.abort();
    tracking.abort();
    uploads.abort();
    shown.abort();
    Ok(())
}

/// Wakes the node loop when a shim has exited: from then on the end of its task is accepted.
fn wake_at_ends(loop_events: mpsc::Sender<NodeLoopEvent>) -> Result<(), ExecutorError> {
    let mut ended = signal(SignalKind::child()).map_err(ExecutorError::Signals)?;
    tokio::spawn(async move {
        while ended.recv().await.is_some() && loop_events.send(NodeLoopEvent::Look).is_ok() {}
    });
    Ok(())
}

/// Serves the metrics if `metrics_listen` is set.
async fn show(
    config: &ExecutorConfig,
    metrics: &ExecutorMetrics,
) -> Result<JoinHandle<()>, ExecutorError> {
    let Some(listen) = config.metrics_listen else {
        return Ok(tokio::spawn(async {}));
    };
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|source| ExecutorError::Metrics { listen, source })?;
    Ok(tokio::spawn(metrics.clone().serve(listener)))
}

/// Locks the data folder. The kernel releases the lock when the process ends.
fn lock(config: &ExecutorConfig) -> Result<File, ExecutorError> {
    let path = config.data_dir.join("executor.lock");
    let file = disk::hold(&path).map_err(ExecutorError::write(&path))?;
    file.try_lock()
        .map_err(|_| ExecutorError::DataFolderInUse {
            path: config.data_dir.clone(),
        })?;
    Ok(file)
}
