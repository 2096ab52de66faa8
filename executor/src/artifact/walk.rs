//! Regular files below a folder that a task can change at any time. Links are never followed, and
//! every walk is bounded.

use crate::opener::{self, FolderHandle};
use muster_model::artifact::{MAX_PATH_BYTES, PATH_RULE, is_artifact_path};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Maximum number of names of one walk.
const MAX_NAMES: usize = 20_000;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 32;
/// Maximum number of reported names that are not kept.
const MAX_UNFIT: usize = 50;

/// State of a file's content, as far as the file system tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    pub bytes: u64,
    pub modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    pub(super) fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            bytes: found.len(),
            modified: modified(found),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Returns the time of the last write to a file, in seconds and nanoseconds.
pub(super) fn modified(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Relative to the folder.
    pub name: String,
    pub stamp: FileStamp,
}

/// Content of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFiles {
    /// Their names are paths of artifacts.
    pub files: Vec<FoundFile>,
    /// Names that are not kept, with the reason.
    pub unfit: Vec<(String, String)>,
    /// The folder has more names than a walk visits.
    pub is_cut: bool,
    /// Something could not be read now. A later walk may find more.
    pub is_incomplete: bool,
}

impl FoundFiles {
    fn add_unfit(&mut self, name: String, why: impl Into<String>) {
        if self.unfit.len() < MAX_UNFIT {
            self.unfit.push((name, why.into()));
        }
    }

    /// Adds a name below the folder that cannot be read.
    fn add_unread(&mut self, name: String, error: &io::Error) {
        if is_transient(error) {
            self.is_incomplete = true;
        } else if error.kind() != io::ErrorKind::NotFound {
            self.add_unfit(name, format!("it cannot be read: {error}"));
        }
    }
}

/// Returns the files below a folder; none if it does not exist.
///
/// # Errors
/// If the folder is a link, or cannot be read. A folder within it that cannot be read is unfit.
pub(crate) fn walk(top: &Path) -> io::Result<FoundFiles> {
    let mut found = FoundFiles::default();
    let mut names = 0;
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let opened = open_top(top).and_then(|top| {
            let handle = open_inner(top, &folder)?;
            let listed = handle.some_names(MAX_NAMES + 1 - names)?;
            Ok((handle, listed))
        });
        let (handle, mut listed) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if folder.is_empty() => return Err(error),
            // The program may have replaced it since.
            Err(error) => {
                found.add_unread(folder, &error);
                continue;
            }
        };
        names += listed.len();
        if names > MAX_NAMES {
            found.is_cut = true;
        }
        listed.sort_unstable();
        for name in listed {
            visit(&handle, &folder, &name, (&mut found, &mut folders));
        }
        if found.is_cut {
            break;
        }
    }
    Ok(found)
}

fn visit(
    handle: &FolderHandle,
    folder: &str,
    name: &OsStr,
    (found, folders): (&mut FoundFiles, &mut Vec<String>),
) {
    let text = name.to_string_lossy();
    let path = match folder {
        "" => text.into_owned(),
        folder => format!("{folder}/{text}"),
    };
    if name.to_str().is_none() || !is_artifact_path(&path) {
        let shown: String = path.escape_debug().take(MAX_PATH_BYTES).collect();
        found.add_unfit(shown, format!("its name is not {PATH_RULE}"));
        return;
    }
    let metadata = match handle.metadata(name) {
        Ok(metadata) => metadata,
        Err(error) => return found.add_unread(path, &error),
    };
    if metadata.is_file() {
        let stamp = FileStamp::of(&metadata);
        found.files.push(FoundFile { name: path, stamp });
    } else if !metadata.is_dir() {
        found.add_unfit(path, format!("it is {}", in_words(metadata.file_type())));
    } else if path.split('/').count() > MAX_DEPTH {
        found.add_unfit(path, format!("it is below more than {MAX_DEPTH} folders"));
    } else {
        folders.push(path);
    }
}

/// Opens a file that a walk has found.
///
/// # Errors
/// As [`opener::open_below`].
pub(crate) fn open(top: &Path, name: &str) -> io::Result<(File, FileStamp)> {
    let file = opener::open_below(&open_top(top)?, name)?;
    let stamp = FileStamp::of(&file.metadata()?);
    Ok((file, stamp))
}

/// Opens a folder that is directly in a task's folder.
pub(super) fn open_top(top: &Path) -> io::Result<FolderHandle> {
    // The task's folder may be a link as well. No task can write the folder above it.
    let (task, name) = opener::split(top)?;
    FolderHandle::itself(task)?.inner(name)
}

