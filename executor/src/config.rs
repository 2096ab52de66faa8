//! Settings of the daemon: a TOML file, overridden by environment variables (`MUSTER_EXECUTOR_*`),
//! overridden by flags. Read once, in `main`.

use crate::error::ExecutorError;
use crate::task_user::TaskUsers;
use muster_model::node::{Notice, is_part};
use muster_model::place::Place;
use muster_model::spec::check_labels;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// All settings; each can be set in all three ways. [`Self::resolve`] fills in defaults and
/// rejects missing values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutorSettings {
    /// Address of the scheduler, such as http://127.0.0.1:7071
    #[arg(long, env = "MUSTER_EXECUTOR_SCHEDULER_URL")]
    pub scheduler_url: Option<String>,
    /// Certificate authority (PEM) that verifies an https scheduler
    #[arg(long, env = "MUSTER_EXECUTOR_SCHEDULER_CA_FILE")]
    pub scheduler_ca_file: Option<PathBuf>,
    /// Secret shared by the cluster's executors; prefer the environment or the file, because other
    /// users can read flags
    #[arg(long, env = "MUSTER_EXECUTOR_JOIN_TOKEN", hide_env_values = true)]
    pub join_token: Option<String>,
    /// Name of this node, unique in the cluster [default: the host's name]
    #[arg(long, env = "MUSTER_EXECUTOR_NODE_NAME")]
    pub node_name: Option<String>,
    /// Folder for tasks and logs, used by one executor at a time
    #[arg(long, env = "MUSTER_EXECUTOR_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Folder or bucket of the checkpoints, the same for all nodes; a bucket is s3://bucket/prefix,
    /// gs://bucket/prefix or az://container/prefix
    #[arg(long, env = "MUSTER_EXECUTOR_CHECKPOINT_ROOT")]
    pub checkpoint_root: Option<Place>,
    /// Folder of the data sets
    #[arg(long, env = "MUSTER_EXECUTOR_DATASET_ROOT")]
    pub dataset_root: Option<PathBuf>,
    /// Address at which tasks listen and at which tasks of other nodes reach them [default:
    /// 127.0.0.1]
    #[arg(long, env = "MUSTER_EXECUTOR_LISTEN_HOST")]
    pub listen_host: Option<String>,
    /// Address of /metrics, which requires no token [default: none]
    #[arg(long, env = "MUSTER_EXECUTOR_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// Number of CPU slots to offer instead of GPUs [default: the detected GPUs, or one slot per
    /// core without GPUs]
    #[arg(long, env = "MUSTER_EXECUTOR_CPU_SLOTS")]
    pub cpu_slots: Option<u32>,
    /// Model name of the CPU slots; nodes of different models are different GPU kinds [default:
    /// cpu]
    #[arg(long, env = "MUSTER_EXECUTOR_CPU_SLOT_MODEL")]
    pub cpu_slot_model: Option<String>,
    /// CPU to offer, in thousandths of a core [default: all]
    #[arg(long, env = "MUSTER_EXECUTOR_CPU_MILLI")]
    pub cpu_milli: Option<u64>,
    /// Memory to offer, in bytes [default: all]
    #[arg(long, env = "MUSTER_EXECUTOR_MEMORY_BYTES")]
    pub memory_bytes: Option<u64>,
    /// Rack of this node; nodes of one rack are nearer to each other than to other nodes [default:
    /// unknown]
    #[arg(long, env = "MUSTER_EXECUTOR_RACK")]
    pub rack: Option<String>,
    /// Labels of this node, to which jobs can refer in node_selector: KEY=VALUE; separate several
    /// with commas [default: none]
    #[arg(long = "labels", env = "MUSTER_EXECUTOR_LABELS", value_delimiter = ',')]
    pub labels: Option<Vec<String>>,
    /// Program of the built-in engine [default: muster-task beside this program]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_BINARY")]
    pub task_binary: Option<PathBuf>,
    /// Stop the tasks when this executor stops on a signal, instead of leaving them to the next
    /// executor
    #[arg(long, env = "MUSTER_EXECUTOR_STOP_TASKS_ON_EXIT", num_args = 0..=1, default_missing_value = "true")]
    pub stop_tasks_on_exit: Option<bool>,
    /// Cgroup v2 folder that this executor may divide among tasks [default: its own, if it is alone
    /// in it]
    #[arg(long, env = "MUSTER_EXECUTOR_CGROUP_ROOT")]
    pub cgroup_root: Option<PathBuf>,
    /// Size of one part of a task's log, in bytes [default: 16 MiB]
    #[arg(long, env = "MUSTER_EXECUTOR_LOG_PART_BYTES")]
    pub log_part_bytes: Option<u64>,
    /// Number of parts of a task's log to keep on the node, at least 2 [default: 4]
    #[arg(long, env = "MUSTER_EXECUTOR_LOG_PARTS")]
    pub log_parts: Option<u32>,
    /// Bytes to keep free on the disk of data_dir. Below half of them the node takes no new tasks.
    /// Below a quarter it ends the task with the largest folder. 0 disables both [default: 256 MiB]
    #[arg(long, env = "MUSTER_EXECUTOR_DISK_RESERVE_BYTES")]
    pub disk_reserve_bytes: Option<u64>,
    /// Maximum size of a task's folder with its content, in bytes; a task that exceeds it is ended
    /// [default: no limit]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_DISK_BYTES")]
    pub task_disk_bytes: Option<u64>,
    /// Number of folders of ended tasks to keep after the scheduler has stored their data [default:
    /// 32]
    #[arg(long, env = "MUSTER_EXECUTOR_KEEP_ENDED_TASKS")]
    pub keep_ended_tasks: Option<usize>,
    /// Maximum size of these folders together, in bytes [default: 1 GiB]
    #[arg(long, env = "MUSTER_EXECUTOR_KEEP_ENDED_BYTES")]
    pub keep_ended_bytes: Option<u64>,
    /// Interval of reports of events and logs, in milliseconds; states are reported at once
    /// [default: 200]
    #[arg(long, env = "MUSTER_EXECUTOR_REPORT_INTERVAL_MS")]
    pub report_interval_ms: Option<u64>,
    /// Variables of the executor's own environment that tasks receive [default: PATH HOME LANG TZ]
    #[arg(long, env = "MUSTER_EXECUTOR_PASS_ENVIRONMENT", value_delimiter = ',')]
    pub pass_environment: Option<Vec<String>>,
    /// Runtime of tasks: processes of this machine, or Kubernetes pods on this node [default:
    /// process]
    #[arg(long, env = "MUSTER_EXECUTOR_RUNTIME")]
    pub runtime: Option<RuntimeKind>,
    /// Time limit of the GPU driver to move a suspended program's memory to the host or back, in
    /// milliseconds (at most 20000). 0 disables such moves. Not used for pods [default: 0]
    #[arg(long, env = "MUSTER_EXECUTOR_DRIVER_PATIENCE_MS")]
    pub driver_patience_ms: Option<u64>,
    /// Unix users of process tasks; requires an executor that runs as root. FIRST-LAST gives each
    /// tenant a user of its own from this range, the same on all nodes. UID or UID:GID is one user
    /// for all tenants. Users must be able to enter the data folder, the checkpoints, the data sets
    /// and the programs [default: the executor's own user]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_USER")]
    pub task_user: Option<String>,
    /// Folder of the images of process tasks [default: images in data_dir]
    #[arg(long, env = "MUSTER_EXECUTOR_IMAGE_CACHE_DIR")]
    pub image_cache_dir: Option<PathBuf>,
    /// Maximum size of these images and their compressed layers, in bytes. Those that no task uses
    /// are removed, least recently used first [default: 50 GiB]
    #[arg(long, env = "MUSTER_EXECUTOR_IMAGE_CACHE_BYTES")]
    pub image_cache_bytes: Option<u64>,
    /// Time for which requests to a registry that cannot be reached are repeated, in milliseconds
    /// [default: 180000]
    #[arg(long, env = "MUSTER_EXECUTOR_IMAGE_PATIENCE_MS")]
    pub image_patience_ms: Option<u64>,
    /// Credentials of registries for images of process tasks, in the format of
    /// ~/.docker/config.json (auths) [default: none]
    #[arg(long, env = "MUSTER_EXECUTOR_IMAGE_AUTH_FILE")]
    pub image_auth_file: Option<PathBuf>,
    /// Registries without TLS for images of process tasks, such as 10.0.0.5:5000; separate several
    /// with commas [default: none]
    #[arg(
        long,
        env = "MUSTER_EXECUTOR_INSECURE_REGISTRIES",
        value_delimiter = ','
    )]
    pub insecure_registries: Option<Vec<String>>,
    /// For pods: YAML file of a pod with one container; it sets the image, the volumes and
    /// everything else that all tasks have in common
    #[arg(long, env = "MUSTER_EXECUTOR_POD_TEMPLATE")]
    pub pod_template: Option<PathBuf>,
    /// For pods: namespace of the pods [default: the namespace of the Kubernetes configuration]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NAMESPACE")]
    pub pod_namespace: Option<String>,
    /// For pods: the node's name in Kubernetes [default: node_name]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NODE")]
    pub pod_node: Option<String>,
    /// For pods: label value that separates executors of one namespace on the same node [default:
    /// muster]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GROUP")]
    pub pod_group: Option<String>,
    /// For pods: name of this executor's own pod; the task pods get the same owner and are deleted
    /// with it [default: they have no owner]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NAME")]
    pub pod_name: Option<String>,
    /// For pods: extended resource as which Kubernetes counts GPUs, such as nvidia.com/gpu
    /// [default: GPUs are not counted]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GPU_RESOURCE")]
    pub pod_gpu_resource: Option<String>,
    /// For pods: number of these resources on the node, 1 to 64. The device plugin then chooses
    /// those of a pod, as with MIG profiles [default: the driver reports the GPUs, and the plan
    /// chooses]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GPUS")]
    pub pod_gpus: Option<u32>,
    /// For pods: service account of the built-in engine's tasks; users' programs never receive it
    /// [default: the namespace's default account, without a token]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_ENGINE_ACCOUNT")]
    pub pod_engine_account: Option<String>,
    /// For pods: time limit of a pod that cannot start because of a fault, such as a missing image,
    /// in milliseconds [default: 120000]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_STUCK_MS")]
    pub pod_stuck_ms: Option<u64>,
    /// For pods: time limit of a start for any reason, in milliseconds; pulling a large image takes
    /// minutes [default: 1800000]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_START_MS")]
    pub pod_start_ms: Option<u64>,
}

