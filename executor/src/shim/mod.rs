//! The shim: the parent of one task's process, a small process of its own that outlives a killed daemon.
//!
//! It captures the task's output, enforces the node's lease, passes a stop on, and writes how the task ended once no process of the task
//! is left. It must never talk to the network, and needs nothing from the daemon but two files: `task.json` and the lease.

mod aide;
mod child;
mod hold;
mod supervise;
mod writer;

use crate::clock;
use crate::error::ExecutorError;
use crate::folder::TaskFolder;
use crate::lease::{Lease, Watch};
use crate::log::{RotatingLog, Rotation};
use crate::opener::is_refusal;
use crate::process::ProcessId;
use crate::task_user::TaskUser;
use muster_model::assignment::TaskLaunch;
use muster_model::task::Outcome;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Arguments of the hidden subcommand; the daemon gives all of them.
#[derive(Debug, Clone, clap::Args)]
pub struct ShimArguments {
    #[arg(long)]
    pub folder: PathBuf,
    /// The daemon's data folder, where the lease lies.
    #[arg(long)]
    pub data_dir: PathBuf,
    #[arg(long)]
    pub task_binary: PathBuf,
    /// As the task is told: a folder or a bucket.
    #[arg(long)]
    pub checkpoint_root: String,
    #[arg(long)]
    pub dataset_root: PathBuf,
    #[arg(long)]
    pub listen_host: String,
    #[arg(long)]
    pub log_part_bytes: u64,
    #[arg(long)]
    pub log_parts: u32,
    /// The task's variables, over those of the shim: read once and removed [default: the shim's own are the task's]
    #[arg(long)]
    pub environment: Option<PathBuf>,
    /// The task joins it before it runs.
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Unix user of the task [default: the shim's own]
    #[arg(long)]
    pub task_user: Option<TaskUser>,
    /// The GPUs' driver is asked to take a user's program off them while it stands still, and has so long for each order.
    #[arg(long)]
    pub driver_patience_ms: Option<u64>,
}

/// `shim.json`: who runs the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// Process ids of an earlier boot mean nothing.
    pub boot_id: String,
    pub shim: ProcessId,
    /// Leads a session of its own.
    pub task: ProcessId,
}

/// `stopping.json`: a command was told to stop. Its process may be one that cannot catch signals, so others may ask for this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopNotice {
    /// When SIGKILL follows.
    pub until_unix_ms: i64,
    pub grace_ms: u64,
}

/// `pod.json`: the shim's pod was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The executor has asked for its end too. A pod that ends without that is taken away by somebody else.
    pub told_to_stop: bool,
}

/// Space for the end of a task, held from before its start: a last line and a reason fit.
const EXIT_BYTES: usize = 4_096;

/// Tries for the lock while a daemon may be probing it.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// Runs the task to its end. Returns at once if the folder has a shim already or the task was started before.
///
/// # Errors
/// If the folder cannot be used; that the task's process cannot be started is an outcome, not an error.
pub fn run(arguments: &ShimArguments) -> Result<(), ExecutorError> {
    // Ctrl-C in the daemon's terminal is not for us. It fails if we lead a group already, which is as good.
    let _ = rustix::process::setsid();
    keep_to_ourselves();
    let folder = TaskFolder::at(&arguments.folder);
    let Some(_lock) = lock(&folder)? else {
        return Ok(());
    };
    if folder.shim().is_there() || folder.exit().is_there() {
        return Ok(());
    }
    let exit = folder.exit();
    // The task may fill the disk.
    let reserved = exit
        .reserve(EXIT_BYTES)
        .map_err(ExecutorError::write(exit.path()))?;
    let outcome = match carry_out(arguments, &folder) {
        Ok(outcome) => outcome,
        Err(error) => error.outcome(),
    };
    if let Some(cgroup) = &arguments.cgroup {
        let _ = fs::remove_dir(cgroup);
    }
    exit.write_reserved(reserved, &outcome)
        .map_err(ExecutorError::write(exit))
}

/// Keeps other processes of the same user from tracing this one and from reading its memory and its environment. Daemons have secrets there; a
/// traced shim would write what the task wants of its end. A program that this process becomes is as any other again.
pub fn keep_to_ourselves() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Newly made for each boot of the machine.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

