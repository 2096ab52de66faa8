//! View of a process task on the machine: a mount namespace in which the task finds a `/tmp` of its
//! own, no processes of other users, and nothing of folders that its user cannot enter.
//!
//! The shim enters the namespace before it starts the task, so the task inherits it. It needs the
//! right to mount (`CAP_SYS_ADMIN`), which root lacks in most containers.

use crate::task_user::TaskUser;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Folders for temporary files of all users of a machine.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Name of the task's temporary folder in the task's folder, so that its size counts as the task's.
const OWN_TEMPORARY: &str = "tmp";

const PRIVATE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// What a task sees.
pub(crate) struct TaskView<'a> {
    pub user: TaskUser,
    pub task_folder: &'a Path,
    /// Folders that stay visible, even below folders that the user cannot enter.
    pub visible: &'a [PathBuf],
    /// Folder below a visible one that is not shown, if it exists.
    pub hidden: Option<PathBuf>,
}

/// A folder that is replaced in the view.
struct Cover {
    folder: PathBuf,
    /// Folder to show instead; an empty one without it.
    backing: Option<PathBuf>,
}

/// Moves this thread into a mount namespace with this view. Threads and processes that it starts
/// later are in it too.
///
/// # Errors
/// Names the step that failed.
pub(crate) fn enter(view: &TaskView<'_>) -> io::Result<()> {
    let own_temporary = make_temporary(view.task_folder, Some(view.user))?;
    let covers = covers(view, &own_temporary);
    private_mounts()?;
    for cover in &covers {
        apply(cover, view).map_err(|error| at(&cover.folder, &error))?;
    }
    hide_processes()
}

/// Returns why this process cannot give its tasks a view of their own, if it cannot. Tries it on a
/// thread whose namespace ends with it.
///
/// # Errors
/// If no thread can be started.
pub fn obstacle() -> io::Result<Option<String>> {
    let trial = std::thread::Builder::new().name("namespace".to_owned());
    let trial = trial.spawn(|| private_mounts().and_then(|()| hide_processes()))?;
    let result = trial
        .join()
        .map_err(|_| io::Error::other("the trial panicked"))?;
    Ok(result.err().map(|error| error.to_string()))
}

/// Returns the visible folders that exist. No one of them lies in another.
pub(crate) fn top_folders(folders: &[&Path]) -> Vec<PathBuf> {
    let found: BTreeSet<PathBuf> = folders
        .iter()
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .collect();
    let is_top = |folder: &&PathBuf| {
        !folder
            .ancestors()
            .skip(1)
            .any(|above| found.contains(above))
    };
    found.iter().filter(is_top).cloned().collect()
}

/// Creates the folder of a task for temporary files and returns its path.
///
/// # Errors
/// If it cannot be created.
pub(super) fn make_temporary(task_folder: &Path, user: Option<TaskUser>) -> io::Result<PathBuf> {
    let path = task_folder.join(OWN_TEMPORARY);
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(at(&path, &error));
        }
        _ => {}
    }
    fs::set_permissions(&path, Permissions::from_mode(0o1777))?;
    if let Some(user) = user {
        user.own(&path)?;
    }
    fs::canonicalize(path)
}

/// Returns the folders to replace, in the order in which it is done: those for temporary files, the
/// topmost folder that the user cannot enter on the way to each visible folder, and the hidden one.
fn covers(view: &TaskView<'_>, own_temporary: &Path) -> Vec<Cover> {
    let temporary: BTreeSet<PathBuf> = TEMPORARY
        .iter()
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .collect();
    let is_temporary = |folder: &Path| folder.ancestors().any(|above| temporary.contains(above));
    let barriers: BTreeSet<PathBuf> = view
        .visible
        .iter()
        .filter_map(|folder| view.user.barrier(folder))
        .filter(|folder| !is_temporary(folder))
        .map(Path::to_owned)
        .collect();
    let empty = barriers.into_iter().map(|folder| Cover {
        folder,
        backing: None,
    });
    let temporary = temporary.iter().map(|folder| Cover {
        folder: folder.clone(),
        backing: Some(own_temporary.to_owned()),
    });
    let hidden = view.hidden.iter().filter(|folder| folder.is_dir());
    let hidden = hidden.map(|folder| Cover {
        folder: folder.clone(),
        backing: None,
    });
    temporary.chain(empty).chain(hidden).collect()
}

/// Separates the mounts of this thread from those of the machine. Later mounts of the machine still
/// arrive, such as those of an automounter.
fn private_mounts() -> io::Result<()> {
    // SAFETY: the new namespace separates only mounts and the working folder of this thread. No
    // file descriptor is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|error| step("unshare", error))?;
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).map_err(|error| step("change the propagation of mounts", error))
}

/// Shows each user its own processes only. Kernels before 5.8 refuse this word. They would hide the
/// processes of the whole machine.
fn hide_processes() -> io::Result<()> {
    let flags = PRIVATE | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, Some(c"hidepid=invisible"))
        .map_err(|error| step("mount /proc with hidepid=invisible", error))
}

fn apply(cover: &Cover, view: &TaskView<'_>) -> io::Result<()> {
    let below: Vec<(&Path, OwnedFd)> = view
        .visible
        .iter()
        .filter(|folder| folder.starts_with(&cover.folder) && **folder != cover.folder)
        .map(|folder| Ok((folder.as_path(), open(folder)?)))
        .collect::<io::Result<_>>()?;
    match &cover.backing {
        Some(backing) => mount_bind(open_path(&open(backing)?), &cover.folder)?,
        None => {
            let options: &CStr = c"size=1m,mode=0755";
            mount("tmpfs", &cover.folder, "tmpfs", PRIVATE, Some(options))?;
        }
    }
    for (folder, opened) in below {
        make_mount_point(&cover.folder, folder)?;
        mount_bind_recursive(open_path(&opened), folder)?;
    }
    Ok(())
}

/// Creates the folders below `top` down to `folder`. They belong to root, so the task cannot change
/// them.
fn make_mount_point(top: &Path, folder: &Path) -> io::Result<()> {
    let parts = folder.strip_prefix(top).map_err(io::Error::other)?;
    let mut path = top.to_owned();
    for part in parts {
        path.push(part);
        match DirBuilder::new().mode(0o755).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(&path, Permissions::from_mode(0o755))?,
        }
    }
    Ok(())
}

fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, folder, flags, Mode::empty())?)
}

/// Path of an open folder, which leads to it even if another folder is mounted over its name.
fn open_path(opened: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

fn at(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

fn step(what: &str, error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
