//! Copies of files and folders between two machines, as an uncompressed tar stream without limits.
//!
//! Only files and folders are copied. The receiver trusts no entry: it writes nothing outside of
//! the target, and an archive contains no link that could lead out of it.

use crate::ArchiveError;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Archive, Builder, EntryType, Header};

/// Permissions that are copied: neither setuid nor the like.
const MODE_BITS: u32 = 0o777;
/// `O_NOFOLLOW | O_NONBLOCK` of Linux: a link or a FIFO in place of a file is not opened.
const FILE_ONLY: i32 = 0o400_000 | 0o4_000;

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
            let mut options = OpenOptions::new();
            let file = options.read(true).custom_flags(FILE_ONLY).open(&path);
            append(&mut archive, header, (&path, &name), file.map_err(at)?)?;
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

/// Unpacks a tar stream. An existing folder `target` receives the entries. Otherwise the first
/// entry gets the name `target`. Existing files are replaced. Returns the number of files.
///
/// # Errors
/// [`ArchiveError::Decode`] if the stream is no archive, or a file cannot be written.
/// [`ArchiveError::Entry`] for an entry outside of the target, or that is neither a file nor a
/// folder. Earlier entries are then written.
pub fn receive(input: impl Read, target: &Path) -> Result<u64, ArchiveError> {
    let (mut files, mut entries) = (0, 0_u64);
    let is_folder = target.is_dir();
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
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                _ => return Err(refused("leads out of the target")),
            }
        }
        if !is_folder && !parts.is_empty() {
            parts.remove(0);
        }
        let mut place = target.to_owned();
        place.extend(&parts);
        let mode = entry.header().mode().map_err(ArchiveError::Decode)? & MODE_BITS;
        match entry.header().entry_type() {
            EntryType::Directory => make_folder(&place, mode).map_err(ArchiveError::Decode)?,
            EntryType::Regular => {
                let seconds = entry.header().mtime().unwrap_or(0);
                let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
                let written = write(&mut entry, &place, mode, modified);
                written.map_err(ArchiveError::Decode)?;
                files += 1;
            }
            _ => return Err(refused("is neither a file nor a folder")),
        }
        entries += 1;
    }
    if entries == 0 {
        return Err(ArchiveError::Decode(io::Error::other(
            "the stream ended before its first entry",
        )));
    }
    Ok(files)
}

/// The owner can always write into the folder, for the entries that follow.
fn make_folder(place: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode | 0o700).create(place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => Ok(()),
        made => made.map_err(|error| named(place, &error)),
    }
}

fn write(
    content: &mut impl Read,
    place: &Path,
    mode: u32,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(mode | 0o200).custom_flags(FILE_ONLY);
    let mut file = options.open(place).map_err(|error| named(place, &error))?;
    io::copy(content, &mut file).map_err(|error| named(place, &error))?;
    file.set_permissions(Permissions::from_mode(mode))?;
    match modified {
        Some(modified) => file.set_modified(modified),
        None => Ok(()),
    }
}

fn named(place: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", place.display()))
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

        receive(&stream[..], to.path()).expect("into a folder");
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
        assert_eq!(receive(&stream[..], &renamed).expect("under a name"), 2);
        assert!(renamed.join("a/log.txt").is_file());
    }

    #[test]
    fn file_gets_the_name_of_the_target() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("model.bin");
        fs::write(&file, "weights").expect("written");
        let (stream, _) = packed(&file);
        let target = place.path().join("copy.bin");
        receive(&stream[..], &target).expect("received");
        assert_eq!(fs::read_to_string(&target).expect("there"), "weights");
    }

    #[test]
    fn hostile_entries_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let target = place.path().join("target");
        fs::create_dir(&target).expect("made");
        let entry = |name: &[u8], kind: EntryType, link: Option<&str>| {
            let mut header = Header::new_gnu();
            header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            if let Some(link) = link {
                header.set_link_name(link).expect("short");
            }
            header.set_cksum();
            let mut stream = header.as_bytes().to_vec();
            stream.extend([0; 1_024]);
            stream
        };
        for stream in [
            entry(b"../out", EntryType::Regular, None),
            entry(b"/tmp/out", EntryType::Regular, None),
            entry(b"link", EntryType::Symlink, Some("/etc")),
            entry(b"hard", EntryType::Link, Some("/etc/passwd")),
            entry(b"fifo", EntryType::Fifo, None),
        ] {
            let refused = receive(&stream[..], &target).expect_err("hostile");
            assert!(matches!(refused, ArchiveError::Entry { .. }), "{refused}");
        }
        assert_eq!(fs::read_dir(&target).expect("there").count(), 0);
        receive(&[][..], &target).expect_err("empty");
        // A file is not written through a link that the target contains.
        symlink(place.path().join("victim"), target.join("link")).expect("linked");
        let stream = entry(b"link", EntryType::Regular, None);
        receive(&stream[..], &target).expect_err("a link is there");
        assert!(!place.path().join("victim").exists());
    }
}
