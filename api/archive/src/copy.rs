//! Copies of files and folders between two machines, as an uncompressed tar stream without limits.
//!
//! Only files and folders are copied. The receiver trusts no entry: it writes nothing outside of
//! the target, follows no link below it, and writes one file or folder directly in it.

use crate::ArchiveError;
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Archive, Builder, EntryType, Header};

/// Permissions that are copied: neither setuid nor the like.
const MODE_BITS: u32 = 0o777;
/// A link in place of a file is not opened, and a FIFO does not block.
const FILE_ONLY: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Result of [`send`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Files.
    pub files: u64,
    /// Links, sockets, pipes and devices, which are not copied.
    pub skipped: Vec<PathBuf>,
}

/// Writes a file, or a folder with its content, as a tar stream. The first entry has the name of
/// the file or folder. Links below it are skipped.
///
/// # Errors
/// [`ArchiveError::Read`] if something cannot be read, [`ArchiveError::Encode`] if the stream cannot
/// be written.
pub fn send(path: &Path, output: impl Write) -> Result<Sent, ArchiveError> {
    let at = |source| ArchiveError::Read {
        path: path.to_owned(),
        source,
    };
    // Also for paths such as `.` and `runs/..`, and for a link as the start.
    let whole = fs::canonicalize(path).map_err(at)?;
    let named = path.file_name().or_else(|| whole.file_name());
    let name = PathBuf::from(named.unwrap_or("root".as_ref()));
    let mut archive = Builder::new(output);
    let mut sent = Sent::default();
    let mut rest = vec![(whole, name)];
    while let Some((path, name)) = rest.pop() {
        let at = |source| ArchiveError::Read {
            path: path.clone(),
            source,
        };
        let metadata = fs::symlink_metadata(&path).map_err(at)?;
        let mut header = Header::new_gnu();
        header.set_mode(metadata.permissions().mode() & MODE_BITS);
        header.set_mtime(modified_unix_s(&metadata));
        if metadata.is_dir() {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            let added = archive.append_data(&mut header, &name, io::empty());
            added.map_err(ArchiveError::Encode)?;
            let mut entries = Vec::new();
            for entry in fs::read_dir(&path).map_err(at)? {
                let file_name = entry.map_err(at)?.file_name();
                entries.push((path.join(&file_name), name.join(&file_name)));
            }
            entries.sort();
            rest.extend(entries.into_iter().rev());
        } else if metadata.is_file() {
            let file = open(&path, FILE_ONLY | OFlags::RDONLY, Mode::empty());
            let file = File::from(file.map_err(io::Error::from).map_err(at)?);
            append(&mut archive, header, (&path, &name), file)?;
            sent.files += 1;
        } else {
            sent.skipped.push(path);
        }
    }
    let mut output = archive.into_inner().map_err(ArchiveError::Encode)?;
    output.flush().map_err(ArchiveError::Encode)?;
    Ok(sent)
}

fn append(
    archive: &mut Builder<impl Write>,
    mut header: Header,
    (path, name): (&Path, &Path),
    file: File,
) -> Result<(), ArchiveError> {
    let at = |source| ArchiveError::Read {
        path: path.to_owned(),
        source,
    };
    let length = file.metadata().map_err(at)?.len();
    header.set_entry_type(EntryType::Regular);
    header.set_size(length);
    // A file that grows meanwhile, such as a log, keeps the length of its header.
    let mut content = file.take(length);
    let appended = archive.append_data(&mut header, name, &mut content);
    if appended.is_ok() && content.limit() > 0 {
        return Err(at(io::Error::other(
            "it became shorter while it was copied",
        )));
    }
    appended.map_err(ArchiveError::Encode)
}