/// Opens a folder below another one without following links.
pub(super) fn open_inner(mut top: FolderHandle, folder: &str) -> io::Result<FolderHandle> {
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        top = top.inner(OsStr::new(part))?;
    }
    Ok(top)
}

/// Whether a later read may succeed: the system lacks something now, or the disk fails.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO)
    )
}

fn in_words(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a link; links are not kept"
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
    use rustix::fs::{CWD, Mode};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn output(place: &tempfile::TempDir) -> PathBuf {
        let output = place.path().join("task/output");
        fs::create_dir_all(&output).expect("made");
        output
    }

    fn names(found: &FoundFiles) -> Vec<&str> {
        found.files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn only_regular_files_are_found() {
        let place = tempfile::tempdir().expect("a folder");
        let output = output(&place);
        fs::create_dir_all(output.join("plots/deep")).expect("made");
        fs::write(output.join("a.txt"), "a").expect("written");
        fs::write(output.join("plots/deep/b.png"), "bb").expect("written");
        fs::write(output.join("bad\nname"), "").expect("written");
        symlink("/etc/shadow", output.join("shadow")).expect("linked");
        symlink("/etc", output.join("plots/etc")).expect("linked");
        rustix::fs::mkfifoat(CWD, output.join("pipe"), Mode::RWXU).expect("made");
        let found = walk(&output).expect("read");
        assert_eq!(names(&found), ["a.txt", "plots/deep/b.png"]);
        assert_eq!(found.files[1].stamp.bytes, 2);
        let mut unfit: Vec<&str> = found.unfit.iter().map(|one| one.0.as_str()).collect();
        unfit.sort_unstable();
        assert_eq!(unfit, ["bad\\nname", "pipe", "plots/etc", "shadow"]);
        assert!(!found.is_cut);
        for name in ["shadow", "pipe", "plots/etc/passwd"] {
            assert!(open(&output, name).is_err(), "{name}");
        }
    }

    #[test]
    fn link_in_place_of_the_output_folder_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let other = place.path().join("other");
        fs::create_dir(&other).expect("made");
        fs::write(other.join("secret"), "s").expect("written");
        let task = place.path().join("task");
        fs::create_dir(&task).expect("made");
        assert_eq!(
            walk(&task.join("output")).expect("none"),
            FoundFiles::default()
        );
        symlink(&other, task.join("output")).expect("linked");
        assert!(walk(&task.join("output")).is_err());
        // So is a link in place of the task's folder.
        fs::create_dir(other.join("output")).expect("made");
        fs::remove_dir_all(&task).expect("removed");
        symlink(&other, &task).expect("linked");
        assert!(walk(&task.join("output")).is_err());
    }

    #[test]
    fn unreadable_name_is_unfit_unless_the_error_passes() {
        let mut found = FoundFiles::default();
        found.add_unread("gone".to_owned(), &Errno::NOENT.into());
        assert_eq!(found, FoundFiles::default());
        found.add_unread("closed".to_owned(), &Errno::ACCESS.into());
        assert!(found.unfit.len() == 1 && !found.is_incomplete, "{found:?}");
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
            let mut found = FoundFiles::default();
            found.add_unread("later".to_owned(), &errno.into());
            assert!(found.is_incomplete && found.unfit.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn hard_link_to_a_file_of_another_user_is_refused() {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root can change owners");
        let place = tempfile::tempdir().expect("a folder");
        let output = output(&place);
        let secret = place.path().join("secret");
        fs::write(&secret, "s").expect("written");
        std::os::unix::fs::chown(&secret, Some(7), Some(7)).expect("owned");
        fs::hard_link(&secret, output.join("mine")).expect("linked");
        let error = open(&output, "mine").expect_err("refused");
        assert!(error.to_string().contains("another user"), "{error}");
    }

    #[test]
    fn walk_of_many_files_and_deep_folders_is_bounded() {
        let place = tempfile::tempdir().expect("a folder");
        let output = output(&place);
        let deep = vec!["d"; MAX_DEPTH + 5].join("/");
        fs::create_dir_all(output.join(&deep)).expect("made");
        fs::write(output.join(&deep).join("x"), "").expect("written");
        let found = walk(&output).expect("read");
        assert!(
            found.files.is_empty() && found.unfit.len() == 1,
            "{found:?}"
        );
        for number in 0..MAX_NAMES + 100 {
            File::create(output.join(number.to_string())).expect("made");
        }
        let found = walk(&output).expect("read");
        assert!(found.is_cut && found.files.len() <= MAX_NAMES + 1);
    }
}
