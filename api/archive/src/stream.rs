//! A tar file that is made while it is read, without compression. Contents are of any size.

use crate::parts::{BLOCK_BYTES, TAR_END, tar_head, tar_padding};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarFile {
    /// Path in the archive.
    pub path: String,
    /// Size that the file must have when it is read.
    pub bytes: u64,
}

/// Reader of a tar file with these regular files, in this order. `Open` opens a file by its path.
#[derive(Debug)]
pub struct TarStream<Open> {
    files: std::vec::IntoIter<TarFile>,
    open: Open,
    /// Header or padding that is read next.
    block: io::Cursor<Vec<u8>>,
    content: Option<Content>,
    has_ended: bool,
}

#[derive(Debug)]
struct Content {
    file: File,
    path: String,
    left: u64,
    padding: usize,
}

/// Returns the length of the tar file with these files, in bytes.
///
/// # Errors
/// If a path cannot be part of a tar file.
pub fn tar_bytes(files: &[TarFile]) -> io::Result<u64> {
    let mut bytes = TAR_END.len() as u64;
    for file in files {
        bytes += tar_head(&file.path, file.bytes, 0, 0)?.len() as u64
            + file.bytes.next_multiple_of(BLOCK_BYTES);
    }
    Ok(bytes)
}

impl<Open: FnMut(&str) -> io::Result<File>> TarStream<Open> {
    /// Returns a reader of these files.
    pub fn new(files: Vec<TarFile>, open: Open) -> Self {
        Self {
            files: files.into_iter(),
            open,
            block: io::Cursor::default(),
            content: None,
            has_ended: false,
        }
    }

    /// Returns the header of a file, and begins its content.
    fn begin(&mut self, wanted: TarFile) -> io::Result<Vec<u8>> {
        let file = (self.open)(&wanted.path)?;
        let found = file.metadata()?;
        if found.len() != wanted.bytes {
            return Err(changed(&wanted.path));
        }
        let mode = found.permissions().mode() & 0o777;
        let modified = u64::try_from(found.mtime()).unwrap_or(0);
        let head = tar_head(&wanted.path, wanted.bytes, mode, modified)?;
        self.content = Some(Content {
            file,
            path: wanted.path,
            left: wanted.bytes,
            padding: tar_padding(wanted.bytes),
        });
        Ok(head)
    }
}

impl<Open: FnMut(&str) -> io::Result<File>> Read for TarStream<Open> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.block.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            if let Some(content) = &mut self.content {
                if content.left > 0 {
                    return content.read(into);
                }
                self.block = io::Cursor::new(vec![0; content.padding]);
                self.content = None;
                continue;
            }
            let block = match self.files.next() {
                Some(file) => self.begin(file)?,
                None if self.has_ended => return Ok(0),
                None => {
                    self.has_ended = true;
                    TAR_END.to_vec()
                }
            };
            self.block = io::Cursor::new(block);
        }
    }
}

impl Content {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let read = self.file.read(&mut into[..most])?;
        if read == 0 {
            return Err(changed(&self.path));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn changed(path: &str) -> io::Error {
    let what = format!("{path} changed while it was read");
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpack_files;
    use std::fs;
    use std::path::Path;

    fn stream(
        folder: &Path,
        files: &[(&str, u64)],
    ) -> TarStream<impl FnMut(&str) -> io::Result<File>> {
        let files = files.iter().map(|(path, bytes)| TarFile {
            path: (*path).to_owned(),
            bytes: *bytes,
        });
        let folder = folder.to_owned();
        TarStream::new(files.collect(), move |path| File::open(folder.join(path)))
    }

    #[test]
    fn files_of_any_size_and_name_return_unchanged() {
        let place = tempfile::tempdir().expect("a folder");
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let long = format!("deep/{}", "n".repeat(200));
        fs::create_dir_all(from.join("deep")).expect("made");
        fs::create_dir(&to).expect("made");
        let sizes = [("a", 0), ("b", 511), ("c", 512), (long.as_str(), 300_000)];
        for (name, bytes) in sizes {
            fs::write(from.join(name), vec![7; bytes]).expect("written");
        }
        let files = sizes.map(|(name, bytes)| (name, bytes as u64));
        let unpacked = unpack_files(stream(&from, &files), &to, 10).expect("unpacked");
        assert_eq!(unpacked, 301_023);
        let mut all = Vec::new();
        stream(&from, &files).read_to_end(&mut all).expect("read");
        let listed = files.map(|(path, bytes)| TarFile {
            path: path.to_owned(),
            bytes,
        });
        assert_eq!(tar_bytes(&listed).expect("paths"), all.len() as u64);
        for (name, bytes) in sizes {
            assert_eq!(
                fs::read(to.join(name)).expect("there"),
                vec![7; bytes],
                "{name}"
            );
        }
        let many = unpack_files(stream(&from, &files), &to, 3).expect_err("too many");
        assert!(matches!(many, crate::ArchiveError::Bomb), "{many}");
    }

    #[test]
    fn changed_file_is_an_error() {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join("a"), "abc").expect("written");
        for bytes in [2, 4] {
            let mut all = Vec::new();
            let read = stream(place.path(), &[("a", bytes)]).read_to_end(&mut all);
            assert!(read.is_err(), "{bytes}");
        }
    }
}
