//! `muster checkpoints` and `muster model`: a job's checkpoints and its final model.

use super::metrics::number;
use super::{CliSession, NotFound};
use crate::output::{Out, bytes, line, table};
use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use muster_client::Download;
use muster_model::checkpoint::Kept;
use muster_model::program_checkpoint::MAX_PROGRAM_FILES;
use muster_model::view::CheckpointView;
use std::io::{IsTerminal as _, Seek as _};
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt as _;

/// Maximum number of metrics of a checkpoint in a table.
const SHOWN_METRICS: usize = 4;

#[derive(Debug, Args)]
pub struct CheckpointsArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Download the checkpoint of this step.
    #[arg(long, value_name = "STEP")]
    download: Option<u64>,
    /// Folder for the download.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
}

#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// File to write; `-` is standard output.
    #[arg(long, value_name = "FILE", default_value = "model.safetensors")]
    to: PathBuf,
}

impl CheckpointsArgs {
    /// # Errors
    /// If the job or checkpoint does not exist, the server refuses, or a file cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let checkpoints = session.client.checkpoints(job.id).await?;
        if let Some(step) = self.download {
            let chosen = checkpoints
                .iter()
                .find(|checkpoint| checkpoint.written.step == step && checkpoint.retained)
                .ok_or_else(|| {
                    NotFound(format!(
                        "job {} has no checkpoint of step {step} on disk",
                        job.name
                    ))
                })?;
            tokio::fs::create_dir_all(&self.to)
                .await
                .with_context(|| format!("create {}", self.to.display()))?;
            if chosen.file_count.is_some() {
                let download = session.client.checkpoint_archive(job.id, step).await?;
                return unpack(download, &self.to, &chosen.written.path).await;
            }
            for file in &chosen.written.files {
                anyhow::ensure!(
                    Path::new(file).file_name() == Some(file.as_ref()),
                    "the server names a file {file:?}, which would be written elsewhere"
                );
                let download = session.client.checkpoint_file(job.id, step, file).await?;
                save(download, &self.to.join(file)).await?;
            }
            return Ok(());
        }
        session.output.print(&checkpoints, |checkpoints| {
            if checkpoints.is_empty() {
                return "no checkpoints yet".to_owned();
            }
            if checkpoints.iter().any(|one| one.file_count.is_some()) {
                return of_program(checkpoints);
            }
            table(
                ["step", "epoch", "size", "accuracy", "loss", "kept", "path"],
                checkpoints.iter().map(|checkpoint| {
                    [
                        checkpoint.written.step.to_string(),
                        format!("{:.2}", checkpoint.written.epoch),
                        bytes(checkpoint.written.bytes),
                        measure(checkpoint.written.accuracy),
                        measure(checkpoint.written.loss),
                        kept(checkpoint),
                        checkpoint.written.path.clone(),
                    ]
                }),
            )
        })
    }
}

/// Returns the table of a program's checkpoints.
fn of_program(checkpoints: &[CheckpointView]) -> String {
    let rows = checkpoints.iter().map(|one| {
        let metrics = one.metrics.iter().take(SHOWN_METRICS);
        let mut metrics: Vec<_> = metrics
            .map(|(name, value)| format!("{name}={}", number(*value)))
            .collect();
        if one.metrics.len() > SHOWN_METRICS {
            metrics.push("...".to_owned());
        }
        [
            one.written.step.to_string(),
            one.written.path.clone(),
            bytes(one.written.bytes),
            one.file_count.unwrap_or(0).to_string(),
            kept(one),
            metrics.join(" "),
        ]
    });
    table(["step", "path", "size", "files", "kept", "metrics"], rows)
}

/// Downloads a tar file beside its target and unpacks it there.
async fn unpack(download: Download, to: &Path, path: &str) -> anyhow::Result<()> {
    let expected = download.sha256.clone();
    let part = tempfile::Builder::new()
        .prefix(".muster-")
        .suffix(".tar")
        .tempfile_in(to)
        .with_context(|| format!("write into {}", to.display()))?
        .into_temp_path();
    fetch(download, &part).await?;
    let (part, folder) = (part, to.to_owned());
    let unpacking = tokio::task::spawn_blocking(move || {
        let mut file = std::fs::File::open(&part)?;
        if let Some(expected) = expected {
            let found = muster_archive::digest_of(&file)?;
            file.rewind()?;
            anyhow::ensure!(
                found == expected,
                "it was received with the SHA-256 {found}; expected {expected}; download it again"
            );
        }
        Ok(muster_archive::unpack_files(
            &file,
            &folder,
            MAX_PROGRAM_FILES,
        )?)
    });
    unpacking.await??;
    line(&format!("unpacked {}", to.join(path).display()))
}

/// Returns four decimal places, or a dash if the checkpoint was not evaluated.
fn measure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

/// Returns the reasons why the checkpoint is retained.
fn kept(checkpoint: &CheckpointView) -> String {
    if !checkpoint.retained {
        return "pruned".to_owned();
    }
    let words: Vec<&str> = checkpoint.kept.iter().map(reason).collect();
    words.join(", ")
}

fn reason(kept: &Kept) -> &'static str {
    match kept {
        Kept::Newest => "newest",
        Kept::Best => "best",
        Kept::Milestone => "milestone",
        Kept::Origin => "another job's origin",
    }
}

impl ModelArgs {
    /// # Errors
    /// If the job does not exist or has no model yet, or the file cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let download = session.client.model(job.id).await?;
        save(download, &self.to).await
    }
}

/// Downloads a file and says where it is.
async fn save(download: Download, to: &Path) -> anyhow::Result<()> {
    fetch(download, to).await?;
    if to.as_os_str() == "-" {
        return Ok(());
    }
    line(&format!("wrote {}", to.display()))
}

/// Downloads to a temporary name and renames the file. Shows a progress bar on a terminal.
async fn fetch(mut download: Download, to: &Path) -> anyhow::Result<()> {
    let bar = match download.bytes {
        Some(total) if std::io::stderr().is_terminal() => indicatif::ProgressBar::new(total),
        _ => indicatif::ProgressBar::hidden(),
    };
    let style = "{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec}";
    bar.set_style(indicatif::ProgressStyle::with_template(style).expect("the template is right"));
    bar.set_message(to.display().to_string());
    if to.as_os_str() == "-" {
        let mut out = Out;
        while let Some(chunk) = download.body.next().await {
            out.write_all(&chunk?).await?;
        }
        return Ok(out.flush().await?);
    }
    let mut name = to.file_name().context("the target is a file")?.to_owned();
    name.push(".part");
    let part = to.with_file_name(name);
    let mut file = tokio::fs::File::create(&part)
        .await
        .with_context(|| format!("write {}", part.display()))?;
    while let Some(chunk) = download.body.next().await {
        let chunk = chunk?;
        file.write_all(&chunk).await?;
        bar.inc(chunk.len() as u64);
    }
    file.sync_all().await?;
    tokio::fs::rename(&part, to)
        .await
        .with_context(|| format!("write {}", to.display()))?;
    bar.finish_and_clear();
    Ok(())
}
