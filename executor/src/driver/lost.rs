//! Jobs of which the driver has lost a program on this node. Without this record, a program without
//! checkpoints would be moved and lost again in each of its slices and would never end. The record
//! holds until the machine restarts, because the driver may change then.

use crate::disk;
use crate::process::boot_id;
use muster_model::id::JobId;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the folder of the driver's records below the executor's data folder.
#[must_use]
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("driver")
}

/// # Errors
/// If the record cannot be written.
pub(crate) fn remember(folder: &Path, job: JobId) -> io::Result<()> {
    disk::write_durably(&path(folder, job), &boot_id())
}

/// Whether the driver has lost a program of this job since the machine started.
#[must_use]
pub fn has_lost(folder: &Path, job: JobId) -> bool {
    let boot: Option<String> = disk::read(&path(folder, job)).ok().flatten();
    boot == Some(boot_id())
}

fn path(folder: &Path, job: JobId) -> PathBuf {
    folder.join(format!("lost.{job}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn loss_counts_until_a_reboot() {
        let place = tempfile::tempdir().expect("a folder");
        let job = JobId(Uuid::from_u128(1));
        assert!(!has_lost(place.path(), job));
        remember(place.path(), job).expect("our own folder");
        assert!(has_lost(place.path(), job));
        assert!(!has_lost(place.path(), JobId(Uuid::from_u128(2))));
        disk::write_durably(&path(place.path(), job), &"an earlier one").expect("our own folder");
        assert!(!has_lost(place.path(), job));
    }
}
