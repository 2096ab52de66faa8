//! `muster up`: a whole cluster on this machine. It starts the daemons of a production cluster and
//! restarts them if they exit.

mod daemons;
mod data;
mod down;
mod example;
mod postgres;
mod process;
mod rotation;
mod samples;
mod script;
mod view;

pub use data::write_private;
pub use down::down;

use crate::config::{ContextStore, ServerContext};
use crate::isolation;
use anyhow::{Context as _, bail};
use clap::Args;
use daemons::{LocalCluster, LocalClusterSettings};
use data::DataFolder;
use muster_client::Client;
use muster_model::place::Place;
use muster_model::view::NodeView;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, Args)]
pub struct Up {
    /// Folder for the database, checkpoints and logs [default: the user's data directory;
    /// /var/lib/muster as root].
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Number of local nodes, 1 to 16.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// CPU slots per node if there are no GPUs, 1 to 64.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Use this Postgres instead of a private one; the URL names the owner of a database that is
    /// empty or already Muster's.
    #[arg(
        long,
        value_name = "URL",
        env = "MUSTER_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    /// Address of REST and the web page.
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Folder or bucket for checkpoints, such as s3://bucket/prefix, instead of the data folder;
    /// credentials come from the environment.
    #[arg(long, value_name = "PLACE")]
    checkpoints: Option<Place>,
    /// Do not submit the example job.
    #[arg(long)]
    no_example: bool,
    /// Delete everything in the data folder first.
    #[arg(long)]
    reset: bool,
    /// Stop the cluster once the example job has ended; the exit code gives its result.
    #[arg(long, conflicts_with = "no_example")]
    until_done: bool,
}

#[derive(Debug, Args)]
pub struct Down {
    /// Data folder that `muster up` uses.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

/// Runs the cluster until a signal, or with `--until-done` until the example job has ended.
///
/// # Errors
/// One line about the failed step. All started processes are stopped.
pub async fn up(options: Up, store: &ContextStore) -> anyhow::Result<()> {
    // This process passes secrets to the daemons, and tasks are processes of the same user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut stop = StopSignals::listen()?;
    let folder = DataFolder::choose(options.data.clone())?;
    if let Some(parent) = folder.root().parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    let _lock = folder.lock()?;
    if options.reset {
        folder.reset()?;
    }
    folder.prepare()?;
    let settings = LocalClusterSettings {
        nodes: options.nodes,
        slots: options.slots,
        listen: options.listen,
        database_url: options.database_url.clone(),
        checkpoints: match &options.checkpoints {
            Some(Place::Folder(path)) => Place::Folder(
                std::path::absolute(path).with_context(|| format!("find {}", path.display()))?,
            ),
            Some(bucket) => bucket.clone(),
            None => Place::Folder(folder.checkpoints()),
        },
    };
    let mut cluster = LocalCluster::new(folder.clone(), settings).await?;
    let outcome = tokio::select! {
        outcome = run(&options, &folder, store, &mut cluster) => outcome,
        () = stop.next() => {
            note!("\nstopping; running jobs write a checkpoint and continue with the next `muster up`");
            Ok(())
        }
    };
    tokio::select! {
        () = cluster.stop() => {}
        () = stop.next() => bail!("stopped without waiting for the tasks to end"),
    }
    outcome
}

/// Returns lines about the users as which programs of jobs run, and so about their isolation.
fn isolation(nodes: &[NodeView]) -> String {
    let user = std::env::var("MUSTER_EXECUTOR_TASK_USER");
    let has_user = user.is_ok_and(|user| !user.is_empty());
    match rustix::process::geteuid() {
        _ if has_user => isolation::lines(nodes).join("\n"),
        own if own.is_root() => "programs of jobs run as root, as this command does: they may read and change all of this machine; MUSTER_EXECUTOR_TASK_USER=200000-265535 gives each tenant a user of its own".to_owned(),
        own => format!("programs of jobs run as user {}, as this command does", own.as_raw()),
    }
}

async fn run(
    options: &Up,
    folder: &DataFolder,
    store: &ContextStore,
    cluster: &mut LocalCluster,
) -> anyhow::Result<()> {
    cluster.start_database().await?;
    cluster.migrate().await?;
    let server = format!("http://{}", options.listen);
    let (token, is_new) = sign_in(store, cluster, &server).await?;
    let datasets = if options.no_example {
        example::dataset_root()
    } else {
        example::fetch_dataset().await?
    };
    if let Err(error) = samples::place(&datasets) {
        note!("the data of the examples is missing: {error:#}");
    }
    cluster.start_daemons(&datasets).await?;
    let client = Client::new(&server, &token)?;
    cluster.wait_until_ready(&client).await?;
    eprintln!("{}", isolation(&client.nodes().await?));
    // The token is shown once, when it is created. The address with it signs the browser in.
    let page = if is_new {
        format!("{server}/#token={token}")
    } else {
        server.clone()
    };
    note!("web page: {page}");
    if options.no_example {
        note!("ready; submit a job with `muster submit FILE`; Ctrl-C stops the cluster");
        return std::future::pending().await;
    }
    let job = example::submit_once(folder, &client).await?;
    let (succeeded, visited) = tokio::join!(
        view::watch(&client, job, cluster.checkpoints()),
        example::visit(folder, &client, job)
    );
    visited.context("submit the second job")?;
    let succeeded = succeeded?;
    if options.until_done {
        if !succeeded {
            bail!("the example job did not succeed");
        }
        return Ok(());
    }
    note!("the cluster continues; web page: {page}; Ctrl-C stops it");
    std::future::pending().await
}

/// Returns the token of the first user, and whether it is new. It is stored in the settings; it is
/// created and printed if it is missing or belongs to another cluster.
async fn sign_in(
    store: &ContextStore,
    cluster: &LocalCluster,
    server: &str,
) -> anyhow::Result<(String, bool)> {
    let known = store.context_for(server)?;
    if let Some(known) = known
        && cluster.accepts(&known.token).await?
    {
        return Ok((known.token, false));
    }
    let token = cluster.bootstrap().await?;
    store.save(ServerContext {
        server: server.to_owned(),
        token: token.clone(),
    })?;
    note!(
        "token of the first user, shown once and kept in {}: {token}",
        store.path().display()
    );
    Ok((token, true))
}

/// Receives SIGINT and SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
