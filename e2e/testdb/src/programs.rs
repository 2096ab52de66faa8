//! Paths of Postgres' programs, searched in the same order as in `scripts/ensure-postgres`, and the
//! user that runs them.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nobody` on Linux.
pub const UNPRIVILEGED: u32 = 65_534;

/// Folder of `postgres` and `initdb`.
///
/// # Panics
/// If there is none.
pub fn folder() -> PathBuf {
    if let Some(given) = std::env::var_os("MUSTER_POSTGRES_BIN").filter(|given| !given.is_empty()) {
        let folder = PathBuf::from(given);
        assert!(
            is_complete(&folder),
            "MUSTER_POSTGRES_BIN is {}; expected a folder with postgres and initdb",
            folder.display()
        );
        return folder;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .find(|folder| is_complete(folder))
        .or_else(newest_of_debian);
    found.expect("Postgres is missing: run `MUSTER_POSTGRES_BIN=$(scripts/ensure-postgres)` and export it, or install postgresql")
}

/// Another program of the same installation, if it exists.
pub fn beside_postgres(name: &str) -> Option<PathBuf> {
    let given = folder().join("postgres");
    let real = given.canonicalize().ok()?;
    let folders = [given.parent()?, real.parent()?];
    let mut programs = folders.map(|folder| folder.join(name)).into_iter();
    programs.find(|program| program.is_file())
}

/// Runs a command to its end.
///
/// # Panics
/// If it fails.
pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("run {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Command that runs as the caller, or as the user `nobody` if the caller is root, which Postgres
/// refuses.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if runs_as_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

pub fn runs_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn newest_of_debian() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(version, folder)| *version >= 13 && is_complete(folder))
        .collect();
    folders.sort();
    folders.pop().map(|(_, folder)| folder)
}

fn is_complete(folder: &Path) -> bool {
    folder.join("postgres").is_file() && folder.join("initdb").is_file()
}
