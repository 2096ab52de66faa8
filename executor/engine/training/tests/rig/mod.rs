//! A job on this machine as the executor would run it: a data set of small images, a folder per
//! task, one process per task.
#![allow(dead_code, reason = "each test file uses its part of the rig")]
#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

pub mod reports;
pub mod s3;
pub mod workers;

use self::reports::listening;
use muster_compute::data::{NamedDataset, read_labels};
use muster_model::assignment::{Peer, Peers, TaskLaunch, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longer than any wait of these tests; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const TRAIN: usize = 640;
pub const TEST: usize = 200;

/// Root folders, and the job in them.
pub struct Rig {
    pub root: tempfile::TempDir,
    datasets: PathBuf,
    pub job_id: JobId,
    pub tenant_id: TenantId,
    /// Checkpoint root if it is not the folder.
    pub place: Option<String>,
    /// Number of simulated nodes, over which workers are distributed in turn; workers of one node
    /// can share memory. 0: each worker has its own node.
    pub nodes: u32,
    /// Whether all-reduce workers find no memory to share.
    pub tcp: bool,
    /// Additional environment variables of tasks.
    pub environment: Vec<(&'static str, String)>,
}

/// A revision of the job with its running tasks, shards first.
pub struct Revision {
    pub tasks: Vec<RigTask>,
    pub peers: Peers,
}

pub struct RigTask {
    pub id: TaskId,
    pub role: Role,
    pub folder: PathBuf,
    pub child: Child,
}

/// Settings of a revision.
#[derive(Clone)]
pub struct RigLaunch {
    pub revision: u64,
    /// Revision of the original start, if this one is a resize in place.
    pub started: u64,
    pub workers: u32,
    pub ps_shards: u32,
    pub spec: JobSpec,
    pub resume_step: Option<u64>,
    pub grace_ms: u64,
}

impl RigLaunch {
    pub fn new(revision: u64, workers: u32, ps_shards: u32, spec: JobSpec) -> Self {
        Self {
            revision,
            started: revision,
            workers,
            ps_shards,
            spec,
            resume_step: None,
            grace_ms: 10_000,
        }
    }

    pub fn resuming(mut self, step: u64) -> Self {
        self.resume_step = Some(step);
        self
    }
}

/// An MLP on the small data set; `more` is merged over the document's top level.
pub fn spec(more: serde_json::Value) -> JobSpec {
    let mut document = serde_json::json!({
        "version": "muster/v1",
        "name": "rig",
        "engine": {
            "model": { "kind": "mlp", "hidden": [32] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "adam", "learning_rate": 0.002 },
            "batch": 32,
            "seed": 7
        },
        "stop": { "epochs": 3 }
    });
    for (key, value) in more.as_object().unwrap() {
        match (document.get_mut(key), value) {
            (Some(serde_json::Value::Object(into)), serde_json::Value::Object(from))
                if key == "engine" =>
            {
                into.extend(from.clone());
            }
            _ => document[key] = value.clone(),
        }
    }
    serde_json::from_value(document).unwrap()
}

/// A job whose network is large enough for steps in parts (1.3 million parameters). `more` is
/// merged over the document.
pub fn large(more: &serde_json::Value) -> serde_json::Value {
    use serde_json::{Value, json};
    let model = json!({ "kind": "mlp", "hidden": [1024, 512] });
    let mut document = json!({
        "engine": { "model": model },
        "evaluate": { "every_steps": 3 },
        "checkpoint": { "every_steps": 4, "every_minutes": null, "keep": 2 },
        "stop": { "steps": 14 },
    });
    for (key, value) in more.as_object().unwrap() {
        match (document.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => into.extend(from.clone()),
            _ => document[key] = value.clone(),
        }
    }
    document
}

impl Rig {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let datasets = root.path().join("data");
        write_images(&datasets.join("fashion-mnist"));
        Self::with(root, datasets)
    }

    /// A rig with existing data sets.
    pub fn on(datasets: &Path) -> Self {
        Self::with(tempfile::tempdir().unwrap(), datasets.to_owned())
    }

    fn with(root: tempfile::TempDir, datasets: PathBuf) -> Self {
        Self {
            root,
            datasets,
            job_id: JobId(Uuid::from_u128(0x10)),
            tenant_id: TenantId(Uuid::from_u128(0x20)),
            place: None,
            nodes: 0,
            tcp: false,
            environment: Vec::new(),
        }
    }

    pub fn dataset_root(&self) -> PathBuf {
        self.datasets.clone()
    }

    pub fn checkpoint_root(&self) -> PathBuf {
        self.root.path().join("checkpoints")
    }

    pub fn job_folder(&self) -> PathBuf {
        self.checkpoint_root()
            .join(self.tenant_id.to_string())
            .join(self.job_id.to_string())
    }

    /// Launch of a task of the revision.
    pub fn task_launch(&self, launch: &RigLaunch, role: Role) -> TaskLaunch {
        TaskLaunch {
            task_id: task_id(launch.revision, role),
            job_id: self.job_id,
            tenant_id: self.tenant_id,
            tenant_number: None,
            revision: launch.revision,
            role,
            workers: launch.workers,
            ps_shards: launch.ps_shards,
            gpus: Vec::new(),
            cpu_milli: 100,
            memory_bytes: 1 << 30,
            secret: format!("{:064x}", 0xabcd_0000 + launch.started),
            spec: launch.spec.clone(),
            resume_step: launch.resume_step,
            trained_s: 0.0,
            grace_ms: launch.grace_ms,
            service_account: None,
            objectives: std::collections::BTreeSet::new(),
            finished_rung: None,
        }
    }

    /// Starts every task and sends the workers the addresses of the shards when these listen.
    pub fn start(&self, launch: &RigLaunch) -> Revision {
        let revision = self.start_untold(launch);
        revision.tell();
        revision
    }

    /// Like [`Self::start`], but without the addresses; the workers wait for them.
    pub fn start_untold(&self, launch: &RigLaunch) -> Revision {
        let shards = (0..launch.ps_shards).map(|index| Role::PsShard { index });
        let workers = (0..launch.workers).map(|rank| Role::Worker { rank });
        let tasks: Vec<RigTask> = shards
            .chain(workers)
            .map(|role| self.spawn(launch, role))
            .collect();
        let (shards, workers) = tasks.split_at(launch.ps_shards as usize);
        let peers = Peers {
            revision: launch.revision,
            workers: workers.iter().map(|worker| worker.peer(None)).collect(),
            ps_shards: shards
                .iter()
                .map(|shard| shard.peer(Some(shard.wait_for("listening", listening))))
                .collect(),
            ..Peers::default()
        };
        Revision { tasks, peers }
    }

    /// Changes `revision` to `launch` in place: its workers at `workers` and shards at `shards`
    /// remain, in this order; the other tasks of the launch are started.
    pub fn resize(
        &self,
        revision: &mut Revision,
        launch: &RigLaunch,
        workers: &[usize],
        shards: &[usize],
    ) {
        let mut peers = Peers {
            revision: launch.revision,
            workers: Vec::new(),
            ps_shards: Vec::new(),
            ..Peers::default()
        };
        for &at in workers {
            peers.workers.push(revision.peers.workers[at].clone());
        }
        for &at in shards {
            peers.ps_shards.push(revision.peers.ps_shards[at].clone());
        }
        for index in shards.len() as u32..launch.ps_shards {
            let shard = self.spawn(launch, Role::PsShard { index });
            let address = shard.wait_for("listening", listening);
            peers.ps_shards.push(shard.peer(Some(address)));
            revision.tasks.push(shard);
        }
        for rank in workers.len() as u32..launch.workers {
            let worker = self.spawn(launch, Role::Worker { rank });
            peers.workers.push(worker.peer(None));
            revision.tasks.push(worker);
        }
        revision.peers = peers;
        revision.tell();
    }

    /// Starts one task without a task set.
    pub fn spawn(&self, launch: &RigLaunch, role: Role) -> RigTask {
        let folder = self
            .root
            .path()
            .join("tasks")
            .join(format!("r{}-{role}", launch.revision));
        fs::create_dir_all(&folder).unwrap();
        let launch = self.task_launch(launch, role);
        let told = serde_json::to_vec(&launch).unwrap();
        fs::write(folder.join("task.json"), told).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let node = role.index().checked_rem(self.nodes);
        let sockets = node.map(|node| self.root.path().join(format!("node-{node}")));
        if let Some(sockets) = &sockets {
            fs::create_dir_all(sockets).unwrap();
        }
        let child = Command::new(env!("CARGO_BIN_EXE_muster-task"))
            .args(sockets.iter().flat_map(|at| [Path::new("--sockets"), at]))
            .arg("--folder")
            .arg(&folder)
            .arg("--checkpoint-root")
            .arg(match &self.place {
                Some(place) => PathBuf::from(place),
                None => self.checkpoint_root(),
            })
            .arg("--dataset-root")
            .arg(self.dataset_root())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .unwrap();
        RigTask {
            id: launch.task_id,
            role,
            folder,
            child,
        }
    }

    /// SHA-256 of the final model of a revision, from its manifest.
    pub fn final_sha256(&self, revision: u64) -> String {
        let manifest = self
            .job_folder()
            .join(format!("final-r{revision}/manifest.json"));
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
        manifest["files"]["model.safetensors"]["sha256"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Parameters of the model in a folder of the job, as floats of its file.
    pub fn parameters(&self, folder: &str) -> Vec<f32> {
        let file = self.job_folder().join(folder).join("model.safetensors");
        let bytes = fs::read(file).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let (words, _) = bytes[8 + header..].as_chunks::<4>();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }

    /// Names of the checkpoints on the disk, oldest first.
    pub fn checkpoints(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.job_folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("step-"))
            .collect();
        names.sort();
        names
    }
}

/// Different for every task that is ever started.
fn task_id(revision: u64, role: Role) -> TaskId {
    let kind = match role {
        Role::Worker { .. } => 1,
        Role::PsShard { .. } => 2,
    };
    let number = (u128::from(revision) << 32) + (kind << 16) + u128::from(role.index());
    TaskId(Uuid::from_u128(number))
}

impl Revision {
    /// Sends the task set to every task.
    pub fn tell(&self) {
        for task in &self.tasks {
            task.tell(&self.peers);
        }
    }

    /// Returns the task set in time slice `turn`.
    pub fn peers_in(&self, turn: u64) -> Peers {
        Peers {
            turn,
            ..self.peers.clone()
        }
    }

    /// Sends the task set in time slice `turn` to every task.
    pub fn tell_turn(&self, turn: u64) {
        let peers = self.peers_in(turn);
        for task in &self.tasks {
            task.tell(&peers);
        }
    }

    /// Returns the tasks that are workers.
    pub fn workers(&self) -> Vec<&RigTask> {
        let tasks = self.tasks.iter();
        tasks
            .filter(|task| matches!(task.role, Role::Worker { .. }))
            .collect()
    }

    pub fn task(&mut self, role: Role) -> &mut RigTask {
        self.tasks
            .iter_mut()
            .find(|task| task.role == role)
            .unwrap()
    }

    pub fn chief(&mut self) -> &mut RigTask {
        self.task(Role::Worker { rank: 0 })
    }

    /// Sends SIGTERM to every task, as for the stop of a whole job.
    pub fn terminate(&mut self) {
        for task in &mut self.tasks {
            task.signal("TERM");
        }
    }

    /// Sends SIGKILL to every task, the coordinator first, so that no task has time to react and
    /// save its state.
    pub fn kill_all(&mut self) {
        let mut pids: Vec<String> = self
            .tasks
            .iter()
            .map(|task| task.child.id().to_string())
            .collect();
        pids.reverse();
        assert!(
            Command::new("kill")
                .arg("-KILL")
                .args(pids)
                .status()
                .unwrap()
                .success()
        );
    }

    /// Exit codes in the order of the tasks; -1 for a killed one.
    pub fn wait(&mut self) -> Vec<i32> {
        self.tasks
            .iter_mut()
            .map(|task| task.wait().code().unwrap_or(-1))
            .collect()
    }

    /// Waits until all tasks exit with 0.
    pub fn succeed(&mut self) {
        let codes = self.wait();
        assert!(
            codes.iter().all(|&code| code == 0),
            "exit codes {codes:?}\n{}",
            self.logs()
        );
    }

    pub fn logs(&self) -> String {
        let logs = self.tasks.iter().map(|task| {
            format!(
                "--- {}\n{}",
                task.role,
                fs::read_to_string(task.folder.join("log")).unwrap()
            )
        });
        logs.collect()
    }
}

impl Drop for Revision {
    fn drop(&mut self) {
        for task in &mut self.tasks {
            let _ = task.child.kill();
            let _ = task.child.wait();
        }
    }
}

impl RigTask {
    fn peer(&self, address: Option<String>) -> Peer {
        Peer {
            task_id: self.id,
            node_id: NodeId(Uuid::from_u128(1)),
            address,
        }
    }

    /// Sends the task set to the task.
    pub fn tell(&self, peers: &Peers) {
        let fresh = self.folder.join("peers.json.new");
        fs::write(&fresh, serde_json::to_vec(peers).unwrap()).unwrap();
        fs::rename(&fresh, self.folder.join("peers.json")).unwrap();
    }

    pub fn signal(&mut self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .stderr(Stdio::null())
            .status();
        assert!(status.is_ok());
    }

    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{} does not end:\n{}",
                self.role,
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Waits until the log contains the text.
    pub fn wait_for_log(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(
                began.elapsed() < PATIENCE,
                "no `{text}` in:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn events(&self) -> Vec<TaskReport> {
        let text = fs::read_to_string(self.folder.join("events.jsonl")).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for the first report that `pick` accepts.
    pub fn wait_for<T>(&self, what: &str, pick: impl Fn(&TaskReport) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = self.events().iter().find_map(&pick) {
                return found;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{} never reported {what}:\n{}",
                self.role,
                self.log()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns the next pseudo-random number.
fn next(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

/// Ten classes, each a bar at its own height with noise: a small network learns them in a few
/// epochs.
fn write_images(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (prefix, count, salt) in [("train", TRAIN, 1u64), ("t10k", TEST, 2)] {
        let mut noise = salt;
        let mut images = vec![0, 0, 8, 3];
        let mut labels = vec![0, 0, 8, 1];
        for side in [count as u32, 28, 28] {
            images.extend(side.to_be_bytes());
        }
        labels.extend((count as u32).to_be_bytes());
        for _ in 0..count {
            let label = next(&mut noise) % 10;
            labels.push(label as u8);
            for row in 0..28u32 {
                for _ in 0..28 {
                    let bar = if row / 2 == label + 2 { 45 } else { 0 };
                    images.push((bar + next(&mut noise) % 200) as u8);
                }
            }
        }
        fs::write(folder.join(format!("{prefix}-images-idx3-ubyte")), images).unwrap();
        fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), &labels).unwrap();
        let path = folder.join(format!("{prefix}-labels-idx1-ubyte"));
        assert_eq!(
            read_labels(&path, NamedDataset::FashionMnist.classes())
                .unwrap()
                .len(),
            count
        );
    }
}
