//! Folder tree of an image that is being unpacked. The layers are hostile: a path may contain `..`,
//! and a link may lead out of the folder. Each step of a path is opened by itself without following
//! links, and the target of a link is resolved within the tree.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Maximum number of links that one path may contain, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Maximum depth of a path.
const MAX_DEPTH: usize = 512;

/// An open folder tree.
#[derive(Debug)]
pub(super) struct ImageTree {
    root: OwnedFd,
    /// Number of folders that were created on the way to entries.
    made: Cell<u64>,
}

/// Open parent folder and name of an entry.
pub(super) struct Position {
    folder: OwnedFd,
    pub name: OsString,
}

impl ImageTree {
    /// # Errors
    /// If the folder does not exist.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: rustix::fs::openat(CWD, root, folder_flags(), Mode::empty())?,
            made: Cell::new(0),
        })
    }

    /// Returns the number of folders that were created on the way to entries since the last call.
    pub(super) fn take_made(&self) -> u64 {
        self.made.take()
    }

    /// Returns the position of a path in the tree, as [`parts`] gives it. Missing folders on the
    /// way are created.
    ///
    /// # Errors
    /// If a folder on the way is a file, or if there are too many links.
    pub(super) fn position(&self, parts: &[OsString]) -> io::Result<Position> {
        let (name, above) = parts.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Position {
            folder: self.folder(above, true)?,
            name: name.clone(),
        })
    }

    /// Opens a folder of the tree. With `follows`, links on the way lead within the tree; otherwise
    /// a link is an error.
    fn folder(&self, parts: &[OsString], follows: bool) -> io::Result<OwnedFd> {
        let mut opened = vec![self.root.try_clone()?];
        let mut left: Vec<OsString> = parts.iter().rev().cloned().collect();
        let mut links = 0;
        while let Some(part) = left.pop() {
            let at = opened.last().expect("the root stays");
            if part == ".." {
                if opened.len() > 1 {
                    opened.pop();
                }
                continue;
            }
            match rustix::fs::openat(at, &part, folder_flags(), Mode::empty()) {
                Ok(inner) => opened.push(inner),
                Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(0o755);
                    self.made.set(self.made.get() + 1);
                    match rustix::fs::mkdirat(at, &part, mode) {
                        // The umask does not apply.
                        Ok(()) => rustix::fs::chmodat(at, &part, mode, AtFlags::empty())?,
                        // The shim of another task has just made the same mount point.
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    opened.push(rustix::fs::openat(
                        at,
                        &part,
                        folder_flags(),
                        Mode::empty(),
                    )?);
                }
                Err(Errno::LOOP | Errno::NOTDIR) if follows => {
                    links += 1;
                    if links > MAX_LINKS || opened.len() > MAX_DEPTH {
                        return Err(Errno::LOOP.into());
                    }
                    let target = rustix::fs::readlinkat(at, &part, Vec::new());
                    // A file in place of a folder has no target.
                    let target = target.map_err(|_| Errno::NOTDIR)?;
                    let target = PathBuf::from(os_string(target.into_bytes()));
                    if target.is_absolute() {
                        opened.truncate(1);
                    }
                    left.extend(steps(&target).into_iter().rev());
                }
                Err(error) => return Err(error.into()),
            }
        }
        opened.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether the tree has a folder at the path, without links on the way to it.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub(super) fn has_folder(&self, path: &Path) -> io::Result<bool> {
        let mut opened = self.root.try_clone()?;
        for part in parts(path).ok_or(io::ErrorKind::InvalidInput)? {
            opened = match rustix::fs::openat(&opened, &part, folder_flags(), Mode::empty()) {
                Ok(inner) => inner,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(true)
    }

    /// Creates a mount point in place of what the image has there: a folder stays, an empty file
    /// replaces a file or link.
    ///
    /// # Errors
    /// Names the part of the path at which the image has no folder.
    pub(super) fn mount_point(&self, path: &Path, is_file: bool) -> io::Result<()> {
        let parts = parts(path).ok_or(io::ErrorKind::InvalidInput)?;
        if !is_file {
            let opened = self.folder(&parts, false);
            return opened.map(drop).map_err(|error| not_a_folder(path, &error));
        }
        let (name, above) = parts.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.folder(above, false);
        let position = Position {
            folder: folder.map_err(|error| not_a_folder(path, &error))?,
            name: name.clone(),
        };
        if position.is_file()? {
            return Ok(());
        }
        position.remove()?;
        match position.create(0o644) {
            // By the shim of another task.
            Err(_) if position.is_file()? => Ok(()),
            made => made.map(drop),
        }
    }
}

impl Position {
    /// Removes what is at the position, with everything in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The standard library follows no links, and the depth is bounded.
            Err(Errno::ISDIR | Errno::PERM) => std::fs::remove_dir_all(self.path()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_file(&self) -> io::Result<bool> {
        Ok(self.path().symlink_metadata().is_ok_and(|it| it.is_file()))
    }

    /// Path by which the kernel finds the position, whatever was renamed above it.
    fn path(&self) -> PathBuf {
        let folder = self.folder.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{folder}")).join(&self.name)
    }

    /// Creates a folder, or sets the mode of an existing one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn make_folder(&self, mode: u32) -> io::Result<()> {
        let opened = match self.open_folder() {
            Ok(opened) => opened,
            Err(_) => {
                self.remove()?;
                rustix::fs::mkdirat(&self.folder, &self.name, Mode::RWXU)?;
                self.open_folder()?
            }
        };
        Ok(rustix::fs::fchmod(opened, Mode::from_raw_mode(mode))?)
    }

    fn open_folder(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.folder,
            &self.name,
            flags,
            Mode::empty(),
        )?)
    }

    /// Names in the folder at the position; none if it is no folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let Ok(opened) = self.open_folder() else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(opened)? {
            let entry = entry?;
            let name = os_string(entry.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Creates a file; what was there must have been removed.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn create(&self, mode: u32) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, &self.name, flags, Mode::RWXU)?;
        // The umask does not apply.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file.into())
    }

    /// # Errors
    /// If it cannot be created.
    pub(super) fn link_to(&self, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.folder, &self.name)?)
    }

    /// Creates a further name of a file.
    ///
    /// # Errors
    /// If the file does not exist.
    pub(super) fn hard_link_to(&self, file: &Self) -> io::Result<()> {
        let (from, to) = (file.folder.as_fd(), self.folder.as_fd());
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(from, &file.name, to, &self.name, flags)?)
    }
}

/// Sets the time of the last change. Compiled files of Python are valid only for that of their
/// source.
///
/// # Errors
/// If the disk fails.
pub(super) fn set_time(file: &File, unix_s: u64) -> io::Result<()> {
    let time = Timespec {
        tv_sec: i64::try_from(unix_s).unwrap_or(0),
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// Returns the parts of a path of an archive; `None` if it leads out of its folder or is too deep.
pub(super) fn parts(path: &Path) -> Option<Vec<OsString>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (parts.len() <= MAX_DEPTH).then_some(parts)
}

/// Returns the steps of a link's target, `..` included.
fn steps(target: &Path) -> Vec<OsString> {
    let steps = target.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    steps.collect()
}

fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

fn folder_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn not_a_folder(path: &Path, error: &io::Error) -> io::Error {
    let message = format!(
        "the node's {} cannot appear in the image, which has a file or link on the way to it",
        path.display()
    );
    match Errno::from_io_error(error) {
        Some(Errno::NOTDIR | Errno::LOOP) => io::Error::other(message),
        _ => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    }
}
