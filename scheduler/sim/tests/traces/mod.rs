//! Path of the published traces for the tests of all crates: the folder in `MUSTER_TRACES`, or
//! `shared/traces` beside the repository.
#![allow(dead_code, reason = "each test uses one of the functions")]

use std::path::PathBuf;

/// Folder of the published traces. Without it a test prints that it was skipped.
pub fn folder() -> Option<PathBuf> {
    part("")
}

/// File or folder in the folder of traces; `None` as in [`folder`].
pub fn part(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("MUSTER_TRACES").map(PathBuf::from);
    // Every crate is two folders below the repository's root.
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let found = given.unwrap_or_else(beside).join(name);
    if found.exists() {
        return Some(found);
    }
    eprintln!("skipped: there is no {} (MUSTER_TRACES)", found.display());
    None
}
