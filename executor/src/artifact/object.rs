//! Content of one artifact in the checkpoint store, while it is written, read or removed.

use super::error::ArtifactError;
use super::walk;
use crate::opener::FolderHandle;
use futures::TryStreamExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use muster_archive::ArchiveDigest;
use muster_model::place::Place;
use muster_objects::{ObjectBucket, SentPart, Upload};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Bytes per read.
const PIECE_BYTES: usize = 256 << 10;

/// Permissions of folders and files in a shared folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    pub folder: u32,
    pub file: u32,
}

/// Digest and size of a content.
pub(super) struct Written {
    pub sha256: String,
    pub bytes: u64,
}

/// A content that is being written. It must be finished or removed.
pub(super) struct ObjectWriter {
    sink: Sink,
    digest: ArchiveDigest,
    bytes: u64,
}

enum Sink {
    File {
        file: File,
        folder: Arc<FolderHandle>,
    },
    Object {
        bucket: ObjectBucket,
        name: String,
        part_bytes: usize,
        /// Content that was not sent yet.
        rest: Vec<u8>,
        upload: Option<Upload>,
        sent: Vec<SentPart>,
    },
}

impl ObjectWriter {
    /// Begins to write a new object of at most `most_bytes` bytes.
    pub(super) async fn begin(
        place: &Place,
        folder: &str,
        object: &str,
        (most_bytes, modes): (u64, Modes),
    ) -> Result<Self, ArtifactError> {
        let sink = match place {
            Place::Folder(root) => {
                let (root, folder) = (root.clone(), folder.to_owned());
                let object = object.to_owned();
                let made = aside(move || create(&root, &folder, &object, modes));
                let (file, folder) = made.await.map_err(ArtifactError::store)?;
                Sink::File {
                    file: File::from_std(file),
                    folder: Arc::new(folder),
                }
            }
            Place::Bucket(address) => Sink::Object {
                bucket: ObjectBucket::open(address)?,
                name: format!("{folder}/{object}"),
                part_bytes: ObjectBucket::part_bytes(most_bytes),
                rest: Vec::new(),
                upload: None,
                sent: Vec::new(),
            },
        };
        Ok(Self {
            sink,
            digest: ArchiveDigest::default(),
            bytes: 0,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) async fn write(&mut self, piece: &[u8]) -> Result<(), ArtifactError> {
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
        match &mut self.sink {
            Sink::File { file, .. } => file.write_all(piece).await.map_err(ArtifactError::store),
            Sink::Object {
                bucket,
                name,
                part_bytes,
                rest,
                upload,
                sent,
            } => {
                rest.extend_from_slice(piece);
                while rest.len() >= *part_bytes {
                    let begun = match upload.take() {
                        Some(begun) => begun,
                        None => bucket.begin(name).await?,
                    };
                    let begun = upload.insert(begun);
                    let more = rest.split_off(*part_bytes);
                    let part = std::mem::replace(rest, more);
                    sent.push(bucket.send_part(begun, sent.len(), part).await?);
                }
                Ok(())
            }
        }
    }

    /// Makes the content complete and durable.
    pub(super) async fn finish(&mut self) -> Result<Written, ArtifactError> {
        match &mut self.sink {
            Sink::File { file, folder } => {
                file.flush().await.map_err(ArtifactError::store)?;
                file.sync_all().await.map_err(ArtifactError::store)?;
                let folder = Arc::clone(folder);
                let synced = aside(move || folder.sync()).await;
                synced.map_err(ArtifactError::store)?;
            }
            Sink::Object {
                bucket,
                name,
                rest,
                upload,
                sent,
                ..
            } => {
                let rest = std::mem::take(rest);
                if let Some(begun) = upload {
                    if !rest.is_empty() {
                        sent.push(bucket.send_part(begun, sent.len(), rest).await?);
                    }
                    bucket.complete(begun, std::mem::take(sent)).await?;
                    *upload = None;
                } else {
                    bucket.put(name, rest).await?;
                }
            }
        }
        Ok(Written {
            sha256: std::mem::take(&mut self.digest).hex(),
            bytes: self.bytes,
        })
    }

    /// Gives up the parts of an unfinished upload. The caller removes the object.
    pub(super) async fn give_up(self) {
        if let Sink::Object {
            bucket,
            upload: Some(upload),
            ..
        } = self.sink
            && let Err(error) = bucket.abort(&upload).await
        {
            tracing::warn!(%error, "parts of an artifact are left in the bucket");
        }
    }
}

/// Creates a file, and the folders above it durably. Returns the file and its folder.
fn create(
    root: &Path,
    folder: &str,
    object: &str,
    modes: Modes,
) -> io::Result<(std::fs::File, FolderHandle)> {
    let mut inner = FolderHandle::at(root)?;
    for part in Path::new(folder) {
        inner = match inner.inner(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = inner.make_inner_as(part, modes.folder)?;
                inner.sync()?;
                made
            }
            found => found?,
        };
    }
    let file = inner.create(OsStr::new(object), modes.file)?;
    Ok((file, inner))
}

fn within(root: &Path, folder: &str) -> io::Result<FolderHandle> {
    walk::open_inner(FolderHandle::at(root)?, folder)
}

pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?
}

