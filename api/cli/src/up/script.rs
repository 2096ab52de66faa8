//! Scripts of a checkout or an installed release. They lie in a folder above this program.

use std::path::PathBuf;

/// Path of `scripts/NAME` in the nearest folder above this program that contains it.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors()
        .map(|folder| folder.join("scripts").join(name))
        .find(|script| script.exists())
}
