//! Where the published traces lie, for tests that hold the simulator against them.

use std::path::PathBuf;

/// The folder of published traces; without it such a test says that it was skipped.
pub fn folder() -> Option<PathBuf> {
    let given = std::env::var_os("MUSTER_TRACES").map(PathBuf::from);
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = given.unwrap_or_else(beside);
    if folder.join("pollux").is_dir() {
        return Some(folder);
    }
    eprintln!(
        "skipped: there are no traces in {} (MUSTER_TRACES)",
        folder.display()
    );
    None
}
