//! Upload of a checkpoint: large parts first, the manifest last. The entry in the index then
//! publishes it.

use super::JobBucket;
use super::index::BucketIndexEntry;
use crate::checkpoint::checksums::sums;
use crate::checkpoint::name::CheckpointName;
use crate::checkpoint::parts::CheckpointPart;
use crate::checkpoint::write::{manifest_text, sums_text};
use crate::checkpoint::{CheckpointError, Contents, FileSum, MANIFEST_FILE, Manifest, SUMS_FILE};
use muster_model::checkpoint::Written;
use muster_objects::{ObjectBucket, Upload};
use std::thread;

impl JobBucket {
    /// As [`crate::checkpoint::CheckpointStore::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let name = CheckpointName::Step {
            step: manifest.step,
            revision: self.revision,
        }
        .to_string();
        let written = self.send(&name, manifest, contents)?;
        let listed = BucketIndexEntry::of(&name, manifest);
        self.update(|index| {
            index.remove(&listed.name);
            index.checkpoints.push(listed.clone());
        })?;
        Ok(written)
    }

    /// As [`crate::checkpoint::CheckpointStore::write_final`].
    ///
    /// # Errors
    /// As there.
    pub fn write_final(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<String, CheckpointError> {
        let name = CheckpointName::Final {
            revision: self.revision,
        }
        .to_string();
        manifest.part_bytes = usize::MAX;
        let written = self.send(&name, manifest, contents)?;
        self.update(|index| {
            index.remove(&name);
            index.finals.push(name.clone());
        })?;
        Ok(format!("{}/{}", written.path, manifest.parts()[0].name))
    }

    /// Uploads everything except the index.
    fn send(
        &self,
        name: &str,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        if !contents.is_finite() {
            return Err(CheckpointError::Diverged);
        }
        // Fences a stale writer before the upload. An earlier attempt that succeeded without its
        // acknowledgement is overwritten, so it must not be listed meanwhile.
        self.update(|index| index.remove(name))?;
        let sent = self.send_files(name, manifest, contents);
        if sent.is_err() {
            // A newer revision aborts the uploads of a stale writer; then the fence is the reason.
            self.judge(&self.index()?)?;
        }
        sent
    }

    fn send_files(
        &self,
        name: &str,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let parts = manifest.parts();
        let arenas = contents.arenas();
        manifest.files = thread::scope(|scope| {
            let summing = scope.spawn(|| sums(&parts, &arenas));
            let sent = self.send_parts(name, &parts, &arenas);
            let sums = summing.join().expect("summing does not panic");
            let sums = sums?;
            sent.map(|()| sums)
        })?;
        for (file, bytes) in &self.beside {
            self.put(name, file, bytes.to_vec())?;
            manifest.files.insert(file.clone(), FileSum::of(bytes));
        }
        let (text, manifest_sha256) = manifest_text(manifest);
        let listed = sums_text(&manifest_sha256, &manifest.files);
        self.put(name, SUMS_FILE, listed.into_bytes())?;
        let bytes = text.len() as u64;
        self.put(name, MANIFEST_FILE, text.into_bytes())?;
        let path = format!("{}/{name}", self.home);
        Ok(manifest.written(path, bytes, manifest_sha256))
    }

    fn put(&self, name: &str, file: &str, bytes: Vec<u8>) -> Result<(), CheckpointError> {
        let object = self.name(&format!("{name}/{file}"));
        Ok(self.objects.put(&object, bytes)?)
    }

    fn send_parts(
        &self,
        name: &str,
        parts: &[CheckpointPart],
        arenas: &[&[f32]],
    ) -> Result<(), CheckpointError> {
        let mut uploads: Vec<Option<Upload>> = Vec::with_capacity(parts.len());
        for part in parts {
            let object = self.name(&format!("{name}/{}", part.name));
            let large = ObjectBucket::needs_parts(part.header().len() + part.data_bytes());
            uploads.push(if large {
                Some(self.objects.begin(&object)?)
            } else {
                None
            });
        }
        let begun: Vec<&Upload> = uploads.iter().flatten().collect();
        if !begun.is_empty() {
            // Before the first byte is uploaded.
            self.record(name, &begun)?;
        }
        let sent = parts.iter().zip(&uploads).try_for_each(|(part, upload)| {
            let header = part.header();
            let mut content = vec![header.as_slice()];
            content.extend(part.slices(arenas));
            match upload {
                Some(upload) => Ok(self.objects.upload(upload, &content)?),
                None => self.put(name, &part.name, content.concat()),
            }
        });
        if !begun.is_empty() {
            match &sent {
                Ok(()) => self.forget(name)?,
                // An upload that cannot be aborted now stays recorded.
                Err(_) => drop(self.give_up(name, &begun)),
            }
        }
        sent
    }
}
