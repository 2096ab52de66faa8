//! `muster-executor remote`: enters a task and runs one command, or copies files.
//!
//! It is a process of its own, because a thread of the daemon can enter no other mount namespace,
//! and because it is the parent of all processes of the session: none of them outlives it.

mod place;
mod supervise;

use super::task::RunningTask;
use crate::process::ProcessId;
use crate::task_user::TaskUser;
use muster_archive::{receive, send};
use muster_model::error_chain::chain;
use muster_model::remote::{RemoteAction, RemoteEnd};
use place::TaskPlace;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First message of the helper.
pub const STARTED: &str = "started";

/// Number of names in a note about files that are not copied.
const NAMED: usize = 3;

/// Arguments of the hidden subcommand `remote`; the daemon passes them.
#[derive(Debug, Clone, clap::Args)]
pub struct RemoteArguments {
    /// Process of the task's program
    #[arg(long)]
    pid: i32,
    /// Its start time, because ids are reused
    #[arg(long)]
    start_ticks: u64,
    /// Unix user of the task [default: this process's own]
    #[arg(long)]
    task_user: Option<TaskUser>,
    /// Inherited socket to the daemon; its end ends the session
    #[arg(long)]
    control: RawFd,
    /// The command has a terminal of this name
    #[arg(long)]
    terminal: Option<String>,
    /// Write this path as a tar stream to the output
    #[arg(long, conflicts_with = "write")]
    read: Option<PathBuf>,
    /// Unpack the input at this path
    #[arg(long)]
    write: Option<PathBuf>,
    /// Program with its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Returns the arguments of a helper for this session.
pub(super) fn arguments(
    task: &RunningTask,
    action: &RemoteAction,
    control: RawFd,
) -> Vec<OsString> {
    let mut arguments = vec![
        "remote".to_owned(),
        format!("--pid={}", task.program.pid),
        format!("--start-ticks={}", task.program.start_ticks),
        format!("--control={control}"),
    ];
    arguments.extend(task.user.map(|user| format!("--task-user={user}")));
    match action {
        RemoteAction::Exec { command, terminal } => {
            let name = terminal.as_ref().map(|terminal| &terminal.name);
            arguments.extend(name.map(|name| format!("--terminal={name}")));
            arguments.push("--".to_owned());
            arguments.extend(command.iter().cloned());
        }
        RemoteAction::Read { path } => arguments.push(format!("--read={path}")),
        RemoteAction::Write { path } => arguments.push(format!("--write={path}")),
        RemoteAction::Port { .. } => unreachable!("the daemon connects itself"),
    }
    arguments.into_iter().map(OsString::from).collect()
}

/// Runs the session and reports its end to the daemon.
///
/// # Errors
/// If the daemon has left.
pub fn run(arguments: &RemoteArguments) -> io::Result<()> {
    // SAFETY: the daemon has passed this descriptor to this process, and nothing else uses it.
    let control = unsafe { OwnedFd::from_raw_fd(arguments.control) };
    rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC)?;
    let mut control = UnixStream::from(control);
    // Signals of the daemon's terminal must not reach this process.
    let _ = rustix::process::setsid();
    let end = session(arguments, &mut control).unwrap_or_else(|error| RemoteEnd::Failed {
        message: error.to_string(),
    });
    let mut line = serde_json::to_string(&end).map_err(io::Error::other)?;
    line.push('\n');
    control.write_all(line.as_bytes())
}

fn session(arguments: &RemoteArguments, control: &mut UnixStream) -> io::Result<RemoteEnd> {
    let program = ProcessId {
        pid: arguments.pid,
        start_ticks: arguments.start_ticks,
    };
    let place = TaskPlace::open(program, arguments.task_user)?;
    if let Some(path) = &arguments.read {
        place.enter()?;
        writeln!(control, "{STARTED}")?;
        return Ok(copied(read(path)));
    }
    if let Some(path) = &arguments.write {
        place.enter()?;
        writeln!(control, "{STARTED}")?;
        let received = receive(io::stdin().lock(), path, None);
        return Ok(copied(received.map(drop)));
    }
    supervise::run(&Arc::new(place), arguments, control)
}

fn read(path: &Path) -> Result<(), muster_archive::ArchiveError> {
    let sent = send(path, io::stdout().lock())?;
    if !sent.skipped.is_empty() {
        let names = sent.skipped.iter().take(NAMED);
        let names: Vec<_> = names
            .map(|name| format!("{:?}", name.display().to_string()))
            .collect();
        eprintln!(
            "{} links, sockets, pipes or devices are not copied, such as {}",
            sent.skipped.len(),
            names.join(", ")
        );
    }
    Ok(())
}

/// Returns the end of a copy; the reason of a failure goes to the standard error.
fn copied(result: Result<(), muster_archive::ArchiveError>) -> RemoteEnd {
    match result {
        Ok(()) => RemoteEnd::Exited { code: 0 },
        Err(error) => {
            eprintln!("{}", chain(&error));
            RemoteEnd::Exited { code: 1 }
        }
    }
}
