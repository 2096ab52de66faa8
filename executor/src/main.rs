//! `muster-executor`: the node daemon.
//!
//! Hidden subcommands: `shim` is the parent of one task, `command` prepares and becomes a user's
//! own program, and `driver` calls the GPU driver for a shim. `remote` enters a task for a user.
//! `fetch-image` pulls an image, and `try-image` tries whether tasks can run in images.

use anyhow::Context;
use clap::{Parser, Subcommand};
use muster_executor::command::CommandArguments;
use muster_executor::config::ExecutorSettings;
use muster_executor::driver::{self, DriverArguments};
use muster_executor::image::{self, FetchArguments};
use muster_executor::remote::{self, helper::RemoteArguments};
use muster_executor::shim::{self, ShimArguments, TrialArguments};
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// Runs the tasks that Muster's scheduler assigns to this machine.
#[derive(Debug, Parser)]
#[command(
    name = "muster-executor",
    version = muster_model::version!(),
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    /// TOML file with settings; environment variables and flags take precedence
    #[arg(long, env = "MUSTER_EXECUTOR_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: ExecutorSettings,
    #[command(subcommand)]
    command: Option<HiddenCommand>,
}

#[derive(Debug, Subcommand)]
enum HiddenCommand {
    #[command(hide = true)]
    Shim(ShimArguments),
    #[command(hide = true)]
    Command(CommandArguments),
    #[command(hide = true)]
    Driver(DriverArguments),
    #[command(hide = true)]
    Remote(RemoteArguments),
    #[command(hide = true)]
    FetchImage(FetchArguments),
    #[command(hide = true)]
    TryImage(TrialArguments),
}

fn main() -> anyhow::Result<()> {
    // Before the join token is read, because other processes of this user could read it in memory.
    // The `driver` helper has no secrets.
    if std::env::args_os()
        .nth(1)
        .is_none_or(|name| name != "driver")
    {
        shim::forbid_tracing();
    }
    let arguments = Arguments::parse();
    match arguments.command {
        // On the main thread and without an async runtime: see `shim::child`.
        Some(HiddenCommand::Shim(shim)) => return Ok(shim::run(&shim)?),
        Some(HiddenCommand::Command(task)) => {
            std::process::exit(muster_executor::command::run(&task))
        }
        Some(HiddenCommand::Driver(order)) => std::process::exit(driver::run(&order)),
        Some(HiddenCommand::Remote(session)) => return Ok(remote::helper::run(&session)?),
        Some(HiddenCommand::FetchImage(fetch)) => std::process::exit(image::fetch(&fetch)),
        Some(HiddenCommand::TryImage(trial)) => std::process::exit(shim::try_image(&trial)),
        None => {}
    }
    log_to_stderr()?;
    let file = arguments
        .config
        .map(|path| ExecutorSettings::from_file(&path))
        .transpose()?
        .unwrap_or_default();
    let config = arguments.settings.over(file).resolve()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(muster_executor::daemon::run(config))?;
    // `run` has waited for what must end. After a second signal it has not, and the remaining work
    // is abandoned.
    runtime.shutdown_background();
    Ok(())
}

fn log_to_stderr() -> anyhow::Result<()> {
    let filter = match std::env::var("MUSTER_LOG") {
        Ok(text) => EnvFilter::try_new(&text).with_context(|| format!("MUSTER_LOG is {text:?}"))?,
        Err(_) => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::env::var("MUSTER_LOG_FORMAT").is_ok_and(|format| format == "json") {
        log.json().init();
    } else {
        log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init();
    }
    Ok(())
}
