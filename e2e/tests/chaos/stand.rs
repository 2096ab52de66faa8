//! The cluster: Postgres, two API servers, two schedulers and three nodes, each daemon on its own
//! host.

use crate::clocks::Clocks;
use crate::databases::{self, UNPRIVILEGED};
use crate::disks::Disks;
use crate::network::ChaosNetwork;
use crate::relay;
use crate::schedule::{ChaosHost, SCHEDULERS};
use crate::supervisor::{ChaosDaemon, DaemonSupervisor};
use muster_client::Client;
use muster_e2e::cluster::program;
use muster_e2e::processes::{self, OsProcess};
use muster_model::node::NodeState;
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub const SUPERUSER: &str = "owner";
/// Roles of the Postgres servers at the start.
const LEADING: usize = 0;
const FOLLOWING: usize = 1;
const PASSWORD: &str = "chaos-password-of-every-role";
const JOIN_TOKEN: &str = "chaos-join-token-of-every-node";
const API_PORT: u16 = 7070;
pub const NODES_PORT: u16 = 7071;
const HEALTH_PORT: u16 = 7072;
const SLOTS_PER_NODE: u32 = 2;
pub const LEASE_MS: u64 = 12_000;
pub const GRACE_MS: u64 = 5_000;
/// Folders of ended tasks that a node keeps.
pub const KEEP_ENDED_TASKS: usize = 8;
const DISK_RESERVE_BYTES: u64 = 64 << 20;
/// Time slice that keeps the wait of short jobs below the story's limit.
const QUANTUM_MS: u64 = 15_000;
/// A node that is stopped, cut off and slow in succession must not be charged: it would take no
/// tasks for minutes.
const START_LIMIT_MS: u64 = 180_000;
const STEP: Duration = Duration::from_millis(200);
const READY_WITHIN: Duration = Duration::from_secs(120);
const SCRAPE_WITHIN: Duration = Duration::from_millis(500);

/// Stopped and removed on drop; the logs stay.
pub struct ChaosCluster {
    pub network: ChaosNetwork,
    pub disks: Disks,
    pub clocks: Clocks,
    pub folder: PathBuf,
    pub supervisor: DaemonSupervisor,
    pub token: String,
}

