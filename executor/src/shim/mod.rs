//! The shim: the parent process of one task. It outlives a killed daemon.
//!
//! The shim captures the task's output, enforces the node's lease and forwards a stop. It writes
//! the task's outcome once no process of the task is left. Architecture invariant: it never uses
//! the network. It communicates with the daemon by files: it requires `task.json` and the lease,
//! and reads `peers.json`, `pod.json`, `checkpoint-request.json` and the environment file where
//! they exist.

mod child;
mod driver_helper;
mod image;
mod image_view;
pub(crate) mod isolation;
mod loader;
mod request;
mod supervise;
mod suspend;
mod writer;

pub use image::{TrialArguments, try_image};
pub use request::CheckpointRequest;

use crate::clock;
use crate::command;
use crate::error::ExecutorError;
use crate::folder::NodeTaskFolder;
use crate::lease::{Lease, LeaseWatch};
use crate::log::{RotatingLog, Rotation};
use crate::opener::is_refusal;
use crate::process::{ProcessId, boot_id};
use crate::task_user::TaskUser;
use muster_model::assignment::TaskLaunch;
use muster_model::place::Place;
use muster_model::spec::CODE_FOLDER;
use muster_model::task::Outcome;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Arguments of the hidden subcommand `shim`; the daemon passes them.
#[derive(Debug, Clone, clap::Args)]
pub struct ShimArguments {
    #[arg(long)]
    pub folder: PathBuf,
    /// The daemon's data folder, which contains the lease
    #[arg(long)]
    pub data_dir: PathBuf,
    #[arg(long)]
    pub task_binary: PathBuf,
    /// Checkpoint root as passed to the task: a folder or a bucket
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
    /// File of the task's variables, which override those of the shim; read once and removed
    /// [default: the shim's own variables]
    #[arg(long)]
    pub environment: Option<PathBuf>,
    /// Cgroup that the task joins before it runs
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Unix user of the task [default: the shim's own]
    #[arg(long)]
    pub task_user: Option<TaskUser>,
    /// Folders of the task are closed to the users of other tenants
    #[arg(long)]
    pub private: bool,
    /// The task has a `/tmp` of its own and sees no processes of other users
    #[arg(long)]
    pub own_view: bool,
    /// Folder of the image in which the task runs
    #[arg(long, requires = "image_stage")]
    pub image: Option<PathBuf>,
    /// Empty folder over which the view of the image is mounted
    #[arg(long)]
    pub image_stage: Option<PathBuf>,
    /// The task's GPUs are NVIDIA's, for which the image needs devices and libraries of the node
    #[arg(long)]
    pub image_gpus: bool,
    /// Milliseconds that the GPU driver may take for each order. With it, the driver moves a
    /// suspended program's GPU memory to the host
    #[arg(long)]
    pub driver_patience_ms: Option<u64>,
}

/// `shim.json`: the processes of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// Boot id of the machine. Process ids of an earlier boot are meaningless.
    pub boot_id: String,
    pub shim: ProcessId,
    /// Leader of a session of its own.
    pub task: ProcessId,
}

/// `stopping.json`: a command was asked to stop. A program that cannot catch signals can poll this
/// instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopNotice {
    /// Time of SIGKILL.
    pub until_unix_ms: i64,
    pub grace_ms: u64,
}

/// `pod.json`: the shim's pod was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The executor has requested the pod's end too. Without that, a pod that ends was deleted by
    /// another party.
    pub told_to_stop: bool,
}

/// Space reserved for the task's outcome before its start. The last output line and a reason fit.
const EXIT_BYTES: usize = 4_096;

/// Attempts to lock the folder while a daemon may be testing the lock.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// Runs the task until it ends. Returns at once if the folder has a shim already or if the task was
/// started before.
///
/// # Errors
/// If the folder cannot be used. A failure to start the task's process is an outcome, not an error.
pub fn run(arguments: &ShimArguments) -> Result<(), ExecutorError> {
    // Ctrl-C in the daemon's terminal must not reach the shim. The call fails for the leader of a
    // group, which is separated from the terminal's group already.
    let _ = rustix::process::setsid();
    forbid_tracing();
    let folder = NodeTaskFolder::at(&arguments.folder);
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
    command::remove_secrets(&folder);
    if let Some(cgroup) = &arguments.cgroup {
        let _ = fs::remove_dir(cgroup);
    }
    exit.write_reserved(reserved, &outcome)
        .map_err(ExecutorError::write(exit))
}

