//! The image cache on disk: its folders, what images it has, and which are removed.
//!
//! `whole/<digest>/` has an image: its files in `fs`, and `image.json`, which describes it.
//! `blobs/<digest>-<repository>` is a compressed layer, kept for images of the repository that
//! share it. Both appear by a rename, so they are complete. `unfinished` has everything else and is
//! emptied at the start of a daemon.

use super::error::ImageError;
use crate::clock;
use crate::gc;
use muster_archive::ArchiveDigest;
use muster_model::error_chain::chain;
use muster_model::id::JobId;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the description of an image in its folder.
pub(crate) const INFO: &str = "image.json";

/// Name of the files of an image in its folder.
pub(crate) const FILES: &str = "fs";

/// An image on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Name in the document of the first job. In the view of a task, the name in its own document.
    pub image: String,
    /// Digest of its manifest, such as `sha256:…`.
    pub digest: String,
    /// Variables of its configuration.
    pub env: BTreeMap<String, String>,
    /// Working folder of its configuration.
    pub working_dir: Option<PathBuf>,
    /// Size of its files together.
    pub bytes: u64,
}

/// `uses/<task>`: the image of a task. It is not removed while the task lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageUse {
    pub job: JobId,
    pub revision: u64,
    pub digest: String,
}

/// The cache.
#[derive(Debug, Clone)]
pub(crate) struct CacheFolders {
    root: PathBuf,
}

/// Something that can be removed.
struct Removable {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl CacheFolders {
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the folders and removes what an earlier daemon has not finished.
    pub(crate) fn open(&self) -> Result<(), ImageError> {
        let made = [
            self.whole(),
            self.blobs(),
            self.unfinished(),
            self.stage(),
            self.uses(),
        ];
        for folder in &made {
            fs::create_dir_all(folder).map_err(ImageError::at(folder))?;
        }
        // Tasks of other users see an image only in their own view.
        fs::set_permissions(&self.root, Permissions::from_mode(0o700))
            .map_err(ImageError::at(&self.root))?;
        let _ = fs::remove_dir_all(self.locks());
        let unfinished = self.unfinished();
        for entry in fs::read_dir(&unfinished).map_err(ImageError::at(&unfinished))? {
            let path = entry.map_err(ImageError::at(&unfinished))?.path();
            gc::remove_folder(&path).map_err(ImageError::at(path))?;
        }
        Ok(())
    }

    fn whole(&self) -> PathBuf {
        self.root.join("whole")
    }

    fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    fn unfinished(&self) -> PathBuf {
        self.root.join("unfinished")
    }

    /// Files that helpers lock while they pull an image.
    pub(super) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Folder with a file for each task that runs in an image, [`ImageUse`].
    pub(super) fn uses(&self) -> PathBuf {
        self.root.join("uses")
    }

    /// Digests of the images that tasks use now.
    fn used(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.uses()).into_iter().flatten();
        let texts = entries.filter_map(|entry| fs::read(entry.ok()?.path()).ok());
        let uses = texts.filter_map(|text| serde_json::from_slice::<ImageUse>(&text).ok());
        uses.map(|used| used.digest).collect()
    }

    /// Folder over which shims mount the view of a task, each in a namespace of its own.
    pub(crate) fn stage(&self) -> PathBuf {
        self.root.join("stage")
    }

    /// Folder of an image.
    pub(crate) fn image(&self, digest: &str) -> PathBuf {
        self.whole().join(file_name(digest))
    }

    /// File of a layer by its [`blob_key`].
    pub(super) fn blob(&self, key: &str) -> PathBuf {
        self.blobs().join(file_name(key))
    }

    /// Creates an empty folder that is removed at the next start unless it is renamed.
    pub(super) fn begin(&self) -> Result<PathBuf, ImageError> {
        let path = self.new_unfinished();
        fs::create_dir(&path).map_err(ImageError::at(&path))?;
        Ok(path)
    }

    /// Returns an unused path in `unfinished`. It names this process.
    fn new_unfinished(&self) -> PathBuf {
        let name = format!("{}-{:016x}", std::process::id(), clock::random());
        self.unfinished().join(name)
    }

