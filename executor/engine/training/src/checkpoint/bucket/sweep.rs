//! Removal of the remains of killed and stale writers: uploads that were started, and objects that
//! are not listed.

use super::JobBucket;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::check::MAX_MANIFEST_BYTES;
use crate::checkpoint::name::CheckpointName;
use muster_objects::Upload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const UPLOADS: &str = "uploads";

/// Content of `uploads/<name>.json`: one entry per started upload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadRecord {
    object: String,
    upload: String,
}

impl JobBucket {
    /// Records the uploads that were started for the checkpoint `name`.
    pub(super) fn record(&self, name: &str, uploads: &[&Upload]) -> Result<(), CheckpointError> {
        let begun: Vec<UploadRecord> = uploads
            .iter()
            .map(|upload| UploadRecord {
                object: upload.name.clone(),
                upload: upload.id.clone(),
            })
            .collect();
        let text = serde_json::to_vec_pretty(&begun).expect("a record is plain data");
        Ok(self.objects.put(&self.name(&record(name)), text)?)
    }

    /// Removes the record of completed uploads.
    pub(super) fn forget(&self, name: &str) -> Result<(), CheckpointError> {
        Ok(self.objects.delete(&[self.name(&record(name))])?)
    }

    /// Aborts uploads that will not be completed and removes their record.
    pub(super) fn give_up(&self, name: &str, uploads: &[&Upload]) -> Result<(), CheckpointError> {
        for upload in uploads {
            self.objects.abort(upload)?;
        }
        self.forget(name)
    }

    /// Removes objects that are not listed and were written by this revision or an older one,
    /// because no task continues to write them. Objects of a newer revision are not touched.
    pub(super) fn sweep(&self) -> Result<(), CheckpointError> {
        let index = self.index()?;
        let objects = self.objects.list(&self.home)?;
        let mut folders: BTreeSet<&str> = BTreeSet::new();
        for object in &objects {
            match object.split_once('/') {
                Some((UPLOADS, file)) => {
                    let name = file
                        .strip_suffix(".json")
                        .filter(|name| self.may_remove(name));
                    if let Some(name) = name {
                        self.give_up_recorded(name)?;
                    }
                }
                Some((folder, _)) if self.may_remove(folder) && !index.holds(folder) => {
                    folders.insert(folder);
                }
                _ => {}
            }
        }
        for folder in folders {
            self.delete_folder(folder)?;
        }
        Ok(())
    }

    /// Whether this is the name of a checkpoint of this revision or an older one.
    fn may_remove(&self, name: &str) -> bool {
        CheckpointName::parse(name).is_some_and(|name| name.revision() <= self.revision)
    }

    fn give_up_recorded(&self, name: &str) -> Result<(), CheckpointError> {
        let Some((text, _)) = self
            .objects
            .get(&self.name(&record(name)), MAX_MANIFEST_BYTES)?
        else {
            return Ok(());
        };
        // A record that cannot be read contains no upload to abort.
        let begun: Vec<UploadRecord> = serde_json::from_slice(&text).unwrap_or_default();
        let own = format!("{}/", self.home);
        let uploads: Vec<Upload> = begun
            .into_iter()
            .filter(|begun| begun.object.starts_with(&own))
            .map(|begun| Upload {
                name: begun.object,
                id: begun.upload,
            })
            .collect();
        self.give_up(name, &uploads.iter().collect::<Vec<_>>())
    }
}

fn record(name: &str) -> String {
    format!("{UPLOADS}/{name}.json")
}
