//! Disk space of task folders, for limits and for the removal of old ones. A task can write to its
//! folder, so links are not followed and the effort is bounded.

use crate::opener::FolderHandle;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of counted files and folders. Of a larger folder the result is a lower bound.
const MAX_NAMES: usize = 100_000;
/// Maximum depth of counted folders; deeper ones are left out.
const MAX_LEVELS: usize = 32;

/// Returns the disk space of a folder's content, in bytes: allocated blocks, not lengths. A file
/// with several hard links counts once per link. Unreadable parts count as 0.
pub(crate) fn bytes_within(folder: &Path) -> u64 {
    let mut names_left = MAX_NAMES;
    FolderHandle::itself(folder).map_or(0, |folder| walk(&folder, MAX_LEVELS, &mut names_left))
}

fn walk(folder: &FolderHandle, levels_left: usize, names_left: &mut usize) -> u64 {
    let names = folder.some_names(*names_left).unwrap_or_default();
    let mut bytes = 0_u64;
    for name in names {
        if *names_left == 0 {
            break;
        }
        *names_left -= 1;
        let Ok(found) = folder.metadata(&name) else {
            continue;
        };
        bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
        if found.is_dir()
            && levels_left > 0
            && let Ok(inner) = folder.inner(&name)
        {
            bytes = bytes.saturating_add(walk(&inner, levels_left - 1, names_left));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn folder_counts_what_lies_below_it_and_follows_no_link() {
        let place = tempfile::tempdir().expect("a folder");
        let task = place.path().join("task");
        fs::create_dir_all(task.join("work/deep")).expect("made");
        fs::write(task.join("log"), vec![1; 100_000]).expect("written");
        fs::write(task.join("work/deep/file"), vec![1; 300_000]).expect("written");
        fs::write(place.path().join("other"), vec![1; 5_000_000]).expect("written");
        std::os::unix::fs::symlink(place.path(), task.join("link")).expect("linked");
        let sparse = fs::File::create(task.join("sparse")).expect("made");
        sparse.set_len(1 << 40).expect("sparse");
        let bytes = bytes_within(&task);
        assert!((400_000..1_000_000).contains(&bytes), "{bytes}");
        assert_eq!(bytes_within(&place.path().join("none")), 0);
    }
}
