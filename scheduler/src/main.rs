//! `muster-scheduler`: reads its settings, then runs rounds and node sessions until SIGTERM or
//! SIGINT.

use anyhow::Context as _;
use clap::Parser as _;
use muster_core::policy::Policy;
use muster_proto::session::node_sessions_server::NodeSessionsServer;
use muster_proto::session::remote_sessions_server::RemoteSessionsServer;
use muster_scheduler::config::{SchedulerConfig, SchedulerSettings};
use muster_scheduler::erasure::Erasures;
use muster_scheduler::health::{self, Health};
use muster_scheduler::leader::{self, Loops, TermError};
use muster_scheduler::metrics::Metrics;
use muster_scheduler::notifications::{self, Notifications};
use muster_scheduler::session::{self, Pools, Registry, Sessions};
use muster_scheduler::{
    erasure, forecast, horizon, lease, node_speed, question, remote, retention, round, study, tls,
};
use muster_store::pool::StorePool;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// Maximum Postgres connections for rounds, leases, heartbeats, studies and questions.
const OWN_CONNECTIONS: u32 = 12;
/// Maximum Postgres connections for reports and assignments of nodes.
const SESSION_CONNECTIONS: u32 = 12;

fn main() -> anyhow::Result<()> {
    // The process holds secrets, and a task may be a process of the same user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    trace();
    let config = Arc::new(SchedulerConfig::read(SchedulerSettings::parse())?);
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let ended = runtime.block_on(run(config));
    // Does not wait for a forecast or a plan that computes for seconds.
    runtime.shutdown_background();
    ended
}

async fn run(config: Arc<SchedulerConfig>) -> anyhow::Result<()> {
    let connections =
        |most| muster_store::pool::scheduler(&config.database_url, most).context("database_url");
    let pools = Pools {
        own: connections(OWN_CONNECTIONS)?,
        sessions: connections(SESSION_CONNECTIONS)?,
    };
    let pool = pools.own.clone();
    let (listener, notifications) = notifications::channel();
    let (leads, leader) = watch::channel(false);
    tokio::spawn(listener.run(pool.clone()));
    tokio::spawn(leader::campaign(config.database_url.clone(), leads));
    let (registry, erasures) = (Registry::default(), Erasures::default());
    let metrics = Arc::new(Metrics::default());
    let health = Health {
        pools: pools.clone(),
        metrics: Arc::clone(&metrics),
        leader: leader.clone(),
    };
    let sessions = Sessions::new(
        &pools,
        Arc::clone(&config),
        &notifications,
        (registry.clone(), erasures.clone()),
        leader.clone(),
        Arc::clone(&metrics),
    );
    let keys = sessions.secret_keys();
    tokio::spawn(async move { keys.check().await });
    let leading = Leading {
        pool,
        policy: Policy {
            slicing: config.slicing,
            preemption: config.preemption,
            packing: config.packing,
            start_limit: Some(config.start_limit),
            ..Policy::named(config.policy)
        },
        config: Arc::clone(&config),
        notifications,
        erasures,
        metrics,
    };
    if let Some(warning) = muster_clock::warning() {
        tracing::warn!("{warning}");
    }
    tracing::info!(listen = %config.listen, "muster-scheduler is up");
    tokio::select! {
        served = serve(&config, sessions) => served?,
        answered = answer(&config, health) => answered?,
        ended = lead(&leading, leader, &registry) => ended.context("this process cannot lead any more")?,
        () = stop_signal()? => {}
    }
    tracing::info!("muster-scheduler stops");
    Ok(())
}

/// Runs one term of leadership after the other. After each term all sessions end, so that nodes
/// find the new leader.
async fn lead(
    leading: &Leading,
    mut leader: watch::Receiver<bool>,
    registry: &Registry,
) -> Result<(), TermError> {
    while leader.wait_for(|leads| *leads).await.is_ok() {
        let term = leader::term(&mut leader, leader::TERM_ENDS, |loops| leading.start(loops));
        let ended = term.await;
        registry.end_all();
        ended?;
    }
    Ok(())
}

/// State that the loops of a term share.
#[derive(Clone)]
struct Leading {
    pool: StorePool,
    policy: Policy,
    config: Arc<SchedulerConfig>,
    notifications: Notifications,
    erasures: Erasures,
    metrics: Arc<Metrics>,
}

impl Leading {
    fn start(&self, loops: &mut Loops) {
        let it = self.clone();
        loops.spawn("rounds", async move {
            round::run(
                &it.pool,
                &it.policy,
                &it.config,
                it.notifications,
                &it.metrics,
            )
            .await;
        });
        let it = self.clone();
        loops.spawn(
            "leases",
            async move { lease::run(&it.pool, &it.config).await },
        );
        let it = self.clone();
        loops.spawn("forecasts", async move {
            forecast::run(&it.pool, &it.policy).await
        });
        let it = self.clone();
        loops.spawn("questions", async move {
            question::run(&it.pool, &it.policy, it.notifications).await;
        });
        let it = self.clone();
        loops.spawn("studies", async move {
            study::run(&it.pool, it.notifications).await
        });
        let it = self.clone();
        loops.spawn("erasures", async move {
            erasure::run(&it.pool, &it.erasures).await
        });
        let it = self.clone();
        loops.spawn("horizon", async move {
            horizon::run(&it.pool, &it.metrics).await
        });
        let it = self.clone();
        loops.spawn("node speeds", async move {
            node_speed::run(&it.pool, &it.policy).await
        });
        let it = self.clone();
        loops.spawn("retention", async move {
            retention::run(&it.pool, &it.config).await
        });
        let it = self.clone();
        loops.spawn("remote sessions", async move {
            remote::end_abandoned(&it.pool).await
        });
    }
}

async fn serve(config: &SchedulerConfig, sessions: Sessions) -> anyhow::Result<()> {
    let remote = RemoteSessionsServer::new(sessions.remote())
        .max_decoding_message_size(muster_proto::MAX_REMOTE_BYTES);
    let service = NodeSessionsServer::new(sessions)
        .max_decoding_message_size(muster_proto::MAX_MESSAGE_BYTES)
        .max_encoding_message_size(muster_proto::MAX_MESSAGE_BYTES);
    let encryption = config.tls.as_ref().map(tls::Encryption::read).transpose();
    let encryption = encryption.context("encrypt node sessions")?;
    let listener = tokio::net::TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", config.listen))?;
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_millis(config.lease_ms)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .layer(tower::util::MapRequestLayer::new(session::bounded))
        .add_service(service)
        .add_service(remote)
        .serve_with_incoming(tls::sessions(listener, encryption, tls::PATIENCE))
        .await
        .context("serve node sessions")
}

/// Serves probes and metrics. Waits for ever if no address is set.
async fn answer(config: &SchedulerConfig, health: Health) -> anyhow::Result<()> {
    let Some(address) = config.health_listen else {
        return std::future::pending().await;
    };
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("listen on {address} for probes"))?;
    health::serve(listener, health).await;
    Ok(())
}

/// Returns at SIGTERM or SIGINT. Node sessions break off; the nodes keep their tasks and dial in
/// again.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn trace() {
    let filter = EnvFilter::try_from_env("MUSTER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("MUSTER_LOG_FORMAT").is_ok_and(|format| format == "json");
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if json {
        builder.json().init()
    } else {
        builder.init()
    }
}
