//! The daemon's settings: a TOML file, over it the environment (`MUSTER_EXECUTOR_*`), over it flags; read once, in `main`.

use crate::error::ExecutorError;
use crate::task_user::TaskUser;
use muster_model::place::Place;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Everything that may be set, each in all three ways. What is not set has a default or is refused by [`Settings::resolve`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Address of the scheduler, such as http://127.0.0.1:7071
    #[arg(long, env = "MUSTER_EXECUTOR_SCHEDULER_URL")]
    pub scheduler_url: Option<String>,
    /// Certificate authority (PEM) that an https scheduler is checked against
    #[arg(long, env = "MUSTER_EXECUTOR_SCHEDULER_CA_FILE")]
    pub scheduler_ca_file: Option<PathBuf>,
    /// Secret shared by the cluster's executors; prefer the environment or the file, as others can read flags
    #[arg(long, env = "MUSTER_EXECUTOR_JOIN_TOKEN", hide_env_values = true)]
    pub join_token: Option<String>,
    /// Name of this node, unique in the cluster [default: the host's name]
    #[arg(long, env = "MUSTER_EXECUTOR_NODE_NAME")]
    pub node_name: Option<String>,
    /// Folder for tasks and logs, used by one executor at a time
    #[arg(long, env = "MUSTER_EXECUTOR_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where all nodes see the checkpoints: a folder, or a bucket as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix
    #[arg(long, env = "MUSTER_EXECUTOR_CHECKPOINT_ROOT")]
    pub checkpoint_root: Option<Place>,
    /// Where the data sets lie
    #[arg(long, env = "MUSTER_EXECUTOR_DATASET_ROOT")]
    pub dataset_root: Option<PathBuf>,
    /// Address that tasks listen on and that tasks of other nodes reach them by [default: 127.0.0.1]
    #[arg(long, env = "MUSTER_EXECUTOR_LISTEN_HOST")]
    pub listen_host: Option<String>,
    /// Address for /metrics, which needs no token [default: none]
    #[arg(long, env = "MUSTER_EXECUTOR_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// Offer so many CPU slots instead of GPUs [default: the GPUs found, or one slot per core if there are none]
    #[arg(long, env = "MUSTER_EXECUTOR_CPU_SLOTS")]
    pub cpu_slots: Option<u32>,
    /// Thousandths of cores to offer [default: all]
    #[arg(long, env = "MUSTER_EXECUTOR_CPU_MILLI")]
    pub cpu_milli: Option<u64>,
    /// Bytes of memory to offer [default: all]
    #[arg(long, env = "MUSTER_EXECUTOR_MEMORY_BYTES")]
    pub memory_bytes: Option<u64>,
    /// Where this node stands: nodes with the same name here are nearer to each other than to others [default: nothing is known]
    #[arg(long, env = "MUSTER_EXECUTOR_RACK")]
    pub rack: Option<String>,
    /// Program to run as a task [default: muster-task beside this program]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_BINARY")]
    pub task_binary: Option<PathBuf>,
    /// On an orderly stop, stop the tasks too, instead of leaving them to the next executor
    #[arg(long, env = "MUSTER_EXECUTOR_STOP_TASKS_ON_EXIT", num_args = 0..=1, default_missing_value = "true")]
    pub stop_tasks_on_exit: Option<bool>,
    /// A cgroup v2 folder that this executor may divide among tasks [default: its own, if it is alone in it]
    #[arg(long, env = "MUSTER_EXECUTOR_CGROUP_ROOT")]
    pub cgroup_root: Option<PathBuf>,
    /// Size at which a part of a task's log is full [default: 16 MiB]
    #[arg(long, env = "MUSTER_EXECUTOR_LOG_PART_BYTES")]
    pub log_part_bytes: Option<u64>,
    /// Parts of a task's log to keep on the node, 2 at least [default: 4]
    #[arg(long, env = "MUSTER_EXECUTOR_LOG_PARTS")]
    pub log_parts: Option<u32>,
    /// Bytes of the disk of data_dir to keep free: below half of them the node takes no new tasks, below a quarter the task with the largest folder is
    /// ended; 0: neither [default: 256 MiB]
    #[arg(long, env = "MUSTER_EXECUTOR_DISK_RESERVE_BYTES")]
    pub disk_reserve_bytes: Option<u64>,
    /// Bytes that the folder of a task may take with all that is in it; a task with more is ended [default: no limit]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_DISK_BYTES")]
    pub task_disk_bytes: Option<u64>,
    /// Folders of ended tasks to keep once the scheduler has all of them [default: 32]
    #[arg(long, env = "MUSTER_EXECUTOR_KEEP_ENDED_TASKS")]
    pub keep_ended_tasks: Option<usize>,
    /// Bytes that these folders may take together [default: 1 GiB]
    #[arg(long, env = "MUSTER_EXECUTOR_KEEP_ENDED_BYTES")]
    pub keep_ended_bytes: Option<u64>,
    /// How often events and logs are reported; states are at once [default: 200]
    #[arg(long, env = "MUSTER_EXECUTOR_REPORT_INTERVAL_MS")]
    pub report_interval_ms: Option<u64>,
    /// Variables that tasks get from the executor's own environment [default: PATH HOME LANG TZ]
    #[arg(long, env = "MUSTER_EXECUTOR_PASS_ENVIRONMENT", value_delimiter = ',')]
    pub pass_environment: Option<Vec<String>>,
    /// What carries tasks: processes of this machine, or pods of Kubernetes on this node [default: process]
    #[arg(long, env = "MUSTER_EXECUTOR_RUNTIME")]
    pub runtime: Option<RuntimeKind>,
    /// What the GPUs' driver may take to move a suspended program's memory to the host, or back, at most 20000; 0: it is not asked, as in pods [default: 0]
    #[arg(long, env = "MUSTER_EXECUTOR_DRIVER_PATIENCE_MS")]
    pub driver_patience_ms: Option<u64>,
    /// Unix user of process tasks, as UID or UID:GID, where the executor is root; it must reach the data folder, the checkpoints, the data sets and
    /// the programs [default: the executor's own]
    #[arg(long, env = "MUSTER_EXECUTOR_TASK_USER")]
    pub task_user: Option<String>,
    /// For pods: a pod in YAML with one container, which names the image, volumes and all that tasks have in common
    #[arg(long, env = "MUSTER_EXECUTOR_POD_TEMPLATE")]
    pub pod_template: Option<PathBuf>,
    /// For pods: the namespace that they are in [default: the one that Kubernetes' configuration names]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NAMESPACE")]
    pub pod_namespace: Option<String>,
    /// For pods: the node's name in Kubernetes [default: node_name]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NODE")]
    pub pod_node: Option<String>,
    /// For pods: tells executors of one namespace apart that use one node; a label's value [default: muster]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GROUP")]
    pub pod_group: Option<String>,
    /// For pods: the name of this executor's own pod, with whose owner tasks' pods go away [default: they stay]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_NAME")]
    pub pod_name: Option<String>,
    /// For pods: what Kubernetes counts GPUs as, such as nvidia.com/gpu [default: it does not count them]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GPU_RESOURCE")]
    pub pod_gpu_resource: Option<String>,
    /// For pods: so many of these has the node, and its device plugin chooses which a pod gets, as with MIG profiles; 1 to 64 [default: the driver
    /// is asked, and the plan chooses]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_GPUS")]
    pub pod_gpus: Option<u32>,
    /// For pods: service account of the built-in engine's tasks, which users' programs never get [default: the namespace's default, without a token]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_ENGINE_ACCOUNT")]
    pub pod_engine_account: Option<String>,
    /// For pods: how long one may wait for an image that cannot be had, or the like [default: 120000]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_STUCK_MS")]
    pub pod_stuck_ms: Option<u64>,
    /// For pods: how long one may take to start, whatever it waits for; a large image takes minutes [default: 1800000]
    #[arg(long, env = "MUSTER_EXECUTOR_POD_START_MS")]
    pub pod_start_ms: Option<u64>,
}

