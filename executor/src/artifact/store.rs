//! Writes and reads artifacts of a task's job.

use super::client::{Admission, ArtifactClient, Uploaded};
use super::error::ArtifactError;
use super::in_flight::{BytesInFlight, ReservedBytes};
use super::object::{self, Modes, ObjectWriter, Pieces, Written};
use crate::clock;
use futures::{Stream, TryStreamExt as _};
use muster_model::artifact::is_artifact_path;
use muster_model::id::TaskId;
use muster_model::place::Place;
use muster_proto::session::Artifact;
use std::io;
use std::time::Duration;

/// Pauses before the repetitions of a record, in milliseconds. A lost answer must not leave a
/// content without a row.
pub(super) const PAUSES_MS: [u64; 3] = [200, 1_000, 3_000];

/// Maximum number of listed artifacts, above the default limit of a job.
const MAX_LISTED: usize = 100_000;

/// Artifacts of this node's tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    pub(super) client: ArtifactClient,
    pub(super) place: Place,
    pub(super) modes: Modes,
    in_flight: BytesInFlight,
}

/// A listed artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedArtifact {
    pub path: String,
    pub bytes: u64,
}

/// An artifact that is being read.
pub(crate) struct OpenArtifact {
    pub bytes: u64,
    pub content_type: String,
    pub content: Pieces,
}

/// What is known of a content before its upload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Announced<'a> {
    /// 0 if it is not known.
    pub bytes: u64,
    pub sha256: Option<&'a str>,
}

impl ArtifactStore {
    /// With `is_private`, only this executor's user and group can read the content in a shared
    /// folder: tasks of other tenants run as other users.
    #[must_use]
    pub fn new(client: ArtifactClient, place: Place, is_private: bool) -> Self {
        let modes = if is_private {
            Modes {
                folder: 0o750,
                file: 0o640,
            }
        } else {
            Modes {
                folder: 0o755,
                file: 0o644,
            }
        };
        Self {
            client,
            place,
            modes,
            in_flight: BytesInFlight::default(),
        }
    }

    /// Keeps a content under a path, and replaces an earlier one. An unchanged content of a known
    /// digest is not written again.
    ///
    /// # Errors
    /// [`ArtifactError`]; nothing was changed then. An interrupted call may leave a content without
    /// a record, which is removed with the job.
    pub(crate) async fn put<Content, Piece>(
        &self,
        task: TaskId,
        path: &str,
        announced: Announced<'_>,
        content: Content,
    ) -> Result<(), ArtifactError>
    where
        Content: Stream<Item = io::Result<Piece>> + Unpin,
        Piece: AsRef<[u8]>,
    {
        if !is_artifact_path(path) {
            return Err(ArtifactError::Path(path.chars().take(200).collect()));
        }
        let known = (announced.bytes, announced.sha256);
        let (folder, most_bytes) = match self.client.admit(task, path, known).await? {
            Admission::Present => return Ok(()),
            Admission::Fits { folder, most_bytes } => (folder, most_bytes),
        };
        let object = clock::random_id()
            .map_err(ArtifactError::Store)?
            .to_string();
        let reserved = self
            .in_flight
            .reserve(&folder, (announced.bytes, most_bytes));
        let mut reserved = reserved?;
        let bound = match announced.bytes {
            0 => most_bytes,
            bytes => bytes.min(most_bytes),
        };
        let begun = ObjectWriter::begin(&self.place, &folder, &object, (bound, self.modes)).await;
        let mut writer = begun?;
        let written = match fill(&mut writer, &mut reserved, content).await {
            Ok(written) => written,
            Err(error) => {
                writer.give_up().await;
                object::remove(&self.place, &folder, &object).await;
                return Err(error);
            }
        };
        let is_expected = announced
            .sha256
            .is_none_or(|sha256| sha256 == written.sha256);
        let kept = if is_expected {
            self.record(task, path, &object, &written).await
        } else {
            Err(ArtifactError::Changed)
        };
        match kept {
            Ok(Some(ref replaced)) => object::remove(&self.place, &folder, replaced).await,
            Ok(None) => {}
            Err(ref error) if error.may_be_recorded() => {}
            Err(_) => object::remove(&self.place, &folder, &object).await,
        }
        kept.map(drop)
    }

