//! Start of a task in an image: what its view shows, and a trial whether this node can do it.

use super::ShimArguments;
use super::image_view::{ImageView, start_inside};
use super::isolation::make_temporary;
use super::loader::{FOLDER, OwnProgram};
use crate::command::ENVIRONMENTS;
use crate::folder::NodeTaskFolder;
use crate::image::{FILES, INFO, gpu_access};
use crate::task_user::TaskUser;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::place::Place;
use muster_model::spec::Volume;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// A view that this process has entered, for the task.
#[derive(Debug)]
pub(super) struct InsideImage {
    own: OwnProgram,
    stage: PathBuf,
    /// Variables of the GPU driver.
    env: Vec<(String, String)>,
}

/// Arguments of the hidden subcommand `try-image`; the daemon passes them.
#[derive(Debug, Clone, clap::Args)]
pub struct TrialArguments {
    /// Folder for the trial, which does not exist
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long)]
    pub task_user: Option<TaskUser>,
}

/// Moves this process into a namespace with the view of the task.
///
/// # Errors
/// Names the step that failed.
pub(super) fn enter(
    arguments: &ShimArguments,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    image: &Path,
) -> io::Result<InsideImage> {
    let own = OwnProgram::find()?;
    let view = view(arguments, folder, launch, image)?;
    view.enter(&own)?;
    let env = view.gpus.iter().flat_map(|gpus| gpus.env.clone());
    Ok(InsideImage {
        own,
        env: env.collect(),
        stage: view.stage,
    })
}

fn view(
    arguments: &ShimArguments,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    image: &Path,
) -> io::Result<ImageView> {
    let data = arguments.data_dir.clone();
    let tenant = launch.tenant_id.to_string();
    let mut covered = vec![data.clone(), arguments.dataset_root.clone()];
    let mut shown = vec![
        folder.path().to_owned(),
        data.join(ENVIRONMENTS).join(&tenant),
        arguments.dataset_root.clone(),
    ];
    if let Ok(Place::Folder(root)) = arguments.checkpoint_root.parse() {
        let own = root.join(&tenant);
        fs::create_dir_all(&own)?;
        shown.push(own);
        covered.push(root);
    }
    let gpus = (arguments.image_gpus && !launch.gpus.is_empty())
        .then(|| gpu_access(&launch.gpus).map_err(io::Error::other));
    let (in_memory, mounted) = volumes(folder, launch)?;
    check_volumes(launch, &covered)?;
    Ok(ImageView {
        image: image.to_owned(),
        stage: arguments.image_stage.clone().unwrap_or_default(),
        temporary: make_temporary(folder.path(), arguments.task_user)?,
        covered,
        shown,
        in_memory,
        mounted,
        gpus: gpus.transpose()?,
        hides_processes: arguments.own_view,
    })
}

type Mounts = (Vec<(PathBuf, u64)>, Vec<(PathBuf, PathBuf)>);

/// Returns the folders in memory and those on the disk that the document asks for. `/dev/shm` is
/// the node's, which all workers of the job share.
fn volumes(folder: &NodeTaskFolder, launch: &TaskLaunch) -> io::Result<Mounts> {
    let (mut in_memory, mut on_disk) = (Vec::new(), Vec::new());
    for (index, volume) in launch.spec.pod.volumes.iter().enumerate() {
        match volume {
            Volume::Memory { path, .. } if path == "/dev/shm" => {}
            Volume::Memory { path, bytes } => in_memory.push((PathBuf::from(path), *bytes)),
            Volume::Scratch { path, .. } => {
                let own = folder.path().join(format!("scratch-{index}"));
                fs::create_dir_all(&own)?;
                fs::set_permissions(&own, Permissions::from_mode(0o1777))?;
                on_disk.push((PathBuf::from(path), own));
            }
            Volume::Claim { .. } | Volume::Secret { .. } | Volume::ConfigMap { .. } => {}
        }
    }
    Ok((in_memory, on_disk))
}

/// Refuses volumes within folders of the node. Links there, which a task may have made, could lead
/// the shim out of the view.
fn check_volumes(launch: &TaskLaunch, covered: &[PathBuf]) -> io::Result<()> {
    for volume in &launch.spec.pod.volumes {
        let path = Path::new(volume.path());
        let has_up = path.components().any(|part| part == Component::ParentDir);
        let within = covered.iter().find(|folder| path.starts_with(folder));
        if let Some(folder) = within {
            let (path, folder) = (path.display(), folder.display());
            let message = format!("pod.volumes has {path}, which lies in the node's {folder}");
            return Err(io::Error::other(message));
        }
        if has_up || !path.is_absolute() {
            return Err(io::Error::other(
                "pod.volumes has a path that is not absolute",
            ));
        }
    }
    Ok(())
}

impl InsideImage {
    /// Returns the command that starts this program within the view.
    pub(super) fn command(&self) -> Command {
        let mut command = self.own.command_inside();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Arguments by which the program within the view knows its image.
    pub(super) fn arguments() -> [PathBuf; 2] {
        [PathBuf::from("--image"), Path::new(FOLDER).join(INFO)]
    }

    /// See [`start_inside`].
    ///
    /// # Errors
    /// If a path contains a zero byte.
    pub(super) fn start(
        &self,
        command: &mut Command,
        folder: &Path,
        user: Option<TaskUser>,
    ) -> io::Result<()> {
        start_inside(command, &self.stage, folder, user)
    }
}

/// Tries to start this program in an empty image, as the task's user. Returns an exit code; the
/// first line of standard error is the reason of a failure.
#[must_use]
pub fn try_image(arguments: &TrialArguments) -> i32 {
    match attempt(&arguments.folder, arguments.task_user) {
        // The daemon removes the folder: it is a mount point in this namespace.
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}", chain(&error));
            1
        }
    }
}

fn attempt(folder: &Path, user: Option<TaskUser>) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let (stage, temporary) = (folder.join("stage"), folder.join("tmp"));
    for made in [&stage, &temporary, &folder.join(FILES)] {
        fs::create_dir_all(made)?;
    }
    let own = OwnProgram::find()?;
    let view = ImageView {
        image: folder.to_owned(),
        stage: stage.clone(),
        temporary,
        covered: Vec::new(),
        shown: Vec::new(),
        in_memory: Vec::new(),
        mounted: Vec::new(),
        gpus: None,
        hides_processes: false,
    };
    view.enter(&own)?;
    let mut command = own.command_inside();
    command.arg("--version");
    start_inside(&mut command, &stage, Path::new("/"), user)?;
    let said = command.output()?;
    if said.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(io::Error::other(format!(
        "a program in an image ended with {}: {text}",
        said.status
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::launch;

    #[test]
    fn volume_within_a_folder_of_the_node_is_refused() {
        let covered = [PathBuf::from("/srv/checkpoints"), PathBuf::from("/data")];
        for (path, is_right) in [
            ("/scratch", true),
            ("/dev/shm", true),
            ("/database", true),
            ("/data", false),
            ("/srv/checkpoints/job/link/x", false),
            ("/tmp/../data", false),
            ("scratch", false),
        ] {
            let mut launch = launch();
            launch.spec.pod.volumes = vec![Volume::Scratch {
                path: path.to_owned(),
                bytes: 1,
            }];
            let checked = check_volumes(&launch, &covered);
            assert_eq!(checked.is_ok(), is_right, "{path}: {checked:?}");
        }
    }
}
