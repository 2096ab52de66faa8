//! The daemons of a local cluster: their settings, and the order of their start and stop.

use super::data::{DataFolder, Secrets, write_private};
use super::postgres::Postgres;
use super::process::{DaemonCommand, Supervised};
use anyhow::{Context as _, bail};
use muster_client::Client;
use muster_model::place::Place;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::Command;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);
const TENANT: &str = "default";

#[derive(Debug, Clone)]
pub struct LocalClusterSettings {
    pub nodes: u32,
    pub slots: u32,
    pub listen: SocketAddr,
    pub database_url: Option<String>,
    pub checkpoints: Place,
}

/// The daemons of this process, in the order of their start.
#[derive(Debug)]
pub struct LocalCluster {
    folder: DataFolder,
    settings: LocalClusterSettings,
    secrets: Secrets,
    owner_url: String,
    scheduler: SocketAddr,
    postgres: Option<(Postgres, u16)>,
    running: Vec<Supervised>,
    executors: Vec<Supervised>,
    /// Folder with the other programs, which is that of this one.
    programs: PathBuf,
}

impl LocalCluster {
    /// Chooses ports and prepares the private Postgres. Starts nothing.
    ///
    /// # Errors
    /// If a port is taken, a program is missing, or Postgres cannot be initialised.
    pub async fn new(folder: DataFolder, settings: LocalClusterSettings) -> anyhow::Result<Self> {
        let programs = programs()?;
        // Held until the other ports are chosen, so that none of them is the same.
        let _held = hold(settings.listen).await?;
        let secrets = folder.secrets()?;
        let mut state = folder.read_state()?;
        let scheduler_port = free_port(state.scheduler_port)?;
        state.scheduler_port = Some(scheduler_port);
        let (postgres, owner_url) = match &settings.database_url {
            Some(url) => (None, url.clone()),
            None => {
                let port = free_port(state.postgres_port)?;
                state.postgres_port = Some(port);
                let postgres = Postgres::prepare(&folder, &secrets, port)?;
                let url = postgres.owner_url(&secrets);
                (Some((postgres, port)), url)
            }
        };
        folder.save_state(&state)?;
        Ok(Self {
            folder,
            settings,
            secrets,
            owner_url,
            scheduler: ([127, 0, 0, 1], scheduler_port).into(),
            postgres,
            running: Vec::new(),
            executors: Vec::new(),
            programs,
        })
    }

    /// # Errors
    /// If the private Postgres does not start.
    pub async fn start_database(&mut self) -> anyhow::Result<()> {
        let Some((postgres, port)) = &self.postgres else {
            return Ok(());
        };
        let log = self.folder.log("postgres");
        self.running.push(postgres.daemon(log.clone()).supervise()?);
        listening(([127, 0, 0, 1], *port).into())
            .await
            .with_context(|| format!("Postgres; its log: {}", log.display()))
    }

