//! Python environments of programs: a folder of `python3 -m venv` with the packages of a
//! requirements file or a lock file ([`super::lock`]). Tasks of one tenant and node share the
//! environment of equal requirements ([`super::kept`]).

use super::check::{Failed, until_ended};
use super::environment::Paths;
use super::error::CommandError;
use super::kept::{self, KeptFolder};
use super::lock;
use muster_archive::ArchiveDigest;
use muster_model::assignment::TaskLaunch;
use muster_model::spec::{Command, LockFile, PythonEnvironment};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process;

/// Maximum size of a requirements file, and of a lock file.
const MAX_BYTES: u64 = 1 << 20;
const MAX_LOCK_BYTES: u64 = 16 << 20;

/// An environment that this task keeps.
pub(super) struct ReadyEnvironment(KeptFolder);

impl ReadyEnvironment {
    /// Lets the program of this process inherit the lock.
    pub fn hand_on(&self) -> io::Result<()> {
        self.0.hand_on()
    }

    /// Adds the variables by which programs of the environment are found.
    pub fn enter(&self, variables: &mut BTreeMap<String, String>) {
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = variables.get("PATH").unwrap_or(&inherited);
        let path = format!("{}:{path}", self.0.path.join("bin").display());
        variables.insert("PATH".to_owned(), path);
        let folder = self.0.path.display().to_string();
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
    let name = key(&text, command, python, paths.image.as_deref())?;
    let kept = kept::ready(paths, launch, &name, |folder| {
        make(folder, paths, command, python)
    });
    kept.map(ReadyEnvironment)
}

/// Returns the content of the file, and of the project beside a lock file.
fn requirements(paths: &Paths, python: &PythonEnvironment) -> Result<String, CommandError> {
    let path = Path::new(&python.requirements);
    match python.lock_file() {
        None => {
            let text = read(paths, path, MAX_BYTES)?;
            // An installation that refers to the folder of this task would break for the next one.
            match text.lines().find(|line| is_editable(line)) {
                None => Ok(text),
                Some(line) => {
                    let what = format!(
                        "has the line {line:?}; the folder is not kept, so leave out the -e"
                    );
                    Err(unfit(path, what))
                }
            }
        }
        Some(LockFile::Pylock) => {
            let text = read(paths, path, MAX_LOCK_BYTES)?;
            match text.lines().find(|line| lock::installs_a_folder(line)) {
                None => Ok(text),
                Some(line) => {
                    let what = format!(
                        "has the line {line:?}, which installs a folder; the folder is not kept, so \
                         make the file with `uv export --no-emit-project --format pylock.toml`"
                    );
                    Err(unfit(path, what))
                }
            }
        }
        Some(LockFile::Uv) => {
            let text = read(paths, path, MAX_LOCK_BYTES)?;
            let project = read(paths, &path.with_file_name(lock::PROJECT), MAX_BYTES)?;
            Ok(format!("{text}\n{project}"))
        }
    }
}

fn read(paths: &Paths, path: &Path, most_bytes: u64) -> Result<String, CommandError> {
    let file = File::open(paths.work.join(path));
    let file = file.map_err(|error| unfit(path, format!("cannot be read: {error}")))?;
    let mut text = String::new();
    let read = file.take(most_bytes + 1).read_to_string(&mut text);
    read.map_err(|error| unfit(path, format!("cannot be read: {error}")))?;
    if text.len() as u64 > most_bytes {
        let what = format!("has more than {} MiB", most_bytes >> 20);
        return Err(unfit(path, what));
    }
    Ok(text)
}

fn unfit(path: &Path, what: String) -> CommandError {
    let path = path.display().to_string();
    CommandError::Requirements { path, what }
}

fn is_editable(line: &str) -> bool {
    line.trim_start().starts_with("-e") || line.contains("--editable")
}

/// Returns the name of the environment: a digest of everything that determines it. Requirements
/// that name a file belong to this code only.
fn key(
    text: &str,
    command: &Command,
    python: &PythonEnvironment,
    image: Option<&str>,
) -> Result<String, CommandError> {
    let version = process::Command::new("python3").arg("-VV").output();
    let version = version.map_err(CommandError::start("python3"))?;
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
    let settings = settings.filter(|(name, _)| is_setting(name) && !is_secret(name));
    for (name, value) in settings {
        digest.update(format!("\n{name}={value}").as_bytes());
    }
    let is_of_code = match python.lock_file() {
        None => text.lines().any(names_a_file),
        Some(lock) => {
            digest.update(format!("\n{lock:?}").as_bytes());
            text.lines().any(|line| lock::names_a_file(lock, line))
        }
    };
    if is_of_code {
        let code = command.code.as_ref().map(|code| code.archive.as_str());
        let commit = command.git.as_ref().map(|git| git.commit.as_str());
        digest.update(code.or(commit).unwrap_or_default().as_bytes());
        let files = serde_json::to_string(&command.files).unwrap_or_default();
        digest.update(files.as_bytes());
    }
    Ok(digest.hex()[..32].to_owned())
}

fn is_setting(variable: &str) -> bool {
    variable.starts_with("PIP_") || variable.starts_with("UV_")
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
    if let Some(lock) = python.lock_file() {
        return lock::make(folder, paths, command, (lock, said.as_str()));
    }
    // Distributions package ensurepip apart from python3. The pip of the node is visible too.
    let mut venv = process::Command::new("python3");
    venv.args(["-m", "venv", "--without-pip", "--system-site-packages"]);
    venv.arg(folder);
    let python3 = Path::new("python3");
    step("python3 -m venv", venv, python3, paths, command)?;
    let interpreter = interpreter_of(folder);
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
    step("pip install", pip, &interpreter, paths, command)
}

pub(super) fn interpreter_of(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

/// Whether the interpreter has the module.
pub(super) fn runs(interpreter: &Path, module: &str) -> bool {
    let said = process::Command::new(interpreter)
        .args(["-m", module, "--version"])
        .stderr(process::Stdio::null())
        .output();
    said.is_ok_and(|said| said.status.success())
}

pub(super) fn step(
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
}
