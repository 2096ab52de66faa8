//! Code archives on this node. They come from the checkpoint store, and tasks fetch them from the
//! tracking server.
//!
//! A process task of any tenant can change the store's folder and, as this executor's user, the
//! cache. So the digest is checked at each use, and the task checks it again.

use crate::opener::FolderHandle;
use futures::TryStreamExt as _;
use muster_archive::{ArchiveDigest, MAX_ARCHIVE_BYTES};
use muster_model::id::TenantId;
use muster_model::place::{BucketAddress, Place};
use muster_model::spec::{code_folder, code_object};
use muster_objects::{ObjectBucket, ObjectsError};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::sync::Mutex;

/// Maximum size of all archives of this node. The oldest are removed.
const MAX_BYTES: u64 = 4 << 30;

const PIECE_BYTES: usize = 256 << 10;

/// Why an archive is not available.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error("the checkpoint store has no code archive {sha256}; submit the code again")]
    Missing { sha256: String },
    #[error(
        "the file of code archive {sha256} in the checkpoint store has another content: its SHA-256 is {found}; submit the code again"
    )]
    Changed { sha256: String, found: String },
    #[error("the file of code archive {sha256} has more than {MAX_ARCHIVE_BYTES} bytes")]
    Large { sha256: String },
    #[error("cannot read a code archive from the checkpoint store")]
    Read(#[source] io::Error),
    #[error("cannot read a code archive from the bucket")]
    Objects(#[from] ObjectsError),
    #[error("cannot store a code archive in {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the read of a code archive was interrupted")]
    Interrupted,
}

impl CodeError {
    /// Whether no repetition can help.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::Changed { .. } | Self::Large { .. }
        )
    }
}

/// The archives that this node has fetched.
#[derive(Debug)]
pub struct CodeCache {
    folder: PathBuf,
    store: Place,
    /// Held during a fetch, so that the tasks of a gang fetch an archive once.
    fetching: Mutex<()>,
}

impl CodeCache {
    #[must_use]
    pub fn new(data: &Path, store: Place) -> Self {
        Self {
            folder: data.join("code"),
            store,
            fetching: Mutex::default(),
        }
    }

    /// Opens an archive and returns its length. It is fetched if this node does not have it.
    ///
    /// # Errors
    /// [`CodeError`].
    pub async fn open(&self, tenant: TenantId, sha256: &str) -> Result<(File, u64), CodeError> {
        let _turn = self.fetching.lock().await;
        let path = self.folder.join(format!("{tenant}-{sha256}.tar.zst"));
        let (cached, digest) = (path.clone(), sha256.to_owned());
        if let Some(found) = blocking(move || Ok(whole(&cached, &digest))).await? {
            return Ok(found);
        }
        let mut half = HalfFile::create(&self.folder, &path)?;
        match &self.store {
            Place::Folder(root) => {
                let (root, sha256) = (root.clone(), sha256.to_owned());
                half = blocking(move || half.copy(&root, tenant, &sha256)).await?;
            }
            Place::Bucket(address) => half.download(address, tenant, sha256).await?,
        }
        let (folder, digest) = (self.folder.clone(), sha256.to_owned());
        blocking(move || {
            half.keep(&digest)?;
            tidy(&folder);
            whole(&path, &digest).ok_or(CodeError::Interrupted)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CodeError> + Send + 'static,
) -> Result<T, CodeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| CodeError::Interrupted)?
}

/// Opens a cached archive if its content has this digest.
fn whole(path: &Path, sha256: &str) -> Option<(File, u64)> {
    let mut file = File::open(path).ok()?;
    let mut digest = ArchiveDigest::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut piece).ok()? {
            0 => break,
            length => {
                digest.update(&piece[..length]);
                bytes += length as u64;
            }
        }
    }
    file.rewind().ok()?;
    (digest.hex() == sha256).then_some((file, bytes))
}

/// An archive that is being fetched. Dropping it removes its file.
struct HalfFile {
    file: File,
    path: PathBuf,
    half: PathBuf,
    digest: ArchiveDigest,
    bytes: u64,
}

impl Drop for HalfFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.half);
    }
}

impl HalfFile {
    fn create(folder: &Path, path: &Path) -> Result<Self, CodeError> {
        let half = path.with_extension("half");
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .and_then(|()| File::create(&half));
        let file = made.map_err(|source| CodeError::Write {
            path: folder.to_owned(),
            source,
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            half,
            digest: ArchiveDigest::default(),
            bytes: 0,
        })
    }

    fn add(&mut self, piece: &[u8], sha256: &str) -> Result<(), CodeError> {
        self.bytes += piece.len() as u64;
        if self.bytes > MAX_ARCHIVE_BYTES {
            return Err(CodeError::Large {
                sha256: sha256.to_owned(),
            });
        }
        self.digest.update(piece);
        self.file
            .write_all(piece)
            .map_err(|source| CodeError::Write {
                path: self.half.clone(),
                source,
            })
    }

