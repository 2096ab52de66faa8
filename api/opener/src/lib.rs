//! Opens files in folders in which another process may have replaced them. One is a task's folder,
//! which the task's program writes as the executor's own user. If tasks are processes of this
//! machine, the executor's whole data folder is another. The API server opens checkpoint files,
//! which lie in folders that tasks can write.
//!
//! Dangers of a plain `open`, and the defence against each:
//! - A link could lead to a file that only the executor may read, such as its service account's
//!   token. This file would be sent as the task's log. Or it could lead to another user's file,
//!   which would be written. No link is followed, neither at a file nor at a task's folder.
//! - A FIFO blocks the caller, here the node's only loop. So does a file with a lease (`fcntl`).
//!   Opening never waits (`O_NONBLOCK`), and only regular files are accepted.
//! - A file may be larger than the memory, and a folder may have any number of names. Every read of
//!   a whole file or folder has a bound.
//! - A link may have the guessable name of a file that is about to be created. Names of temporary
//!   files are random, and files are created with `O_EXCL`.
//! - A folder may be replaced at any time. All operations happen within an open folder, one name
//!   deep. Each step refuses links by itself, so `openat2` would add nothing. Older kernels lack
//!   it, and profiles of containers refuse it.
//!
//! Hard links are left to the kernel. In a pod the task's folder is a mount of its own, and hard
//! links cannot cross mounts. Programs that are processes of this machine have the executor's user,
//! so links give them no further rights. The API server has another user than tasks: it compares
//! the owners of file and folder.

#![deny(missing_docs)]

mod below;

pub use below::{FileBelow, files_below, open_below};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum number of names of a folder that are read. Executor and shim create a few dozen.
const MOST_NAMES: usize = 10_000;
/// Mode for all users, reduced by the process' umask.
pub const ORDINARY: u32 = 0o666;
/// Mode for the owner only.
pub const PRIVATE: u32 = 0o600;

/// Why something is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FolderEntryError {
    /// Too many files or folders below a name.
    #[error("it has more than {most} files and folders")]
    Many {
        /// Maximum number.
        most: usize,
    },
    /// A file that belongs to another user than its folder.
    #[error("{} is a link to a file of another user", name.display())]
    Foreign {
        /// Name within the folder.
        name: OsString,
    },
    /// Something else than a regular file.
    #[error("{} is {found}; only a regular file is taken there", name.display())]
    NoFile {
        /// Name within the folder.
        name: OsString,
        /// Kind of what has this name, such as a link.
        found: &'static str,
    },
    /// A link, or something else than a folder.
    #[error("{} is a link or no folder", path.display())]
    NoFolder {
        /// Path of the expected folder.
        path: PathBuf,
    },
    /// A file above the bound of the read.
    #[error("{} has more than {most} bytes", name.display())]
    Long {
        /// Name within the folder.
        name: OsString,
        /// Maximum number of bytes.
        most: u64,
    },
    /// A folder with more than [`MOST_NAMES`] names.
    #[error("{} has more than {MOST_NAMES} files", path.display())]
    Crowded {
        /// Path of the folder.
        path: PathBuf,
    },
}

/// Whether the error means that something else was put in place of a file or folder.
pub fn is_refusal(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<FolderEntryError>())
}

/// An open folder. It stays the same folder even if its path is replaced.
#[derive(Debug)]
pub struct FolderHandle {
    fd: OwnedFd,
    path: PathBuf,
}

