//! `muster-api`: the REST daemon, and commands that set up its database.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use muster_api::command::bootstrap::Bootstrap;
use muster_api::command::check_token::CheckToken;
use muster_api::command::migrate::Migrate;
use muster_api::command::secrets::Secrets;
use muster_api::command::serve;
use muster_api::config::ApiFlags;
use muster_api::openapi;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Muster's REST control plane.
#[derive(Debug, Parser)]
#[command(name = "muster-api", version = muster_model::version!())]
struct ApiArgs {
    #[command(subcommand)]
    command: Option<ApiCommand>,
    #[command(flatten)]
    flags: ApiFlags,
}

#[derive(Debug, Subcommand)]
enum ApiCommand {
    /// Answer requests; the default command
    Serve,
    /// Migrate the database to this version's schema
    Migrate(Migrate),
    /// Print the OpenAPI document
    Openapi,
    /// Create the first tenant, user and token, and print the token
    Bootstrap(Bootstrap),
    /// Check in the database whether a token is valid; exit code 3 if it is not
    CheckToken(CheckToken),
    /// Make a key for users' secrets, or encrypt all secrets with the first key
    Secrets(Secrets),
}

fn main() -> anyhow::Result<ExitCode> {
    // Environment and memory contain secrets, and a task may be a process of the same user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let program = ApiArgs::parse();
    log();
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let ended = runtime.block_on(run(program));
    // Work on blocking threads, such as reading a file, ends with the process.
    runtime.shutdown_background();
    ended
}

async fn run(program: ApiArgs) -> anyhow::Result<ExitCode> {
    let flags = program.flags;
    match program.command.unwrap_or(ApiCommand::Serve) {
        ApiCommand::Serve => serve::serve(flags.settings()?).await?,
        ApiCommand::Migrate(migrate) => migrate.run(flags.database_url).await?,
        ApiCommand::Openapi => print!("{}", openapi::text()),
        ApiCommand::Bootstrap(bootstrap) => bootstrap.run(flags.database_url).await?,
        ApiCommand::Secrets(secrets) => secrets.run(flags).await?,
        ApiCommand::CheckToken(check) => return check.run(flags.database_url).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs to standard error: standard output is for programs.
fn log() {
    let filter = EnvFilter::try_from_env("MUSTER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("MUSTER_LOG_FORMAT").is_ok_and(|format| format == "json");
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if json {
        builder.json().init();
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).init();
    }
}
