//! Parent of a session's command. It kills all processes of the session when the command ends,
//! when the task ends, and when the daemon closes the socket.

use super::place::TaskPlace;
use super::{RemoteArguments, STARTED};
use crate::process;
use muster_model::remote::RemoteEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, ioctl_tiocsctty, kill_process_group,
    pidfd_open, set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time from SIGHUP to SIGKILL when the client has left.
const HANG_UP_S: i64 = 1;
/// Interval and number of rounds of SIGKILL.
const KILL_EVERY: Duration = Duration::from_millis(5);
const KILL_ROUNDS: u32 = 1_000;

/// What ended a session.
enum Cause {
    Command,
    Task,
    Client,
}

/// # Errors
/// If the command cannot be started.
pub fn run(
    place: &Arc<TaskPlace>,
    arguments: &RemoteArguments,
    control: &mut UnixStream,
) -> io::Result<RemoteEnd> {
    // Orphans of the command become children of this process.
    set_child_subreaper(Some(getpid()))?;
    let mut command = spawn(place, arguments)?;
    let pid = Pid::from_child(&command);
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    // Without the daemon the session ends below.
    let _ = writeln!(control, "{STARTED}");
    let cause = wait_for_end(&child, &place.program, control)?;
    if matches!(cause, Cause::Client) {
        let _ = kill_process_group(pid, Signal::HUP);
        let within = Timespec {
            tv_sec: HANG_UP_S,
            tv_nsec: 0,
        };
        let _ = poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&within));
    }
    let end = end(cause, &mut command)?;
    kill_rest();
    Ok(end)
}

fn spawn(place: &Arc<TaskPlace>, arguments: &RemoteArguments) -> io::Result<Child> {
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command.args(rest).env_clear();
    command.envs(place.environment.iter().map(|(name, value)| (name, value)));
    if let Some(name) = &arguments.terminal {
        command.env("TERM", name);
    }
    let (helper, entered) = (getpid(), Arc::clone(place));
    let has_terminal = arguments.terminal.is_some();
    let prepare = move || {
        setsid()?;
        if has_terminal {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        entered.enter()?;
        // After the change of the user, which clears it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(helper) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `prepare` makes plain
    // system calls, without allocation or locks, on values made before the fork; its errors are
    // plain codes.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(|error| {
        let program = program.display().to_string();
        io::Error::new(error.kind(), format!("{program:?}: {error}"))
    })
}

/// Waits until the command or the task has ended, or the daemon has closed the socket.
fn wait_for_end(child: &OwnedFd, program: &OwnedFd, control: &UnixStream) -> io::Result<Cause> {
    loop {
        let mut watched = [
            PollFd::new(child, PollFlags::IN),
            PollFd::new(program, PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        // The daemon sends nothing, so data or an end is its end.
        match watched.each_ref().map(|one| !one.revents().is_empty()) {
            [true, _, _] => return Ok(Cause::Command),
            [_, true, _] => return Ok(Cause::Task),
            [_, _, true] => return Ok(Cause::Client),
            [false, false, false] => {}
        }
    }
}

/// Ends the command, if it still runs, and returns the end of the session.
fn end(cause: Cause, command: &mut Child) -> io::Result<RemoteEnd> {
    match cause {
        Cause::Command => {
            let status = command.wait()?;
            Ok(match (status.code(), status.signal()) {
                (Some(code), _) => RemoteEnd::Exited { code },
                (None, signal) => RemoteEnd::Signalled {
                    signal: signal.unwrap_or_default(),
                },
            })
        }
        Cause::Task => Ok(RemoteEnd::Failed {
            message: "the task has ended".to_owned(),
        }),
        Cause::Client => Ok(RemoteEnd::ClientGone),
    }
}

/// Kills and reaps all descendants of this process.
fn kill_rest() {
    let own = i32::try_from(std::process::id()).expect("process ids are small");
    for _ in 0..KILL_ROUNDS {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let left = process::descendants(own);
        if left.is_empty() {
            return;
        }
        for process in left {
            let _ = process.id.signal(Signal::KILL);
        }
        thread::sleep(KILL_EVERY);
    }
}