/// Part of the data folder that all task pods can read.
pub const SHOWN: &str = "shown";

/// Runtime of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    Process,
    Pod,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    pub scheduler_url: String,
    pub scheduler_ca_file: Option<PathBuf>,
    pub join_token: String,
    pub node_name: String,
    pub data_dir: PathBuf,
    pub checkpoint_root: Place,
    pub dataset_root: PathBuf,
    pub listen_host: String,
    /// `None`: metrics are not served.
    pub metrics_listen: Option<SocketAddr>,
    pub cpu_slots: Option<u32>,
    pub cpu_slot_model: String,
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub rack: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub task_binary: PathBuf,
    pub stop_tasks_on_exit: bool,
    pub cgroup_root: Option<PathBuf>,
    pub log_part_bytes: u64,
    pub log_parts: u32,
    pub disk_reserve_bytes: u64,
    pub task_disk_bytes: Option<u64>,
    pub keep_ended_tasks: usize,
    pub keep_ended_bytes: u64,
    pub report_interval_ms: u64,
    pub pass_environment: Vec<String>,
    pub runtime: RuntimeKind,
    pub driver_patience_ms: u64,
    pub task_user: Option<TaskUsers>,
    pub image_cache_dir: PathBuf,
    pub image_cache_bytes: u64,
    pub image_patience_ms: u64,
    pub image_auth_file: Option<PathBuf>,
    pub insecure_registries: Vec<String>,
    pub pod_template: Option<PathBuf>,
    pub pod_namespace: Option<String>,
    pub pod_node: String,
    pub pod_group: String,
    pub pod_name: Option<String>,
    pub pod_gpu_resource: Option<String>,
    pub pod_gpus: Option<u32>,
    pub pod_engine_account: Option<String>,
    pub pod_stuck_ms: u64,
    pub pod_start_ms: u64,
}