impl FolderHandle {
    /// Opens a folder that no task can replace. Its path is the administrator's choice, so links
    /// are followed.
    ///
    /// # Errors
    /// If it does not exist, or is not a folder.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        Ok(Self {
            fd: rustix::fs::openat(CWD, here, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a folder that a task may have replaced, such as a task's own; a link is refused. No
    /// task can write the folder above it.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it does not exist.
    pub fn itself(path: &Path) -> io::Result<Self> {
        let (above, name) = split(path)?;
        let above = Self::at(above)?;
        inner(&above.fd, name, path.to_owned())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it does not exist.
    pub fn open(&self, name: &OsStr) -> io::Result<File> {
        self.open_as(name, OFlags::RDONLY, 0)
    }

    /// Reads a whole file of at most `most_bytes` bytes.
    ///
    /// # Errors
    /// [`FolderEntryError`], also if it is longer; or if it does not exist.
    pub fn read(&self, name: &OsStr, most_bytes: u64) -> io::Result<Vec<u8>> {
        let file = self.open(name)?;
        let mut bytes = Vec::new();
        file.take(most_bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most_bytes {
            return Err(refused(FolderEntryError::Long {
                name: name.to_owned(),
                most: most_bytes,
            }));
        }
        Ok(bytes)
    }

    /// Opens a file for appending; creates it if it does not exist.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it cannot be created.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        self.open_as(name, flags, ORDINARY)
    }

    /// Opens a file for locking; creates it if it does not exist. With `is_for_writing`, inotify
    /// watchers of the folder are notified when it is closed.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it cannot be created.
    pub fn hold(&self, name: &OsStr, is_for_writing: bool) -> io::Result<File> {
        let access = if is_for_writing {
            OFlags::WRONLY
        } else {
            OFlags::RDONLY
        };
        self.open_as(name, access | OFlags::CREATE, ORDINARY)
    }

    /// Creates an empty file for writing. An existing file of this name is removed, not reused.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => self.put_aside(name)?,
            Err(error) => return Err(error.into()),
        }
        self.open_as(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Replaces a file atomically: readers see the old or the new content. With `durably` also
    /// after a power loss.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn replace(&self, name: &OsStr, content: &[u8], durably: bool) -> io::Result<()> {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".tmp-{:016x}", random()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = self.open_as(&temporary, flags, ORDINARY)?;
        let put = |mut file: File| {
            file.write_all(content)?;
            if durably {
                file.sync_all()?;
            }
            self.rename(&temporary, name)
        };
        if let Err(error) = put(file) {
            let _ = self.remove(&temporary);
            return Err(error);
        }
        if durably { self.sync() } else { Ok(()) }
    }

    /// Reserves space for a file that is written later ([`Reserved::put`]), when the disk may be
    /// full.
    ///
    /// # Errors
    /// If there is no space now.
    pub fn reserve(&self, name: &OsStr, bytes: usize) -> io::Result<Reserved> {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".tmp-{:016x}", random()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_as(&temporary, flags, ORDINARY)?;
        if let Err(error) = file.write_all(&vec![b' '; bytes]) {
            let _ = self.remove(&temporary);
            return Err(error);
        }
        Ok(Reserved {
            file,
            temporary,
            name: name.to_owned(),
            bytes,
        })
    }

    /// Renames a file. An existing file or folder of the new name is replaced.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn rename(&self, name: &OsStr, to: &OsStr) -> io::Result<()> {
        let rename = || rustix::fs::renameat(&self.fd, name, &self.fd, to);
        match rename() {
            Err(Errno::ISDIR) => {
                self.put_aside(to)?;
                Ok(rename()?)
            }
            done => Ok(done?),
        }
    }