    /// Removes what a killed process has not finished. Call it before another process can get its
    /// id.
    pub(super) fn remove_unfinished_of(&self, process: i32) {
        let prefix = format!("{process}-");
        let entries = fs::read_dir(self.unfinished()).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let is_of_process = entry.file_name().to_string_lossy().starts_with(&prefix);
            if !is_of_process {
                continue;
            }
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_folder {
                gc::remove_folder(&path)
            } else {
                fs::remove_file(&path)
            };
            if let Err(error) = removed {
                // The next daemon tries again.
                tracing::warn!(path = %path.display(), %error, "cannot remove an unfinished image");
            }
        }
    }

    /// Returns the description of an image, if the cache has it.
    pub(crate) fn info(&self, digest: &str) -> Option<ImageInfo> {
        read_info(&self.image(digest))
    }

    /// Turns an unfinished folder into an image, durably.
    pub(super) fn keep(&self, unfinished: &Path, info: &ImageInfo) -> Result<(), ImageError> {
        let description = unfinished.join(INFO);
        let text = serde_json::to_vec(info).map_err(|error| io::Error::other(error.to_string()));
        text.and_then(|text| fs::write(&description, text))
            .map_err(ImageError::at(&description))?;
        let opened = File::open(unfinished).map_err(ImageError::at(unfinished))?;
        rustix::fs::syncfs(&opened)
            .map_err(io::Error::from)
            .map_err(ImageError::at(unfinished))?;
        let folder = self.image(&info.digest);
        fs::rename(unfinished, &folder).map_err(ImageError::at(&folder))?;
        let whole = self.whole();
        File::open(&whole)
            .and_then(|opened| opened.sync_all())
            .map_err(ImageError::at(whole))
    }

    /// Records that the image or layer is used now.
    pub(super) fn touch(&self, path: &Path) {
        let info = path.join(INFO);
        let path = if info.is_file() { &info } else { path };
        // If this fails, the image or layer is only removed earlier.
        let Ok(file) = File::open(path) else {
            return;
        };
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let _ = rustix::fs::futimens(&file, &times);
    }

    pub(super) fn touch_image(&self, digest: &str) {
        self.touch(&self.image(digest));
    }

    /// Prevents the removal of images until the returned file is closed.
    ///
    /// # Errors
    /// If the file of the lock cannot be opened.
    pub(super) fn hold_for_use(&self) -> Result<File, ImageError> {
        self.removal_lock(FlockOperation::LockShared)
    }

    fn removal_lock(&self, operation: FlockOperation) -> Result<File, ImageError> {
        let path = self.root.join("removal.lock");
        let opened = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = opened.map_err(ImageError::at(&path))?;
        flock(&file, operation)
            .map_err(io::Error::from)
            .map_err(ImageError::at(path))?;
        Ok(file)
    }

    /// Removes the images and layers that were used least recently until `wanted` more bytes fit
    /// within `limit` and on the disk. Those that tasks use, and those in `kept`, stay.
    pub(super) fn make_room(&self, wanted: u64, limit: u64, kept: &BTreeSet<String>) {
        let mut kept = kept.clone();
        kept.extend(self.used());
        let mut all = self.removable(&kept);
        all.sort_by_key(|one| one.used);
        let mut bytes = self.bytes();
        for one in all {
            let is_free = free_bytes(&self.root).is_none_or(|free| free >= wanted);
            if bytes.saturating_add(wanted) <= limit && is_free {
                return;
            }
            match self.remove_unused(&one) {
                Ok(true) => bytes = bytes.saturating_sub(one.bytes),
                Ok(false) => {}
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(path = %one.path.display(), error, "cannot remove an unused image");
                }
            }
        }
    }

    /// Removes an image or a layer, unless a task has begun to use it since it was listed. A killed
    /// daemon leaves it in `unfinished`.
    fn remove_unused(&self, one: &Removable) -> Result<bool, ImageError> {
        let path = &one.path;
        let held = self.removal_lock(FlockOperation::LockExclusive)?;
        let mut used = self.used().into_iter();
        if used.any(|digest| {
            path.file_name()
                .is_some_and(|name| name == &*file_name(&digest))
        }) {
            return Ok(false);
        }
        if path.is_file() {
            return fs::remove_file(path)
                .map(|()| true)
                .map_err(ImageError::at(path));
        }
        let gone = self.new_unfinished();
        fs::rename(path, &gone).map_err(ImageError::at(path))?;
        // The removal takes long, and tasks must not wait for it.
        drop(held);
        gc::remove_folder(&gone)
            .map(|()| true)
            .map_err(ImageError::at(gone))
    }

    /// Bytes of all images and layers.
    fn bytes(&self) -> u64 {
        let all = self.removable(&BTreeSet::new());
        all.iter().map(|one| one.bytes).sum()
    }

    fn removable(&self, used: &BTreeSet<String>) -> Vec<Removable> {
        let kept: BTreeSet<String> = used.iter().map(|digest| file_name(digest)).collect();
        let entries = [self.whole(), self.blobs()].into_iter().flat_map(|folder| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.filter_map(Result::ok)
        });
        let all = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if kept.contains(&name) {
                return None;
            }
            let path = entry.path();
            let metadata = entry.metadata().ok()?;
            let (used, bytes) = if metadata.is_file() {
                (metadata.modified().ok()?, metadata.len())
            } else {
                let used = fs::metadata(path.join(INFO)).and_then(|info| info.modified());
                let bytes = read_info(&path).map_or(0, |info| info.bytes);
                (used.unwrap_or(SystemTime::UNIX_EPOCH), bytes)
            };
            Some(Removable { used, bytes, path })
        });
        all.collect()
    }

    /// Digest to which the name of an image was resolved last.
    pub(super) fn last_digest(&self, image: &str) -> Option<String> {
        self.names().remove(image)
    }

    /// Records to which digest the name of an image was resolved.
    pub(super) fn record_name(&self, image: &str, digest: &str) -> Result<(), ImageError> {
        let mut names = self.names();
        names.retain(|_, digest| self.image(digest).is_dir());
        names.insert(image.to_owned(), digest.to_owned());
        let path = self.root.join("names.json");
        let half = self.new_unfinished();
        let text = serde_json::to_vec(&names).map_err(|error| io::Error::other(error.to_string()));
        text.and_then(|text| fs::write(&half, text))
            .and_then(|()| fs::rename(&half, &path))
            .map_err(ImageError::at(path))
    }

    fn names(&self) -> BTreeMap<String, String> {
        let text = fs::read(self.root.join("names.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// Name of a layer in the cache. A tenant may use a layer only if a repository that it may use has
/// sent it, so repositories share no files.
pub(super) fn blob_key(repository: &str, digest: &str) -> String {
    let mut hashed = ArchiveDigest::default();
    hashed.update(repository.as_bytes());
    format!("{digest}-{}", &hashed.hex()[..32])
}

fn read_info(folder: &Path) -> Option<ImageInfo> {
    serde_json::from_slice(&fs::read(folder.join(INFO)).ok()?).ok()
}

/// Digests contain a colon, which search paths cannot.
fn file_name(digest: &str) -> String {
    digest
        .chars()
        .map(|one| {
            if one.is_ascii_alphanumeric() {
                one
            } else {
                '-'
            }
        })
        .collect()
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn add(cache: &CacheFolders, digest: &str, bytes: u64, age_s: u64) {
        let unfinished = cache.begin().expect("made");
        fs::create_dir(unfinished.join(FILES)).expect("made");
        let info = ImageInfo {
            image: format!("r.io/{digest}"),
            digest: digest.to_owned(),
            env: BTreeMap::new(),
            working_dir: None,
            bytes,
        };
        cache.keep(&unfinished, &info).expect("kept");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 - age_s);
        let info = File::open(cache.image(digest).join(INFO)).expect("there");
        info.set_modified(at).expect("ours");
    }

    /// Records that a task uses an image.
    fn record_use(cache: &CacheFolders, digest: &str) {
        let used = ImageUse {
            job: JobId(uuid::Uuid::nil()),
            revision: 1,
            digest: digest.to_owned(),
        };
        let text = serde_json::to_vec(&used).expect("JSON");
        fs::write(cache.uses().join("task"), text).expect("written");
    }

    #[test]
    fn image_whose_use_begins_is_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = CacheFolders::at(place.path().join("images"));
        cache.open().expect("made");
        add(&cache, "sha256:a", 100, 400);
        let listed = cache.removable(&BTreeSet::new());
        let held = cache.hold_for_use().expect("held");
        let removing = std::thread::spawn({
            let cache = cache.clone();
            move || cache.remove_unused(&listed[0]).expect("decided")
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(cache.info("sha256:a").is_some(), "the removal waits");
        record_use(&cache, "sha256:a");
        drop(held);
        assert!(!removing.join().expect("it ended"));
        assert!(cache.info("sha256:a").is_some());
    }

    #[test]
    fn unused_images_are_removed_least_recently_used_first() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = CacheFolders::at(place.path().join("images"));
        cache.open().expect("made");
        for (digest, age_s) in [("sha256:a", 400), ("sha256:b", 300), ("sha256:c", 200)] {
            add(&cache, digest, 100, age_s);
        }
        fs::write(cache.blob("sha256:d"), [0; 50]).expect("written");
        let nothing = BTreeSet::new();
        record_use(&cache, "sha256:a");
        let has = |digest| cache.info(digest).is_some();
        cache.make_room(0, 350, &nothing);
        assert!(has("sha256:a") && has("sha256:b") && has("sha256:c"));
        cache.touch_image("sha256:b");
        cache.make_room(50, 350, &nothing);
        assert!(has("sha256:a") && has("sha256:b") && !has("sha256:c"));
        assert!(cache.blob("sha256:d").is_file());
        cache.make_room(300, 350, &nothing);
        assert!(has("sha256:a") && !has("sha256:b"));
        assert!(!cache.blob("sha256:d").exists());
        assert_eq!(fs::read_dir(cache.unfinished()).expect("there").count(), 0);
    }

    #[test]
    fn next_start_removes_unfinished_folders() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = CacheFolders::at(place.path());
        cache.open().expect("made");
        let unfinished = cache.begin().expect("made");
        fs::create_dir_all(unfinished.join("fs/a/b")).expect("made");
        fs::write(cache.unfinished().join("file"), "").expect("written");
        cache.open().expect("opened");
        assert_eq!(fs::read_dir(cache.unfinished()).expect("there").count(), 0);
    }

    #[test]
    fn name_of_an_image_leads_to_its_last_digest() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = CacheFolders::at(place.path());
        cache.open().expect("made");
        add(&cache, "sha256:a", 1, 0);
        cache.record_name("r.io/x:1", "sha256:a").expect("written");
        assert_eq!(cache.last_digest("r.io/x:1").as_deref(), Some("sha256:a"));
        assert_eq!(cache.last_digest("r.io/x:2"), None);
    }
}