/// The part of the data folder that all tasks' pods see.
pub const SHOWN: &str = "shown";

/// What carries tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    Process,
    Pod,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub scheduler_url: String,
    pub scheduler_ca_file: Option<PathBuf>,
    pub join_token: String,
    pub node_name: String,
    pub data_dir: PathBuf,
    pub checkpoint_root: Place,
    pub dataset_root: PathBuf,
    pub listen_host: String,
    /// `None`: nothing is shown.
    pub metrics_listen: Option<SocketAddr>,
    pub cpu_slots: Option<u32>,
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub rack: Option<String>,
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
    pub task_user: Option<TaskUser>,
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

impl Settings {
    /// Those of a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML or has a field we do not know.
    pub fn from_file(path: &Path) -> Result<Self, ExecutorError> {
        let text = std::fs::read_to_string(path).map_err(ExecutorError::read(path))?;
        toml::from_str(&text).map_err(|source| ExecutorError::Config {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// These, and where they say nothing, the weaker ones.
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
            cpu_milli: self.cpu_milli.or(weaker.cpu_milli),
            memory_bytes: self.memory_bytes.or(weaker.memory_bytes),
            rack: self.rack.or(weaker.rack),
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

    /// Fills in the defaults, makes paths absolute, and checks what is left.
    ///
    /// # Errors
    /// The first setting that is missing or wrong.
    pub fn resolve(self) -> Result<Config, ExecutorError> {
        let node_name = self.node_name.unwrap_or_else(host_name);
        let config = Config {
            pod_node: self.pod_node.unwrap_or_else(|| node_name.clone()),
            scheduler_url: required("scheduler_url", self.scheduler_url)?,
            scheduler_ca_file: self.scheduler_ca_file,
            join_token: required("join_token", self.join_token)?,
            node_name,
            data_dir: absolute(required("data_dir", self.data_dir)?)?,
            checkpoint_root: match required("checkpoint_root", self.checkpoint_root)? {
                Place::Folder(path) => Place::Folder(absolute(path)?),
                bucket => bucket,
            },
            dataset_root: absolute(required("dataset_root", self.dataset_root)?)?,
            listen_host: self.listen_host.unwrap_or_else(|| "127.0.0.1".to_owned()),
            metrics_listen: self.metrics_listen,
            cpu_slots: self.cpu_slots,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            rack: self.rack,
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

impl Config {
    /// What shims know as the data folder. All that they read there is the lease; in pods it is a folder with nothing else in it.
    #[must_use]
    pub fn data_of_shims(&self) -> PathBuf {
        match self.runtime {
            RuntimeKind::Process => self.data_dir.clone(),
            RuntimeKind::Pod => self.data_dir.join(SHOWN),
        }
    }

    fn check(self) -> Result<Self, ExecutorError> {
        let wrong = |name, problem: &str| {
            Err(ExecutorError::Setting {
                name,
                problem: problem.to_owned(),
            })
        };
        if self.node_name.is_empty() || self.node_name.len() > 253 {
            return wrong("node_name", "must have 1 to 253 characters");
        }
        if self.join_token.is_empty() {
            return wrong("join_token", "must not be empty");
        }
        // The scheme alone says whether a session is encrypted, and the token would go over the wire in the clear.
        if self.scheduler_ca_file.is_some() && !self.scheduler_url.starts_with("https://") {
            let problem = format!(
                "is {:?}, but must begin with https:// where there is a scheduler_ca_file to check it against",
                self.scheduler_url
            );
            return wrong("scheduler_url", &problem);
        }
        if self.cpu_slots == Some(0) {
            return wrong("cpu_slots", "must be at least 1");
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
                "must be 0 to 20000: the scheduler waits for a minute until a task stands still, mending included",
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
        let wrong = |problem: String| {
            Err(ExecutorError::Setting {
                name: "task_user",
                problem,
            })
        };
        if self.runtime == RuntimeKind::Pod {
            return wrong(
                "is for runtime process; the pod template names the user of pods".to_owned(),
            );
        }
        if !rustix::process::geteuid().is_root() {
            return wrong(format!(
                "is {user}, but only an executor that is root can start tasks as another user"
            ));
        }
        let checkpoints = match &self.checkpoint_root {
            Place::Folder(path) => Some(path),
            Place::Bucket(_) => None,
        };
        let own = std::env::current_exe().ok();
        let needed = [&self.data_dir, &self.dataset_root, &self.task_binary];
        let needed = needed.into_iter().chain(checkpoints).chain(own.as_ref());
        for path in needed {
            // As if there were a file in it: the folder itself is to be entered too.
            if let Some(barrier) = user.barrier(&path.join("x")) {
                return wrong(format!(
                    "is {user}, which cannot enter {}, where {} lies",
                    barrier.display(),
                    path.display()
                ));
            }
        }
        Ok(())
    }

    /// What is written into pods.
    fn check_pods(&self) -> Result<(), ExecutorError> {
        let wrong = |name, problem: String| Err(ExecutorError::Setting { name, problem });
        if self.pod_template.is_none() {
            return wrong(
                "pod_template",
                "is required where the runtime is pod".to_owned(),
            );
        }
        if self
            .pod_gpus
            .is_some_and(|count| !(1..=64).contains(&count))
        {
            return wrong("pod_gpus", "must be 1 to 64".to_owned());
        }
        if self.pod_gpus.is_some() && (self.pod_gpu_resource.is_none() || self.cpu_slots.is_some())
        {
            let problem = "needs pod_gpu_resource, of which there are so many, and no cpu_slots";
            return wrong("pod_gpus", problem.to_owned());
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

/// Letters and digits at both ends.
fn is_label(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

fn required<T>(name: &'static str, value: Option<T>) -> Result<T, ExecutorError> {
    value.ok_or_else(|| ExecutorError::Setting {
        name,
        problem: "is required".to_owned(),
    })
}

/// Tasks run in their own folder, where a relative path would mean something else.
fn task_user(text: &str) -> Result<TaskUser, ExecutorError> {
    text.parse().map_err(|problem| ExecutorError::Setting {
        name: "task_user",
        problem,
    })
}

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

    fn complete() -> Settings {
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
    fn flags_win_over_the_file_and_paths_become_absolute() {
        let flags = Settings {
            node_name: Some("b".to_owned()),
            ..Settings::default()
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
        let error = toml::from_str::<Settings>("scheduler_ulr = 'x'")
            .expect_err("unknown")
            .to_string();
        assert!(error.contains("scheduler_ulr"), "{error}");
        let error = Settings::default()
            .resolve()
            .expect_err("incomplete")
            .to_string();
        assert_eq!(error, "the setting scheduler_url is required");
        let error = Settings {
            runtime: Some(RuntimeKind::Pod),
            ..complete()
        }
        .resolve()
        .expect_err("nothing to make pods of")
        .to_string();
        assert!(error.contains("pod_template"), "{error}");
        for everywhere in ["0.0.0.0", "::", "node-7"] {
            let error = Settings {
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
        let in_the_clear = Settings {
            scheduler_ca_file: Some("/ca.crt".into()),
            ..complete()
        };
        let error = in_the_clear.resolve().expect_err("no TLS").to_string();
        assert!(error.contains("scheduler_url is"), "{error}");
        let error = Settings {
            log_parts: Some(1),
            ..complete()
        }
        .resolve()
        .expect_err("wrong")
        .to_string();
        assert!(error.contains("log_parts"), "{error}");
    }
}