    /// Migrates the schema and lets the daemons' roles log in.
    ///
    /// # Errors
    /// If the database is unreachable or does not belong to Muster.
    pub async fn migrate(&self) -> anyhow::Result<()> {
        let mut command = self.api_command();
        command
            .arg("migrate")
            .env("MUSTER_API_ROLE_PASSWORD", &self.secrets.api_password)
            .env(
                "MUSTER_SCHEDULER_ROLE_PASSWORD",
                &self.secrets.scheduler_password,
            );
        // A Postgres that has just started may refuse connections during its recovery.
        let mut tries = 0;
        loop {
            let output = command.output().await.context("run muster-api migrate")?;
            if output.status.success() {
                return Ok(());
            }
            tries += 1;
            if tries == 40 {
                bail!(
                    "the database could not be migrated: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Creates tenant and user if necessary, and a token, which it returns.
    ///
    /// # Errors
    /// If the database refuses.
    pub async fn bootstrap(&self) -> anyhow::Result<String> {
        let user = std::env::var("USER")
            .ok()
            .filter(|user| !user.is_empty())
            .unwrap_or_else(|| "admin".to_owned());
        let output = self
            .api_command()
            .args([
                "bootstrap",
                "--interactive",
                "--tenant",
                TENANT,
                "--user",
                &user,
            ])
            .output()
            .await
            .context("run muster-api bootstrap")?;
        if !output.status.success() {
            bail!(
                "the first token could not be made: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let token = String::from_utf8(output.stdout)
            .context("the token is text")?
            .trim()
            .to_owned();
        if token.is_empty() {
            bail!("muster-api bootstrap printed no token");
        }
        Ok(token)
    }

    /// Starts API server, scheduler and executors.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub async fn start_daemons(&mut self, datasets: &Path) -> anyhow::Result<()> {
        let keys = self.secret_keys().await?;
        let api = self
            .api()
            .env("MUSTER_API_SECRETS_KEY_FILE", &keys)
            .supervise()?;
        self.running.push(api);
        let scheduler = self
            .scheduler()
            .env("MUSTER_SCHEDULER_SECRETS_KEY_FILE", &keys)
            .supervise()?;
        self.running.push(scheduler);
        listening(self.scheduler)
            .await
            .context("muster-scheduler")?;
        for number in 1..=self.settings.nodes {
            let executor = self.executor(number, datasets)?.supervise()?;
            self.executors.push(executor);
        }
        Ok(())
    }

    /// Returns the file with the keys of users' secrets; creates it with a new key.
    async fn secret_keys(&self) -> anyhow::Result<String> {
        let path = self.folder.secret_keys();
        if !path.exists() {
            let output = self
                .api_command()
                .args(["secrets", "new-key", "--id", "local"])
                .output()
                .await
                .context("run muster-api secrets new-key")?;
            if !output.status.success() {
                bail!(
                    "the key of secrets could not be made: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
            }
            let key = String::from_utf8(output.stdout).context("the key is text")?;
            write_private(&path, &key)?;
        }
        let path = path.into_os_string().into_string();
        path.map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
    }

    /// Waits until REST answers and every node has joined.
    ///
    /// # Errors
    /// After a minute; the error names the folder of the logs.
    pub async fn wait_until_ready(&self, client: &Client) -> anyhow::Result<()> {
        let wanted = self.settings.nodes as usize;
        let ready = async {
            loop {
                if let Ok(nodes) = client.nodes().await
                    && nodes
                        .iter()
                        .filter(|node| node.state == muster_model::node::NodeState::Up)
                        .count()
                        >= wanted
                {
                    return;
                }
                tokio::time::sleep(STEP).await;
            }
        };
        tokio::time::timeout(READY_WITHIN, ready)
            .await
            .map_err(|_| {
                anyhow::anyhow!(
                    "the cluster was not ready within {} s; the logs are in {}",
                    READY_WITHIN.as_secs(),
                    self.folder.root().join("logs").display()
                )
            })
    }

    /// Whether the token is valid. The database is asked directly, because the API server does not
    /// run yet.
    ///
    /// # Errors
    /// If the check cannot be run.
    pub async fn accepts(&self, token: &str) -> anyhow::Result<bool> {
        let status = self
            .api_command()
            .arg("check-token")
            .env("MUSTER_API_TOKEN", token)
            .output()
            .await
            .context("run muster-api check-token")?;
        match status.status.code() {
            Some(0) => Ok(true),
            Some(3) => Ok(false),
            _ => bail!(
                "the token could not be checked: {}",
                String::from_utf8_lossy(&status.stderr).trim()
            ),
        }
    }

    /// Returns the place of the cluster's checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> &Place {
        &self.settings.checkpoints
    }

    /// Stops everything: nodes first, so that tasks write checkpoints and their ends are reported;
    /// the database last.
    pub async fn stop(&mut self) {
        let stopping: Vec<_> = self
            .executors
            .drain(..)
            .map(|executor| tokio::spawn(executor.stop()))
            .collect();
        for executor in stopping {
            let _ = executor.await;
        }
        while let Some(daemon) = self.running.pop() {
            daemon.stop().await;
        }
    }

    fn api(&self) -> DaemonCommand {
        let daemon = DaemonCommand::new(
            "muster-api",
            self.program("muster-api"),
            self.folder.log("api"),
        )
        .arg("serve")
        .env("MUSTER_API_LISTEN", self.settings.listen.to_string())
        .env(
            "MUSTER_API_DATABASE_URL",
            self.role_url("muster_api", &self.secrets.api_password),
        )
        .env(
            "MUSTER_API_SCHEDULER_URL",
            format!("http://{}", self.scheduler),
        )
        .env(
            "MUSTER_API_CHECKPOINT_ROOT",
            self.settings.checkpoints.to_string(),
        );
        match web_root() {
            Some(web) => daemon.env("MUSTER_API_WEB_ROOT", web),
            None => daemon,
        }
    }

    fn scheduler(&self) -> DaemonCommand {
        DaemonCommand::new(
            "muster-scheduler",
            self.program("muster-scheduler"),
            self.folder.log("scheduler"),
        )
        .env("MUSTER_SCHEDULER_LISTEN", self.scheduler.to_string())
        .env(
            "MUSTER_SCHEDULER_DATABASE_URL",
            self.role_url("muster_scheduler", &self.secrets.scheduler_password),
        )
        .env("MUSTER_SCHEDULER_JOIN_TOKEN", &self.secrets.join_token)
    }

    fn executor(&self, number: u32, datasets: &Path) -> anyhow::Result<DaemonCommand> {
        let name = format!("node-{number}");
        let data = self.folder.node(&name);
        std::fs::create_dir_all(&data)?;
        Ok(DaemonCommand::new(
            &name,
            self.program("muster-executor"),
            self.folder.log(&name),
        )
        .env(
            "MUSTER_EXECUTOR_SCHEDULER_URL",
            format!("http://{}", self.scheduler),
        )
        .env("MUSTER_EXECUTOR_JOIN_TOKEN", &self.secrets.join_token)
        .env("MUSTER_EXECUTOR_NODE_NAME", &name)
        .env("MUSTER_EXECUTOR_DATA_DIR", data)
        .env(
            "MUSTER_EXECUTOR_CHECKPOINT_ROOT",
            self.settings.checkpoints.to_string(),
        )
        .env("MUSTER_EXECUTOR_DATASET_ROOT", datasets)
        .env("MUSTER_EXECUTOR_LISTEN_HOST", "127.0.0.1")
        .env("MUSTER_EXECUTOR_CPU_SLOTS", self.settings.slots.to_string())
        .env("MUSTER_EXECUTOR_STOP_TASKS_ON_EXIT", "true"))
    }

    /// Returns the owner's URL with another role.
    fn role_url(&self, role: &str, password: &str) -> String {
        let (scheme, rest) = self
            .owner_url
            .split_once("://")
            .unwrap_or(("postgres", &self.owner_url));
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        format!("{scheme}://{role}:{password}@{place}")
    }

    /// Returns a command of `muster-api` for installation. Its errors are shown to the user, so
    /// they have no backtrace.
    fn api_command(&self) -> Command {
        let mut command = Command::new(self.program("muster-api"));
        command
            .env("MUSTER_API_OWNER_DATABASE_URL", &self.owner_url)
            .env("RUST_LIB_BACKTRACE", "0");
        command
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

fn programs() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    let folder = own
        .parent()
        .context("this program lies in a folder")?
        .to_owned();
    for program in [
        "muster-api",
        "muster-scheduler",
        "muster-executor",
        "muster-task",
    ] {
        if !folder.join(program).exists() {
            bail!(
                "{program} is missing beside {}; build it with `make build`",
                own.display()
            );
        }
    }
    Ok(folder)
}

/// Returns the folder of the built web page: `MUSTER_WEB_ROOT`, or `web/dist` in a folder above
/// this program.
fn web_root() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MUSTER_WEB_ROOT") {
        return Some(PathBuf::from(named));
    }
    let own = std::env::current_exe().ok()?;
    own.ancestors()
        .map(|folder| folder.join("web/dist"))
        .find(|folder| folder.join("index.html").exists())
}

/// Binds the address. It retries for a moment, because the API server of a killed cluster may still
/// be exiting.
async fn hold(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    const TRIES: u32 = 60;
    for _ in 0..TRIES {
        if let Ok(held) = TcpListener::bind(listen) {
            return Ok(held);
        }
        tokio::time::sleep(STEP).await;
    }
    bail!("{listen} is taken; choose another address with --listen")
}

/// Returns the previous port if it is still free, or else any free one.
fn free_port(before: Option<u16>) -> anyhow::Result<u16> {
    if let Some(port) = before
        && bind(port).is_ok()
    {
        return Ok(port);
    }
    Ok(bind(0).context("find a free port")?.local_addr()?.port())
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port))
}

async fn listening(address: SocketAddr) -> anyhow::Result<()> {
    let up = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::time::timeout(READY_WITHIN, up).await.map_err(|_| {
        anyhow::anyhow!(
            "nothing listens on {address} after {} s",
            READY_WITHIN.as_secs()
        )
    })
}
