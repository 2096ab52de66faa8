//! Settings of the daemon: a TOML file, then the environment (`MUSTER_API_*`), then flags; the
//! later one wins. They are read once, in `main`.

use crate::address::Networks;
use anyhow::Context as _;
use clap::Args;
use muster_archive::MAX_ARCHIVE_BYTES;
use muster_connections::ConnectionLimits;
use muster_model::place::Place;
use muster_secret::KeySource;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of `serve`.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub listen: SocketAddr,
    pub database_url: String,
    pub database_connections: u32,
    pub checkpoint_root: Option<Place>,
    pub web_root: Option<PathBuf>,
    /// Where the keys of users' secrets come from.
    pub secret_keys: KeySource,
    /// Address of the scheduler for remote sessions; without it they are refused.
    pub scheduler: Option<SchedulerAddress>,
    pub limits: ClientLimits,
}

/// Address of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerAddress {
    pub url: String,
    /// Authority that verifies an https scheduler.
    pub ca_file: Option<PathBuf>,
}

/// Limits of clients.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientLimits {
    /// Maximum size of a request's body.
    pub body_bytes: usize,
    /// Maximum size of a code archive; at most [`MAX_ARCHIVE_BYTES`].
    pub code_archive_bytes: u64,
    /// Requests per second of one token in the long run.
    pub requests_per_s: u32,
    /// Requests of one token at once.
    pub requests_burst: u32,
    /// Requests per second of all tokens of one tenant in the long run; at least those of one
    /// token.
    pub tenant_requests_per_s: u32,
    /// Requests of all tokens of one tenant at once.
    pub tenant_requests_burst: u32,
    /// Requests per second of one client address without a valid token in the long run.
    pub failures_per_s: u32,
    /// Requests of one client address without a valid token at once.
    pub failures_burst: u32,
    /// Time from the head of a request to the head of its answer. Streams and downloads may last
    /// longer.
    pub request_timeout_ms: u64,
    /// The same for uploads of code archives.
    pub upload_timeout_ms: u64,
    /// Maximum number of open event streams of all clients.
    pub streams: usize,
    /// Maximum number of open event streams of one tenant's clients. An operator holds one per
    /// tenant with objects.
    pub streams_per_tenant: usize,
    /// Maximum number of open connections of all clients.
    pub connections: usize,
    /// Maximum number of open connections of one address that is no trusted proxy.
    pub connections_per_address: usize,
    /// Time from the start of a connection, or from the first byte of a header, to the end of the
    /// header.
    pub header_timeout_ms: u64,
    /// Idle time of a connection. Longer than the reuse time of proxies, which is 60 s in nginx.
    pub idle_timeout_ms: u64,
    /// Proxies whose `X-Forwarded-For` gives the client's address.
    pub trusted_proxies: Networks,
}

/// Flags of `serve`, each with its environment variable.
#[derive(Debug, Clone, Default, Args)]
pub struct ApiFlags {
    /// TOML file with the same settings
    #[arg(long, env = "MUSTER_API_CONFIG", global = true)]
    pub config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:7070]
    #[arg(long, env = "MUSTER_API_LISTEN", global = true)]
    pub listen: Option<SocketAddr>,
    /// Address of Postgres, with a login that is a member of the role muster_api only
    #[arg(
        long,
        env = "MUSTER_API_DATABASE_URL",
        global = true,
        hide_env_values = true
    )]
    pub database_url: Option<String>,
    /// Maximum number of connections to Postgres [default: 16]
    #[arg(long, env = "MUSTER_API_DATABASE_CONNECTIONS", global = true)]
    pub database_connections: Option<u32>,
    /// Where nodes write checkpoints: a folder, or a bucket such as s3://bucket/prefix. Without it
    /// downloads are refused
    #[arg(long, env = "MUSTER_API_CHECKPOINT_ROOT", global = true)]
    pub checkpoint_root: Option<Place>,
    /// Folder of the built web page. Without it no page is served
    #[arg(long, env = "MUSTER_API_WEB_ROOT", global = true)]
    pub web_root: Option<PathBuf>,
    /// File with the keys of users' secrets, one per line as `ID:BASE64`; the first encrypts. The
    /// scheduler needs the same keys. Without it secrets are refused
    #[arg(long, env = "MUSTER_API_SECRETS_KEY_FILE", global = true)]
    pub secrets_key_file: Option<PathBuf>,
    /// Program that prints these lines, with its arguments, separated by blanks
    #[arg(
        long,
        env = "MUSTER_API_SECRETS_KEY_COMMAND",
        global = true,
        value_delimiter = ' '
    )]
    pub secrets_key_command: Option<Vec<String>>,
    /// Address of the scheduler, as executors have it. Without it remote sessions (exec,
    /// port-forward, cp) are refused
    #[arg(long, env = "MUSTER_API_SCHEDULER_URL", global = true)]
    pub scheduler_url: Option<String>,
    /// File with the authority that verifies an https scheduler
    #[arg(long, env = "MUSTER_API_SCHEDULER_CA_FILE", global = true)]
    pub scheduler_ca_file: Option<PathBuf>,
    /// Requests per second of one token in the long run [default: 500]
    #[arg(long, env = "MUSTER_API_REQUESTS_PER_S", global = true)]
    pub requests_per_s: Option<u32>,
    /// Requests of one token at once [default: 1000]
    #[arg(long, env = "MUSTER_API_REQUESTS_BURST", global = true)]
    pub requests_burst: Option<u32>,
    /// Requests per second of all tokens of one tenant in the long run [default: 2000]
    #[arg(long, env = "MUSTER_API_TENANT_REQUESTS_PER_S", global = true)]
    pub tenant_requests_per_s: Option<u32>,
    /// Requests of all tokens of one tenant at once [default: 4000]
    #[arg(long, env = "MUSTER_API_TENANT_REQUESTS_BURST", global = true)]
    pub tenant_requests_burst: Option<u32>,
    /// Maximum number of open connections [default: 4096]
    #[arg(long, env = "MUSTER_API_CONNECTIONS", global = true)]
    pub connections: Option<usize>,
    /// Maximum number of open connections of one address that is no trusted proxy [default: 1024]
    #[arg(long, env = "MUSTER_API_CONNECTIONS_PER_ADDRESS", global = true)]
    pub connections_per_address: Option<usize>,
    /// Addresses or networks of proxies whose X-Forwarded-For gives the client's address, separated
    /// by commas [default: none]
    #[arg(long, env = "MUSTER_API_TRUSTED_PROXIES", global = true)]
    pub trusted_proxies: Option<Networks>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ApiConfigFile {
    listen: Option<SocketAddr>,
    database_url: Option<String>,
    database_connections: Option<u32>,
    checkpoint_root: Option<Place>,
    web_root: Option<PathBuf>,
    secrets_key_file: Option<PathBuf>,
    secrets_key_command: Option<Vec<String>>,
    scheduler_url: Option<String>,
    scheduler_ca_file: Option<PathBuf>,
    limits: ClientLimits,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            code_archive_bytes: 128 << 20,
            requests_per_s: 500,
            requests_burst: 1000,
            tenant_requests_per_s: 2000,
            tenant_requests_burst: 4000,
            failures_per_s: 10,
            failures_burst: 100,
            request_timeout_ms: 30_000,
            upload_timeout_ms: 600_000,
            streams: 1024,
            streams_per_tenant: 256,
            connections: 4096,
            connections_per_address: 1024,
            header_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            trusted_proxies: Networks::default(),
        }
    }
}