impl ChaosCluster {
    /// Starts the cluster.
    ///
    /// # Errors
    /// If this machine or this user cannot do it; no daemon has started then.
    ///
    /// # Panics
    /// If a daemon does not come up.
    pub async fn set(folder: PathBuf) -> Result<Arc<Self>, String> {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))
            .expect("our own folder");
        for name in ["logs", "checkpoints"] {
            std::fs::create_dir_all(folder.join(name)).expect("our own folder");
        }
        let hosts = ChaosHost::all();
        let mut stand = Self {
            network: ChaosNetwork::create(&hosts)?,
            disks: Disks::mount(&folder, &ChaosHost::with_disks())?,
            clocks: Clocks::build(&folder, &hosts)?,
            supervisor: DaemonSupervisor::start(),
            folder,
            token: String::new(),
        };
        databases::initialise(&stand, LEADING);
        stand.supervise(ChaosHost::Postgres(LEADING));
        stand.migrate();
        stand.token = stand.bootstrap();
        databases::follow(&stand, FOLLOWING)?;
        stand.supervise(ChaosHost::Postgres(FOLLOWING));
        for host in hosts
            .into_iter()
            .filter(|host| !matches!(host, ChaosHost::Postgres(_)))
        {
            if let ChaosHost::Node(_) = host {
                let schedulers = (0..SCHEDULERS).map(ChaosHost::Scheduler);
                let all = schedulers.map(|one| stand.network.address(one));
                relay::start(&stand.network.path(host), all.collect());
            }
            stand.supervise(host);
        }
        stand.until_ready().await;
        Ok(Arc::new(stand))
    }

    /// One client with this token for each API server.
    pub fn clients(&self, token: &str) -> Vec<Client> {
        (0..crate::schedule::APIS)
            .map(|number| self.server(ChaosHost::Api(number)))
            .map(|server| Client::new(&server, token).expect("a right address"))
            .collect()
    }

    pub fn server(&self, api: ChaosHost) -> String {
        format!("http://{}:{API_PORT}", self.network.address(api))
    }

    pub fn database_url(&self) -> String {
        self.url_of(SUPERUSER)
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub fn log(&self, host: ChaosHost) -> PathBuf {
        self.folder.join("logs").join(format!("{host}.log"))
    }

    /// The executor's folder.
    pub fn data(&self, node: usize) -> PathBuf {
        self.disks.path(ChaosHost::Node(node)).join("data")
    }

    pub fn daemon(&self, host: ChaosHost) -> Option<i32> {
        self.supervisor.pid(&host.to_string())
    }

    /// Scheduler that reports that it leads.
    pub fn leader(&self) -> Option<ChaosHost> {
        let schedulers = (0..SCHEDULERS).map(ChaosHost::Scheduler);
        schedulers.into_iter().find(|host| {
            let address = format!("{}:{HEALTH_PORT}", self.network.address(*host));
            let address = address.parse().expect("an address");
            let ask = || -> std::io::Result<String> {
                let mut stream = TcpStream::connect_timeout(&address, SCRAPE_WITHIN)?;
                stream.set_read_timeout(Some(SCRAPE_WITHIN))?;
                stream
                    .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
                let mut text = String::new();
                stream.read_to_string(&mut text)?;
                Ok(text)
            };
            ask().is_ok_and(|text| text.contains("leading"))
        })
    }

    /// All processes of the cluster, tasks included.
    pub fn processes(&self) -> Vec<OsProcess> {
        processes::of(&self.folder)
    }

    /// Processes of one node: executor, shims and tasks.
    pub fn processes_of(&self, node: usize) -> Vec<OsProcess> {
        let disk = self.disks.path(ChaosHost::Node(node)).display().to_string();
        let mut all = self.processes();
        all.retain(|process| process.mentions(&disk));
        all
    }

    /// Server processes of Postgres without the postmaster.
    pub fn backends(&self) -> Vec<OsProcess> {
        let postmaster = self.daemon(ChaosHost::Postgres(self.network.database()));
        postmaster.map_or_else(Vec::new, processes::children)
    }

    /// Stops the daemons, the nodes first; the shims keep the tasks.
    pub fn stop(&self) {
        self.supervisor.stop();
    }

    fn url_of(&self, role: &str) -> String {
        let address = self.network.database_address();
        format!("postgres://{role}:{PASSWORD}@{address}:5432/muster")
    }

    fn migrate(&self) {
        let mut command = self.api_command();
        command
            .arg("migrate")
            .env("MUSTER_API_ROLE_PASSWORD", PASSWORD)
            .env("MUSTER_SCHEDULER_ROLE_PASSWORD", PASSWORD);
        for _ in 0..150 {
            let output = command.output().expect("muster-api runs");
            if output.status.success() {
                return;
            }
            std::thread::sleep(STEP);
        }
        panic!("the database was not migrated: {:?}", command.output());
    }

    fn bootstrap(&self) -> String {
        let mut command = self.api_command();
        command.args(["bootstrap", "--tenant", "default", "--user", "admin"]);
        let output = command.output().expect("muster-api runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn api_command(&self) -> Command {
        let mut command = Command::new(program("muster-api"));
        command.env("MUSTER_API_OWNER_DATABASE_URL", self.database_url());
        command
    }

    fn supervise(&self, host: ChaosHost) {
        let arguments = match host {
            ChaosHost::Postgres(number) => databases::arguments(self, number),
            ChaosHost::Api(_) => vec![
                program("muster-api").display().to_string(),
                "serve".to_owned(),
            ],
            ChaosHost::Scheduler(_) => vec![program("muster-scheduler").display().to_string()],
            ChaosHost::Node(_) => vec![program("muster-executor").display().to_string()],
        };
        let environment = match host {
            ChaosHost::Postgres(_) => Vec::new(),
            ChaosHost::Api(_) => self.api_environment(host),
            ChaosHost::Scheduler(_) => self.scheduler_environment(host),
            ChaosHost::Node(number) => self.executor_environment(host, number),
        };
        let mut daemon = ChaosDaemon {
            name: host.to_string(),
            arguments: vec![
                "nsenter".to_owned(),
                format!("--net={}", self.network.path(host).display()),
                "--".to_owned(),
                "setpriv".to_owned(),
                "--pdeathsig".to_owned(),
                "KILL".to_owned(),
            ],
            environment,
            log: self.log(host),
            stop: Signal::TERM,
        };
        if matches!(host, ChaosHost::Postgres(_)) {
            let user = format!("--reuid={UNPRIVILEGED}");
            let group = format!("--regid={UNPRIVILEGED}");
            daemon
                .arguments
                .extend([user, group, "--clear-groups".to_owned()]);
            daemon.stop = Signal::INT;
        }
        daemon.arguments.push("--".to_owned());
        daemon.arguments.extend(arguments);
        let clock = self.clocks.environment(host).into_iter();
        daemon
            .environment
            .extend(clock.map(|(name, value)| (name.to_owned(), value)));
        self.supervisor.keep(daemon);
    }

    fn api_environment(&self, host: ChaosHost) -> Vec<(String, String)> {
        named(&[
            (
                "MUSTER_API_LISTEN",
                format!("{}:{API_PORT}", self.network.address(host)),
            ),
            ("MUSTER_API_DATABASE_URL", self.url_of("muster_api")),
            (
                "MUSTER_API_CHECKPOINT_ROOT",
                self.checkpoints().display().to_string(),
            ),
        ])
    }

    fn scheduler_environment(&self, host: ChaosHost) -> Vec<(String, String)> {
        let address = self.network.address(host);
        named(&[
            ("MUSTER_SCHEDULER_LISTEN", format!("{address}:{NODES_PORT}")),
            (
                "MUSTER_SCHEDULER_HEALTH_LISTEN",
                format!("{address}:{HEALTH_PORT}"),
            ),
            (
                "MUSTER_SCHEDULER_DATABASE_URL",
                self.url_of("muster_scheduler"),
            ),
            ("MUSTER_SCHEDULER_JOIN_TOKEN", JOIN_TOKEN.to_owned()),
            ("MUSTER_SCHEDULER_LEASE_MS", LEASE_MS.to_string()),
            ("MUSTER_SCHEDULER_HEARTBEAT_MS", "1000".to_owned()),
            ("MUSTER_SCHEDULER_GRACE_MS", GRACE_MS.to_string()),
            ("MUSTER_SCHEDULER_QUANTUM_MS", QUANTUM_MS.to_string()),
            (
                "MUSTER_SCHEDULER_START_LIMIT_MS",
                START_LIMIT_MS.to_string(),
            ),
        ])
    }

    fn executor_environment(&self, host: ChaosHost, number: usize) -> Vec<(String, String)> {
        let data = self.data(number);
        std::fs::create_dir_all(&data).expect("our own disk");
        let datasets = std::env::var("MUSTER_DATASETS").unwrap_or_default();
        named(&[
            (
                "MUSTER_EXECUTOR_SCHEDULER_URL",
                format!("http://127.0.0.1:{NODES_PORT}"),
            ),
            ("MUSTER_EXECUTOR_JOIN_TOKEN", JOIN_TOKEN.to_owned()),
            ("MUSTER_EXECUTOR_NODE_NAME", host.to_string()),
            ("MUSTER_EXECUTOR_DATA_DIR", data.display().to_string()),
            (
                "MUSTER_EXECUTOR_CHECKPOINT_ROOT",
                self.checkpoints().display().to_string(),
            ),
            ("MUSTER_EXECUTOR_DATASET_ROOT", datasets),
            ("MUSTER_EXECUTOR_LISTEN_HOST", self.network.address(host)),
            ("MUSTER_EXECUTOR_CPU_SLOTS", SLOTS_PER_NODE.to_string()),
            (
                "MUSTER_EXECUTOR_DISK_RESERVE_BYTES",
                DISK_RESERVE_BYTES.to_string(),
            ),
            (
                "MUSTER_EXECUTOR_KEEP_ENDED_TASKS",
                KEEP_ENDED_TASKS.to_string(),
            ),
        ])
    }

    async fn until_ready(&self) {
        let clients = self.clients(&self.token);
        let ready = async {
            loop {
                let nodes = clients[0].nodes().await.unwrap_or_default();
                let up = nodes.iter().filter(|node| node.state == NodeState::Up);
                if up.count() == crate::schedule::NODES {
                    return;
                }
                tokio::time::sleep(STEP).await;
            }
        };
        let ready = tokio::time::timeout(READY_WITHIN, ready).await;
        ready.unwrap_or_else(|_| panic!("no cluster came up; logs: {}", self.folder.display()));
    }
}

impl Drop for ChaosCluster {
    fn drop(&mut self) {
        self.supervisor.kill();
        for host in ChaosHost::with_disks() {
            self.disks.speed_up(host);
            self.disks.go_on(host);
        }
        // The next poll finds processes that start during the search.
        for _ in 0..20 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for process in left {
                process.signal(Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn named(variables: &[(&str, String)]) -> Vec<(String, String)> {
    let named = variables.iter();
    named
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}
