//! `muster`: the command line of a cluster. `muster up` runs a whole cluster on this machine.
//!
//! The command line reaches a cluster only by REST, through `muster-client`.

/// Writes a line to stderr. Unlike `eprintln!` it does not panic if the reader has gone.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note(format_args!($($text)*)) };
}

mod clock;
mod command;
mod config;
mod document;
mod isolation;
mod output;
#[cfg(test)]
mod reference;
mod refused;
mod terminal;
mod up;

use clap::{CommandFactory as _, Parser, Subcommand};
use command::CliSession;
use config::ContextStore;
use muster_client::ClientError;
use output::OutputFormat;
use std::process::ExitCode;

/// Exit codes other than 0, which scripts can distinguish.
mod exit {
    /// Any other failure.
    pub const FAILED: u8 = 1;
    /// Wrong usage, with clap's exit code.
    pub const USAGE: u8 = 2;
    /// The server refused the request: the input is wrong, or the state does not allow it.
    pub const REFUSED: u8 = 3;
    /// The job, node or task does not exist.
    pub const NOT_FOUND: u8 = 4;
    /// The server is unreachable.
    pub const UNREACHABLE: u8 = 5;
    /// The token was not accepted, or lacks the right.
    pub const DENIED: u8 = 6;
}

#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version = muster_model::version!(),
    about = "Submit, watch and steer training jobs",
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by the server; 4 not found; 5 server unreachable; \
6 token not accepted. `muster wait`: 0 succeeded, 10 failed, 11 cancelled, 12 timed out."
)]
struct Cli {
    /// Address of the REST server [default: that of the last login, or http://127.0.0.1:7070].
    #[arg(long, global = true, env = "MUSTER_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Bearer token [default: that of the last login].
    #[arg(long, global = true, env = "MUSTER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Act for this tenant instead of your own; for administrators.
    #[arg(long, global = true, env = "MUSTER_TENANT", value_name = "TENANT")]
    as_tenant: Option<String>,
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a whole cluster on this machine
    Up(Box<up::Up>),
    /// Stop the cluster that `muster up` runs
    Down(up::Down),
    /// Write a job document for the program of a folder; needs no server
    Init(command::init::InitArgs),
    /// Check and store the token of a server
    Login(command::login::LoginArgs),
    /// Simulate workloads under scheduling policies; needs no server
    Simulate(Box<command::simulate::SimulateArgs>),
    /// Compare policies on the same workloads: table, curves, HTML page; needs no server
    Compare(Box<command::compare::CompareArgs>),
    /// Print a shell completion script
    Completion { shell: clap_complete::Shell },
    #[command(flatten)]
    Remote(command::RemoteCommand),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A single thread, because child processes end with the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(cli)));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            note!("muster: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        CliCommand::Up(options) => up::up(*options, &ContextStore::locate()?).await?,
        CliCommand::Down(options) => up::down(options).await?,
        CliCommand::Init(options) => options.run()?,
        CliCommand::Login(options) => {
            let store = ContextStore::locate()?;
            options.run(cli.server, cli.token, &store).await?;
        }
        CliCommand::Simulate(options) => options.run(cli.output)?,
        CliCommand::Compare(options) => options.run(cli.output)?,
        CliCommand::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "muster", &mut output::Out);
        }
        CliCommand::Remote(command) => {
            let context = ContextStore::locate()?.resolve(cli.server, cli.token)?;
            let session = CliSession::connect(&context, cli.as_tenant.as_deref(), cli.output)?;
            return command.run(&session).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<command::UsageError>().is_some() {
        return exit::USAGE;
    }
    if error.downcast_ref::<refused::RefusedDocument>().is_some() {
        return exit::REFUSED;
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unreachable { .. }) => exit::UNREACHABLE,
        Some(ClientError::Problem(problem)) => match problem.status {
            401 | 403 => exit::DENIED,
            404 => exit::NOT_FOUND,
            400..=499 => exit::REFUSED,
            _ => exit::FAILED,
        },
        _ if error.downcast_ref::<command::NotFound>().is_some() => exit::NOT_FOUND,
        _ => exit::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