impl ClientLimits {
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    #[must_use]
    pub fn upload_timeout(&self) -> Duration {
        Duration::from_millis(self.upload_timeout_ms)
    }

    /// Returns the limits of connections.
    #[must_use]
    pub fn bounds(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            header_timeout: Duration::from_millis(self.header_timeout_ms),
            idle_timeout: Duration::from_millis(self.idle_timeout_ms),
        }
    }
}

impl ApiFlags {
    /// Merges file and flags.
    ///
    /// # Errors
    /// If the file is not readable or has unknown fields, or no database is given.
    pub fn settings(self) -> anyhow::Result<ApiSettings> {
        let file = self
            .config
            .as_deref()
            .map(read)
            .transpose()?
            .unwrap_or_default();
        let limits = self.limits(file.limits);
        let archive_bytes = limits.code_archive_bytes;
        anyhow::ensure!(
            archive_bytes <= MAX_ARCHIVE_BYTES,
            "limits.code_archive_bytes is {archive_bytes}; expected at most {MAX_ARCHIVE_BYTES}"
        );
        let key_file = self.secrets_key_file.or(file.secrets_key_file);
        let key_command = self.secrets_key_command.or(file.secrets_key_command);
        let ca_file = self.scheduler_ca_file.or(file.scheduler_ca_file);
        let scheduler = self.scheduler_url.or(file.scheduler_url);
        Ok(ApiSettings {
            scheduler: scheduler.map(|url| SchedulerAddress { url, ca_file }),
            secret_keys: KeySource::of(key_file, key_command).context("secrets_key_file")?,
            listen: self.listen.or(file.listen).unwrap_or_else(|| ([127, 0, 0, 1], 7070).into()),
            database_url: self
                .database_url
                .or(file.database_url)
                .context("no database: give --database-url, MUSTER_API_DATABASE_URL or database_url in the file")?,
            database_connections: self.database_connections.or(file.database_connections).unwrap_or(16),
            checkpoint_root: self.checkpoint_root.or(file.checkpoint_root),
            web_root: self.web_root.or(file.web_root),
            limits,
        })
    }
}

impl ApiFlags {
    /// Returns the limits of the file, overridden by flags.
    fn limits(&self, mut limits: ClientLimits) -> ClientLimits {
        fn set<T: Clone>(limit: &mut T, flag: Option<&T>) {
            if let Some(flag) = flag {
                *limit = flag.clone();
            }
        }
        set(&mut limits.requests_per_s, self.requests_per_s.as_ref());
        set(&mut limits.requests_burst, self.requests_burst.as_ref());
        set(
            &mut limits.tenant_requests_per_s,
            self.tenant_requests_per_s.as_ref(),
        );
        set(
            &mut limits.tenant_requests_burst,
            self.tenant_requests_burst.as_ref(),
        );
        set(&mut limits.connections, self.connections.as_ref());
        set(
            &mut limits.connections_per_address,
            self.connections_per_address.as_ref(),
        );
        set(&mut limits.trusted_proxies, self.trusted_proxies.as_ref());
        limits
    }
}

fn read(path: &Path) -> anyhow::Result<ApiConfigFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("understand {}", path.display()))
}
