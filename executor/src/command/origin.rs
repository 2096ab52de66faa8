//! The checkpoint folder of a program before its start.
//!
//! A bucket's folder is filled with a registered checkpoint. A job that begins from another one
//! gets a copy of the registered checkpoint that its document names. In population-based training,
//! programs need not register any: the rest of this module copies whole folders.
//!
//! The folder of a trial does not change between two rungs, because its program does not run. So
//! the copy of a rung is made when the next rung starts, before the program does. A trial that
//! begins there takes the copy, or the folder itself while there is no copy of that rung yet.

use super::checkpoint::{self, FirstCheckpoint};
use super::environment::Paths;
use super::error::CommandError;
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::program_checkpoint::RUNGS_FOLDER as RUNGS;
use muster_model::spec::Origin;
use muster_model::task::Role;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// File in [`RUNGS`] that is written after the copy from another job.
pub(crate) const BEGAN: &str = "began";
/// Number of the newest copies that stay in any case. A new trial begins from one of them.
const RUNGS_KEPT: usize = 2;

const NOT_REGISTERED: &str = "it has no registered checkpoint of that step";
const TRIAL_IN_BUCKET: &str =
    "a trial of a program begins from another one only if the checkpoint store is a folder";

/// Copies the checkpoint of the finished rung, and on the first start the checkpoint from which the
/// job begins. In a shared folder only rank 0 copies; other processes wait for its address.
pub(super) fn prepare(
    paths: &Paths,
    launch: &TaskLaunch,
    peers: Option<&Peers>,
) -> Result<(), CommandError> {
    if paths.is_in_bucket {
        return fetch(paths, launch);
    }
    if launch.role != (Role::Worker { rank: 0 }) {
        return Ok(());
    }
    let folder = &paths.checkpoints;
    if let Some(step) = launch.finished_rung {
        let spared = peers.map(|peers| &peers.spared);
        keep(folder, step, spared).map_err(CommandError::write(folder))?;
    }
    let Some(from) = launch.spec.from else {
        return Ok(());
    };
    if folder.join(RUNGS).join(BEGAN).exists() {
        return Ok(());
    }
    let beginning = checkpoint::first()?;
    match beginning.checkpoint {
        Some(first) if first.job_id == launch.job_id => return Ok(()),
        Some(first) => {
            return begin_registered(folder, &first).map_err(CommandError::write(folder));
        }
        // Only a trial may begin from a folder without registered checkpoints.
        None if !beginning.is_trial => return Err(missing(from, NOT_REGISTERED)),
        None => {}
    }
    match begin(folder, from) {
        Ok(TrialCopy::Complete) => Ok(()),
        Ok(TrialCopy::Missing) => Err(missing(
            from,
            "it has left no file in MUSTER_CHECKPOINT_DIR",
        )),
        Ok(TrialCopy::Pruned) => Err(missing(from, "the copy of that rung is gone")),
        Err(source) => Err(CommandError::write(folder)(source)),
    }
}

/// Fills the folder of a task from the bucket. Each process has a folder of its own.
fn fetch(paths: &Paths, launch: &TaskLaunch) -> Result<(), CommandError> {
    let beginning = checkpoint::first()?;
    match (beginning.checkpoint, launch.spec.from) {
        (Some(first), _) => checkpoint::fetch(paths, &first),
        (None, Some(from)) if beginning.is_trial => Err(missing(from, TRIAL_IN_BUCKET)),
        (None, Some(from)) => Err(missing(from, NOT_REGISTERED)),
        (None, None) => Ok(()),
    }
}

fn missing(from: Origin, why: &'static str) -> CommandError {
    CommandError::Origin {
        job: from.job,
        step: from.step.unwrap_or_default(),
        why,
    }
}

/// Copies a registered checkpoint of another job, under the same path.
fn begin_registered(folder: &Path, first: &FirstCheckpoint) -> io::Result<()> {
    let source = folder
        .with_file_name(first.job_id.to_string())
        .join(&first.path);
    let target = folder.join(&first.path);
    clear(&target)?;
    if let Some(above) = target.parent() {
        fs::create_dir_all(above)?;
    }
    // The user of this task copies, so a link can lead only to a file that its program may read.
    if source.is_dir() {
        fs::create_dir_all(&target)?;
        copy(&source, &target)?;
    } else {
        fs::copy(&source, &target)?;
    }
    mark(folder, first.job_id.to_string(), first.step)
}

