//! Code archives: the files of a user's working folder as one compressed tar file, named by its
//! SHA-256.
//!
//! Equal folders give equal archives: names are sorted, times and owners are constant, and of the
//! permissions only "executable" is kept. So an unchanged folder is uploaded once.
//!
//! The command line packs, and a task unpacks as its own user. Neither trusts the other: an archive
//! may come from any client.

#![deny(missing_docs)]

mod copy;
mod digest;
mod pack;
mod parts;
mod stream;
mod unpack;

pub use copy::{Sent, receive, send};
pub use digest::{ArchiveDigest, digest_of};
pub use pack::{Packed, pack};
pub use parts::{TAR_END, tar_head, tar_padding};
pub use stream::{TarFile, TarStream, tar_bytes};
pub use unpack::{unpack, unpack_files};

use std::io;
use std::path::PathBuf;

/// Maximum size of an archive, in bytes. An API server may accept less.
pub const MAX_ARCHIVE_BYTES: u64 = 1 << 30;

/// Maximum number of files, folders and links of an archive.
pub const MAX_ENTRIES: usize = 100_000;

/// Maximum size of the files of an archive together, in bytes.
pub const MAX_UNPACKED_BYTES: u64 = 2 << 30;

/// Why a folder was not packed, or an archive not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file of the folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be listed, or an ignore file is wrong.
    #[error("cannot list the folder")]
    List(#[source] ignore::Error),
    /// The archive cannot be encoded.
    #[error("cannot compress the folder")]
    Encode(#[source] io::Error),
    /// The folder has too many files.
    #[error("{} has more than {MAX_ENTRIES} files; exclude some in .musterignore", path.display())]
    ManyFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is too large.
    #[error(
        "the files of {} have {bytes} bytes, and at most {MAX_UNPACKED_BYTES} can be sent; exclude large ones in .musterignore. \
         The largest are {largest}", path.display()
    )]
    Large {
        /// The folder.
        path: PathBuf,
        /// Size of its files.
        bytes: u64,
        /// Names and sizes of the largest files.
        largest: String,
    },
    /// The folder has no file that is not excluded.
    #[error("{} has no files, or all of them are excluded by .gitignore and .musterignore", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// The content is no archive of this format, or a file cannot be written.
    #[error("cannot unpack it")]
    Decode(#[source] io::Error),
    /// An entry whose path leads out of the folder, or that is no file, folder or link.
    #[error("its entry {path:?} {what}")]
    Entry {
        /// Path of the entry.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The archive has too many entries, or too large ones.
    #[error("it has too many files, or too many bytes of them")]
    Bomb,
}

#[cfg(test)]
mod tests;
