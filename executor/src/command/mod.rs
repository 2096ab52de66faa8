//! Start of a user's program as a task. `muster-executor command` prepares its folder, waits until
//! every process of the job has an address, and becomes the program.
//!
//! It replaces itself (`exec`), so the process under the shim is the user's program: signals, exit
//! code and log are those of the program. Like every task, it communicates with the daemon by
//! `events.jsonl` and `peers.json` in the task's folder.

mod check;
mod checkpoint;
mod checkpoint_error;
mod code;
mod daemon;
mod environment;
mod error;
mod files;
mod git;
mod image;
mod keep;
mod kept;
mod lock;
mod origin;
mod port;
mod python;
mod secrets;
mod torchrun;

#[cfg(test)]
pub(crate) use environment::tests::test_launch;
pub use environment::{Paths, variables};
pub use error::CommandError;
pub(crate) use kept::FOLDER as KEPT_FOLDERS;
pub(crate) use origin::BEGAN as COPIED_MARK;
pub(crate) use port::listen;
pub(crate) use secrets::remove as remove_secrets;

use crate::events;
use crate::folder::NodeTaskFolder;
use crate::image::ImageInfo;
use muster_model::assignment::{Peers, TaskLaunch, TaskReport, exit_code};
use muster_model::place::Place;
use muster_model::spec;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Poll interval of `peers.json`, until the last peer has reserved its port.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Arguments that the shim passes to every task.
#[derive(Debug, Clone, clap::Args)]
pub struct CommandArguments {
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long)]
    pub checkpoint_root: Place,
    #[arg(long)]
    pub dataset_root: PathBuf,
    /// Address at which other nodes reach this one
    #[arg(long)]
    pub listen_host: String,
    /// Description of the image in which this process runs
    #[arg(long)]
    pub image: Option<PathBuf>,
}

/// Becomes the program. Returns an exit code only if that fails; the job's events contain the
/// reason.
#[must_use]
pub fn run(arguments: &CommandArguments) -> i32 {
    let folder = NodeTaskFolder::at(&arguments.folder);
    let image = match arguments.image.as_deref().map(image::read).transpose() {
        Ok(image) => image,
        Err(error) => {
            say(&muster_model::error_chain::chain(&error));
            return exit_code::FAILED;
        }
    };
    let Err(error) = become_program(arguments, &folder, image.as_ref());
    let report = match &image {
        Some(image) => image::failure(image, &error),
        None => TaskReport::Failed {
            message: muster_model::error_chain::chain(&error),
            retryable: error.is_retryable(),
            lacks: error.lacks(),
        },
    };
    // Before the log line, which may take the last space of a full disk.
    let reported = events::append(&folder.events(), std::slice::from_ref(&report));
    if let TaskReport::Failed { message, .. } = &report {
        say(message);
    }
    if let Err(error) = reported {
        say(&format!("cannot report it: {error}"));
    }
    exit_code::FAILED
}

/// Prints a line to the task's log. On a full disk the line is lost; `eprintln!` would panic.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "muster-task: {line}");
}