fn mark(folder: &Path, job: impl std::fmt::Display, step: u64) -> io::Result<()> {
    fs::create_dir_all(folder.join(RUNGS))?;
    fs::write(folder.join(RUNGS).join(BEGAN), format!("{job}@{step}\n"))
}

/// Copies the folder as that of the rung, unless an earlier start has done so. Removes older copies
/// that are not spared, because no job begins from them. Removes none if those are not known.
fn keep(folder: &Path, step: u64, spared: Option<&BTreeSet<u64>>) -> io::Result<()> {
    let rungs = folder.join(RUNGS);
    let kept = rungs.join(step.to_string());
    if !kept.is_dir() {
        let unfinished = rungs.join("unfinished");
        clear(&unfinished)?;
        fs::create_dir_all(&unfinished)?;
        copy(folder, &unfinished)?;
        fs::rename(&unfinished, &kept)?;
    }
    let Some(spared) = spared else {
        return Ok(());
    };
    let copies = steps(&rungs)?;
    let old = copies.iter().rev().skip(RUNGS_KEPT);
    for step in old.filter(|step| !spared.contains(step)) {
        fs::remove_dir_all(rungs.join(step.to_string()))?;
    }
    Ok(())
}

/// Result of the copy from another trial.
#[derive(Debug, PartialEq, Eq)]
enum TrialCopy {
    Complete,
    /// The other trial has written no checkpoint.
    Missing,
    /// The other trial has trained on, and has no copy of the rung any more.
    Pruned,
}

/// Copies the checkpoint of the other job into the folder, unless an earlier start has done so.
fn begin(folder: &Path, from: Origin) -> io::Result<TrialCopy> {
    let began = folder.join(RUNGS).join(BEGAN);
    if began.exists() {
        return Ok(TrialCopy::Complete);
    }
    let (job, step) = (from.job.to_string(), from.step.unwrap_or_default());
    let other = folder.with_file_name(&job);
    let rung = other.join(RUNGS).join(step.to_string());
    loop {
        let has_copy = rung.is_dir();
        let newest = steps(&other.join(RUNGS))?.last().copied();
        // A copy of this very rung may have appeared since the look; then the loop repeats.
        if !has_copy && newest > Some(step) {
            return Ok(TrialCopy::Pruned);
        }
        empty(folder)?;
        let copied = copy(if has_copy { &rung } else { &other }, folder);
        // The other trial has started its next rung meanwhile, and its program may write.
        if !has_copy && rung.is_dir() {
            continue;
        }
        if has_copy && !rung.is_dir() {
            return Ok(TrialCopy::Pruned);
        }
        match copied {
            Ok(0) => return Ok(TrialCopy::Missing),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !other.exists() => {
                return Ok(TrialCopy::Missing);
            }
            Err(error) => return Err(error),
        }
    }
    mark(folder, job, step)?;
    Ok(TrialCopy::Complete)
}

/// Copies the files of a folder without its copies of rungs. Returns the number of its entries.
fn copy(from: &Path, to: &Path) -> io::Result<usize> {
    let mut entries = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == RUNGS {
            continue;
        }
        entries += 1;
        let (kind, source) = (entry.file_type()?, entry.path());
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(entries)
}

