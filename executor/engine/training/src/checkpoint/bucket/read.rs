//! Loading of a checkpoint from objects: several ranges at a time are fetched directly into the
//! arenas, and each is verified when it arrives.
//!
//! The objects are not stored on the node's disk, because the state is needed in memory only and
//! the disk may be smaller.

use super::JobBucket;
use super::index::BucketIndexEntry;
use crate::checkpoint::check::MAX_MANIFEST_BYTES;
use crate::checkpoint::load::{PartSource, load};
use crate::checkpoint::read::{CheckpointEntry, SoundCheckpoint, agreed};
use crate::checkpoint::{CheckpointError, FileSum, MANIFEST_FILE, SUMS_FILE};
use muster_objects::{Blocking, ObjectsError};
use std::path::{Path, PathBuf};

/// Number of threads; each waits for the network most of the time.
const THREADS: usize = 8;

/// Part file in the bucket.
struct PartObject<'a> {
    objects: &'a Blocking,
    name: String,
    bytes: u64,
    path: PathBuf,
}

impl JobBucket {
    pub(in crate::checkpoint) fn load(
        &self,
        listed: &BucketIndexEntry,
    ) -> Result<SoundCheckpoint, CheckpointError> {
        let entry = CheckpointEntry {
            step: listed.step,
            revision: listed.revision,
            name: listed.name.clone(),
        };
        let (sums_path, sums) = self.small(&entry, SUMS_FILE)?;
        let (path, text) = self.small(&entry, MANIFEST_FILE)?;
        let (manifest, sum) = agreed(&entry, (&path, &text), (&sums_path, &sums))?;
        let contents = load(&manifest, &path, |name| {
            Ok(Box::new(self.part(&format!("{}/{name}", entry.name))?))
        })?;
        let written = format!("{}/{}", self.home, entry.name);
        let written = manifest.written(written, text.len() as u64, sum);
        Ok(SoundCheckpoint {
            manifest,
            contents,
            written,
        })
    }

    /// Reads a file of unknown length. Returns its address and content.
    fn small(
        &self,
        entry: &CheckpointEntry,
        file: &str,
    ) -> Result<(PathBuf, Vec<u8>), CheckpointError> {
        let object = format!("{}/{file}", entry.name);
        let path = self.address(&object);
        match self.objects.get(&self.name(&object), MAX_MANIFEST_BYTES) {
            Ok(Some((text, _))) => Ok((path, text)),
            Ok(None) => Err(CheckpointError::damaged(&path, "it is missing")),
            Err(ObjectsError::TooLarge { bytes, .. }) => {
                let what = format!("it has {bytes} bytes, more than any manifest");
                Err(CheckpointError::damaged(&path, what))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn part(&self, object: &str) -> Result<PartObject<'_>, CheckpointError> {
        let (name, path) = (self.name(object), self.address(object));
        let Some(bytes) = self.objects.len(&name)? else {
            return Err(CheckpointError::damaged(&path, "it is missing"));
        };
        Ok(PartObject {
            objects: &self.objects,
            name,
            bytes,
            path,
        })
    }
}

impl PartSource for PartObject<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), CheckpointError> {
        match self.objects.read_at(&self.name, offset, into)? {
            Some(read) if read == into.len() => Ok(()),
            Some(_) => Err(CheckpointError::damaged(&self.path, "it is cut short")),
            None => Err(CheckpointError::damaged(&self.path, "it is missing")),
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn block_bytes(&self) -> usize {
        FileSum::CRC_BYTES
    }

    fn threads(&self) -> usize {
        THREADS
    }
}