fn modified_unix_s(metadata: &fs::Metadata) -> u64 {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Unpacks a tar stream of one file or folder. If `target` is an existing folder, the copy is in it
/// and has the name `name`; if `name` is `None`, its name in the stream. Otherwise the path of the
/// copy is `target`. Existing files are replaced. Returns the number of files.
///
/// # Errors
/// [`ArchiveError::Decode`] if the stream is no archive, or a file cannot be written.
/// [`ArchiveError::Entry`] for an entry outside of the target or of the first entry, or that is
/// neither a file nor a folder. The entries before it are written.
pub fn receive(input: impl Read, target: &Path, name: Option<&OsStr>) -> Result<u64, ArchiveError> {
    let mut place = Place::open(target, name).map_err(ArchiveError::Decode)?;
    let mut files = 0;
    let mut top = None;
    let mut archive = Archive::new(input);
    for entry in archive.entries().map_err(ArchiveError::Decode)? {
        let mut entry = entry.map_err(ArchiveError::Decode)?;
        let path = entry.path().map_err(ArchiveError::Decode)?.into_owned();
        let refused = |what| ArchiveError::Entry {
            path: path.display().to_string(),
            what,
        };
        let mut parts = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(part) => parts.push(part.to_owned()),
                Component::CurDir => {}
                _ => return Err(refused("leads out of the target")),
            }
        }
        match (&top, parts.as_slice()) {
            (None, [first]) => top = Some(first.clone()),
            (Some(top), [first, _, ..]) if first == top => {}
            _ => return Err(refused("does not belong to the first entry")),
        }
        let in_stream = &parts[0];
        parts[0] = place.name.get_or_insert_with(|| in_stream.clone()).clone();
        let mode = entry.header().mode().map_err(ArchiveError::Decode)? & MODE_BITS;
        match entry.header().entry_type() {
            EntryType::Directory => {
                let made = place.make_folder(&parts, mode);
                made.map_err(|error| ArchiveError::Decode(place.at(&parts, &error)))?;
            }
            EntryType::Regular => {
                let seconds = entry.header().mtime().unwrap_or(0);
                let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
                let written = place.write(&mut entry, &parts, mode, modified);
                written.map_err(|error| ArchiveError::Decode(place.at(&parts, &error)))?;
                files += 1;
            }
            _ => return Err(refused("is neither a file nor a folder")),
        }
    }
    if top.is_none() {
        return Err(ArchiveError::Decode(io::Error::other(
            "the stream ended before its first entry",
        )));
    }
    Ok(files)
}

/// Folder that receives a copy.
struct Place {
    path: PathBuf,
    folder: OwnedFd,
    /// Name of the copy in the folder; `None` before the first entry if the stream names it.
    name: Option<OsString>,
}

impl Place {
    fn open(target: &Path, name: Option<&OsStr>) -> io::Result<Self> {
        let (path, name) = if target.is_dir() {
            (target, name)
        } else {
            let parent = target.parent().unwrap_or(target);
            let is_here = parent.as_os_str().is_empty();
            let parent = if is_here { Path::new(".") } else { parent };
            let name = target.file_name();
            let missing = || named(target, &io::ErrorKind::NotFound.into());
            (parent, Some(name.ok_or_else(missing)?))
        };
        if name.is_some_and(|name| Path::new(name).file_name() != Some(name)) {
            return Err(io::Error::other("the name of the copy is no file name"));
        }
        let folder = open(path, FOLDER | OFlags::RDONLY, Mode::empty());
        Ok(Self {
            path: path.to_owned(),
            folder: folder.map_err(|error| named(path, &error.into()))?,
            name: name.map(OsStr::to_owned),
        })
    }

    /// Opens a folder of the copy, without following links.
    fn folder(&self, parts: &[OsString]) -> io::Result<OwnedFd> {
        let mut folder = self.folder.try_clone()?;
        for part in parts {
            let flags = FOLDER | OFlags::RDONLY | OFlags::NOFOLLOW;
            folder = openat(&folder, part, flags, Mode::empty())?;
        }
        Ok(folder)
    }

    /// The owner can always write into the folder, for the entries that follow.
    fn make_folder(&self, parts: &[OsString], mode: u32) -> io::Result<()> {
        let Some((last, above)) = parts.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mode = Mode::from_raw_mode(mode | 0o700);
        match mkdirat(self.folder(above)?, last, mode) {
            Err(Errno::EXIST) => self.folder(parts).map(drop),
            made => Ok(made?),
        }
    }