/// Removes everything in a folder except its copies of rungs.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == RUNGS {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file or folder. A missing one is no error.
pub(super) fn clear(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the rungs of which a folder has copies.
fn steps(rungs: &Path) -> io::Result<BTreeSet<u64>> {
    let entries = match fs::read_dir(rungs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let steps = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    Ok(steps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::id::JobId;
    use std::path::PathBuf;
    use uuid::Uuid;

    /// Folders of two jobs of a tenant.
    struct TwoJobs {
        _root: tempfile::TempDir,
        donor: PathBuf,
        copy: PathBuf,
        from: JobId,
    }

    fn jobs() -> TwoJobs {
        let root = tempfile::tempdir().expect("a folder");
        let from: JobId = Uuid::from_u128(1).into();
        let donor = root.path().join(from.to_string());
        let copy = root.path().join(Uuid::from_u128(2).to_string());
        fs::create_dir_all(donor.join("weights")).expect("a folder");
        fs::create_dir_all(&copy).expect("a folder");
        TwoJobs {
            _root: root,
            donor,
            copy,
            from,
        }
    }

    fn at(job: JobId, step: u64) -> Origin {
        Origin {
            job,
            step: Some(step),
        }
    }

    fn write(folder: &Path, text: &str) {
        fs::write(folder.join("weights/0"), text).expect("written");
    }

    fn read(folder: &Path) -> String {
        fs::read_to_string(folder.join("weights/0")).expect("a file")
    }

    #[test]
    fn trial_begins_from_the_rung_even_if_the_other_trained_on() {
        let jobs = jobs();
        write(&jobs.donor, "rung 1");
        keep(&jobs.donor, 1, Some(&BTreeSet::new())).expect("kept");
        write(&jobs.donor, "rung 2");
        let begun = begin(&jobs.copy, at(jobs.from, 1)).expect("copied");
        assert_eq!(
            (begun, read(&jobs.copy)),
            (TrialCopy::Complete, "rung 1".to_owned())
        );
        assert!(!jobs.copy.join(RUNGS).join("1").exists(), "only the files");
    }

    #[test]
    fn trial_begins_from_the_folder_of_a_waiting_trial() {
        let jobs = jobs();
        write(&jobs.donor, "rung 2");
        keep(&jobs.donor, 1, Some(&BTreeSet::new())).expect("kept");
        let begun = begin(&jobs.copy, at(jobs.from, 2)).expect("copied");
        assert_eq!(
            (begun, read(&jobs.copy)),
            (TrialCopy::Complete, "rung 2".to_owned())
        );
    }

    #[test]
    fn later_start_keeps_the_trials_own_checkpoint() {
        let jobs = jobs();
        write(&jobs.donor, "theirs");
        begin(&jobs.copy, at(jobs.from, 1)).expect("copied");
        write(&jobs.copy, "own");
        begin(&jobs.copy, at(jobs.from, 1)).expect("nothing");
        assert_eq!(read(&jobs.copy), "own");
    }

    #[test]
    fn unfinished_copy_is_made_again() {
        let jobs = jobs();
        write(&jobs.donor, "whole");
        fs::write(jobs.copy.join("part"), "of an earlier start").expect("written");
        begin(&jobs.copy, at(jobs.from, 1)).expect("copied");
        assert_eq!(read(&jobs.copy), "whole");
        assert!(!jobs.copy.join("part").exists());
    }

    #[test]
    fn missing_and_pruned_checkpoints_are_told_apart() {
        let jobs = jobs();
        let other: JobId = Uuid::from_u128(9).into();
        let missing = begin(&jobs.copy, at(other, 1)).expect("looked");
        assert_eq!(missing, TrialCopy::Missing);
        write(&jobs.donor, "rung 5");
        keep(&jobs.donor, 4, Some(&BTreeSet::new())).expect("kept");
        let pruned = begin(&jobs.copy, at(jobs.from, 3)).expect("looked");
        assert_eq!(pruned, TrialCopy::Pruned);
    }

    #[test]
    fn newest_copies_and_spared_ones_stay() {
        let jobs = jobs();
        for step in 1..=5 {
            write(&jobs.donor, &format!("rung {step}"));
            keep(&jobs.donor, step, Some(&[2].into())).expect("kept");
        }
        let left = steps(&jobs.donor.join(RUNGS)).expect("listed");
        assert_eq!(left, [2, 4, 5].into());
        // Which copies are spared is not known.
        keep(&jobs.donor, 6, None).expect("kept");
        let left = steps(&jobs.donor.join(RUNGS)).expect("listed");
        assert_eq!(left, [2, 4, 5, 6].into());
    }
}
