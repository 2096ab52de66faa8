//! Scripts of a checkout or an installed release. They lie in a folder above this program.

use std::path::PathBuf;

/// Folders above the program that are searched: `bin` and its release, or `release`, `target` and
/// the checkout. Another user may be able to write folders further up, such as `/tmp`.
const SEARCHED_FOLDERS: usize = 3;

/// Path of `scripts/NAME` in the nearest of the searched folders that contains it.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors()
        .skip(1)
        .take(SEARCHED_FOLDERS)
        .map(|folder| folder.join("scripts").join(name))
        .find(|script| script.exists())
}