/// Prevents other processes of the same user from tracing this process and from reading its memory
/// and environment. Daemons have secrets there, and a traced shim could write a forged outcome.
/// `exec` resets this property.
pub fn forbid_tracing() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn carry_out(arguments: &ShimArguments, folder: &NodeTaskFolder) -> Result<Outcome, ExecutorError> {
    let launch: TaskLaunch = folder
        .task()
        .read()
        .and_then(|launch| launch.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(ExecutorError::read(folder.task()))?;
    let mut lease = LeaseWatch::new(Lease::of(&arguments.data_dir));
    if lease.is_expired(clock::boottime_ms()) {
        return Ok(Outcome::LeaseExpired);
    }
    let rotation = Rotation {
        part_bytes: arguments.log_part_bytes,
        parts: arguments.log_parts,
    };
    let log =
        RotatingLog::open(folder.path(), rotation).map_err(ExecutorError::write(folder.path()))?;
    let inside = match &arguments.image {
        // While this process has one thread, and before the folder is the user's.
        Some(image) => {
            let entered = image::enter(arguments, folder, &launch, image);
            Some(entered.map_err(ExecutorError::ImageView)?)
        }
        None => None,
    };
    if let Some(user) = arguments.task_user {
        if arguments.own_view && inside.is_none() {
            // Before the folder is the user's.
            enter_view(arguments, user).map_err(ExecutorError::Isolation)?;
        }
        let root = &arguments.checkpoint_root;
        user.prepare(folder, &launch, root, arguments.private)
            .map_err(ExecutorError::write(folder.path()))?;
    }
    let signals = supervise::Signals::register()?;
    let writer = writer::ShimFileWriter::start().map_err(ExecutorError::write(folder.path()))?;
    let task = child::spawn(arguments, folder, &launch, (log, inside))?;
    let record = ShimRecord {
        boot_id: boot_id(),
        shim: child::own_id(),
        task: task.id,
    };
    if let Err(source) = folder.shim().write_durably(&record) {
        // Without the record no daemon could stop the task, so it ends here.
        supervise::kill_all(&task);
        return Err(ExecutorError::Write {
            path: folder.shim().into(),
            source,
        });
    }
    let mut suspension = launch.spec.command.is_some().then(|| {
        suspend::ProgramSuspension::new(
            folder,
            writer.clone(),
            &arguments.data_dir,
            launch.job_id,
            arguments.driver_patience_ms,
        )
    });
    let mut request = request::ProgramRequest::new(folder, writer.clone(), &launch);
    let settings = supervise::StopSettings {
        grace_ms: launch.stop_grace_ms(),
        lease_grace_ms: launch.grace_ms,
        notice: launch.spec.command.is_some().then(|| folder.stopping()),
        pod: folder.pod(),
        writer,
    };
    Ok(supervise::run_to_end(
        task,
        &signals,
        &mut lease,
        &settings,
        &mut suspension,
        &mut request,
    ))
}

fn enter_view(arguments: &ShimArguments, user: TaskUser) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let programs = [arguments.task_binary.parent(), own.parent()];
    let checkpoints = match arguments.checkpoint_root.parse() {
        Ok(Place::Folder(path)) => Some(path),
        _ => None,
    };
    let folders: Vec<&Path> = [&*arguments.data_dir, &*arguments.dataset_root]
        .into_iter()
        .chain(programs.into_iter().flatten())
        .chain(checkpoints.as_deref())
        .collect();
    isolation::enter(&isolation::TaskView {
        user,
        task_folder: &arguments.folder,
        visible: &isolation::top_folders(&folders),
        // The tracking server sends a task its own code.
        hidden: checkpoints.as_ref().map(|root| root.join(CODE_FOLDER)),
    })
}

/// Whether a shim holds the lock of this folder. A link or another file in place of the lock counts
/// as a missing lock.
///
/// # Errors
/// If the lock file cannot be opened.
pub fn is_locked(folder: &NodeTaskFolder) -> Result<bool, ExecutorError> {
    // Opened for reading: the close of a file opened for writing is the notification of a shim's
    // exit.
    match folder.lock().open() {
        Ok(file) => Ok(file.try_lock().is_err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_refusal(&error) => Ok(false),
        Err(error) => Err(ExecutorError::read(folder.lock())(error)),
    }
}

/// Writes the outcome of a task that never started, under the folder's lock, so that no shim starts
/// it afterwards. Returns `false` and writes nothing if a shim holds or has held the folder, or if
/// there is an outcome. Repeated calls cause at most one notification of the node loop.
///
/// # Errors
/// If the folder cannot be written.
pub fn end_unstarted(folder: &NodeTaskFolder, outcome: &Outcome) -> Result<bool, ExecutorError> {
    let (lock, exit) = (folder.lock(), folder.exit());
    // Without write access, as in `is_locked`.
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

fn lock(folder: &NodeTaskFolder) -> Result<Option<File>, ExecutorError> {
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

#[cfg(test)]
mod tests {
    use super::{end_unstarted, forbid_tracing, lock};
    use crate::folder::NodeTaskFolder;
    use muster_model::task::Outcome;
    use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

    #[test]
    fn task_is_given_up_only_without_a_present_or_past_shim() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = NodeTaskFolder::at(place.path());
        let end = Outcome::LaunchFailed {
            message: "its pod does not start".to_owned(),
        };
        let held = lock(&folder).expect("our own folder").expect("it is free");
        assert!(!end_unstarted(&folder, &end).expect("our own folder"));
        assert!(!folder.exit().is_there(), "a shim is there");
        drop(held);
        std::fs::write(folder.shim().path(), "{}").expect("our own folder");
        assert!(!end_unstarted(&folder, &end).expect("our own folder"));
        assert!(!folder.exit().is_there(), "a shim was there");
        folder.shim().remove().expect("our own folder");
        assert!(end_unstarted(&folder, &end).expect("our own folder"));
        assert!(folder.exit().is_there());
    }

    #[test]
    fn shim_cannot_be_traced() {
        let before = dumpable_behavior().expect("the kernel says");
        forbid_tracing();
        let after = dumpable_behavior().expect("the kernel says");
        // With `cargo test` all tests share this process: restore the state.
        set_dumpable_behavior(before).expect("as it was");
        assert_eq!(after, DumpableBehavior::NotDumpable);
    }
}
