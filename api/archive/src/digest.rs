//! Names of archives.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

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
