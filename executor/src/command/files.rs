//! Files of a user's program: its folder with its code and the shipped files, the job's checkpoint
//! folder and the list of hosts.

use super::code;
use super::environment::{Paths, split};
use super::error::CommandError;
use super::git;
use super::keep;
use super::torchrun;
use crate::folder::NodeTaskFolder;
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::spec::Command;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A file of the Python package.
macro_rules! module {
    ($name:literal) => {
        ($name, include_str!(concat!("../../python/muster/", $name)))
    };
}

/// Muster's Python package of this release, without its client: a task has no token of a user.
const PACKAGE: [(&str, &str); 8] = [
    module!("__init__.py"),
    module!("_context.py"),
    module!("_ranks.py"),
    module!("elastic.py"),
    module!("lightning.py"),
    module!("optuna.py"),
    module!("torchrun.py"),
    module!("transformers.py"),
];

/// Creates the folders and writes the files. A file that begins with `#!` becomes executable.
pub(super) fn lay_out(
    paths: &Paths,
    launch: &TaskLaunch,
    command: &Command,
) -> Result<(), CommandError> {
    make(&paths.checkpoints)?;
    make(&NodeTaskFolder::at(&paths.task).output())?;
    let package = paths.python.join("muster");
    make(&package)?;
    for (name, text) in PACKAGE {
        let path = package.join(name);
        fs::write(&path, text).map_err(CommandError::write(&path))?;
    }
    if command.elastic.is_some() {
        write_entry_point(&paths.python)?;
    }
    if paths.work != NodeTaskFolder::at(&paths.task).work() {
        return if paths.work.is_dir() {
            Ok(())
        } else {
            Err(CommandError::WorkingFolder {
                path: paths.work.clone(),
            })
        };
    }
    make(&paths.work)?;
    if let Some(code) = &command.code {
        code::lay_out(paths, code)?;
    }
    if let Some(git) = &command.git {
        git::lay_out(paths, launch, command, git)?;
    }
    for (name, text) in &command.files {
        let path = paths.work.join(name);
        if let Some(folder) = path.parent() {
            make(folder)?;
        }
        fs::write(&path, text).map_err(CommandError::write(&path))?;
        if text.starts_with("#!") {
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .map_err(CommandError::write(&path))?;
        }
    }
    keep::link(paths, command)
}

/// Writes the description of a distribution beside the Python package.
fn write_entry_point(python: &Path) -> Result<(), CommandError> {
    let folder = python.join(torchrun::DISTRIBUTION);
    make(&folder)?;
    for (name, text) in torchrun::DISTRIBUTION_FILES {
        let path = folder.join(name);
        fs::write(&path, text).map_err(CommandError::write(&path))?;
    }
    Ok(())
}

fn make(folder: &Path) -> Result<(), CommandError> {
    fs::create_dir_all(folder).map_err(CommandError::write(folder))
}

/// Writes the workers' hosts in the format of Open MPI and MPICH, each with the slots of all its
/// workers, ordered by their lowest ranks.
pub(super) fn write_hosts(
    paths: &Paths,
    launch: &TaskLaunch,
    peers: &Peers,
) -> Result<(), CommandError> {
    let text = hosts(launch, peers)?;
    fs::write(&paths.hosts, text).map_err(CommandError::write(&paths.hosts))
}

fn hosts(launch: &TaskLaunch, peers: &Peers) -> Result<String, CommandError> {
    let slots = launch.spec.resources.worker.gpus.max(1);
    let mut hosts: Vec<(String, u32)> = Vec::new();
    for peer in &peers.workers {
        let (host, _) = split(peer)?;
        match hosts.iter_mut().find(|(known, _)| *known == host) {
            Some((_, count)) => *count += slots,
            None => hosts.push((host, slots)),
        }
    }
    let mut text = String::new();
    for (host, slots) in hosts {
        writeln!(text, "{host} slots={slots}").expect("a string takes all");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::environment::tests::{launch, peers};
    use super::*;

    #[test]
    fn a_host_has_the_slots_of_all_its_workers() {
        let launch = launch(2, 0);
        let peers = peers(&["a:1", "b:2", "a:3"], &["c:4"]);
        assert_eq!(
            hosts(&launch, &peers).expect("hosts"),
            "a slots=4\nb slots=2\n"
        );
    }
}