fn become_program(
    arguments: &CommandArguments,
    folder: &NodeTaskFolder,
    image: Option<&ImageInfo>,
) -> Result<std::convert::Infallible, CommandError> {
    let launch: TaskLaunch = folder
        .task()
        .read()
        .and_then(|launch| launch.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(CommandError::read(folder.task()))?;
    let command = launch
        .spec
        .command
        .as_ref()
        .ok_or(CommandError::NoCommand)?;
    let paths = paths(arguments, folder, &launch, (command, image));
    // A secret may be needed to fetch the code.
    let command = &secrets::receive(&paths.task, command).map_err(CommandError::Secrets)?;
    files::lay_out(&paths, &launch, command)?;
    let peers: Option<Peers> = folder.peers().read().ok().flatten();
    origin::prepare(&paths, &launch, peers.as_ref())?;
    let python = command.python.as_ref();
    let python = python.map(|python| python::prepare(&paths, &launch, command, python));
    let python = python.transpose()?;
    // The open socket is the reservation. The program inherits it, so the port stays reserved until
    // the program has ended.
    let port = port::reserve().map_err(CommandError::Port)?;
    let address = format!("{}:{}", arguments.listen_host, port.number());
    let report = TaskReport::Listening {
        address: address.clone(),
    };
    events::append(&folder.events(), &[report]).map_err(CommandError::write(folder.events()))?;
    let peers = wait_for_peers(folder, &launch, &address);
    let mut variables = variables(&launch, command, &peers, &paths)?;
    if let Some(python) = &python {
        python.enter(&mut variables);
        python.hand_on().map_err(CommandError::write(&paths.work))?;
    }
    if let Some(image) = image {
        image::complete(image, &mut variables);
    }
    files::write_hosts(&paths, &launch, &peers)?;
    let program = check::program(command, &variables, &paths)?;
    check::run(command, &variables, &paths)?;
    port.hand_on().map_err(CommandError::Port)?;
    let mut argv = command.argv.iter();
    let source = Command::new(&program)
        .arg0(argv.next().expect("a document has a program"))
        .args(argv)
        .envs(&variables)
        .current_dir(&paths.work)
        .exec();
    Err(CommandError::Start { program, source })
}

fn paths(
    arguments: &CommandArguments,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    (command, image): (&spec::Command, Option<&ImageInfo>),
) -> Paths {
    let given = command.working_dir.as_ref().map(PathBuf::from);
    // Files of the job need a folder that the task can write.
    let has_code = command.code.is_some() || command.git.is_some();
    let has_files = has_code || !command.files.is_empty() || !command.keep.is_empty();
    let of_image = image.and_then(|image| image.working_dir.clone());
    let given = given.or(of_image.filter(|path| !has_files && path.is_dir()));
    let work = given.unwrap_or_else(|| folder.work());
    Paths {
        task: folder.path().to_owned(),
        work,
        hosts: folder.path().join("hosts"),
        checkpoints: match &arguments.checkpoint_root {
            Place::Folder(root) => {
                let of_tenant = root.join(launch.tenant_id.to_string());
                of_tenant.join(launch.job_id.to_string())
            }
            Place::Bucket(_) => folder.checkpoints(),
        },
        is_in_bucket: matches!(arguments.checkpoint_root, Place::Bucket(_)),
        datasets: arguments.dataset_root.clone(),
        python: folder.path().join("python"),
        inherited_python: std::env::var("PYTHONPATH").ok(),
        image: image.map(|image| image.digest.clone()),
    }
}

/// Waits until each process of the job has reported its address, so that all start at the same
/// time. A SIGTERM ends the process.
///
/// A job of one process does not wait: its own address need not return from the scheduler.
fn wait_for_peers(folder: &NodeTaskFolder, launch: &TaskLaunch, address: &str) -> Peers {
    loop {
        let peers: Option<Peers> = folder.peers().read().ok().flatten();
        let peers = peers.map(|peers| with_own(peers, launch, address));
        if let Some(peers) = peers.filter(|peers| is_complete(peers, launch)) {
            return peers;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Returns the peers with the reserved address of this process.
fn with_own(mut peers: Peers, launch: &TaskLaunch, address: &str) -> Peers {
    let all = peers.workers.iter_mut().chain(&mut peers.ps_shards);
    for own in all.filter(|peer| peer.task_id == launch.task_id) {
        own.address.get_or_insert_with(|| address.to_owned());
    }
    peers
}

fn is_complete(peers: &Peers, launch: &TaskLaunch) -> bool {
    let mut all = peers.workers.iter().chain(&peers.ps_shards);
    // The task set of an elastic launcher may have changed again since this task was planned.
    let is_elastic = launch.spec.resizes_in_place();
    let is_newer = is_elastic && peers.revision > launch.revision;
    (is_newer || peers.revision == launch.revision)
        && all.clone().any(|peer| peer.task_id == launch.task_id)
        && all.all(|peer| peer.address.is_some())
}
