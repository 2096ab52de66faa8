//! Python environments of programs: a folder of `python3 -m venv` with the packages of a
//! requirements file. Tasks of one tenant and node share the environment of equal requirements.
//!
//! The task makes it as its own user. A lock is held exclusively while it is made, and shared by
//! each program that uses it, so that it is made once and not removed while it is used.

use super::check::{Failed, until_ended};
use super::environment::Paths;
use super::error::CommandError;
use muster_archive::ArchiveDigest;
use muster_model::assignment::TaskLaunch;
use muster_model::spec::{Command, PythonEnvironment};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

/// Folder of the environments, in the data folder of an executor whose tasks are processes.
pub const FOLDER: &str = "environments";

/// Maximum number of unused environments of a tenant on this node, besides the newest.
const MAX_UNUSED: usize = 8;

/// Maximum size of a requirements file.
const MAX_BYTES: u64 = 1 << 20;

/// File that an environment has once it is complete.
const COMPLETE: &str = ".muster-complete";

/// An environment and the lock that keeps it. The program inherits the lock.
pub(super) struct ReadyEnvironment {
    folder: PathBuf,
    lock: File,
}

impl ReadyEnvironment {
    /// Lets the program of this process inherit the lock.
    pub fn hand_on(&self) -> io::Result<()> {
        let flags = fcntl_getfd(&self.lock)?;
        Ok(fcntl_setfd(&self.lock, flags - FdFlags::CLOEXEC)?)
    }

    /// Adds the variables by which programs of the environment are found.
    pub fn enter(&self, variables: &mut BTreeMap<String, String>) {
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = variables.get("PATH").unwrap_or(&inherited);
        let path = format!("{}:{path}", self.folder.join("bin").display());
        variables.insert("PATH".to_owned(), path);
        let folder = self.folder.display().to_string();
        variables.insert("VIRTUAL_ENV".to_owned(), folder);
    }
}

/// Returns the environment of the requirements. It is made if it does not exist.
pub(super) fn prepare(
    paths: &Paths,
    launch: &TaskLaunch,
    command: &Command,
    python: &PythonEnvironment,
) -> Result<ReadyEnvironment, CommandError> {
    let text = requirements(paths, python)?;
    let place = place(paths, launch);
    fs::create_dir_all(&place).map_err(CommandError::write(&place))?;
    let name = key(&text, command, paths.image.as_deref())?;
    let (folder, lock) = (place.join(&name), place.join(format!("{name}.lock")));
    let failed = CommandError::write(&lock);
    let lock = File::create(&lock).map_err(failed)?;
    loop {
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| CommandError::write(&folder)(error.into()))?;
        if !folder.join(COMPLETE).exists() {
            if let Err(error) = make(&folder, paths, command, python) {
                // What is there may be what filled the disk.
                let _ = fs::remove_dir_all(&folder);
                return Err(error);
            }
            remove_unused(&place, &name);
        }
        // Another task may remove the environment between the two locks.
        flock(&lock, FlockOperation::LockShared)
            .map_err(|error| CommandError::write(&folder)(error.into()))?;
        if folder.join(COMPLETE).exists() {
            return Ok(ReadyEnvironment { folder, lock });
        }
    }
}

fn requirements(paths: &Paths, python: &PythonEnvironment) -> Result<String, CommandError> {
    let path = paths.work.join(&python.requirements);
    let unfit = |what: &str| CommandError::Requirements {
        path: python.requirements.clone(),
        what: what.to_owned(),
    };
    let file = File::open(&path).map_err(|error| unfit(&format!("cannot be read: {error}")))?;
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| unfit(&format!("cannot be read: {error}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(unfit("has more than 1 MiB"));
    }
    // An installation that refers to the folder of this task would break for the next one.
    let is_editable =
        |line: &str| line.trim_start().starts_with("-e") || line.contains("--editable");
    if let Some(line) = text.lines().find(|line| is_editable(line)) {
        let what = format!("has the line {line:?}; the folder is not kept, so leave out the -e");
        return Err(unfit(&what));
    }
    Ok(text)
}

/// Returns the folder of the tenant's environments. Without the node's folder, as in a pod, the
/// task has an environment of its own.
fn place(paths: &Paths, launch: &TaskLaunch) -> PathBuf {
    let of_node = paths.task.ancestors().nth(2).map(|data| data.join(FOLDER));
    match of_node.filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join(launch.tenant_id.to_string()),
        None => paths.task.join(FOLDER),
    }
}

