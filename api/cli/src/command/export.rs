//! `muster export`: exports a checkpoint's model as one file for other programs.
//!
//! The checkpoint's files are streamed to the disk; only headers are kept in memory. An ONNX model
//! is the checkpoint's graph with every tensor appended.

use super::{CliSession, NotFound};
use crate::output::{Out, line};
use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use muster_client::{Client, ClientError};
use muster_model::export::{
    GRAPH_FILE, Listed, MAX_ONNX_BYTES, listed, onnx_head, safetensors_head,
};
use muster_model::id::JobId;
use std::path::PathBuf;
use tokio::fs::File;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufWriter};

/// Maximum length of a safetensors header, in bytes; larger than that of any model.
const MAX_HEADER_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Format of the file.
    #[arg(long, value_enum, default_value_t = ModelFormat::Safetensors)]
    format: ModelFormat,
    /// Step of the checkpoint [default: the newest].
    #[arg(long)]
    step: Option<u64>,
    /// File to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModelFormat {
    /// Named tensors, for PyTorch and others.
    Safetensors,
    /// The whole network, for ONNX Runtime and others.
    Onnx,
}

impl ExportArgs {
    /// # Errors
    /// If the job or checkpoint does not exist, the checkpoint has no graph, the server refuses, or
    /// the file cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let checkpoints = session.client.checkpoints(job.id).await?;
        let chosen = checkpoints
            .iter()
            .filter(|one| one.retained && self.step.is_none_or(|step| one.written.step == step))
            .max_by_key(|one| (one.written.step, one.written.revision));
        let Some(chosen) = chosen else {
            let which = self
                .step
                .map_or_else(String::new, |step| format!(" of step {step}"));
            bail!(NotFound(format!(
                "job {} has no checkpoint{which} to export",
                job.name
            )));
        };
        let files = &chosen.written.files;
        // The numbers in the names follow the order of the tensors.
        let mut parts: Vec<&String> = files
            .iter()
            .filter(|name| name.starts_with("model") && name.ends_with(".safetensors"))
            .collect();
        parts.sort();
        ensure!(
            !parts.is_empty(),
            "the checkpoint of step {} has no model",
            chosen.written.step
        );
        let source = RemoteCheckpoint {
            client: &session.client,
            job: job.id,
            step: chosen.written.step,
        };
        if self.format == ModelFormat::Onnx && !files.iter().any(|name| name == GRAPH_FILE) {
            bail!(
                "the checkpoint of step {} has no graph: an older release wrote it, which could only be exported as safetensors",
                chosen.written.step
            );
        }
        if self.file.as_os_str() == "-" {
            return write(&source, &parts, self.format, &mut BufWriter::new(Out)).await;
        }
        let mut name = self
            .file
            .file_name()
            .context("--file names no file")?
            .to_owned();
        name.push(".part");
        let fresh = self.file.with_file_name(name);
        let created = File::create(&fresh).await;
        let mut file =
            BufWriter::new(created.with_context(|| format!("write {}", fresh.display()))?);
        write(&source, &parts, self.format, &mut file).await?;
        file.into_inner().sync_all().await?;
        tokio::fs::rename(&fresh, &self.file)
            .await
            .with_context(|| format!("write {}", self.file.display()))?;
        line(&format!(
            "wrote the model of step {} to {}",
            chosen.written.step,
            self.file.display()
        ))
    }
}

/// A checkpoint on the server.
struct RemoteCheckpoint<'a> {
    client: &'a Client,
    job: JobId,
    step: u64,
}

async fn write<W: AsyncWrite + Unpin>(
    source: &RemoteCheckpoint<'_>,
    parts: &[&String],
    format: ModelFormat,
    to: &mut W,
) -> anyhow::Result<()> {
    match format {
        ModelFormat::Safetensors => {
            // The header of the result precedes all data, so every part is opened first. Its header
            // is received at once, its data when it is read.
            let mut open = Vec::new();
            for part in parts {
                open.push(source.open(part).await?);
            }
            let all: Vec<Listed> = open
                .iter()
                .flat_map(|(_, tensors)| tensors.clone())
                .collect();
            to.write_all(&safetensors_head(&all)).await?;
            for (mut body, tensors) in open {
                let bytes = tensors.iter().map(Listed::bytes).sum();
                body.copy(bytes, to).await?;
            }
        }
        ModelFormat::Onnx => {
            let mut graph = source.body(GRAPH_FILE).await?;
            let mut written = graph.copy_all(to).await?;
            for part in parts {
                let (mut body, tensors) = source.open(part).await?;
                for tensor in &tensors {
                    let head = onnx_head(tensor);
                    written += head.len() as u64 + tensor.bytes();
                    ensure!(
                        written <= MAX_ONNX_BYTES,
                        "the model is larger than the 2 GiB that an ONNX file can hold; --format safetensors has no limit"
                    );
                    to.write_all(&head).await?;
                    body.copy(tensor.bytes(), to).await?;
                }
            }
        }
    }
    Ok(to.flush().await?)
}

impl RemoteCheckpoint<'_> {
    async fn body(&self, name: &str) -> anyhow::Result<DownloadReader> {
        let download = self
            .client
            .checkpoint_file(self.job, self.step, name)
            .await?;
        Ok(DownloadReader {
            pieces: download.body,
            rest: Vec::new(),
        })
    }

    /// Opens a part: returns the stream of its data, and its tensors.
    async fn open(&self, name: &str) -> anyhow::Result<(DownloadReader, Vec<Listed>)> {
        let mut body = self.body(name).await?;
        let length = body.take(8).await?;
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        ensure!(length <= MAX_HEADER_BYTES, "{name} is no safetensors file");
        let header = body.take(length as usize).await?;
        let tensors = listed(&header).with_context(|| format!("cannot read {name}"))?;
        Ok((body, tensors))
    }
}

/// A download that is read by numbers of bytes.
struct DownloadReader {
    pieces: BoxStream<'static, Result<Vec<u8>, ClientError>>,
    rest: Vec<u8>,
}

impl DownloadReader {
    async fn take(&mut self, count: usize) -> anyhow::Result<Vec<u8>> {
        while self.rest.len() < count {
            let piece = self
                .pieces
                .next()
                .await
                .context("the file ends too early")??;
            self.rest.extend(piece);
        }
        let tail = self.rest.split_off(count);
        Ok(std::mem::replace(&mut self.rest, tail))
    }

    async fn copy<W: AsyncWrite + Unpin>(&mut self, bytes: u64, to: &mut W) -> anyhow::Result<()> {
        let mut wanted = bytes;
        while wanted > 0 {
            if self.rest.is_empty() {
                self.rest = self
                    .pieces
                    .next()
                    .await
                    .context("the file ends too early")??;
            }
            let count = wanted.min(self.rest.len() as u64) as usize;
            let tail = self.rest.split_off(count);
            to.write_all(&self.rest).await?;
            self.rest = tail;
            wanted -= count as u64;
        }
        Ok(())
    }

    async fn copy_all<W: AsyncWrite + Unpin>(&mut self, to: &mut W) -> anyhow::Result<u64> {
        let mut bytes = 0;
        while let Some(piece) = self.pieces.next().await {
            let piece = piece?;
            to.write_all(&piece).await?;
            bytes += piece.len() as u64;
        }
        Ok(bytes)
    }
}
