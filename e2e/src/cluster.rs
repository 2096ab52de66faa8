//! Cluster of one story: `muster up` in a private folder, on private ports, with short leases.

use crate::pods::Carriers;
use crate::processes::{self, OsProcess};
use crate::runtime;
use muster_client::Client;
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::{EventView, JobView, TaskView};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Time limit for two busy cores; a passing story never needs it.
pub const PATIENCE: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(100);
/// Shorter than in production, so that stories of lost nodes do not wait long.
const LEASE_MS: u32 = 4_000;
/// For stories without a lost node. Beside an API server, or with many processes on two cores, an
/// executor may be silent for longer than `LEASE_MS`. Its tasks would then restart.
const CALM_LEASE_MS: u32 = 15_000;
/// Longer than a dead scheduler stays away, as in production. `muster up` waits up to five seconds
/// before it restarts a scheduler that fails repeatedly. Otherwise its nodes would be lost and
/// their tasks would restart.
pub const OUTLASTS_A_SCHEDULER_MS: u32 = 20_000;
/// The daemon's default: longer than most stories' jobs wait.
const QUANTUM_MS: u32 = 60_000;

/// Stopped on drop, with all processes that it started.
#[derive(Debug)]
pub struct TestCluster {
    up: Option<Child>,
    folder: TempDir,
    options: TestClusterOptions,
    lease_ms: u32,
    quantum_ms: u32,
    policy: Option<&'static str>,
    packs: bool,
    memory_bytes: Option<u64>,
    server: String,
    client: Option<Client>,
    bucket: Option<CheckpointBucket>,
    pods: Option<Carriers>,
    /// Settings of all daemons, which override those above.
    settings: Vec<(&'static str, String)>,
    /// Executors beside those of `muster up`.
    joined: Vec<Child>,
}

/// Object store for checkpoints, in place of the data folder.
#[derive(Debug)]
pub struct CheckpointBucket {
    pub place: String,
    /// Environment of every daemon for access to the bucket.
    pub environment: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy)]
pub struct TestClusterOptions {
    pub nodes: u32,
    pub slots: u32,
}

impl Default for TestClusterOptions {
    fn default() -> Self {
        Self { nodes: 2, slots: 2 }
    }
}