impl ExecutorSettings {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML or contains an unknown field.
    pub fn from_file(path: &Path) -> Result<Self, ExecutorError> {
        let text = std::fs::read_to_string(path).map_err(ExecutorError::read(path))?;
        toml::from_str(&text).map_err(|source| ExecutorError::Config {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Returns these settings, completed by those of lower precedence.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        Self {
            scheduler_url: self.scheduler_url.or(weaker.scheduler_url),
            scheduler_ca_file: self.scheduler_ca_file.or(weaker.scheduler_ca_file),
            join_token: self.join_token.or(weaker.join_token),
            node_name: self.node_name.or(weaker.node_name),
            data_dir: self.data_dir.or(weaker.data_dir),
            checkpoint_root: self.checkpoint_root.or(weaker.checkpoint_root),
            dataset_root: self.dataset_root.or(weaker.dataset_root),
            listen_host: self.listen_host.or(weaker.listen_host),
            metrics_listen: self.metrics_listen.or(weaker.metrics_listen),
            cpu_slots: self.cpu_slots.or(weaker.cpu_slots),
            cpu_slot_model: self.cpu_slot_model.or(weaker.cpu_slot_model),
            cpu_milli: self.cpu_milli.or(weaker.cpu_milli),
            memory_bytes: self.memory_bytes.or(weaker.memory_bytes),
            rack: self.rack.or(weaker.rack),
            labels: self.labels.or(weaker.labels),
            task_binary: self.task_binary.or(weaker.task_binary),
            stop_tasks_on_exit: self.stop_tasks_on_exit.or(weaker.stop_tasks_on_exit),
            cgroup_root: self.cgroup_root.or(weaker.cgroup_root),
            log_part_bytes: self.log_part_bytes.or(weaker.log_part_bytes),
            log_parts: self.log_parts.or(weaker.log_parts),
            disk_reserve_bytes: self.disk_reserve_bytes.or(weaker.disk_reserve_bytes),
            task_disk_bytes: self.task_disk_bytes.or(weaker.task_disk_bytes),
            keep_ended_tasks: self.keep_ended_tasks.or(weaker.keep_ended_tasks),
            keep_ended_bytes: self.keep_ended_bytes.or(weaker.keep_ended_bytes),
            report_interval_ms: self.report_interval_ms.or(weaker.report_interval_ms),
            pass_environment: self.pass_environment.or(weaker.pass_environment),
            runtime: self.runtime.or(weaker.runtime),
            driver_patience_ms: self.driver_patience_ms.or(weaker.driver_patience_ms),
            task_user: self.task_user.or(weaker.task_user),
            image_cache_dir: self.image_cache_dir.or(weaker.image_cache_dir),
            image_cache_bytes: self.image_cache_bytes.or(weaker.image_cache_bytes),
            image_patience_ms: self.image_patience_ms.or(weaker.image_patience_ms),
            image_auth_file: self.image_auth_file.or(weaker.image_auth_file),
            insecure_registries: self.insecure_registries.or(weaker.insecure_registries),
            pod_template: self.pod_template.or(weaker.pod_template),
            pod_namespace: self.pod_namespace.or(weaker.pod_namespace),
            pod_node: self.pod_node.or(weaker.pod_node),
            pod_group: self.pod_group.or(weaker.pod_group),
            pod_name: self.pod_name.or(weaker.pod_name),
            pod_gpu_resource: self.pod_gpu_resource.or(weaker.pod_gpu_resource),
            pod_gpus: self.pod_gpus.or(weaker.pod_gpus),
            pod_engine_account: self.pod_engine_account.or(weaker.pod_engine_account),
            pod_stuck_ms: self.pod_stuck_ms.or(weaker.pod_stuck_ms),
            pod_start_ms: self.pod_start_ms.or(weaker.pod_start_ms),
        }
    }

    /// Fills in the defaults, makes paths absolute, and checks the values.
    ///
    /// # Errors
    /// The first setting that is missing or invalid.
    pub fn resolve(self) -> Result<ExecutorConfig, ExecutorError> {
        let node_name = self.node_name.unwrap_or_else(host_name);
        let scheduler_url = required("scheduler_url", self.scheduler_url)?;
        let join_token = required("join_token", self.join_token)?;
        let data_dir = absolute(required("data_dir", self.data_dir)?)?;
        let image_cache_dir = self
            .image_cache_dir
            .unwrap_or_else(|| data_dir.join("images"));
        let config = ExecutorConfig {
            pod_node: self.pod_node.unwrap_or_else(|| node_name.clone()),
            scheduler_url,
            scheduler_ca_file: self.scheduler_ca_file,
            join_token,
            node_name,
            data_dir,
            checkpoint_root: match required("checkpoint_root", self.checkpoint_root)? {
                Place::Folder(path) => Place::Folder(absolute(path)?),
                bucket => bucket,
            },
            dataset_root: absolute(required("dataset_root", self.dataset_root)?)?,
            listen_host: self.listen_host.unwrap_or_else(|| "127.0.0.1".to_owned()),
            metrics_listen: self.metrics_listen,
            cpu_slots: self.cpu_slots,
            cpu_slot_model: self.cpu_slot_model.unwrap_or_else(|| "cpu".to_owned()),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            rack: self.rack,
            labels: labels(self.labels.unwrap_or_default())?,
            task_binary: absolute(self.task_binary.map_or_else(task_binary_beside, Ok)?)?,
            stop_tasks_on_exit: self.stop_tasks_on_exit.unwrap_or(false),
            cgroup_root: self.cgroup_root,
            log_part_bytes: self.log_part_bytes.unwrap_or(16 << 20),
            log_parts: self.log_parts.unwrap_or(4),
            disk_reserve_bytes: self.disk_reserve_bytes.unwrap_or(256 << 20),
            task_disk_bytes: self.task_disk_bytes,
            keep_ended_tasks: self.keep_ended_tasks.unwrap_or(32),
            keep_ended_bytes: self.keep_ended_bytes.unwrap_or(1 << 30),
            report_interval_ms: self.report_interval_ms.unwrap_or(200),
            pass_environment: self
                .pass_environment
                .unwrap_or_else(|| ["PATH", "HOME", "LANG", "TZ"].map(str::to_owned).to_vec()),
            runtime: self.runtime.unwrap_or(RuntimeKind::Process),
            driver_patience_ms: self.driver_patience_ms.unwrap_or(0),
            task_user: self.task_user.as_deref().map(task_user).transpose()?,
            image_cache_dir: absolute(image_cache_dir)?,
            image_cache_bytes: self.image_cache_bytes.unwrap_or(50 << 30),
            image_patience_ms: self.image_patience_ms.unwrap_or(180_000),
            image_auth_file: self.image_auth_file.map(absolute).transpose()?,
            insecure_registries: self.insecure_registries.unwrap_or_default(),
            pod_template: self.pod_template.map(absolute).transpose()?,
            pod_namespace: self.pod_namespace,
            pod_group: self.pod_group.unwrap_or_else(|| "muster".to_owned()),
            pod_name: self.pod_name,
            pod_gpu_resource: self.pod_gpu_resource,
            pod_gpus: self.pod_gpus,
            pod_engine_account: self.pod_engine_account,
            pod_stuck_ms: self.pod_stuck_ms.unwrap_or(120_000),
            pod_start_ms: self.pod_start_ms.unwrap_or(1_800_000),
        };
        config.check()
    }
}

impl ExecutorConfig {
    /// Returns the data folder of the shims, from which they read only the lease. For pods it is a
    /// folder without other content.
    #[must_use]
    pub fn data_of_shims(&self) -> PathBuf {
        match self.runtime {
            RuntimeKind::Process => self.data_dir.clone(),
            RuntimeKind::Pod => self.data_dir.join(SHOWN),
        }
    }

    fn check(self) -> Result<Self, ExecutorError> {
        if self.node_name.is_empty() || self.node_name.len() > 253 {
            return wrong("node_name", "must have 1 to 253 characters");
        }
        if self.join_token.is_empty() {
            return wrong("join_token", "must not be empty");
        }
        // The scheme alone decides whether a session is encrypted. Over http the token would be
        // sent in cleartext.
        if self.scheduler_ca_file.is_some() && !self.scheduler_url.starts_with("https://") {
            let problem = format!(
                "is {:?}, but must begin with https:// where there is a scheduler_ca_file to check it against",
                self.scheduler_url
            );
            return wrong("scheduler_url", problem);
        }
        if self.cpu_slots == Some(0) {
            return wrong("cpu_slots", "must be at least 1");
        }
        if !(1..=Notice::MODEL_MAX).contains(&self.cpu_slot_model.chars().count()) {
            return wrong("cpu_slot_model", "must have 1 to 253 characters");
        }
        if is_part(&self.cpu_slot_model) {
            let model = &self.cpu_slot_model;
            return wrong(
                "cpu_slot_model",
                format!("is {model:?}, which names a part of a GPU (MIG); use another name"),
            );
        }
        if let Some(rack) = &self.rack
            && !(1..=253).contains(&rack.len())
        {
            return wrong("rack", "must have 1 to 253 characters");
        }
        if self.log_part_bytes == 0 {
            return wrong("log_part_bytes", "must be at least 1");
        }
        if self.log_parts < 2 {
            return wrong(
                "log_parts",
                "must be at least 2: one that fills and one to read from",
            );
        }
        if self.task_disk_bytes == Some(0) {
            return wrong("task_disk_bytes", "must be at least 1");
        }
        self.check_task_user()?;
        if self.runtime == RuntimeKind::Pod {
            self.check_pods()?;
        } else if self.pod_gpus.is_some() {
            return wrong("pod_gpus", "is for runtime pod only");
        }
        if self.driver_patience_ms > 20_000 {
            return wrong(
                "driver_patience_ms",
                "must be 0 to 20000: the scheduler waits one minute for a suspension, recovery included",
            );
        }
        if !(1..=10_000).contains(&self.report_interval_ms) {
            return wrong("report_interval_ms", "must be 1 to 10000");
        }
        Ok(self)
    }

    fn check_task_user(&self) -> Result<(), ExecutorError> {
        let Some(user) = self.task_user else {
            return Ok(());
        };
        if self.runtime == RuntimeKind::Pod {
            return wrong(
                "task_user",
                "is for runtime process; the pod template names the user of pods",
            );
        }
        if !rustix::process::geteuid().is_root() {
            let problem = format!(
                "is {user}, but only an executor that is root can start tasks as another user"
            );
            return wrong("task_user", problem);
        }
        Ok(())
    }

    /// Checks the settings that are written into pods.
    fn check_pods(&self) -> Result<(), ExecutorError> {
        if self.pod_template.is_none() {
            return wrong("pod_template", "is required where the runtime is pod");
        }
        if self
            .pod_gpus
            .is_some_and(|count| !(1..=64).contains(&count))
        {
            return wrong("pod_gpus", "must be 1 to 64");
        }
        if self.pod_gpus.is_some() && (self.pod_gpu_resource.is_none() || self.cpu_slots.is_some())
        {
            return wrong("pod_gpus", "needs pod_gpu_resource, and no cpu_slots");
        }
        for (name, value) in [
            ("node_name", &self.node_name),
            ("pod_group", &self.pod_group),
        ] {
            if !is_label(value) {
                return wrong(
                    name,
                    format!(
                        "is {value:?}, but must be a label of Kubernetes: 1 to 63 letters, digits, '-', '_' or '.'"
                    ),
                );
            }
        }
        let reached_at = self.listen_host.parse::<IpAddr>();
        if reached_at.is_ok_and(|address| !address.is_unspecified()) {
            return Ok(());
        }
        wrong(
            "listen_host",
            format!(
                "is {:?}, but must be one address of this node where the runtime is pod: pods report to it",
                self.listen_host
            ),
        )
    }
}

/// Whether the text is a label value of Kubernetes.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut ends = [bytes.first(), bytes.last()].into_iter();
    bytes.len() <= 63
        && ends.all(|byte| byte.is_some_and(u8::is_ascii_alphanumeric))
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn wrong<T>(name: &'static str, problem: impl Into<String>) -> Result<T, ExecutorError> {
    Err(ExecutorError::Setting {
        name,
        problem: problem.into(),
    })
}

fn required<T>(name: &'static str, value: Option<T>) -> Result<T, ExecutorError> {
    value.ok_or_else(|| ExecutorError::Setting {
        name,
        problem: "is required".to_owned(),
    })
}

/// Parses the labels of the node.
fn labels(pairs: Vec<String>) -> Result<BTreeMap<String, String>, ExecutorError> {
    let mut labels = BTreeMap::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return wrong("labels", format!("has {pair:?}; expected KEY=VALUE"));
        };
        labels.insert(key.to_owned(), value.to_owned());
    }
    match check_labels("labels", &labels) {
        Ok(()) => Ok(labels),
        Err(errors) => wrong("labels", errors[0].to_string()),
    }
}