    fn write(
        &self,
        content: &mut impl Read,
        parts: &[OsString],
        mode: u32,
        modified: Option<SystemTime>,
    ) -> io::Result<()> {
        let Some((last, above)) = parts.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = FILE_ONLY | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let created = Mode::from_raw_mode(mode | 0o200);
        let mut file = File::from(openat(self.folder(above)?, last, flags, created)?);
        io::copy(content, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        match modified {
            Some(modified) => file.set_modified(modified),
            None => Ok(()),
        }
    }

    fn at(&self, parts: &[OsString], error: &io::Error) -> io::Error {
        let mut path = self.path.clone();
        path.extend(parts);
        named(&path, error)
    }
}

fn named(place: &Path, error: &io::Error) -> io::Error {
    let place = place.display().to_string();
    io::Error::new(error.kind(), format!("{place:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn packed(path: &Path) -> (Vec<u8>, Sent) {
        let mut stream = Vec::new();
        let sent = send(path, &mut stream).expect("sent");
        (stream, sent)
    }

    #[test]
    fn folder_arrives_with_modes_and_without_links() {
        let (from, to) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        let runs = from.path().join("runs");
        fs::create_dir_all(runs.join("a/empty")).expect("made");
        fs::write(runs.join("a/log.txt"), vec![7; 100_000]).expect("written");
        fs::write(runs.join("tool"), "#!/bin/sh").expect("written");
        fs::set_permissions(runs.join("tool"), Permissions::from_mode(0o4755)).expect("ours");
        symlink("/etc/passwd", runs.join("link")).expect("linked");
        let (stream, sent) = packed(&runs);
        assert_eq!((sent.files, sent.skipped.len()), (2, 1));

        receive(&stream[..], to.path(), None).expect("into a folder");
        let copy = to.path().join("runs");
        assert_eq!(
            fs::read(copy.join("a/log.txt")).expect("there").len(),
            100_000
        );
        assert!(copy.join("a/empty").is_dir() && !copy.join("link").exists());
        let mode = fs::metadata(copy.join("tool"))
            .expect("there")
            .permissions();
        assert_eq!(mode.mode() & 0o7777, 0o755, "without setuid");

        let renamed = to.path().join("other");
        assert_eq!(
            receive(&stream[..], &renamed, None).expect("under a name"),
            2
        );
        assert!(renamed.join("a/log.txt").is_file());
    }

    #[test]
    fn file_gets_the_name_of_the_target() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("model.bin");
        fs::write(&file, "weights").expect("written");
        let (stream, _) = packed(&file);
        let target = place.path().join("copy.bin");
        receive(&stream[..], &target, None).expect("received");
        assert_eq!(fs::read_to_string(&target).expect("there"), "weights");
    }

    fn entry(name: &[u8], kind: EntryType, link: Option<&str>) -> Vec<u8> {
        let mut stream = part(name, kind, link);
        stream.extend([0; 1_024]);
        stream
    }

    /// An entry without the end of the archive.
    fn part(name: &[u8], kind: EntryType, link: Option<&str>) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        if let Some(link) = link {
            header.set_link_name(link).expect("short");
        }
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    #[test]
    fn hostile_entries_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let target = place.path().join("target");
        fs::create_dir(&target).expect("made");
        for stream in [
            entry(b"../out", EntryType::Regular, None),
            entry(b"/tmp/out", EntryType::Regular, None),
            entry(b"link", EntryType::Symlink, Some("/etc")),
            entry(b"hard", EntryType::Link, Some("/etc/passwd")),
            entry(b"fifo", EntryType::Fifo, None),
        ] {
            let refused = receive(&stream[..], &target, None).expect_err("hostile");
            assert!(matches!(refused, ArchiveError::Entry { .. }), "{refused}");
        }
        assert_eq!(fs::read_dir(&target).expect("there").count(), 0);
        receive(&[][..], &target, None).expect_err("empty");
        // A file is not written through a link that the target contains.
        symlink(place.path().join("victim"), target.join("link")).expect("linked");
        let stream = entry(b"link", EntryType::Regular, None);
        receive(&stream[..], &target, None).expect_err("a link is there");
        assert!(!place.path().join("victim").exists());
    }

    #[test]
    fn link_within_an_existing_folder_is_not_followed() {
        let place = tempfile::tempdir().expect("a folder");
        let (target, outside) = (place.path().join("target"), place.path().join("outside"));
        fs::create_dir_all(target.join("runs")).expect("made");
        fs::create_dir(&outside).expect("made");
        symlink(&outside, target.join("runs/a")).expect("linked");
        for below in [
            entry(b"runs/a/log", EntryType::Regular, None),
            entry(b"runs/a/more", EntryType::Directory, None),
            entry(b"runs/a", EntryType::Directory, None),
        ] {
            let mut stream = part(b"runs", EntryType::Directory, None);
            stream.extend(below);
            receive(&stream[..], &target, None).expect_err("a link is in the middle");
        }
        assert_eq!(fs::read_dir(&outside).expect("there").count(), 0);
    }

    #[test]
    fn stream_chooses_no_name_and_has_one_top_entry() {
        let place = tempfile::tempdir().expect("a folder");
        let wanted = Some(OsStr::new("log"));
        let stream = entry(b".bashrc", EntryType::Regular, None);
        receive(&stream[..], place.path(), wanted).expect("under the wanted name");
        let names = || {
            let entries = fs::read_dir(place.path()).expect("there");
            let mut names: Vec<_> = entries
                .map(|entry| entry.expect("read").file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["log"]);

        for second in [&b"other"[..], b"other/file", b"log"] {
            let mut stream = part(b"log", EntryType::Regular, None);
            stream.extend(entry(second, EntryType::Regular, None));
            for target in [place.path().to_owned(), place.path().join("log")] {
                let refused = receive(&stream[..], &target, None).expect_err("a second entry");
                assert!(matches!(refused, ArchiveError::Entry { .. }), "{refused}");
            }
        }
        assert_eq!(names(), ["log"]);
        let name = Some(OsStr::new("../out"));
        receive(&stream[..], place.path(), name).expect_err("no file name");
    }
}