    fn copy(mut self, root: &Path, tenant: TenantId, sha256: &str) -> Result<Self, CodeError> {
        let read = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => CodeError::Missing {
                sha256: sha256.to_owned(),
            },
            _ => CodeError::Read(error),
        };
        let mut folder = FolderHandle::at(root).map_err(CodeError::Read)?;
        for part in Path::new(&code_folder(tenant)) {
            folder = folder.inner(part).map_err(read)?;
        }
        let name = code_object(sha256);
        let mut source = folder.open(OsStr::new(&name)).map_err(read)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match source.read(&mut piece).map_err(CodeError::Read)? {
                0 => return Ok(self),
                length => self.add(&piece[..length], sha256)?,
            }
        }
    }

    async fn download(
        &mut self,
        address: &BucketAddress,
        tenant: TenantId,
        sha256: &str,
    ) -> Result<(), CodeError> {
        let object = format!("{}/{}", code_folder(tenant), code_object(sha256));
        let found = ObjectBucket::open(address)?.download(&object).await?;
        let mut found = found.ok_or_else(|| CodeError::Missing {
            sha256: sha256.to_owned(),
        })?;
        while let Some(piece) = found.content.try_next().await.map_err(CodeError::Read)? {
            self.add(&piece, sha256)?;
        }
        Ok(())
    }

    fn keep(mut self, sha256: &str) -> Result<(), CodeError> {
        let found = std::mem::take(&mut self.digest).hex();
        if found != sha256 {
            return Err(CodeError::Changed {
                sha256: sha256.to_owned(),
                found,
            });
        }
        fs::rename(&self.half, &self.path).map_err(|source| CodeError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

/// Removes the archives that were fetched first, until the others fit. One that a task is reading
/// stays readable.
fn tidy(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut archives: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    archives.sort_unstable();
    let mut bytes: u64 = archives.iter().map(|(_, length, _)| length).sum();
    // The newest is the one that was just fetched.
    let surplus = archives.len().saturating_sub(1);
    for (_, length, path) in archives.into_iter().take(surplus) {
        if bytes <= MAX_BYTES {
            return;
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove an old code archive");
        }
        bytes -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(content: &[u8]) -> String {
        let mut digest = ArchiveDigest::default();
        digest.update(content);
        digest.hex()
    }

    struct World {
        place: tempfile::TempDir,
        tenant: TenantId,
    }

    impl World {
        fn new() -> Self {
            let tenant = "01900000-0000-7000-8000-000000000001".parse();
            let place = tempfile::tempdir().expect("a folder");
            Self {
                place,
                tenant: tenant.expect("a UUID"),
            }
        }

        fn stored(&self, sha256: &str) -> PathBuf {
            let folder = self
                .place
                .path()
                .join("store")
                .join(code_folder(self.tenant));
            fs::create_dir_all(&folder).expect("made");
            folder.join(code_object(sha256))
        }

        fn cache(&self) -> CodeCache {
            let store = Place::Folder(self.place.path().join("store"));
            CodeCache::new(&self.place.path().join("data"), store)
        }

        async fn read(&self, cache: &CodeCache, sha256: &str) -> Result<String, CodeError> {
            let (mut file, bytes) = cache.open(self.tenant, sha256).await?;
            let mut text = String::new();
            file.read_to_string(&mut text).expect("text");
            assert_eq!(text.len() as u64, bytes);
            Ok(text)
        }
    }

    #[tokio::test]
    async fn archive_is_fetched_once_and_repaired() {
        let world = World::new();
        let sha256 = digest(b"code");
        let stored = world.stored(&sha256);
        fs::write(&stored, "code").expect("written");
        let cache = world.cache();
        assert_eq!(world.read(&cache, &sha256).await.expect("there"), "code");
        fs::remove_file(&stored).expect("removed");
        assert_eq!(world.read(&cache, &sha256).await.expect("cached"), "code");
        // A task of this node has changed the cached file.
        let name = format!("{}-{sha256}.tar.zst", world.tenant);
        fs::write(cache.folder.join(&name), "evil").expect("written");
        let error = world.read(&cache, &sha256).await.expect_err("not that");
        assert!(matches!(error, CodeError::Missing { .. }), "{error}");
        fs::write(&stored, "code").expect("written");
        assert_eq!(world.read(&cache, &sha256).await.expect("anew"), "code");
        assert_eq!(fs::read_dir(&cache.folder).expect("there").count(), 1);
    }

    #[tokio::test]
    async fn stored_file_of_another_content_is_refused() {
        let world = World::new();
        let sha256 = digest(b"code");
        fs::write(world.stored(&sha256), "evil").expect("written");
        let cache = world.cache();
        let error = world.read(&cache, &sha256).await.expect_err("not that");
        assert!(matches!(error, CodeError::Changed { .. }), "{error}");
        assert!(error.is_permanent());
        assert_eq!(fs::read_dir(&cache.folder).expect("there").count(), 0);
    }

    #[tokio::test]
    async fn link_in_the_store_is_not_followed() {
        let world = World::new();
        let sha256 = digest(b"code");
        let elsewhere = world.place.path().join("elsewhere");
        fs::write(&elsewhere, "code").expect("written");
        std::os::unix::fs::symlink(&elsewhere, world.stored(&sha256)).expect("linked");
        let error = world.read(&world.cache(), &sha256).await;
        assert!(matches!(error, Err(CodeError::Read(_))));
    }
}
