//! Paths of published traces for the tests of all crates.
//!
//! Traces whose licence permits it are in `scheduler/lab/traces`. The others are in the folder
//! `MUSTER_TRACES`, by default `shared/traces` beside the repository. Tests that need these are
//! ignored with a reason that begins with `needs MUSTER_TRACES`; `scripts/run-tests` runs them if
//! the folder is there.
#![allow(dead_code, reason = "each test uses some of the functions")]

use std::path::{Path, PathBuf};

/// Every crate is two folders below the repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a file or folder of the committed traces. The files are compressed: `a.csv` is
/// `a.csv.zst`.
pub fn committed(name: &str) -> PathBuf {
    root().join("scheduler/lab/traces").join(name)
}

/// Returns a file or folder of the traces that are not part of the repository.
///
/// # Panics
/// If it does not exist.
pub fn outside(name: &str) -> PathBuf {
    let given = std::env::var_os("MUSTER_TRACES").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| root().join("../shared/traces"));
    let found = folder.join(name);
    assert!(
        found.exists(),
        "{} does not exist; set MUSTER_TRACES to the folder of traces",
        found.display()
    );
    found
}
