//! `muster artifacts`: files that a job's program has written.

use super::{CliSession, NotFound};
use crate::output::{bytes, counted, line, table};
use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use muster_archive::ArchiveDigest;
use muster_client::Download;
use muster_model::artifact::is_artifact_path;
use muster_model::view::ArtifactView;
use std::path::{Path, PathBuf};
use time::format_description::well_known::Rfc3339;
use tokio::io::AsyncWriteExt as _;

#[derive(Debug, Args)]
pub struct ArtifactsArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Only artifacts whose path begins with this text, such as `plots/`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Download them into this folder, or into one tar file if the name ends with `.tar`.
    #[arg(long, value_name = "FOLDER|NAME.tar")]
    download: Option<PathBuf>,
}

impl ArtifactsArgs {
    /// # Errors
    /// If the job does not exist, the server refuses, or a file cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        if let Some(to) = self.download.as_deref().filter(|to| is_tar(to)) {
            let download = session
                .client
                .artifact_archive(job.id, &self.prefix)
                .await?;
            let total = save_archive(download, to).await?;
            return line(&format!("wrote {} to {}", bytes(total), to.display()));
        }
        let found = session.client.artifacts(job.id, &self.prefix).await?;
        let Some(to) = &self.download else {
            return session.output.print(&found, |found| shown(found));
        };
        if found.is_empty() && !self.prefix.is_empty() {
            let (name, prefix) = (&job.name, &self.prefix);
            let message = format!("job {name} has no artifact that begins with {prefix:?}");
            return Err(NotFound(message).into());
        }
        let mut total = 0;
        for one in &found {
            anyhow::ensure!(
                is_artifact_path(&one.path),
                "the server names a file {:?}, which would be written elsewhere",
                one.path
            );
            let download = session.client.artifact(job.id, &one.path).await?;
            save(download, one, &to.join(&one.path)).await?;
            total += one.bytes;
        }
        let files = counted(u32::try_from(found.len()).unwrap_or(u32::MAX), "file");
        line(&format!(
            "wrote {files}, {} to {}",
            bytes(total),
            to.display()
        ))
    }
}

fn shown(found: &[ArtifactView]) -> String {
    if found.is_empty() {
        return "no artifacts yet; programs write them to MUSTER_OUTPUT_DIR".to_owned();
    }
    let rows = found.iter().map(|one| {
        let stored_at = one.stored_at.replace_nanosecond(0).unwrap_or(one.stored_at);
        [
            one.path.clone(),
            bytes(one.bytes),
            stored_at.format(&Rfc3339).unwrap_or_default(),
            format!("{}-{}", one.role.kind(), one.role.index()),
        ]
    });
    table(["path", "size", "stored", "task"], rows)
}

/// Whether a name is that of a tar file, and not of a folder.
fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar") && !path.is_dir()
}

/// Downloads a tar file. Returns its size.
async fn save_archive(download: Download, to: &Path) -> anyhow::Result<u64> {
    let received = receive(download, to).await?;
    received.rename().await
}

/// Downloads, compares the digest and renames the file.
async fn save(mut download: Download, one: &ArtifactView, to: &Path) -> anyhow::Result<()> {
    let stated = download.sha256.take();
    let received = receive(download, to).await?;
    // The program may have replaced the artifact since it was listed.
    let expected = stated.as_ref().unwrap_or(&one.sha256);
    let found = &received.sha256;
    anyhow::ensure!(
        found == expected,
        "{} was received with the SHA-256 {found}; expected {expected}; download it again",
        one.path
    );
    received.rename().await?;
    Ok(())
}

/// A download under its temporary name.
struct ReceivedFile<'p> {
    part: PathBuf,
    to: &'p Path,
    bytes: u64,
    sha256: String,
}

impl ReceivedFile<'_> {
    /// Gives the file its name. Returns its size.
    async fn rename(self) -> anyhow::Result<u64> {
        let renamed = tokio::fs::rename(&self.part, self.to).await;
        renamed.with_context(|| format!("write {}", self.to.display()))?;
        Ok(self.bytes)
    }
}

async fn receive(mut download: Download, to: &Path) -> anyhow::Result<ReceivedFile<'_>> {
    let folder = to.parent().context("the target is a file")?;
    let made = tokio::fs::create_dir_all(folder).await;
    made.with_context(|| format!("create {}", folder.display()))?;
    let mut name = to.file_name().context("the target is a file")?.to_owned();
    name.push(".part");
    let part = to.with_file_name(name);
    let written = format!("write {}", part.display());
    let file = tokio::fs::File::create(&part).await;
    let mut file = file.with_context(|| written.clone())?;
    let (mut digest, mut bytes) = (ArchiveDigest::default(), 0);
    while let Some(piece) = download.body.next().await {
        let piece = piece?;
        digest.update(&piece);
        bytes += piece.len() as u64;
        file.write_all(&piece)
            .await
            .with_context(|| written.clone())?;
    }
    file.sync_all().await.with_context(|| written.clone())?;
    Ok(ReceivedFile {
        part,
        to,
        bytes,
        sha256: digest.hex(),
    })
}
