//! Start of the task's process. The process cannot outlive its shim, and none of its descendants
//! can escape it.

use super::ShimArguments;
use super::image::InsideImage;
use crate::error::ExecutorError;
use crate::folder::NodeTaskFolder;
use crate::log::{LastLine, RotatingLog};
use crate::process::ProcessId;
use crate::task_file::TaskFile;
use crate::tracking::MetricLineReader;
use muster_model::assignment::TaskLaunch;
use rustix::process::{
    Resource, Rlimit, Signal, getpid, getppid, set_child_subreaper,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::set_no_new_privs;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

const NO_CORE: Rlimit = Rlimit {
    current: Some(0),
    maximum: Some(0),
};

/// The started task.
#[derive(Debug)]
pub(super) struct TaskProcess {
    pub id: ProcessId,
    /// Thread that ends when all processes holding the task's output have exited; returns the last
    /// line.
    pub log: JoinHandle<Option<String>>,
}

pub(super) fn own_id() -> ProcessId {
    let pid = i32::try_from(std::process::id()).expect("process ids are small");
    ProcessId::of(pid).unwrap_or(ProcessId {
        pid,
        start_ticks: 0,
    })
}

/// Starts the task. Call it on the main thread: the kernel sends the death signal when the THREAD
/// that forked ends.
pub(super) fn spawn(
    arguments: &ShimArguments,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    (log, inside): (RotatingLog, Option<InsideImage>),
) -> Result<TaskProcess, ExecutorError> {
    let (program, subcommand) = program(arguments, launch)?;
    // Orphans of the task become children of the shim, so that they are found and reaped.
    set_child_subreaper(Some(getpid()))
        .map_err(io::Error::from)
        .map_err(ExecutorError::shim(&program))?;
    let (reader, writer) = io::pipe().map_err(ExecutorError::shim(&program))?;
    let mut command = match &inside {
        Some(inside) => inside.command(),
        None => Command::new(&program),
    };
    add_arguments(&mut command, subcommand, arguments, folder);
    if inside.is_some() {
        command.args(InsideImage::arguments());
    }
    command.envs(environment(arguments)?);
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(ExecutorError::shim(&program))?)
        .stderr(writer);
    if let Some(inside) = &inside {
        let entered = inside.start(&mut command, folder.path(), arguments.task_user);
        entered.map_err(ExecutorError::shim(&program))?;
    } else if let Some(user) = arguments.task_user {
        // Without supplementary groups. Set before the steps below, because a change of the user
        // clears the parent death signal.
        command.uid(user.uid).gid(user.gid);
    }
    let cgroup = open_cgroup(arguments);
    bind_to_us(&mut command);
    let prepare = move || {
        setsid()?;
        // The task's descendants gain no rights through setuid or capabilities, and leave no core
        // dumps.
        set_no_new_privs(true)?;
        setrlimit(Resource::Core, NO_CORE)?;
        if let Some(cgroup) = &cgroup {
            // A failure does not fail the task: it runs without limits.
            let _ = rustix::io::write(cgroup, b"0");
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `prepare` makes plain
    // system calls, without allocation or locks, on values made before the fork; its errors are
    // plain codes.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(ExecutorError::shim(&program))?;
    // The command holds copies of the writing end; the pipe must end with the task.
    drop(command);
    let pid = i32::try_from(child.id()).expect("process ids are small");
    // The child is a zombie at worst until the shim waits for it, so the id is not reused.
    let id = ProcessId::of(pid).unwrap_or(ProcessId {
        pid,
        start_ticks: 0,
    });
    let is_command = launch.spec.command.is_some();
    let lines = is_command.then(|| MetricLineReader::new(launch, folder));
    let log = thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || capture(reader, log, lines));
    Ok(TaskProcess {
        id,
        log: log.map_err(ExecutorError::Thread)?,
    })
}

/// Makes the started process end with the shim.
pub(super) fn bind_to_us(command: &mut Command) {
    let shim = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the shim has exited before the call above, the signal never comes.
        if getppid() != Some(shim) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `prepare` makes plain
    // system calls, without allocation or locks, on values made before the fork; its errors are
    // plain codes.
    unsafe { command.pre_exec(prepare) };
}

/// Returns the program to start. The built-in engine is a separate program. For a user's program it
/// is this binary, which replaces itself by the program.
fn program(
    arguments: &ShimArguments,
    launch: &TaskLaunch,
) -> Result<(PathBuf, Option<&'static str>), ExecutorError> {
    if launch.spec.command.is_none() {
        return Ok((arguments.task_binary.clone(), None));
    }
    let own = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
    Ok((own, Some("command")))
}

fn add_arguments(
    command: &mut Command,
    subcommand: Option<&str>,
    arguments: &ShimArguments,
    folder: &NodeTaskFolder,
) {
    command
        .args(subcommand)
        .arg("--folder")
        .arg(folder.path())
        .arg("--checkpoint-root")
        .arg(&arguments.checkpoint_root)
        .arg("--dataset-root")
        .arg(&arguments.dataset_root)
        .arg("--listen-host")
        .arg(&arguments.listen_host)
        .current_dir(folder.path());
}

/// Reads the environment file and removes it, because it contains secrets.
fn environment(arguments: &ShimArguments) -> Result<BTreeMap<String, String>, ExecutorError> {
    let Some(path) = &arguments.environment else {
        return Ok(BTreeMap::new());
    };
    let file = TaskFile::large(path);
    let read = file
        .read()
        .and_then(|read| read.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(ExecutorError::read(path))?;
    file.remove().map_err(ExecutorError::write(path))?;
    Ok(read)
}

fn open_cgroup(arguments: &ShimArguments) -> Option<File> {
    let path = arguments.cgroup.as_ref()?.join("cgroup.procs");
    OpenOptions::new().write(true).open(path).ok()
}

/// Copies the output to the log and returns its last line. A failed write is noted once in the
/// shim's own errors. The output is read further: a full disk must not block the training.
fn capture(
    mut output: PipeReader,
    mut log: RotatingLog,
    mut lines: Option<MetricLineReader>,
) -> Option<String> {
    let mut last_line = LastLine::default();
    let mut buffer = vec![0; 64 << 10];
    let mut has_failed = false;
    loop {
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                last_line.feed(&buffer[..count]);
                if let Some(lines) = &mut lines {
                    lines.feed(&buffer[..count]);
                }
                if let Err(error) = log.write(&buffer[..count])
                    && !std::mem::replace(&mut has_failed, true)
                {
                    eprintln!("output of the task is lost: {error}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                eprintln!("cannot read the task's output: {error}");
                break;
            }
        }
    }
    if let Some(lines) = lines {
        lines.end();
    }
    last_line.told()
}
