//! Start of a task in an image: what its view shows, and a trial whether this node can do it.

use super::ShimArguments;
use super::image_view::{ImageView, OWN_FOLDERS, start_inside};
use super::isolation::make_temporary;
use super::loader::{FOLDER, OwnProgram};
use crate::command::KEPT_FOLDERS;
use crate::folder::NodeTaskFolder;
use crate::image::{FILES, INFO, ImageInfo, gpu_access};
use crate::task_file::TaskFile;
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

/// Folder in memory that all workers of a job on a node share.
const SHARED_MEMORY: &str = "/dev/shm";

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
        data.join(KEPT_FOLDERS).join(&tenant),
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
    check_volumes(launch, &covered)?;
    let (in_memory, mounted) = volumes(folder, launch)?;
    // The cache has the name by which another tenant may have asked for the image.
    let info: Option<ImageInfo> = TaskFile::large(image.join(INFO)).read()?;
    let info = info.map(|info| ImageInfo {
        image: launch.spec.pod.image.clone().unwrap_or_default(),
        ..info
    });
    Ok(ImageView {
        image: image.to_owned(),
        info,
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

/// Returns the folders in memory and those on the disk that the document asks for.
/// [`SHARED_MEMORY`] is the node's.
fn volumes(folder: &NodeTaskFolder, launch: &TaskLaunch) -> io::Result<Mounts> {
    let (mut in_memory, mut on_disk) = (Vec::new(), Vec::new());
    for (index, volume) in launch.spec.pod.volumes.iter().enumerate() {
        match volume {
            Volume::Memory { path, .. } if Path::new(path) == Path::new(SHARED_MEMORY) => {}
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

/// Whether one of the folders lies in the other.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Refuses volumes within folders of the node or of the view. Links there, which a task may have
/// made, could lead the shim out of the view.
fn check_volumes(launch: &TaskLaunch, covered: &[PathBuf]) -> io::Result<()> {
    let volumes = &launch.spec.pod.volumes;
    for volume in volumes {
        let path = Path::new(volume.path());
        let refused = |why: String| {
            let path = path.display();
            Err(io::Error::other(format!("pod.volumes has {path}, {why}")))
        };
        let has_up = path.components().any(|part| part == Component::ParentDir);
        if has_up || !path.is_absolute() {
            return refused("which must be absolute, without \"..\"".to_owned());
        }
        let is_shared_memory =
            matches!(volume, Volume::Memory { .. }) && path == Path::new(SHARED_MEMORY);
        if is_shared_memory {
            continue;
        }
        if let Some(folder) = covered.iter().find(|folder| overlap(path, folder)) {
            let folder = folder.display();
            return refused(format!("which lies in or above the node's {folder}"));
        }
        if let Some(folder) = OWN_FOLDERS.iter().find(|own| overlap(path, Path::new(own))) {
            return refused(match *folder {
                "/tmp" | "/var/tmp" => format!("and {folder} is already the task's own"),
                "/dev" => format!(
                    "which lies in or above /dev: only a volume of the kind memory at \
                     {SHARED_MEMORY} is allowed there"
                ),
                _ => format!("which lies in or above {folder}: no volume is allowed there"),
            });
        }
        let mut others = volumes.iter().map(|other| Path::new(other.path()));
        if let Some(other) = others.find(|other| *other != path && path.starts_with(other)) {
            return refused(format!("which lies in the volume {}", other.display()));
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
        info: None,
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
    command.env_clear().arg("--version");
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

    fn scratch(path: &str) -> Volume {
        Volume::Scratch {
            path: path.to_owned(),
            bytes: 1,
        }
    }

    fn memory(path: &str) -> Volume {
        Volume::Memory {
            path: path.to_owned(),
            bytes: 1,
        }
    }

    fn check(volumes: Vec<Volume>) -> io::Result<()> {
        let covered = [PathBuf::from("/srv/checkpoints"), PathBuf::from("/data")];
        let mut launch = launch();
        launch.spec.pod.volumes = volumes;
        check_volumes(&launch, &covered)
    }

    #[test]
    fn volume_within_a_folder_of_the_node_or_of_the_view_is_refused() {
        for (path, is_right) in [
            ("/scratch", true),
            ("/database", true),
            ("/devices", true),
            ("/data", false),
            ("/srv", false),
            ("/srv/checkpoints/job/link/x", false),
            ("/tmp/../data", false),
            ("scratch", false),
            ("/", false),
            ("/dev", false),
            ("/dev/shm", false),
            ("/dev/shm/link/x", false),
            ("//dev/./infiniband", false),
            ("/proc/self/root", false),
            ("/sys/fs", false),
            ("/.muster/lib", false),
            ("/tmp", false),
            ("/tmp/link/x", false),
            ("/var/tmp/x", false),
        ] {
            let checked = check(vec![scratch(path)]);
            assert_eq!(checked.is_ok(), is_right, "{path}: {checked:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains(path), "{error}");
            }
        }
    }

    #[test]
    fn volume_in_memory_may_be_the_shared_memory_only() {
        for (path, is_right) in [
            ("/dev/shm", true),
            ("/dev/shm/", true),
            ("/dev/shm/x", false),
            ("/dev/shm/../x", false),
            ("/dev", false),
            ("/dev/mqueue", false),
        ] {
            let checked = check(vec![memory(path)]);
            assert_eq!(checked.is_ok(), is_right, "{path}: {checked:?}");
        }
    }

    #[test]
    fn volume_in_another_volume_is_refused() {
        let error = check(vec![scratch("/a/b"), memory("/a")]).expect_err("refused");
        assert!(error.to_string().contains("/a/b"), "{error}");
        check(vec![scratch("/a/b"), memory("/a/c")]).expect("right");
    }
}
