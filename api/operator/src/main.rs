//! `muster-operator`: prints the custom resource definitions, or reconciles the objects until
//! SIGTERM or SIGINT.

use anyhow::Context as _;
use clap::Parser as _;
use muster_operator::config::{OperatorArgs, OperatorCommand, OperatorRunArgs};
use muster_operator::context::OperatorContext;
use muster_operator::crd;
use muster_operator::metrics::{self, OperatorMetrics};
use muster_operator::tenants::Tenants;
use muster_operator::{controllers, server};
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

fn main() -> anyhow::Result<()> {
    // The environment and the memory contain secrets, and a task may run as the same user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    match OperatorArgs::parse().command {
        OperatorCommand::Crds => {
            print!("{}", crd::yaml());
            Ok(())
        }
        OperatorCommand::Run(run) => {
            let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
            let ended = runtime.block_on(follow(*run));
            // A blocking name resolution must not delay the exit.
            runtime.shutdown_background();
            ended
        }
    }
}

async fn follow(run: OperatorRunArgs) -> anyhow::Result<()> {
    trace();
    // Selects the process-wide TLS provider of this project, unless one is already selected.
    let _ = muster_client::Client::new(&run.server, "-").context("--server")?;
    let metrics = OperatorMetrics::default();
    let config = kube::Config::infer().await;
    let config = config.context("find out how to reach Kubernetes")?;
    let kubernetes = metrics::kubernetes(config, &metrics).context("prepare for Kubernetes")?;
    let listener = TcpListener::bind(run.listen)
        .await
        .with_context(|| format!("listen on {}", run.listen))?;
    let tenants = Tenants::new(
        kubernetes.clone(),
        run.server.clone(),
        run.admin_token(),
        run.default_tenant.clone(),
        metrics.clone(),
    );
    let context = Arc::new(OperatorContext::new(
        kubernetes,
        tenants,
        run.name.clone(),
        metrics,
    ));
    tracing::info!(
        server = run.server,
        name = run.name,
        "muster-operator is up"
    );
    let scope = run.scope();
    let placeholders = run.placeholders().context("--placeholders")?;
    tokio::select! {
        () = controllers::run(Arc::clone(&context), &scope, placeholders) => {}
        () = server::serve(context, listener) => {}
        () = stop_signal()? => {}
    }
    tracing::info!("muster-operator stops");
    Ok(())
}

/// Completes at SIGTERM or SIGINT. The next process repeats unfinished work.
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
