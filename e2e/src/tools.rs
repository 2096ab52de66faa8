//! Programs outside this project that `make test` finds or installs, each named by a variable.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the program that the variable names.
///
/// # Panics
/// If the variable is not set.
#[must_use]
pub fn tool(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) if !path.is_empty() => path.into(),
        _ => panic!("{variable} is not set: `make test` sets it; scripts/ensure-* print its value"),
    }
}

/// Search path with the folder of this program first.
///
/// # Panics
/// If the program lies in no folder, or `PATH` is not set.
#[must_use]
pub fn path_with(program: &Path) -> String {
    let folder = program.parent().expect("a folder").display().to_string();
    format!("{folder}:{}", std::env::var("PATH").expect("PATH"))
}

/// Folder of the packages of this python3.
///
/// # Panics
/// If it does not run.
#[must_use]
pub fn packages(python: &Path) -> String {
    let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let output = Command::new(python).args(["-c", script]).output();
    let output = output.expect("python3 runs").stdout;
    String::from_utf8_lossy(&output).trim().to_owned()
}