    /// Whether a content of this size may be written under a path.
    ///
    /// # Errors
    /// [`ArtifactError`] if not.
    pub(crate) async fn check_size(
        &self,
        task: TaskId,
        path: &str,
        bytes: u64,
    ) -> Result<(), ArtifactError> {
        self.client.admit(task, path, (bytes, None)).await.map(drop)
    }

    /// Records a content. Returns the object that it replaces.
    ///
    /// After a lost answer the present row is read first. If the path has another content then, a
    /// repetition could replace a newer one: the call fails and the content stays without a record.
    async fn record(
        &self,
        task: TaskId,
        path: &str,
        object: &str,
        written: &Written,
    ) -> Result<Option<String>, ArtifactError> {
        let uploaded = Uploaded {
            object,
            bytes: written.bytes,
            sha256: &written.sha256,
        };
        let mut last = match self.client.keep(task, path, &uploaded).await {
            Err(error) if error.is_transient() => error,
            done => return done,
        };
        let mut is_unknown = false;
        for pause_ms in PAUSES_MS {
            is_unknown |= !matches!(last, ArtifactError::NoSession);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if is_unknown {
                match self.find(task, path).await {
                    Ok((_, Some(present))) if present.object == object => return Ok(None),
                    Ok((_, Some(_))) => return Err(last),
                    Ok((_, None)) => {}
                    Err(error) if error.is_transient() => continue,
                    Err(error) => return Err(error),
                }
            }
            last = match self.client.keep(task, path, &uploaded).await {
                Err(error) if error.is_transient() => error,
                done => return done,
            };
        }
        Err(last)
    }

    /// Returns the record of an artifact, and the folder of the job's contents.
    async fn find(
        &self,
        task: TaskId,
        path: &str,
    ) -> Result<(String, Option<Artifact>), ArtifactError> {
        // The list is sorted, so an artifact precedes all others whose path begins with its path.
        let page = self.client.list(task, path, "").await?;
        let found = page.artifacts.into_iter().next();
        Ok((page.folder, found.filter(|one| one.path == path)))
    }

    /// Returns all artifacts of the task's job whose path begins with `prefix`.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub(crate) async fn list(
        &self,
        task: TaskId,
        prefix: &str,
    ) -> Result<Vec<ListedArtifact>, ArtifactError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.client.list(task, prefix, &after).await?;
            all.extend(page.artifacts.into_iter().map(|one| ListedArtifact {
                path: one.path,
                bytes: one.bytes,
            }));
            match all.last() {
                Some(last) if page.has_more && all.len() < MAX_LISTED => {
                    after.clone_from(&last.path);
                }
                _ => return Ok(all),
            }
        }
    }

    /// Opens an artifact of the task's job.
    ///
    /// # Errors
    /// [`ArtifactError::Missing`]; [`ArtifactError`].
    pub(crate) async fn open(
        &self,
        task: TaskId,
        path: &str,
    ) -> Result<OpenArtifact, ArtifactError> {
        let missing = || ArtifactError::Missing(path.to_owned());
        let (folder, found) = self.find(task, path).await?;
        let found = found.ok_or_else(missing)?;
        let content = object::open(&self.place, &folder, &found.object).await?;
        Ok(OpenArtifact {
            bytes: found.bytes,
            content_type: found.content_type,
            content: content.ok_or_else(missing)?,
        })
    }

    /// Removes an artifact of the task's job. Returns `false` if there is none.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub(crate) async fn remove(&self, task: TaskId, path: &str) -> Result<bool, ArtifactError> {
        let Some((folder, object)) = self.client.remove(task, path).await? else {
            return Ok(false);
        };
        object::remove(&self.place, &folder, &object).await;
        Ok(true)
    }
}

pub(super) async fn fill<Content, Piece>(
    writer: &mut ObjectWriter,
    reserved: &mut ReservedBytes,
    mut content: Content,
) -> Result<Written, ArtifactError>
where
    Content: Stream<Item = io::Result<Piece>> + Unpin,
    Piece: AsRef<[u8]>,
{
    while let Some(piece) = content.try_next().await.map_err(ArtifactError::Read)? {
        let piece = piece.as_ref();
        reserved.cover(writer.bytes() + piece.len() as u64)?;
        writer.write(piece).await?;
    }
    writer.finish().await
}