    /// Returns the metadata of a file, folder or link; links are not followed.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        File::from(fd).metadata()
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it does not exist, or is a folder.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Returns all names in the folder.
    ///
    /// # Errors
    /// [`FolderEntryError`] if there are too many, or if it cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let names = self.some_names(MOST_NAMES + 1)?;
        if names.len() > MOST_NAMES {
            return Err(refused(FolderEntryError::Crowded {
                path: self.path.clone(),
            }));
        }
        Ok(names)
    }

    /// Returns the first `most` names.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn some_names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
            if names.len() == most {
                break;
            }
        }
        Ok(names)
    }

    /// Opens a folder within it; a link is refused.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it does not exist.
    pub fn inner(&self, name: &OsStr) -> io::Result<Self> {
        inner(&self.fd, name, self.path.join(name))
    }

    /// Opens a folder within this one, and creates it if it does not exist. A link is refused.
    ///
    /// # Errors
    /// [`FolderEntryError`], or if it cannot be created.
    pub fn make_inner(&self, name: &OsStr) -> io::Result<Self> {
        self.make_inner_as(name, 0o755)
    }

    /// Does the same as [`Self::make_inner`], with this mode for a created folder, reduced by the
    /// process' umask.
    ///
    /// # Errors
    /// As [`Self::make_inner`].
    pub fn make_inner_as(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => self.inner(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a second handle of this folder.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn itself_again(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
        })
    }

    /// Returns the owner of the folder.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn uid(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.fd)?.st_uid)
    }

    /// Moves a file to another folder.
    ///
    /// # Errors
    /// If it does not exist, or an object of the new name cannot be replaced.
    pub fn move_to(&self, name: &OsStr, other: &Self, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, name, &other.fd, to)?)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// If it is not empty.
    pub fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes the names of the folder durable against a power loss.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.readable()?).sync_all()
    }

    /// A descriptor with `O_PATH` can be neither listed nor synced.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, ".", flags, Mode::empty())?)
    }

    /// Renames an obstacle. A folder cannot be replaced and may have any content; it is removed
    /// with the task's folder.
    fn put_aside(&self, name: &OsStr) -> io::Result<()> {
        let aside = format!(".aside-{:016x}", random());
        Ok(rustix::fs::renameat(&self.fd, name, &self.fd, aside)?)
    }

    fn open_as(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        assert!(
            Path::new(name).file_name() == Some(name),
            "{} is a name and no path",
            name.display()
        );
        let always = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let no_file = |found| {
            refused(FolderEntryError::NoFile {
                name: name.to_owned(),
                found,
            })
        };
        match rustix::fs::openat(&self.fd, name, flags | always, Mode::from_raw_mode(mode)) {
            Ok(fd) => {
                let file = File::from(fd);
                let kind = file.metadata()?.file_type();
                if kind.is_file() {
                    Ok(file)
                } else {
                    Err(no_file(in_words(kind)))
                }
            }
            Err(Errno::LOOP) => Err(no_file("a link")),
            Err(Errno::ISDIR) => Err(no_file("a folder")),
            // A FIFO without a reader, a socket, or a device that does not exist.
            Err(Errno::NXIO) => Err(no_file("a FIFO, a socket or a device")),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a folder within an open folder. A link in its place is refused.
fn inner(above: &OwnedFd, name: &OsStr, path: PathBuf) -> io::Result<FolderHandle> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(above, name, flags, Mode::empty()) {
        Ok(fd) => Ok(FolderHandle { fd, path }),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(refused(FolderEntryError::NoFolder { path })),
        Err(error) => Err(error.into()),
    }
}

fn refused(refused: FolderEntryError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, refused)
}

/// Returns a random number for a temporary name; 0 without a random source, which costs a second
/// attempt.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Space that is reserved for a file until it is written.
#[derive(Debug)]
pub struct Reserved {
    file: File,
    temporary: OsString,
    name: OsString,
    bytes: usize,
}

impl Reserved {
    /// Releases the space.
    ///
    /// # Errors
    /// If the reserved file does not exist any more.
    pub fn remove(self, folder: &FolderHandle) -> io::Result<()> {
        folder.remove(&self.temporary)
    }

    /// Writes the file as [`FolderHandle::replace`] does durably, into the reserved space. If a
    /// task has removed the reservation, or the content is larger, the disk must have space.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(self, folder: &FolderHandle, content: &[u8]) -> io::Result<()> {
        self.put_reserved(folder, content)
            .or_else(|_| folder.replace(&self.name, content, true))
    }

    fn put_reserved(&self, folder: &FolderHandle, content: &[u8]) -> io::Result<()> {
        if content.len() > self.bytes {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let there = folder.metadata(&self.temporary)?;
        let own = self.file.metadata()?;
        if (there.dev(), there.ino()) != (own.dev(), own.ino()) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        self.file.write_all_at(content, 0)?;
        self.file.set_len(content.len() as u64)?;
        self.file.sync_all()?;
        folder.rename(&self.temporary, &self.name)?;
        folder.sync()
    }
}

/// Splits a path into the folder and the name in it.
///
/// # Errors
/// If it is not the path of a file.
pub fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    path.parent()
        .zip(path.file_name())
        .ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