fn carry_out(arguments: &ShimArguments, folder: &TaskFolder) -> Result<Outcome, ExecutorError> {
    let launch: TaskLaunch = folder
        .task()
        .read()
        .and_then(|launch| launch.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(ExecutorError::read(folder.task()))?;
    let mut lease = Watch::new(Lease::of(&arguments.data_dir));
    if lease.is_expired(clock::boottime_ms()) {
        return Ok(Outcome::LeaseExpired);
    }
    let rotation = Rotation {
        part_bytes: arguments.log_part_bytes,
        parts: arguments.log_parts,
    };
    let log =
        RotatingLog::open(folder.path(), rotation).map_err(ExecutorError::write(folder.path()))?;
    if let Some(user) = arguments.task_user {
        user.prepare(folder, &launch, &arguments.checkpoint_root)
            .map_err(ExecutorError::write(folder.path()))?;
    }
    let signals = supervise::Signals::register()?;
    let writer = writer::Writer::start().map_err(ExecutorError::write(folder.path()))?;
    let task = child::spawn(arguments, folder, &launch, log)?;
    let record = ShimRecord {
        boot_id: boot_id(),
        shim: child::own_id(),
        task: task.id,
    };
    if let Err(source) = folder.shim().write_durably(&record) {
        // Without the record no daemon could stop the task: end it here.
        supervise::kill_all(&task);
        return Err(ExecutorError::Write {
            path: folder.shim().into(),
            source,
        });
    }
    let mut hold = launch.spec.command.is_some().then(|| {
        hold::Hold::new(
            folder,
            writer.clone(),
            &arguments.data_dir,
            launch.job_id,
            arguments.driver_patience_ms,
        )
    });
    let orders = supervise::Orders {
        grace_ms: launch.grace_ms,
        notice: launch.spec.command.is_some().then(|| folder.stopping()),
        pod: folder.pod(),
        writer,
    };
    Ok(supervise::to_the_end(
        task, &signals, &mut lease, &orders, &mut hold,
    ))
}

/// Whether a shim holds this folder. What a task has put in the lock's place holds nothing, as if it had removed it.
///
/// # Errors
/// If the lock file cannot be opened.
pub fn is_locked(folder: &TaskFolder) -> Result<bool, ExecutorError> {
    // Not for writing: the end of that is how the end of a shim is heard of.
    match folder.lock().open() {
        Ok(file) => Ok(file.try_lock().is_err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_refusal(&error) => Ok(false),
        Err(error) => Err(ExecutorError::read(folder.lock())(error)),
    }
}

/// Writes the end of a task that never began, under the folder's lock, so that no shim begins it any more. `false`, and nothing is
/// written, if a shim has the folder or has had it, or if there is an end. Whoever asks at each look wakes the node's loop but once.
///
/// # Errors
/// If the folder cannot be written.
pub fn forestall(folder: &TaskFolder, outcome: &Outcome) -> Result<bool, ExecutorError> {
    let (lock, exit) = (folder.lock(), folder.exit());
    // Not for writing, as above.
    let file = lock
        .hold(false)
        .map_err(ExecutorError::write(lock.path()))?;
    if file.try_lock().is_err() || folder.shim().is_there() || exit.is_there() {
        return Ok(false);
    }
    exit.write_durably(outcome)
        .map_err(ExecutorError::write(exit.path()))?;
    Ok(true)
}

fn lock(folder: &TaskFolder) -> Result<Option<File>, ExecutorError> {
    let lock = folder.lock();
    let file = lock.hold(true).map_err(ExecutorError::write(lock.path()))?;
    for _ in 0..LOCK_TRIES {
        if file.try_lock().is_ok() {
            return Ok(Some(file));
        }
        thread::sleep(LOCK_PAUSE);
    }
    Ok(None)
}

/// An error with its causes, on one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{forestall, keep_to_ourselves, lock};
    use crate::folder::TaskFolder;
    use muster_model::task::Outcome;
    use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

    #[test]
    fn a_task_is_given_up_only_where_no_shim_is_or_was() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = TaskFolder::at(place.path());
        let end = Outcome::LaunchFailed {
            message: "its pod does not start".to_owned(),
        };
        let held = lock(&folder).expect("our own folder").expect("it is free");
        assert!(!forestall(&folder, &end).expect("our own folder"));
        assert!(!folder.exit().is_there(), "a shim is there");
        drop(held);
        std::fs::write(folder.shim().path(), "{}").expect("our own folder");
        assert!(!forestall(&folder, &end).expect("our own folder"));
        assert!(!folder.exit().is_there(), "a shim was there");
        folder.shim().remove().expect("our own folder");
        assert!(forestall(&folder, &end).expect("our own folder"));
        assert!(folder.exit().is_there());
    }

    #[test]
    fn a_shim_may_not_be_traced() {
        let before = dumpable_behavior().expect("the kernel says");
        keep_to_ourselves();
        let after = dumpable_behavior().expect("the kernel says");
        // Where all tests are one process, the others are none of this one's business.
        set_dumpable_behavior(before).expect("as it was");
        assert_eq!(after, DumpableBehavior::NotDumpable);
    }
}
