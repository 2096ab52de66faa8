//! Settings of the scheduler: a TOML file, then environment variables `MUSTER_SCHEDULER_*`, then
//! flags. `main` reads them once.

use clap::Parser;
use muster_core::policies::name::{PolicyName, UnknownPolicy};
use muster_core::policy::{Packing, PreemptionRules, Slicing, StartLimit};
use muster_secret::{KeyError, KeySource};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Policy if none is set.
const DEFAULT_POLICY: PolicyName = PolicyName::Muster;
/// Default of `queue_window_jobs`.
pub const QUEUE_WINDOW_JOBS: u32 = 500;

/// When an executor with the cluster's join token may replace one that has presented a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejoin {
    /// Once the node is lost, so that none of its tasks can still run.
    Lost,
    /// After an administrator has reset the node.
    Reset,
}

impl std::str::FromStr for Rejoin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lost" => Ok(Self::Lost),
            "reset" => Ok(Self::Reset),
            _ => Err("expected lost or reset".to_owned()),
        }
    }
}

/// Settings of the daemon.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// Address for node sessions (gRPC).
    pub listen: SocketAddr,
    /// Address for probes and metrics, which need no token; `None`: not served.
    pub health_listen: Option<SocketAddr>,
    /// Encryption of node sessions; `None`: cleartext.
    pub tls: Option<Tls>,
    /// Postgres URL of the role `muster_scheduler`.
    pub database_url: String,
    /// Secret that an executor needs to join.
    pub join_token: String,
    /// Where the keys of users' secrets come from.
    pub secret_keys: KeySource,
    /// When an executor without its node's data folder may join again with the join token.
    pub rejoin: Rejoin,
    /// A node without an acknowledged heartbeat for this time stops its tasks.
    pub lease_ms: u64,
    pub heartbeat_ms: u64,
    /// Time from SIGTERM to SIGKILL of a task.
    pub grace_ms: u64,
    /// Maximum time until a node has started a task.
    pub start_limit: StartLimit,
    /// Minimum pause between two rounds. After a longer round the pause is as long as that round.
    pub round_min_interval_ms: u64,
    /// Maximum time until the next round without a wake-up.
    pub round_max_interval_ms: u64,
    /// Maximum number of queued jobs that one round considers, an equal part per tenant. The other
    /// jobs wait behind them.
    pub queue_window_jobs: u32,
    /// Time for which rounds are kept for replays.
    pub keep_rounds_s: u64,
    /// Time after which ended jobs and studies are deleted; 0: never.
    pub keep_ended_jobs_s: u64,
    /// Time for which the data of a deleted job is kept.
    pub keep_deleted_jobs_s: u64,
    /// Time for which events are kept, and tasks and allocations of earlier revisions of open jobs.
    pub keep_events_s: u64,
    /// Time after which a lost node without tasks is removed. Its row is deleted after the same
    /// time again.
    pub keep_gone_nodes_s: u64,
    /// Scheduling policy.
    pub policy: PolicyName,
    /// Rules for stops of jobs for jobs of equal or lower priority.
    pub preemption: PreemptionRules,
    /// Time slicing; `None` switches it off.
    pub slicing: Option<Slicing>,
    /// Packing; `None` switches it off.
    pub packing: Option<Packing>,
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate with its intermediate certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whether cleartext sessions are refused; otherwise both kinds are accepted.
    pub required: bool,
}

