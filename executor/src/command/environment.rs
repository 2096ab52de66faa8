//! Rank, addresses and paths of a process as environment variables of the launchers that scripts
//! support.
//!
//! Each worker appears as one machine with one process. `LOCAL_RANK` is 0, because a worker sees
//! only its own GPUs (`CUDA_VISIBLE_DEVICES`), numbered from 0. With the usual `LOCAL_RANK` of two
//! workers on one node, `cuda:1` would be a GPU that the second one does not see. A worker with
//! several GPUs runs `torchrun`, which reads `PET_*` and starts one process per GPU.

use super::error::CommandError;
use super::torchrun;
use crate::folder::NodeTaskFolder;
use muster_model::assignment::{Peer, Peers, TaskLaunch};
use muster_model::spec::{Command, Elastic};
use muster_model::task::Role;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Paths that the program receives.
#[derive(Debug, Clone)]
pub struct Paths {
    pub task: PathBuf,
    /// Working folder.
    pub work: PathBuf,
    /// Host file for MPI.
    pub hosts: PathBuf,
    /// Checkpoint folder of this job, the same on every node; with a bucket a folder of the task.
    pub checkpoints: PathBuf,
    /// The cluster keeps checkpoints in a bucket, whose credentials the program must not have.
    pub is_in_bucket: bool,
    pub datasets: PathBuf,
    /// Folder that contains Muster's Python package.
    pub python: PathBuf,
    /// Inherited `PYTHONPATH`.
    pub inherited_python: Option<String>,
    /// Digest of the image in which the program runs.
    pub image: Option<String>,
}

/// Rank, master and number of workers; parameter servers have none, because they are not in torch's
/// group.
struct TorchProcessGroup {
    rank: usize,
    workers: usize,
    master: (String, String),
}

/// Returns the variables of the program in addition to those of every task. The document's own
/// variables override them.
///
/// # Errors
/// [`CommandError::Peers`] if the task set does not contain this task, or an address is invalid.
pub fn variables(
    launch: &TaskLaunch,
    command: &Command,
    peers: &Peers,
    paths: &Paths,
) -> Result<BTreeMap<String, String>, CommandError> {
    let mut set = BTreeMap::new();
    let mut add = |name: &str, value: String| drop(set.insert(name.to_owned(), value));
    ours(launch, peers, paths, &mut add);
    if command.elastic == Some(Elastic::Torchrun) {
        torchrun::agent(launch, peers, &mut add).ok_or(CommandError::Peers)?;
    } else {
        if let Role::Worker { .. } = launch.role {
            let place = place(launch, peers)?;
            torch(launch, &place, &mut add);
            horovod(&place, &mut add);
        }
        mpi(paths, &mut add);
        add("TF_CONFIG", tensorflow(launch, peers)?);
    }
    set.extend(command.env.clone());
    // Appended, so that a package of the user precedes ours.
    let theirs = set.remove("PYTHONPATH").or(paths.inherited_python.clone());
    let theirs = theirs.filter(|folders| !folders.is_empty());
    let ours = paths.python.display().to_string();
    let folders = theirs.map_or(ours.clone(), |theirs| format!("{theirs}:{ours}"));
    set.insert("PYTHONPATH".to_owned(), folders);
    Ok(set)
}

fn ours(launch: &TaskLaunch, peers: &Peers, paths: &Paths, add: &mut impl FnMut(&str, String)) {
    let restarts = launch.revision.saturating_sub(1);
    add("MUSTER_JOB_NAME", launch.spec.name.clone());
    add("MUSTER_ROLE", launch.role.kind().to_owned());
    add("MUSTER_RANK", launch.role.index().to_string());
    add("MUSTER_WORKERS", peers.workers.len().to_string());
    add("MUSTER_RESTART_COUNT", restarts.to_string());
    add("MUSTER_GRACE_MS", launch.stop_grace_ms().to_string());
    add("MUSTER_TASK_DIR", paths.task.display().to_string());
    if let Some(request) = launch.spec.preemption.checkpoint_on_request {
        let file = NodeTaskFolder::at(&paths.task).checkpoint_request();
        add(
            "MUSTER_CHECKPOINT_REQUEST",
            file.path().display().to_string(),
        );
        if let Some(signal) = request.signal {
            add("MUSTER_CHECKPOINT_SIGNAL", signal.as_str().to_owned());
        }
    }
    let checkpoints = paths.checkpoints.display().to_string();
    add("MUSTER_CHECKPOINT_DIR", checkpoints);
    let output = NodeTaskFolder::at(&paths.task).output();
    add("MUSTER_OUTPUT_DIR", output.display().to_string());
    // Hugging Face's Trainer writes its event files there.
    add("TENSORBOARD_LOGGING_DIR", output.display().to_string());
    add("MUSTER_DATASET_DIR", paths.datasets.display().to_string());
    add("MUSTER_HOSTFILE", paths.hosts.display().to_string());
    // Shows log lines when they are printed.
    add("PYTHONUNBUFFERED", "1".to_owned());
}