/// Returns the name of the environment: a digest of everything that determines it. Requirements
/// that name a file belong to this code only.
fn key(text: &str, command: &Command, image: Option<&str>) -> Result<String, CommandError> {
    let version = process::Command::new("python3").arg("-VV").output();
    let version = version.map_err(|source| CommandError::Start {
        program: PathBuf::from("python3"),
        source,
    })?;
    let mut digest = ArchiveDigest::default();
    digest.update(&version.stdout);
    // An environment refers to the interpreter and the libraries of its image.
    digest.update(image.unwrap_or_default().as_bytes());
    digest.update(text.as_bytes());
    let settings = command.env.iter();
    // A digest of a secret would be readable as the name of a folder.
    let is_secret = |name: &str| {
        let mut secrets = command.secrets.iter();
        secrets.any(|secret| secret.variable() == Some(name))
    };
    let settings = settings.filter(|(name, _)| name.starts_with("PIP_") && !is_secret(name));
    for (name, value) in settings {
        digest.update(format!("\n{name}={value}").as_bytes());
    }
    if text.lines().any(names_a_file) {
        let code = command.code.as_ref().map(|code| code.archive.as_str());
        digest.update(code.unwrap_or_default().as_bytes());
        let files = serde_json::to_string(&command.files).unwrap_or_default();
        digest.update(files.as_bytes());
    }
    Ok(digest.hex()[..32].to_owned())
}

/// Whether a line refers to another file: an option such as `-r` or `--find-links`, or a path.
fn names_a_file(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(['-', '.', '/']) || line.contains("file:")
}

fn make(
    folder: &Path,
    paths: &Paths,
    command: &Command,
    python: &PythonEnvironment,
) -> Result<(), CommandError> {
    let said = &python.requirements;
    super::say(&format!("installing the packages of {said}"));
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(CommandError::write(folder)(error));
        }
        _ => {}
    }
    // Distributions package ensurepip apart from python3. The pip of the node is visible too.
    let mut venv = process::Command::new("python3");
    venv.args(["-m", "venv", "--without-pip", "--system-site-packages"]);
    venv.arg(folder);
    let python3 = Path::new("python3");
    step("python3 -m venv", venv, python3, paths, command)?;
    let interpreter = folder.join("bin/python");
    if !runs(&interpreter, "pip") {
        if !runs(&interpreter, "ensurepip") {
            return Err(CommandError::NoPip);
        }
        let mut pip = process::Command::new(&interpreter);
        pip.args(["-m", "ensurepip", "--default-pip"]);
        step("ensurepip", pip, &interpreter, paths, command)?;
    }
    let mut pip = process::Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--disable-pip-version-check"]);
    pip.args(["--no-input", "-r", said]);
    step("pip install", pip, &interpreter, paths, command)?;
    let complete = folder.join(COMPLETE);
    File::create(&complete)
        .map(drop)
        .map_err(CommandError::write(&complete))
}

/// Whether the interpreter has the module.
fn runs(interpreter: &Path, module: &str) -> bool {
    let said = process::Command::new(interpreter)
        .args(["-m", module, "--version"])
        .stderr(process::Stdio::null())
        .output();
    said.is_ok_and(|said| said.status.success())
}

fn step(
    what: &'static str,
    mut started: process::Command,
    program: &Path,
    paths: &Paths,
    command: &Command,
) -> Result<(), CommandError> {
    started.envs(&command.env).current_dir(&paths.work);
    match until_ended(started, program, None)? {
        None => Ok(()),
        Some(Failed { how, said }) => Err(CommandError::Packages { what, how, said }),
    }
}

/// Removes the oldest environments that no task uses or makes.
fn remove_unused(place: &Path, newest: &str) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    let mut others: Vec<(SystemTime, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_environment = entry.file_type().ok()?.is_dir() && name != newest;
            is_environment.then_some((entry.metadata().ok()?.modified().ok()?, name))
        })
        .collect();
    others.sort_unstable();
    let surplus = others.len().saturating_sub(MAX_UNUSED);
    for (_, name) in others.into_iter().take(surplus) {
        // The lock file stays: another task may be waiting for it.
        let lock = File::open(place.join(format!("{name}.lock")));
        let is_unused =
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_unused && let Err(error) = fs::remove_dir_all(place.join(&name)) {
            super::say(&format!("cannot remove an old environment: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_with_files_belong_to_their_code() {
        for line in [
            "-r other.txt",
            "--find-links wheels",
            "./package",
            "/srv/x.whl",
            "x @ file:///x",
        ] {
            assert!(names_a_file(line), "{line}");
        }
        for line in [
            "torch==2.9",
            "numpy>=2 ; python_version > '3.10'",
            "# wheels",
            "",
        ] {
            assert!(!names_a_file(line), "{line}");
        }
    }

    #[test]
    fn used_environments_are_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let at = place.path();
        for number in 0..=MAX_UNUSED + 2 {
            let name = format!("{number:02}");
            fs::create_dir(at.join(&name)).expect("made");
            File::create(at.join(format!("{name}.lock"))).expect("made");
            let past = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            let folder = File::open(at.join(&name)).expect("open");
            folder.set_modified(past).expect("set");
        }
        let used = File::open(at.join("00.lock")).expect("open");
        flock(&used, FlockOperation::LockShared).expect("free");
        remove_unused(at, "10");
        let is_there = |name: &str| at.join(name).exists();
        assert!(is_there("00") && !is_there("01") && is_there("02") && is_there("10"));
    }
}
