//! Names of archives.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::{self, Read};

/// Bytes per read.
const PIECE_BYTES: usize = 256 << 10;

/// SHA-256 of an archive that is read piece by piece.
#[derive(Debug, Clone, Default)]
pub struct ArchiveDigest(Sha256);

impl ArchiveDigest {
    /// Adds the next bytes of the archive.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest as 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn hex(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            write!(text, "{byte:02x}").expect("a string takes all");
        }
        text
    }
}

/// Returns the digest of the remaining content of a reader, as [`ArchiveDigest::hex`].
///
/// # Errors
/// Those of the reader.
pub fn digest_of(mut content: impl Read) -> io::Result<String> {
    let mut digest = ArchiveDigest::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = content.read(&mut piece)?;
        if length == 0 {
            return Ok(digest.hex());
        }
        digest.update(&piece[..length]);
    }
}
