//! Checkpoints of programs, each as one tar file. In a bucket this is an object; from a folder it
//! is made while it is sent.

use super::folder::{self, OpenError};
use super::reads::BlockingReads;
use super::{FileDownload, FileSource, Files, gone, not_answered, not_opened, stalled};
use crate::problem::ApiError;
use axum::body::{Body, Bytes};
use futures::{Stream, stream};
use muster_archive::{TarFile, TarStream, tar_bytes};
use muster_model::artifact::artifact_folder;
use muster_model::checkpoint::{Checkpoint, ProgramContent};
use muster_model::id::TenantId;
use muster_model::program_checkpoint::MAX_PROGRAM_FILES;
use muster_opener::{FolderHandle, files_below, open_below};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes per read.
const PIECE_BYTES: usize = 256 << 10;

type OpenBelow = Box<dyn FnMut(&str) -> io::Result<File> + Send>;

impl Files {
    /// Returns the content of a program's checkpoint.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn read_program_checkpoint(
        &self,
        tenant: TenantId,
        checkpoint: &Checkpoint,
        content: &ProgramContent,
    ) -> Result<FileDownload, ApiError> {
        let path = checkpoint.written.path.clone();
        match (&self.place, content.object) {
            (FileSource::Bucket(bucket), Some(object)) => {
                let folder = artifact_folder(tenant, checkpoint.job_id);
                let found = bucket.download(&format!("{folder}/{object}")).await;
                let found = found.map_err(not_answered)?.ok_or_else(|| gone(&path))?;
                Ok(FileDownload {
                    bytes: found.bytes,
                    sha256: Some(checkpoint.written.manifest_sha256.clone()),
                    body: Body::from_stream(found.content),
                })
            }
            (FileSource::Folder(root), None) => {
                let own = Path::new(&tenant.to_string()).join(checkpoint.job_id.to_string());
                let (root, wanted) = (root.clone(), path.clone());
                let opening = self.reads.run(move || open(&root, &own, &wanted));
                let (tar, bytes) = match opening.await {
                    Ok(Ok(opened)) => opened,
                    Ok(Err(error)) => return Err(not_opened(&path, error)),
                    Err(_) => return Err(stalled()),
                };
                Ok(FileDownload {
                    bytes,
                    sha256: None,
                    body: Body::from_stream(pieces(tar, self.reads.clone())),
                })
            }
            // The cluster kept checkpoints elsewhere when it was written.
            _ => Err(gone(&path)),
        }
    }
}

fn open(root: &Path, own: &Path, path: &str) -> Result<(TarStream<OpenBelow>, u64), OpenError> {
    let failed = |error| folder::failed(path, error);
    let mut top = FolderHandle::at(root).map_err(failed)?;
    for part in own {
        top = top.inner(part).map_err(failed)?;
    }
    let files = files_below(&top, path, MAX_PROGRAM_FILES).map_err(failed)?;
    let files: Vec<TarFile> = files
        .into_iter()
        .map(|file| TarFile {
            path: file.path,
            bytes: file.metadata.len(),
        })
        .collect();
    let bytes = tar_bytes(&files).map_err(failed)?;
    let open: OpenBelow = Box::new(move |path| open_below(&top, path));
    Ok((TarStream::new(files, open), bytes))
}

/// Returns a tar file in pieces. It ends with an error if a file changes meanwhile.
fn pieces(
    tar: TarStream<OpenBelow>,
    reads: BlockingReads,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(tar, move |tar| {
        let reads = reads.clone();
        async move {
            let read = reads.run(move || piece(tar));
            let (tar, piece) = read.await.map_err(io::Error::other)??;
            Ok((!piece.is_empty()).then_some((piece, tar)))
        }
    })
}

fn piece(mut tar: TarStream<OpenBelow>) -> io::Result<(TarStream<OpenBelow>, Bytes)> {
    let mut piece = vec![0; PIECE_BYTES];
    let length = tar.read(&mut piece)?;
    piece.truncate(length);
    Ok((tar, piece.into()))
}