fn task_user(text: &str) -> Result<TaskUsers, ExecutorError> {
    text.parse().map_err(|problem| ExecutorError::Setting {
        name: "task_user",
        problem,
    })
}

/// Makes a path absolute: tasks run in folders of their own, where a relative path differs.
fn absolute(path: PathBuf) -> Result<PathBuf, ExecutorError> {
    std::path::absolute(&path).map_err(ExecutorError::read(path))
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

fn task_binary_beside() -> Result<PathBuf, ExecutorError> {
    let own = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
    Ok(own.with_file_name("muster-task"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> ExecutorSettings {
        toml::from_str(
            r#"
            scheduler_url = "http://127.0.0.1:7071"
            join_token = "secret"
            node_name = "a"
            data_dir = "/data"
            checkpoint_root = "/checkpoints"
            dataset_root = "relative"
            "#,
        )
        .expect("well-formed")
    }

    #[test]
    fn flags_override_the_file_and_paths_become_absolute() {
        let flags = ExecutorSettings {
            node_name: Some("b".to_owned()),
            ..ExecutorSettings::default()
        };
        let config = flags.over(complete()).resolve().expect("complete");
        assert_eq!(config.node_name, "b");
        assert!(config.dataset_root.is_absolute());
        assert_eq!(config.log_part_bytes, 16 << 20);
        assert_eq!(
            config
                .task_binary
                .file_name()
                .and_then(|name| name.to_str()),
            Some("muster-task")
        );
    }

    #[test]
    fn unknown_and_missing_fields_are_named() {
        let error = toml::from_str::<ExecutorSettings>("scheduler_ulr = 'x'")
            .expect_err("unknown")
            .to_string();
        assert!(error.contains("scheduler_ulr"), "{error}");
        let error = ExecutorSettings::default()
            .resolve()
            .expect_err("incomplete")
            .to_string();
        assert_eq!(error, "the setting scheduler_url is required");
        let error = ExecutorSettings {
            runtime: Some(RuntimeKind::Pod),
            ..complete()
        }
        .resolve()
        .expect_err("nothing to make pods of")
        .to_string();
        assert!(error.contains("pod_template"), "{error}");
        for everywhere in ["0.0.0.0", "::", "node-7"] {
            let error = ExecutorSettings {
                runtime: Some(RuntimeKind::Pod),
                pod_template: Some("pod.yaml".into()),
                listen_host: Some(everywhere.to_owned()),
                ..complete()
            }
            .resolve()
            .expect_err("nobody can report there")
            .to_string();
            assert!(error.contains("listen_host is"), "{error}");
        }
        let in_the_clear = ExecutorSettings {
            scheduler_ca_file: Some("/ca.crt".into()),
            ..complete()
        };
        let error = in_the_clear.resolve().expect_err("no TLS").to_string();
        assert!(error.contains("scheduler_url is"), "{error}");
        let error = ExecutorSettings {
            log_parts: Some(1),
            ..complete()
        }
        .resolve()
        .expect_err("wrong")
        .to_string();
        assert!(error.contains("log_parts"), "{error}");
    }

    #[test]
    fn cpu_slot_model_is_no_part_of_a_gpu_and_not_empty() {
        for (model, problem) in [
            ("", "must have 1 to 253 characters"),
            ("NVIDIA A100 MIG 1g.5gb", "names a part of a GPU"),
        ] {
            let settings = ExecutorSettings {
                cpu_slot_model: Some(model.to_owned()),
                ..complete()
            };
            let error = settings.resolve().expect_err(model).to_string();
            assert!(error.contains("cpu_slot_model"), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }
}
