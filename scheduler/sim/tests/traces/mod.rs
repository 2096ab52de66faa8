//! Where the published traces lie, for tests of any crate that hold us against them: the folder that `MUSTER_TRACES` names, or
//! `shared/traces` beside the repository.
#![allow(dead_code, reason = "each test asks in its own way")]

use std::path::PathBuf;

/// The folder of published traces; without it such a test says that it was skipped.
pub fn folder() -> Option<PathBuf> {
    part("")
}

/// A file or folder among them, likewise.
pub fn part(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("MUSTER_TRACES").map(PathBuf::from);
    // Every crate lies two folders deep.
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let found = given.unwrap_or_else(beside).join(name);
    if found.exists() {
        return Some(found);
    }
    eprintln!("skipped: there is no {} (MUSTER_TRACES)", found.display());
    None
}