impl TestCluster {
    /// Starts a cluster and waits until every node has joined.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start(options: TestClusterOptions) -> Self {
        Self::start_leasing(options, LEASE_MS).await
    }

    /// As [`Self::start`], with checkpoints in a bucket.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_saving(options: TestClusterOptions, bucket: CheckpointBucket) -> Self {
        Self::start_with(options, LEASE_MS, Some(bucket)).await
    }

    /// As [`Self::start`], with leases of `lease_ms`.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_leasing(options: TestClusterOptions, lease_ms: u32) -> Self {
        Self::start_with(options, lease_ms, None).await
    }

    /// As [`Self::start`], with time slices of `quantum_ms`; 0 disables them.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_slicing(options: TestClusterOptions, quantum_ms: u32) -> Self {
        Self::start_turning(options, CALM_LEASE_MS, quantum_ms, None).await
    }

    /// As [`Self::start_slicing`], with packing. Nodes offer `memory_bytes`, or all memory if
    /// `None`.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_packing(
        options: TestClusterOptions,
        quantum_ms: u32,
        memory_bytes: Option<u64>,
    ) -> Self {
        let mut cluster = Self::new(options, LEASE_MS, quantum_ms, None);
        (cluster.packs, cluster.memory_bytes) = (true, memory_bytes);
        cluster.up_again().await;
        cluster
    }

    /// As [`Self::start`], with another policy and time slices of `quantum_ms`; 0 disables them.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_under(
        options: TestClusterOptions,
        policy: &'static str,
        quantum_ms: u32,
    ) -> Self {
        let mut cluster = Self::new(options, LEASE_MS, quantum_ms, None);
        cluster.policy = Some(policy);
        cluster.up_again().await;
        cluster
    }

    /// As [`Self::start`], with calm leases, without time slices, and with `settings` in the
    /// environment of every daemon.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_set(
        options: TestClusterOptions,
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        let mut cluster = Self::new(options, CALM_LEASE_MS, 0, None);
        cluster.settings = settings;
        cluster.up_again().await;
        cluster
    }

    async fn start_with(
        options: TestClusterOptions,
        lease_ms: u32,
        bucket: Option<CheckpointBucket>,
    ) -> Self {
        Self::start_turning(options, lease_ms, QUANTUM_MS, bucket).await
    }

    async fn start_turning(
        options: TestClusterOptions,
        lease_ms: u32,
        quantum_ms: u32,
        bucket: Option<CheckpointBucket>,
    ) -> Self {
        let mut cluster = Self::new(options, lease_ms, quantum_ms, bucket);
        cluster.up_again().await;
        cluster
    }

    fn new(
        options: TestClusterOptions,
        lease_ms: u32,
        quantum_ms: u32,
        bucket: Option<CheckpointBucket>,
    ) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("muster-e2e-")
            .tempdir()
            .expect("a temporary folder");
        // Postgres runs as another user when the tests run as root, and must be able to enter.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .expect("our own folder");
        let port = free_port();
        let server = format!("http://127.0.0.1:{port}");
        Self {
            up: None,
            folder,
            options,
            lease_ms,
            quantum_ms,
            policy: None,
            packs: false,
            memory_bytes: None,
            server,
            client: None,
            bucket,
            pods: None,
            settings: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Starts a further executor, which takes its settings from the first one except for
    /// `settings`, and waits until its node has joined. It ends with the cluster.
    ///
    /// # Panics
    /// If it does not join; the logs are printed.
    pub async fn join(&mut self, name: &str, settings: &[(&str, &str)]) {
        let first = self.running("muster-executor").remove(0);
        let told = first.environment.iter();
        let told = told.filter_map(|one| one.split_once('='));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.data().join("logs").join(format!("{name}.log")));
        let child = Command::new(program("muster-executor"))
            .env_clear()
            .envs(told)
            .env("MUSTER_EXECUTOR_NODE_NAME", name)
            .env("MUSTER_EXECUTOR_DATA_DIR", self.data().join(name))
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("our own folder"))
            .spawn()
            .expect("muster-executor starts");
        self.joined.push(child);
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            let nodes = self.client().nodes().await.unwrap_or_default();
            if nodes.iter().any(|node| node.name == name) {
                return;
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
        self.print_logs();
        panic!("node {name} did not join");
    }

    /// As [`Self::start`], with tasks as pods.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_pods(options: TestClusterOptions) -> Self {
        Self::start_pods_with(options, Vec::new()).await
    }

    /// As [`Self::start_pods`], with `settings` in the environment of every daemon.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn start_pods_with(
        options: TestClusterOptions,
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        let mut cluster = Self::new(options, CALM_LEASE_MS, 0, None);
        cluster.settings = settings;
        cluster.carry_in_pods().await;
        cluster.up_again().await;
        cluster
    }

    /// Makes tasks of executors that start later pods of a Kubernetes for this cluster.
    async fn carry_in_pods(&mut self) {
        let folder = self.folder.path().to_owned();
        let pods = Carriers::start(&folder, &datasets(), self.options.nodes).await;
        self.pods = Some(pods);
        self.lease_ms = self.lease_ms.max(CALM_LEASE_MS);
        // The API server may have taken the port that was free before.
        self.server = format!("http://127.0.0.1:{}", free_port());
    }

    /// Environment of tasks that run as pods.
    ///
    /// # Panics
    /// If tasks are processes.
    #[must_use]
    pub fn pods(&self) -> &Carriers {
        self.pods.as_ref().expect("tasks are pods")
    }

    /// Mutable [`Self::pods`].
    ///
    /// # Panics
    /// If tasks are processes.
    pub fn pods_mut(&mut self) -> &mut Carriers {
        self.pods.as_mut().expect("tasks are pods")
    }

    /// Runs `muster up` again on the same folder, as after a reboot.
    ///
    /// # Panics
    /// If it does not come up; the logs are printed.
    pub async fn up_again(&mut self) {
        // A killed process holds its lock until the kernel has released it.
        if let Some(mut before) = self.up.take() {
            before.wait().expect("muster up has ended");
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("up.log"))
            .expect("a log");
        if runtime::is_pod() && self.pods.is_none() {
            self.carry_in_pods().await;
        }
        let mut command = self.muster();
        if let Some(pods) = &self.pods {
            command.envs(pods.environment());
        }
        if let Some(bucket) = &self.bucket {
            let environment = &bucket.environment;
            command.envs(environment.iter().map(|(name, value)| (name, value)));
        }
        command
            .args([
                "up",
                "--no-example",
                "--listen",
                self.server.trim_start_matches("http://"),
            ])
            .args([
                "--nodes",
                &self.options.nodes.to_string(),
                "--slots",
                &self.options.slots.to_string(),
            ])
            .arg("--data")
            .arg(self.data());
        if let Some(bucket) = &self.bucket {
            command.args(["--checkpoints", &bucket.place]);
        }
        if let Some(policy) = self.policy {
            command.env("MUSTER_SCHEDULER_POLICY", policy);
        }
        if let Some(bytes) = self.memory_bytes {
            command.env("MUSTER_EXECUTOR_MEMORY_BYTES", bytes.to_string());
        }
        let child = command
            .env("MUSTER_SCHEDULER_LEASE_MS", self.lease_ms.to_string())
            .env("MUSTER_SCHEDULER_HEARTBEAT_MS", "500")
            .env("MUSTER_SCHEDULER_GRACE_MS", "5000")
            .env("MUSTER_SCHEDULER_QUANTUM_MS", self.quantum_ms.to_string())
            .env("MUSTER_SCHEDULER_PACKING", self.packs.to_string())
            .envs(self.settings.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the same log"))
            .stderr(log)
            .spawn()
            .expect("muster up starts");
        self.up = Some(child);
        let nodes = self.options.nodes as usize;
        let mut waited = Duration::ZERO;
        loop {
            if let Some(token) = self.token() {
                let client = Client::new(&self.server, &token).expect("a right address");
                if client.nodes().await.is_ok_and(|all| {
                    all.iter()
                        .filter(|node| node.state == muster_model::node::NodeState::Up)
                        .count()
                        == nodes
                }) {
                    self.client = Some(client);
                    return;
                }
            }
            let ended = self
                .up
                .as_mut()
                .is_some_and(|up| up.try_wait().is_ok_and(|status| status.is_some()));
            if ended || waited > PATIENCE {
                self.print_logs();
                panic!("the cluster did not come up");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    /// Client of the first user.
    ///
    /// # Panics
    /// If the cluster is not up yet.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.client.as_ref().expect("the cluster is up")
    }

    /// The command line, signed in to this cluster.
    #[must_use]
    pub fn muster(&self) -> Command {
        let mut command = Command::new(program("muster"));
        command
            .env("MUSTER_CONFIG", self.config())
            .env("MUSTER_DATASETS", datasets())
            .env("MUSTER_SERVER", &self.server)
            .env_remove("MUSTER_TOKEN")
            .env_remove("MUSTER_DATA");
        command
    }

    /// Runs the command line with these arguments and returns its output.
    ///
    /// # Panics
    /// If it fails; the output is printed.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.muster().args(arguments).output().expect("muster runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
        text
    }

    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Token of the first user, from the command line's settings.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        let settings: toml::Table = std::fs::read_to_string(self.config()).ok()?.parse().ok()?;
        Some(
            settings
                .get("contexts")?
                .get(0)?
                .get("token")?
                .as_str()?
                .to_owned(),
        )
    }

    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.data().join("checkpoints")
    }

    /// All processes of the cluster, `muster up` and Postgres included.
    #[must_use]
    pub fn processes(&self) -> Vec<OsProcess> {
        processes::of(self.folder.path())
    }

    /// Processes of one program without shims.
    #[must_use]
    pub fn running(&self, program: &str) -> Vec<OsProcess> {
        self.processes()
            .into_iter()
            .filter(|process| process.program == program && !process.is_shim())
            .collect()
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&self, process: &OsProcess) {
        process.signal(Signal::KILL);
    }

    /// Process of a task.
    ///
    /// # Panics
    /// If it does not run.
    pub async fn task_process(&self, job: JobId, name: &str) -> (TaskView, OsProcess) {
        let tasks = self.client().tasks(job).await.expect("tasks");
        let task = tasks
            .into_iter()
            .filter(|task| task.name == name)
            .max_by_key(|task| task.revision)
            .unwrap_or_else(|| panic!("job {job} has no task {name}"));
        let id = task.id.to_string();
        let process = self
            .running("muster-task")
            .into_iter()
            .find(|process| process.mentions(&id));
        (task, process.expect("the task's process runs"))
    }

    /// Submits a YAML document.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn submit(&self, document: &str) -> JobView {
        let document: serde_json::Value = serde_norway::from_str(document).expect("YAML");
        self.client()
            .submit(&document, None)
            .await
            .expect("the document is right")
    }

    /// Waits until `right` is true of the job, over restarts of the API server.
    ///
    /// # Panics
    /// If it does not happen within [`PATIENCE`], or if the job ends otherwise; history and logs
    /// are printed.
    pub async fn until(&self, job: JobId, what: &str, right: impl Fn(&JobView) -> bool) -> JobView {
        let mut waited = Duration::ZERO;
        let mut last = None;
        loop {
            if let Ok(view) = self.client().job(job).await {
                if right(&view) {
                    return view;
                }
                let ended = view.phase.is_terminal();
                last = Some(view);
                if ended {
                    waited = PATIENCE;
                }
            }
            if waited >= PATIENCE {
                self.print_history(job).await;
                self.print_logs();
                panic!("waiting for {what:?} of job {job} was in vain; it is {last:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    /// Waits until the job has succeeded.
    ///
    /// # Panics
    /// If it does not succeed in time; its history is printed.
    pub async fn succeeded(&self, job: JobId) -> JobView {
        self.until(job, "success", |job| job.phase == JobPhase::Succeeded)
            .await
    }

    /// Complete history of the job, oldest event first.
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn history(&self, job: JobId) -> Vec<EventView> {
        let mut history: Vec<EventView> = Vec::new();
        loop {
            let after = history.last().map(|event| event.cursor.clone());
            let query = muster_client::EventQuery { after, limit: None };
            let page = self.client().events(job, &query).await.expect("events");
            history.extend(page.items);
            if page.next.is_none() {
                return history;
            }
        }
    }

    /// Steps from which later revisions of the job continued; empty if it never restarted.
    pub async fn resumed_at(&self, job: JobId) -> Vec<u64> {
        let history = self.history(job).await;
        let steps = history.iter().filter_map(|entry| match entry.event {
            Event::Resumed { from_step } => Some(from_step),
            _ => None,
        });
        steps.collect()
    }

    /// Stops the cluster orderly, as Ctrl-C does, and checks that no process is left.
    ///
    /// # Panics
    /// If a process is left.
    pub fn down(&mut self) {
        let executors = self.running("muster-executor");
        for mut executor in std::mem::take(&mut self.joined) {
            let mut executors = executors.iter();
            let own = executors.find(|one| u32::try_from(one.pid) == Ok(executor.id()));
            own.expect("the executor runs").signal(Signal::TERM);
            let status = executor.wait().expect("the executor ends");
            assert!(status.success(), "muster-executor: {status}");
        }
        let status = self
            .muster()
            .args(["down", "--data"])
            .arg(self.data())
            .status()
            .expect("muster down runs");
        assert!(status.success(), "muster down: {status}");
        if let Some(mut up) = self.up.take() {
            let status = up.wait().expect("muster up ends");
            assert!(status.success(), "muster up: {status}");
        }
        let left = self.processes();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// Prints the job's history after a failure.
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn print_history(&self, job: JobId) {
        if self.client().job(job).await.is_ok() {
            for entry in self.history(job).await {
                eprintln!("{} {:?}", entry.at, entry.event);
            }
        }
    }

    fn print_logs(&self) {
        let mut logs = vec![self.folder.path().join("up.log")];
        let folder = std::fs::read_dir(self.data().join("logs"));
        logs.extend(
            folder
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path()),
        );
        for log in logs {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            eprintln!(
                "==> {} <==\n{}",
                log.display(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for process in self.processes() {
            process.signal(Signal::KILL);
        }
        for mut executor in std::mem::take(&mut self.joined) {
            let _ = executor.wait();
        }
        if let Some(mut up) = self.up.take() {
            let _ = up.wait();
        }
        // Children of a killed `muster up` die with it; this catches a child that was just being
        // started.
        for process in self.processes() {
            process.signal(Signal::KILL);
        }
    }
}

impl OsProcess {
    fn is_shim(&self) -> bool {
        self.arguments
            .get(1)
            .is_some_and(|argument| argument == "shim")
    }
}

/// Free port below the range of ephemeral ports, so that no other process gets it meanwhile.
///
/// # Panics
/// If all are taken.
#[must_use]
pub fn free_port() -> u16 {
    let first = 10_000 + u16::try_from(std::process::id() % 20_000).expect("small");
    let mut ports = (first..30_000).chain(10_000..first);
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Path of a program of this workspace, built with the tests.
///
/// # Panics
/// If it is not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test's program");
    let folder = own.ancestors().find(|folder| folder.join(name).is_file());
    folder
        .map(|folder| folder.join(name))
        .unwrap_or_else(|| panic!("{name} is not built; run `make test`, or cargo build"))
}

fn datasets() -> PathBuf {
    if let Some(named) = std::env::var_os("MUSTER_DATASETS") {
        return PathBuf::from(named);
    }
    let home = std::env::var_os("HOME").expect("HOME");
    Path::new(&home).join(".cache/muster/datasets")
}