/// Variables that `torchrun` sets for its processes, and those that it reads itself.
fn torch(launch: &TaskLaunch, place: &TorchProcessGroup, add: &mut impl FnMut(&str, String)) {
    let (rank, workers) = (place.rank.to_string(), place.workers.to_string());
    let (host, port) = place.master.clone();
    let restarts = launch.revision.saturating_sub(1);
    for name in ["RANK", "GROUP_RANK", "ROLE_RANK", "PET_NODE_RANK"] {
        add(name, rank.clone());
    }
    for name in [
        "WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "PET_NNODES",
    ] {
        add(name, workers.clone());
    }
    add("LOCAL_RANK", "0".to_owned());
    add("LOCAL_WORLD_SIZE", "1".to_owned());
    add("ROLE_NAME", "default".to_owned());
    for (name, value) in [("ADDR", host), ("PORT", port)] {
        add(&format!("MASTER_{name}"), value.clone());
        add(&format!("PET_MASTER_{name}"), value);
    }
    let gpus = launch.spec.resources.worker.gpus.max(1);
    add("PET_NPROC_PER_NODE", gpus.to_string());
    add("TORCHELASTIC_RUN_ID", launch.job_id.to_string());
    add("TORCHELASTIC_RESTART_COUNT", restarts.to_string());
    add("TORCHELASTIC_MAX_RESTARTS", launch.spec.retries.to_string());
    // Rank 0 opens the store itself; no agent does.
    add("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned());
}

fn horovod(place: &TorchProcessGroup, add: &mut impl FnMut(&str, String)) {
    for (name, value) in [
        ("RANK", place.rank),
        ("SIZE", place.workers),
        ("LOCAL_RANK", 0),
        ("LOCAL_SIZE", 1),
        ("CROSS_RANK", place.rank),
        ("CROSS_SIZE", place.workers),
    ] {
        add(&format!("HOROVOD_{name}"), value.to_string());
    }
}

/// Variables by which `mpirun` finds the host file (Open MPI up to 4, and from 5).
fn mpi(paths: &Paths, add: &mut impl FnMut(&str, String)) {
    for name in [
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_prte_default_hostfile",
    ] {
        add(name, paths.hosts.display().to_string());
    }
}

/// Returns `TF_CONFIG`. Without parameter servers all are workers, of which the first is the chief.
/// With them the first worker has the type `chief`, as `ParameterServerStrategy` requires, and the
/// others count from 0.
fn tensorflow(launch: &TaskLaunch, peers: &Peers) -> Result<String, CommandError> {
    let workers = addresses(&peers.workers)?;
    let servers = addresses(&peers.ps_shards)?;
    let cluster = if servers.is_empty() {
        json!({ "worker": workers })
    } else {
        let (chief, others) = workers.split_at(workers.len().min(1));
        json!({ "chief": chief, "worker": others, "ps": servers })
    };
    let (kind, index) = match launch.role {
        Role::Worker { rank } if servers.is_empty() => ("worker", rank),
        Role::Worker { rank: 0 } => ("chief", 0),
        Role::Worker { rank } => ("worker", rank - 1),
        Role::PsShard { index } => ("ps", index),
    };
    let config = json!({ "cluster": cluster, "task": { "type": kind, "index": index } });
    Ok(config.to_string())
}

fn addresses(peers: &[Peer]) -> Result<Vec<String>, CommandError> {
    let addresses = peers
        .iter()
        .map(|peer| peer.address.clone().ok_or(CommandError::Peers));
    addresses.collect()
}

fn place(launch: &TaskLaunch, peers: &Peers) -> Result<TorchProcessGroup, CommandError> {
    let rank = peers
        .workers
        .iter()
        .position(|peer| peer.task_id == launch.task_id);
    let first = peers.workers.first().ok_or(CommandError::Peers)?;
    Ok(TorchProcessGroup {
        rank: rank.ok_or(CommandError::Peers)?,
        workers: peers.workers.len(),
        master: split(first)?,
    })
}

/// Returns host and port. The host of an IPv6 address has no brackets, as resolvers expect.
pub(super) fn split(peer: &Peer) -> Result<(String, String), CommandError> {
    let address = peer.address.as_deref().ok_or(CommandError::Peers)?;
    let (host, port) = address.rsplit_once(':').ok_or(CommandError::Peers)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), port.to_owned()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use muster_model::id::{NodeId, TaskId};
    use serde_json::Value;
    use uuid::Uuid;

    /// Worker 0 of a job of one worker.
    pub(crate) fn test_launch() -> TaskLaunch {
        launch(1, 0)
    }

    /// Worker `rank` of job `x` with `gpus` GPUs per worker.
    pub(in super::super) fn launch(gpus: u32, rank: u32) -> TaskLaunch {
        let job = "00000000-0000-7000-8000-0000000000ff";
        let spec = json!({
            "version": "muster/v1", "name": "x", "command": { "argv": ["true"], "env": { "LR": "0.1" } },
            "resources": { "worker": { "gpus": gpus, "cpu_milli": 100, "memory_bytes": 1_073_741_824_u64 } },
        });
        serde_json::from_value(json!({
            "task_id": Uuid::from_u128(u128::from(rank)), "job_id": job, "tenant_id": job, "revision": 3,
            "role": { "kind": "worker", "rank": rank }, "workers": 3, "ps_shards": 0, "gpus": [], "cpu_milli": 100,
            "memory_bytes": 0, "secret": "00", "spec": spec, "resume_step": null, "trained_s": 0.0, "grace_ms": 5000,
        }))
        .expect("a launch")
    }

    /// The task ids of workers are their ranks; those of servers start at 100.
    pub(in super::super) fn peers(workers: &[&str], servers: &[&str]) -> Peers {
        Peers {
            revision: 3,
            workers: numbered(0, workers),
            ps_shards: numbered(100, servers),
            ..Peers::default()
        }
    }

    fn numbered(first: u128, addresses: &[&str]) -> Vec<Peer> {
        let peers = (first..).zip(addresses).map(|(number, address)| Peer {
            task_id: TaskId(Uuid::from_u128(number)),
            node_id: NodeId(Uuid::from_u128(1)),
            address: Some((*address).to_owned()),
        });
        peers.collect()
    }

    /// Folders of a task that do not exist.
    pub(in super::super) fn paths() -> Paths {
        Paths {
            task: "/t".into(),
            work: "/t/work".into(),
            hosts: "/t/hosts".into(),
            checkpoints: "/c/job".into(),
            is_in_bucket: false,
            datasets: "/d".into(),
            python: "/t/python".into(),
            inherited_python: None,
            image: None,
        }
    }

    fn of(launch: &TaskLaunch, peers: &Peers) -> BTreeMap<String, String> {
        let command = launch.spec.command.as_ref().expect("a command");
        variables(launch, command, peers, &paths()).expect("variables")
    }

    #[test]
    fn worker_receives_the_variables_of_torchrun() {
        let set = of(&launch(4, 2), &peers(&["h0:10", "h1:11", "h2:12"], &[]));
        for (name, value) in [
            ("RANK", "2"),
            ("WORLD_SIZE", "3"),
            ("LOCAL_RANK", "0"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("GROUP_RANK", "2"),
            ("MASTER_ADDR", "h0"),
            ("MASTER_PORT", "10"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("PET_NNODES", "3"),
            ("PET_NODE_RANK", "2"),
            ("PET_NPROC_PER_NODE", "4"),
            ("PET_MASTER_ADDR", "h0"),
            ("PET_MASTER_PORT", "10"),
            ("HOROVOD_RANK", "2"),
            ("HOROVOD_CROSS_SIZE", "3"),
            ("MUSTER_RESTART_COUNT", "2"),
            ("MUSTER_CHECKPOINT_DIR", "/c/job"),
            ("MUSTER_OUTPUT_DIR", "/t/output"),
            ("TENSORBOARD_LOGGING_DIR", "/t/output"),
            ("LR", "0.1"),
        ] {
            assert_eq!(set.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    fn python_path(launch: &TaskLaunch, inherited: Option<&str>) -> String {
        let command = launch.spec.command.as_ref().expect("a command");
        let paths = Paths {
            inherited_python: inherited.map(str::to_owned),
            ..paths()
        };
        let peers = peers(&["a:1"], &[]);
        let mut set = variables(launch, command, &peers, &paths).expect("variables");
        set.remove("PYTHONPATH").expect("it is set")
    }

    #[test]
    fn python_package_follows_the_users_path() {
        let mut launch = launch(1, 0);
        assert_eq!(python_path(&launch, None), "/t/python");
        let inherited = python_path(&launch, Some("/inherited"));
        assert_eq!(inherited, "/inherited:/t/python");
        let command = launch.spec.command.as_mut().expect("a command");
        command
            .env
            .insert("PYTHONPATH".to_owned(), "/mine:/too".to_owned());
        let own = python_path(&launch, Some("/inherited"));
        assert_eq!(own, "/mine:/too:/t/python");
    }

    fn tensorflow_config(set: &BTreeMap<String, String>) -> Value {
        serde_json::from_str(&set["TF_CONFIG"]).expect("JSON")
    }

    #[test]
    fn tensorflow_config_names_the_own_task() {
        let set = of(&launch(1, 1), &peers(&["a:1", "b:2"], &[]));
        assert_eq!(
            tensorflow_config(&set),
            json!({ "cluster": { "worker": ["a:1", "b:2"] }, "task": { "type": "worker", "index": 1 } })
        );
        let cluster = json!({ "chief": ["a:1"], "worker": ["b:2"], "ps": ["c:3"] });
        let set = of(&launch(1, 1), &peers(&["a:1", "b:2"], &["c:3"]));
        assert_eq!(
            tensorflow_config(&set),
            json!({ "cluster": cluster, "task": { "type": "worker", "index": 0 } })
        );
        let mut server = launch(1, 100);
        server.role = Role::PsShard { index: 0 };
        let set = of(&server, &peers(&["a:1", "b:2"], &["c:3"]));
        assert_eq!(
            tensorflow_config(&set),
            json!({ "cluster": cluster, "task": { "type": "ps", "index": 0 } })
        );
        assert!(
            !set.contains_key("RANK"),
            "it is no member of torch's group"
        );
    }

    #[test]
    fn elastic_agent_finds_the_rendezvous_of_its_job() {
        let mut launch = launch(4, 2);
        launch.spec.scale.workers = muster_model::spec::Range { min: 1, max: 8 };
        let command = launch.spec.command.as_mut().expect("a command");
        command.elastic = Some(Elastic::Torchrun);
        let set = of(&launch, &peers(&["h0:10", "h1:11", "h2:12"], &[]));
        for (name, value) in [
            ("PET_NNODES", "1:8"),
            ("PET_NPROC_PER_NODE", "4"),
            ("PET_RDZV_BACKEND", "muster"),
            ("PET_RDZV_ENDPOINT", "h2:12"),
            ("PET_RDZV_ID", "00000000-0000-7000-8000-0000000000ff"),
            ("PET_RDZV_CONF", "restarts=3"),
            ("PET_MAX_RESTARTS", "100000"),
            ("TORCH_ELASTIC_WORKER_IDENTICAL", "1"),
        ] {
            assert_eq!(set.get(name).map(String::as_str), Some(value), "{name}");
        }
        // They would be wrong after a change of size.
        for name in [
            "RANK",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "PET_NODE_RANK",
            "TF_CONFIG",
        ] {
            assert!(!set.contains_key(name), "{name}");
        }
    }

    #[test]
    fn task_outside_the_task_set_is_an_error() {
        let launch = launch(1, 7);
        let command = launch.spec.command.as_ref().expect("a command");
        let told = variables(&launch, command, &peers(&["a:1"], &[]), &paths());
        assert!(matches!(told, Err(CommandError::Peers)), "{told:?}");
    }
}
