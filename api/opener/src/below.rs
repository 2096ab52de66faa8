//! All files below a name of a folder that another process can change at any time.

use super::{FolderEntryError, FolderHandle, in_words, refused};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Maximum depth of folders.
const MAX_DEPTH: usize = 32;

/// A regular file below a folder.
#[derive(Debug)]
pub struct FileBelow {
    /// Path relative to the folder, with `/` between names.
    pub path: String,
    /// Its metadata at the time of the look.
    pub metadata: Metadata,
}

/// Returns the file `path`, or all files below the folder `path`, in the order of their paths.
/// `path` is relative to `top` and plain.
///
/// # Errors
/// If it does not exist, contains something else than files and folders, or has more than `most` of
/// them.
pub fn files_below(top: &FolderHandle, path: &str, most: usize) -> io::Result<Vec<FileBelow>> {
    let (folder, name) = parent(top, path)?;
    let (mut files, mut seen) = (Vec::new(), 0);
    let mut waiting = vec![path.to_owned()];
    let first = metadata_of(&folder, name)?;
    if first.is_file() {
        let path = path.to_owned();
        let metadata = first;
        return Ok(vec![FileBelow { path, metadata }]);
    }
    while let Some(at) = waiting.pop() {
        if at.split('/').count() > MAX_DEPTH {
            return Err(refused(FolderEntryError::Many { most: MAX_DEPTH }));
        }
        let (above, name) = parent(top, &at)?;
        let folder = above.inner(name)?;
        let names = folder.some_names(most - seen + 1)?;
        seen += names.len();
        if seen > most {
            return Err(refused(FolderEntryError::Many { most }));
        }
        for name in names {
            let metadata = metadata_of(&folder, &name)?;
            let text = name.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
            let path = format!("{at}/{text}");
            if metadata.is_dir() {
                waiting.push(path);
            } else {
                files.push(FileBelow { path, metadata });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the metadata of a file or folder; refuses everything else.
fn metadata_of(folder: &FolderHandle, name: &OsStr) -> io::Result<Metadata> {
    let metadata = folder.metadata(name)?;
    if metadata.is_file() || metadata.is_dir() {
        return Ok(metadata);
    }
    Err(refused(FolderEntryError::NoFile {
        name: name.to_owned(),
        found: in_words(metadata.file_type()),
    }))
}

/// Opens a file that [`files_below`] has found, for reading.
///
/// # Errors
/// If it is gone, is no regular file any more, or is a hard link to a file of another user, which
/// the kernel may permit.
pub fn open_below(top: &FolderHandle, path: &str) -> io::Result<File> {
    let (folder, name) = parent(top, path)?;
    let file = folder.open(name)?;
    let found = file.metadata()?;
    if found.nlink() > 1 && found.uid() != folder.uid()? {
        let name = OsString::from(name);
        return Err(refused(FolderEntryError::Foreign { name }));
    }
    Ok(file)
}

/// Opens the folder of a path without following links, and returns the last name.
fn parent<'p>(top: &FolderHandle, path: &'p str) -> io::Result<(FolderHandle, &'p OsStr)> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut folder = top.itself_again()?;
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        folder = folder.inner(OsStr::new(part))?;
    }
    Ok((folder, OsStr::new(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_refusal;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    fn found(top: &FolderHandle, path: &str) -> Vec<(String, u64)> {
        let files = files_below(top, path, 10).expect("read").into_iter();
        files.map(|file| (file.path, file.metadata.len())).collect()
    }

    #[test]
    fn files_of_a_folder_and_a_single_file_are_found() {
        let place = tempfile::tempdir().expect("a folder");
        let top = FolderHandle::itself(place.path()).expect("there");
        fs::create_dir_all(place.path().join("step-1/deep")).expect("made");
        fs::write(place.path().join("step-1/b"), "bb").expect("written");
        fs::write(place.path().join("step-1/deep/a"), "a").expect("written");
        let expected = [("step-1/b".to_owned(), 2), ("step-1/deep/a".to_owned(), 1)];
        assert_eq!(found(&top, "step-1"), expected);
        assert_eq!(found(&top, "step-1/b"), expected[..1]);
        let mut text = String::new();
        let mut file = open_below(&top, "step-1/deep/a").expect("opened");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "a");
        let many = files_below(&top, "step-1", 2).expect_err("too many");
        assert!(is_refusal(&many), "{many}");
        let missing = files_below(&top, "step-2", 10).expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_on_the_way_and_within_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let other = place.path().join("other");
        fs::create_dir_all(other.join("in")).expect("made");
        fs::write(other.join("in/secret"), "s").expect("written");
        let own = place.path().join("own");
        fs::create_dir_all(own.join("step-1")).expect("made");
        symlink(other.join("in/secret"), own.join("step-1/a")).expect("linked");
        symlink(&other, own.join("away")).expect("linked");
        let top = FolderHandle::itself(&own).expect("there");
        for path in ["step-1", "step-1/a", "away", "away/in", "away/in/secret"] {
            let error = files_below(&top, path, 10).expect_err("refused");
            assert!(is_refusal(&error), "{path}: {error}");
            assert!(open_below(&top, path).is_err(), "{path}");
        }
    }
}