/// Settings of one source: flags and environment variables, or the file. The former override the
/// file.
#[derive(Debug, Default, Parser, Deserialize)]
#[command(
    name = "muster-scheduler",
    version = muster_model::version!(),
    about = "Muster's scheduler: rounds and node sessions"
)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// TOML file with the same settings, named as the flags with '_' in place of '-'.
    #[arg(long, env = "MUSTER_SCHEDULER_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Address for node sessions [default: 127.0.0.1:7071].
    #[arg(long, env = "MUSTER_SCHEDULER_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Address for /healthz, /readyz and /metrics, which need no token [default: none].
    #[arg(long, env = "MUSTER_SCHEDULER_HEALTH_LISTEN")]
    pub health_listen: Option<SocketAddr>,
    /// Certificate (PEM) that executors verify; node sessions can then use TLS [default: none,
    /// cleartext only].
    #[arg(long, env = "MUSTER_SCHEDULER_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key (PEM) of the certificate.
    #[arg(long, env = "MUSTER_SCHEDULER_TLS_KEY_FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Refuse node sessions in cleartext. Set it when all executors have an https address [default:
    /// false].
    #[arg(long, env = "MUSTER_SCHEDULER_TLS_REQUIRED")]
    pub tls_required: Option<bool>,
    /// Postgres URL of the role muster_scheduler.
    #[arg(long, env = "MUSTER_SCHEDULER_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Secret that all executors of the cluster share, at least 16 characters.
    #[arg(long, env = "MUSTER_SCHEDULER_JOIN_TOKEN", hide_env_values = true)]
    pub join_token: Option<String>,
    /// File with the keys of users' secrets, one per line as `ID:BASE64`; all decrypt. The API
    /// server needs the same keys [default: none, secrets are not delivered].
    #[arg(long, env = "MUSTER_SCHEDULER_SECRETS_KEY_FILE")]
    pub secrets_key_file: Option<PathBuf>,
    /// Program that prints these lines, with its arguments, separated by blanks.
    #[arg(
        long,
        env = "MUSTER_SCHEDULER_SECRETS_KEY_COMMAND",
        value_delimiter = ' '
    )]
    pub secrets_key_command: Option<Vec<String>>,
    /// When an executor without the node's credential may take its place with the join token:
    /// `lost`, once the node is lost, or `reset`, after `muster nodes reset` [default: lost].
    #[arg(long, env = "MUSTER_SCHEDULER_REJOIN")]
    pub rejoin: Option<Rejoin>,
    /// Milliseconds without an acknowledged heartbeat after which a node stops its tasks [default:
    /// 10000].
    #[arg(long, env = "MUSTER_SCHEDULER_LEASE_MS")]
    pub lease_ms: Option<u64>,
    /// Milliseconds between heartbeats [default: 2000].
    #[arg(long, env = "MUSTER_SCHEDULER_HEARTBEAT_MS")]
    pub heartbeat_ms: Option<u64>,
    /// Milliseconds from SIGTERM to SIGKILL of a task [default: 10000].
    #[arg(long, env = "MUSTER_SCHEDULER_GRACE_MS")]
    pub grace_ms: Option<u64>,
    /// Milliseconds after which a job leaves a node that has not started its task as a process
    /// [default: 300000].
    #[arg(long, env = "MUSTER_SCHEDULER_START_LIMIT_MS")]
    pub start_limit_ms: Option<u64>,
    /// Same limit for tasks that are pods; set it above the executors' MUSTER_EXECUTOR_POD_START_MS
    /// [default: 3600000].
    #[arg(long, env = "MUSTER_SCHEDULER_POD_START_LIMIT_MS")]
    pub pod_start_limit_ms: Option<u64>,
    /// Minimum milliseconds between rounds; after a longer round the pause is as long as that round
    /// [default: 5].
    #[arg(long, env = "MUSTER_SCHEDULER_ROUND_MIN_INTERVAL_MS")]
    pub round_min_interval_ms: Option<u64>,
    /// Maximum milliseconds between rounds [default: 1000].
    #[arg(long, env = "MUSTER_SCHEDULER_ROUND_MAX_INTERVAL_MS")]
    pub round_max_interval_ms: Option<u64>,
    /// Maximum number of queued jobs that one round considers, an equal part per tenant [default:
    /// 500].
    #[arg(long, env = "MUSTER_SCHEDULER_QUEUE_WINDOW_JOBS")]
    pub queue_window_jobs: Option<u32>,
    /// Seconds for which rounds are kept for replays [default: 604800, a week].
    #[arg(long, env = "MUSTER_SCHEDULER_KEEP_ROUNDS_S")]
    pub keep_rounds_s: Option<u64>,
    /// Seconds after its end at which a job or study is deleted; 0: never [default: 15552000, 180
    /// days].
    #[arg(long, env = "MUSTER_SCHEDULER_KEEP_ENDED_JOBS_S")]
    pub keep_ended_jobs_s: Option<u64>,
    /// Seconds for which the data of a deleted job is kept [default: 2592000, 30 days].
    #[arg(long, env = "MUSTER_SCHEDULER_KEEP_DELETED_JOBS_S")]
    pub keep_deleted_jobs_s: Option<u64>,
    /// Seconds for which events are kept [default: 7776000, 90 days].
    #[arg(long, env = "MUSTER_SCHEDULER_KEEP_EVENTS_S")]
    pub keep_events_s: Option<u64>,
    /// Seconds after which a lost node without tasks is removed [default: 2592000, 30 days].
    #[arg(long, env = "MUSTER_SCHEDULER_KEEP_GONE_NODES_S")]
    pub keep_gone_nodes_s: Option<u64>,
    /// Name of the scheduling policy [default: muster].
    #[arg(long, env = "MUSTER_SCHEDULER_POLICY")]
    pub policy: Option<String>,
    /// Maximum work that a stop for a job of equal or lower priority may lose, as a share of what
    /// that job gains, both in GPU-seconds [default: 0.25].
    #[arg(long, env = "MUSTER_SCHEDULER_PREEMPTION_RISK_SHARE")]
    pub preemption_risk_share: Option<f64>,
    /// Maximum share of a job's training time that it may have lost to other jobs when a job of
    /// equal or lower priority stops it [default: 0.05].
    #[arg(long, env = "MUSTER_SCHEDULER_PREEMPTION_LOST_SHARE")]
    pub preemption_lost_share: Option<f64>,
    /// Longest time slice in milliseconds while other jobs wait for the GPUs; 0 disables time
    /// slicing [default: 60000].
    #[arg(long, env = "MUSTER_SCHEDULER_QUANTUM_MS")]
    pub quantum_ms: Option<u64>,
    /// Maximum number of suspended jobs per GPU; each keeps its host memory [default: 3].
    #[arg(long, env = "MUSTER_SCHEDULER_SUSPENDED_PER_GPU")]
    pub suspended_per_gpu: Option<u32>,
    /// Let two time-sliced jobs run on one GPU at the same time while that is faster than time
    /// slices [default: false].
    #[arg(long, env = "MUSTER_SCHEDULER_PACKING")]
    pub packing: Option<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum SchedulerConfigError {
    #[error("read the config file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("parse the config file {path}")]
    Parse {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("{field} is missing: set it by flag, by MUSTER_SCHEDULER_{env}, or in the config file")]
    Missing {
        field: &'static str,
        env: &'static str,
    },
    #[error("the keys of secrets have no source")]
    SecretKeys(#[source] KeyError),
    #[error("policy is unknown")]
    Policy(#[source] UnknownPolicy),
    #[error("{field} is {value}; expected {expected}")]
    Invalid {
        field: &'static str,
        value: String,
        expected: &'static str,
    },
}

fn missing(field: &'static str, env: &'static str) -> SchedulerConfigError {
    SchedulerConfigError::Missing { field, env }
}

/// Refuses the value of a field unless it is right.
fn check(
    right: bool,
    field: &'static str,
    value: u64,
    expected: &'static str,
) -> Result<(), SchedulerConfigError> {
    if right {
        Ok(())
    } else {
        Err(SchedulerConfigError::Invalid {
            field,
            value: value.to_string(),
            expected,
        })
    }
}

impl SchedulerConfig {
    /// Merges the environment and the flags over the file.
    ///
    /// # Errors
    /// [`SchedulerConfigError`] for an unreadable file, an unknown or missing field, or a value out
    /// of its range.
    pub fn read(flags: SchedulerSettings) -> Result<Self, SchedulerConfigError> {
        let file = match &flags.config {
            None => SchedulerSettings::default(),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|source| SchedulerConfigError::Read {
                        path: path.clone(),
                        source,
                    })?;
                toml::from_str(&text).map_err(|source| SchedulerConfigError::Parse {
                    path: path.clone(),
                    source: Box::new(source),
                })?
            }
        };
        let policy = match flags.policy.or(file.policy) {
            None => DEFAULT_POLICY,
            Some(name) => name.parse().map_err(SchedulerConfigError::Policy)?,
        };
        let certificate = flags.tls_cert_file.or(file.tls_cert_file);
        let key = flags.tls_key_file.or(file.tls_key_file);
        let required = flags.tls_required.or(file.tls_required).unwrap_or(false);
        let tls = match (certificate, key) {
            (None, None) if required => return Err(missing("tls_cert_file", "TLS_CERT_FILE")),
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Tls {
                certificate,
                key,
                required,
            }),
            (None, Some(_)) => return Err(missing("tls_cert_file", "TLS_CERT_FILE")),
            (Some(_), None) => return Err(missing("tls_key_file", "TLS_KEY_FILE")),
        };
        let quantum_ms = flags.quantum_ms.or(file.quantum_ms).unwrap_or(60_000);
        let suspended_per_gpu = flags.suspended_per_gpu.or(file.suspended_per_gpu);
        let packs = flags.packing.or(file.packing).unwrap_or(false);
        let rules = PreemptionRules::default();
        let secret_keys = KeySource::of(
            flags.secrets_key_file.or(file.secrets_key_file),
            flags.secrets_key_command.or(file.secrets_key_command),
        );
        let config = Self {
            secret_keys: secret_keys.map_err(SchedulerConfigError::SecretKeys)?,
            preemption: PreemptionRules {
                risk_share: flags
                    .preemption_risk_share
                    .or(file.preemption_risk_share)
                    .unwrap_or(rules.risk_share),
                lost_share: flags
                    .preemption_lost_share
                    .or(file.preemption_lost_share)
                    .unwrap_or(rules.lost_share),
            },
            tls,
            policy,
            packing: packs.then(Packing::default),
            slicing: (quantum_ms > 0).then_some(Slicing {
                quantum_ms,
                suspended_per_gpu: suspended_per_gpu.unwrap_or(3),
            }),
            health_listen: flags.health_listen.or(file.health_listen),
            listen: flags
                .listen
                .or(file.listen)
                .unwrap_or_else(|| ([127, 0, 0, 1], 7071).into()),
            database_url: flags
                .database_url
                .or(file.database_url)
                .ok_or_else(|| missing("database_url", "DATABASE_URL"))?,
            join_token: flags
                .join_token
                .or(file.join_token)
                .ok_or_else(|| missing("join_token", "JOIN_TOKEN"))?,
            rejoin: flags.rejoin.or(file.rejoin).unwrap_or(Rejoin::Lost),
            lease_ms: flags.lease_ms.or(file.lease_ms).unwrap_or(10_000),
            heartbeat_ms: flags.heartbeat_ms.or(file.heartbeat_ms).unwrap_or(2_000),
            grace_ms: flags.grace_ms.or(file.grace_ms).unwrap_or(10_000),
            start_limit: StartLimit {
                process_ms: flags
                    .start_limit_ms
                    .or(file.start_limit_ms)
                    .unwrap_or(StartLimit::default().process_ms),
                pod_ms: flags
                    .pod_start_limit_ms
                    .or(file.pod_start_limit_ms)
                    .unwrap_or(StartLimit::default().pod_ms),
            },
            round_min_interval_ms: flags
                .round_min_interval_ms
                .or(file.round_min_interval_ms)
                .unwrap_or(5),
            round_max_interval_ms: flags
                .round_max_interval_ms
                .or(file.round_max_interval_ms)
                .unwrap_or(1_000),
            queue_window_jobs: flags
                .queue_window_jobs
                .or(file.queue_window_jobs)
                .unwrap_or(QUEUE_WINDOW_JOBS),
            keep_rounds_s: flags
                .keep_rounds_s
                .or(file.keep_rounds_s)
                .unwrap_or(7 * 86_400),
            keep_ended_jobs_s: flags
                .keep_ended_jobs_s
                .or(file.keep_ended_jobs_s)
                .unwrap_or(180 * 86_400),
            keep_deleted_jobs_s: flags
                .keep_deleted_jobs_s
                .or(file.keep_deleted_jobs_s)
                .unwrap_or(30 * 86_400),
            keep_events_s: flags
                .keep_events_s
                .or(file.keep_events_s)
                .unwrap_or(90 * 86_400),
            keep_gone_nodes_s: flags
                .keep_gone_nodes_s
                .or(file.keep_gone_nodes_s)
                .unwrap_or(30 * 86_400),
        };
        config.validate()?;
        Ok(config)
    }

    /// Silence in milliseconds after which a node has stopped its tasks by itself: lease, grace and
    /// a margin for clocks.
    #[must_use]
    pub fn lost_after_ms(&self) -> u64 {
        const CLOCK_MARGIN_MS: u64 = 1_000;
        self.lease_ms + self.grace_ms + CLOCK_MARGIN_MS
    }

    fn validate_kept(&self) -> Result<(), SchedulerConfigError> {
        const HOUR_S: u64 = 3_600;
        const DAY_S: u64 = 86_400;
        const EXPECTED_HOUR: &str = "3600 (an hour) to 315360000 (ten years)";
        const EXPECTED_DAY: &str = "86400 (a day) to 315360000 (ten years)";
        const EXPECTED_ENDED: &str = "0 (for ever), or 3600 (an hour) to 315360000 (ten years)";
        // 0 means for ever.
        let ended_s = self.keep_ended_jobs_s;
        let ended_from_s = if ended_s == 0 { 0 } else { HOUR_S };
        for (field, kept_s, from_s, expected) in [
            ("keep_rounds_s", self.keep_rounds_s, HOUR_S, EXPECTED_HOUR),
            ("keep_ended_jobs_s", ended_s, ended_from_s, EXPECTED_ENDED),
            (
                "keep_deleted_jobs_s",
                self.keep_deleted_jobs_s,
                HOUR_S,
                EXPECTED_HOUR,
            ),
            ("keep_events_s", self.keep_events_s, DAY_S, EXPECTED_DAY),
            (
                "keep_gone_nodes_s",
                self.keep_gone_nodes_s,
                HOUR_S,
                EXPECTED_HOUR,
            ),
        ] {
            if !(from_s..=3_650 * DAY_S).contains(&kept_s) {
                return Err(SchedulerConfigError::Invalid {
                    field,
                    value: kept_s.to_string(),
                    expected,
                });
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), SchedulerConfigError> {
        if self.join_token.len() < 16 {
            return Err(SchedulerConfigError::Invalid {
                field: "join_token",
                value: format!("{} characters long", self.join_token.len()),
                expected: "at least 16 characters",
            });
        }
        check(
            (500..=600_000).contains(&self.lease_ms),
            "lease_ms",
            self.lease_ms,
            "500 to 600000",
        )?;
        check(
            self.heartbeat_ms >= 50 && self.heartbeat_ms * 2 <= self.lease_ms,
            "heartbeat_ms",
            self.heartbeat_ms,
            "at least 50 and at most half of lease_ms",
        )?;
        check(
            (100..=600_000).contains(&self.grace_ms),
            "grace_ms",
            self.grace_ms,
            "100 to 600000",
        )?;
        for (field, limit_ms) in [
            ("start_limit_ms", self.start_limit.process_ms),
            ("pod_start_limit_ms", self.start_limit.pod_ms),
        ] {
            check(
                (1_000..=86_400_000).contains(&limit_ms),
                field,
                limit_ms,
                "1000 (a second) to 86400000 (a day)",
            )?;
        }
        for (field, share) in [
            ("preemption_risk_share", self.preemption.risk_share),
            ("preemption_lost_share", self.preemption.lost_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(SchedulerConfigError::Invalid {
                    field,
                    value: share.to_string(),
                    expected: "0 to 1",
                });
            }
        }
        if self.packing.is_some() && self.slicing.is_none() {
            return Err(SchedulerConfigError::Invalid {
                field: "packing",
                value: "true".to_owned(),
                expected: "false if quantum_ms is 0: without time slices no job is measured alone",
            });
        }
        if let Some(slicing) = self.slicing {
            check(
                (100..=86_400_000).contains(&slicing.quantum_ms),
                "quantum_ms",
                slicing.quantum_ms,
                "0 (no time slices), or 100 to 86400000 (a day)",
            )?;
            check(
                (1..=64).contains(&slicing.suspended_per_gpu),
                "suspended_per_gpu",
                slicing.suspended_per_gpu.into(),
                "1 to 64",
            )?;
        }
        self.validate_kept()?;
        check(
            (16..=20_000).contains(&self.queue_window_jobs),
            "queue_window_jobs",
            self.queue_window_jobs.into(),
            "16 to 20000",
        )?;
        check(
            self.round_min_interval_ms <= self.round_max_interval_ms
                && (1..=60_000).contains(&self.round_max_interval_ms),
            "round_min_interval_ms",
            self.round_min_interval_ms,
            "at most round_max_interval_ms, which is 1 to 60000",
        )
    }
}