fn in_words(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a link"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    const SECRET: &str = "only ours";
    const FEW: u64 = 100;

    fn name(name: &str) -> &OsStr {
        OsStr::new(name)
    }

    /// Objects that a task may put in place of a file, and their names in errors.
    const OBSTACLES: [(&str, &str); 5] = [
        ("link", "a link"),
        ("dangling", "a link"),
        ("pipe", "a FIFO"),
        ("folder", "a folder"),
        ("socket", "socket"),
    ];

    fn put(obstacle: &str, file: &Path, place: &Path) {
        match obstacle {
            "link" => symlink(place.join("secret"), file).expect("linked"),
            "dangling" => symlink(place.join("nothing"), file).expect("linked"),
            "pipe" => rustix::fs::mkfifoat(CWD, file, Mode::RWXU).expect("made"),
            "folder" => fs::create_dir_all(file.join("full")).expect("made"),
            _ => drop(UnixListener::bind(file).expect("bound")),
        }
    }

    /// Calls `act` with each obstacle in a new task folder.
    fn each_obstacle(act: impl Fn(&'static str, &FolderHandle, &Path)) {
        for (obstacle, what) in OBSTACLES {
            let place = tempfile::tempdir().expect("a folder");
            let own = place.path().join("task");
            fs::create_dir(&own).expect("made");
            fs::write(place.path().join("secret"), SECRET).expect("written");
            put(obstacle, &own.join("x"), place.path());
            act(what, &FolderHandle::itself(&own).expect("there"), &own);
            let secret = fs::read_to_string(place.path().join("secret"));
            assert_eq!(secret.expect("there"), SECRET, "behind {what}");
            assert!(!place.path().join("nothing").exists(), "behind {what}");
        }
    }

    #[test]
    fn only_regular_file_is_opened_without_blocking() {
        each_obstacle(|what, folder, _| {
            for result in [
                folder.open(name("x")).map(drop),
                folder.read(name("x"), FEW).map(drop),
                folder.append(name("x")).map(drop),
                folder.hold(name("x"), true).map(drop),
                folder.hold(name("x"), false).map(drop),
            ] {
                let error = result.expect_err(what);
                assert!(is_refusal(&error), "{what}: {error:?}");
                let text = error.to_string();
                assert!(
                    text.contains("x is ") && text.contains("regular file"),
                    "{text}"
                );
                assert!(text.contains(what), "{what}: {text}");
            }
        });
    }

    #[test]
    fn written_file_replaces_any_obstacle() {
        each_obstacle(|what, folder, _| {
            folder.replace(name("x"), b"new", true).expect(what);
            assert_eq!(folder.read(name("x"), FEW).expect(what), b"new");
        });
        each_obstacle(|what, folder, own| {
            let mut file = folder.create(name("x"), PRIVATE).expect(what);
            file.write_all(b"new").expect(what);
            assert_eq!(folder.read(name("x"), FEW).expect(what), b"new");
            let mode = fs::metadata(own.join("x")).expect(what).permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        });
        each_obstacle(|what, folder, _| {
            drop(folder.append(name("y")).expect(what));
            folder.rename(name("y"), name("x")).expect(what);
            assert!(folder.metadata(name("x")).expect(what).is_file());
        });
    }

    #[test]
    fn temporary_file_of_a_failed_write_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = FolderHandle::itself(place.path()).expect("there");
        folder.replace(name("x"), b"old", false).expect("written");
        assert_eq!(folder.names().expect("listed"), ["x"]);
        assert!(
            folder
                .replace(name("too-long".repeat(40).as_str()), b"", false)
                .is_err()
        );
        assert_eq!(folder.names().expect("listed"), ["x"]);
    }

    #[test]
    fn task_folder_that_is_a_link_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let (real, link) = (place.path().join("real"), place.path().join("link"));
        fs::create_dir(&real).expect("made");
        symlink(&real, &link).expect("linked");
        assert!(is_refusal(
            &FolderHandle::itself(&link).expect_err("a link")
        ));
        let inside = FolderHandle::itself(&link.join("none")).expect_err("not there");
        assert_eq!(inside.kind(), io::ErrorKind::NotFound);
        assert!(FolderHandle::at(&link).is_ok(), "the administrator's");
        let folder = FolderHandle::itself(&real).expect("there");
        fs::rename(&real, place.path().join("elsewhere")).expect("renamed");
        drop(folder.append(name("x")).expect("it is the one that it was"));
        assert!(place.path().join("elsewhere/x").exists());
    }

    #[test]
    fn read_of_a_whole_file_is_bounded() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = FolderHandle::itself(place.path()).expect("there");
        let file = folder.append(name("x")).expect("made");
        file.set_len(FEW).expect("sparse");
        assert_eq!(folder.read(name("x"), FEW).expect("read").len(), 100);
        file.set_len(1 << 42).expect("sparse");
        let error = folder.read(name("x"), FEW).expect_err("too long");
        assert_eq!(error.to_string(), "x has more than 100 bytes");
    }
}
