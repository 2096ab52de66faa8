//! Paths and limits of checkpoints of users' programs.

use crate::artifact::is_artifact_path;

/// Folder of copies within the checkpoint folder of a program in population-based training. No
/// path of a checkpoint begins with it.
pub const RUNGS_FOLDER: &str = ".muster-rungs";

/// Maximum number of files of a program's checkpoint.
pub const MAX_PROGRAM_FILES: usize = 10_000;

/// Maximum size of a program's checkpoint in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 1 << 40;

/// Maximum number of metrics of a program's checkpoint.
pub const MAX_PROGRAM_METRICS: usize = 100;

/// Whether the text is a path that a program may report: a file or folder below its checkpoint
/// folder.
#[must_use]
pub fn is_program_path(text: &str) -> bool {
    is_artifact_path(text) && text.split('/').next() != Some(RUNGS_FOLDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_program_spares_copies_of_rungs() {
        assert!(is_program_path("a/b.pt") && is_program_path(".hidden"));
        for path in ["", "../a", "/a", ".muster-rungs", ".muster-rungs/5"] {
            assert!(!is_program_path(path), "{path}");
        }
    }
}