/// Removes an object. A missing one is no error. What remains is removed with the job.
pub(super) async fn remove(place: &Place, folder: &str, object: &str) {
    if let Err(error) = try_remove(place, folder, object).await {
        tracing::warn!(error, object, "the content of an artifact is left");
    }
}

/// Removes an object. A missing one is no error.
///
/// # Errors
/// In words, if it may still exist.
pub(super) async fn try_remove(place: &Place, folder: &str, object: &str) -> Result<(), String> {
    match place {
        Place::Folder(root) => {
            let (root, folder) = (root.clone(), folder.to_owned());
            let name = object.to_owned();
            let removing = aside(move || within(&root, &folder)?.remove(OsStr::new(&name)));
            match removing.await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
                _ => Ok(()),
            }
        }
        Place::Bucket(address) => match ObjectBucket::open(address) {
            Ok(bucket) => {
                let removing = bucket.delete(&[format!("{folder}/{object}")]).await;
                removing.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Pieces of a content, in order.
pub(crate) type Pieces = BoxStream<'static, io::Result<Vec<u8>>>;

/// Opens an object. `None` if it does not exist.
pub(super) async fn open(
    place: &Place,
    folder: &str,
    object: &str,
) -> Result<Option<Pieces>, ArtifactError> {
    match place {
        Place::Folder(root) => {
            let (root, folder) = (root.clone(), folder.to_owned());
            let name = object.to_owned();
            let opening = aside(move || within(&root, &folder)?.open(OsStr::new(&name)));
            match opening.await {
                Ok(file) => Ok(Some(pieces(file))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(ArtifactError::Store(error)),
            }
        }
        Place::Bucket(address) => {
            let bucket = ObjectBucket::open(address)?;
            let found = bucket.download(&format!("{folder}/{object}")).await?;
            Ok(found.map(|found| found.content.map_ok(|piece| piece).boxed()))
        }
    }
}

/// Returns the content of a blocking reader.
pub(super) fn pieces_of(reader: impl io::Read + Send + 'static) -> Pieces {
    stream::try_unfold(reader, |mut reader| async move {
        let read = aside(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let length = reader.read(&mut piece)?;
            piece.truncate(length);
            Ok((piece, reader))
        });
        let (piece, reader) = read.await?;
        Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, reader)))
    })
    .boxed()
}

/// Returns the content of a file from its present position on.
pub(super) fn pieces(file: std::fs::File) -> Pieces {
    let from = File::from_std(file);
    stream::try_unfold(from, |mut file| async move {
        let mut piece = vec![0; PIECE_BYTES];
        let length = file.read(&mut piece).await?;
        piece.truncate(length);
        Ok::<_, io::Error>((length > 0).then_some((piece, file)))
    })
    .boxed()
}
