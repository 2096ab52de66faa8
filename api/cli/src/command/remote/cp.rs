//! `muster cp`: copies a file or a folder from or to a task, as a tar stream.

use super::super::{CliSession, UsageError};
use super::{SessionTarget, printable};
use crate::output::line;
use anyhow::{Context as _, bail};
use clap::Args;
use muster_archive::{receive, send};
use muster_client::{ALIVE, RemoteError, RemoteReceiver, RemoteSender};
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame};
use std::ffi::OsString;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Size of a frame of an upload.
const BLOCK_BYTES: usize = 32 << 10;
/// Frames between the archive's thread and the connection.
const QUEUE: usize = 4;

/// Copy a file or folder from a running task (JOB:PATH LOCAL) or to it (LOCAL JOB:PATH)
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Source: a local path, or JOB:PATH. PATH is relative to the program's working folder.
    from: String,
    /// Target: an existing folder receives a copy under its name; otherwise the copy gets this
    /// name.
    to: String,
    /// Rank of the task.
    #[arg(long, default_value_t = 0)]
    rank: u32,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Local(PathBuf),
    Task { job: String, path: String },
}

impl Side {
    /// A name before the first colon is a job, unless it has a slash.
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some((job, path)) if !job.is_empty() && !job.contains('/') => Self::Task {
                job: job.to_owned(),
                path: if path.is_empty() { "." } else { path }.to_owned(),
            },
            _ => Self::Local(text.into()),
        }
    }
}

impl CpArgs {
    /// # Errors
    /// If the session does not start, or something cannot be copied.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        match (Side::parse(&self.from), Side::parse(&self.to)) {
            (Side::Task { job, path }, Side::Local(local)) => {
                let target = SessionTarget::find(session, &job, self.rank).await?;
                let name = copy_name(&path, &target.job.name);
                let action = RemoteAction::Read { path };
                let (sender, receiver) = target.open(session, action).await?;
                download(sender, receiver, local, name).await?;
            }
            (Side::Local(local), Side::Task { job, path }) => {
                std::fs::symlink_metadata(&local)
                    .with_context(|| format!("read {}", local.display()))?;
                let target = SessionTarget::find(session, &job, self.rank).await?;
                let action = RemoteAction::Write { path };
                let (sender, receiver) = target.open(session, action).await?;
                upload(sender, receiver, local).await?;
            }
            _ => {
                let message = "one side must be JOB:PATH and the other one a local path (./a:b for a local name with a colon)";
                return Err(UsageError(message.to_owned()).into());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Name of the copy in an existing local folder. The task does not choose it: a path without a
/// name, such as `.`, gets the name of the job.
fn copy_name(path: &str, job: &str) -> OsString {
    let name = Path::new(path).file_name();
    name.unwrap_or(job.as_ref()).to_owned()
}

async fn download(
    mut sender: RemoteSender,
    receiver: RemoteReceiver,
    local: PathBuf,
    name: OsString,
) -> anyhow::Result<()> {
    let (blocks, taken) = mpsc::channel(QUEUE);
    let unpacked = tokio::task::spawn_blocking(move || {
        let mut input = BlockReader {
            blocks: taken,
            block: Vec::new(),
            at: 0,
        };
        let files = receive(&mut input, &local, Some(&name));
        // The rest of the stream is padding.
        let _ = io::copy(&mut input, &mut io::sink());
        files
    });
    let end = tokio::select! {
        end = from_task(receiver, Some(blocks)) => end?,
        Err(error) = stay_alive(&mut sender) => return Err(error.into()),
    };
    succeeded(&end)?;
    let files = unpacked.await?.context("unpack the copy")?;
    line(&format!("{files} files copied"))
}

async fn upload(
    mut sender: RemoteSender,
    receiver: RemoteReceiver,
    local: PathBuf,
) -> anyhow::Result<()> {
    let (blocks, mut taken) = mpsc::channel(QUEUE);
    let packed = tokio::task::spawn_blocking(move || {
        send(
            &local,
            BufWriter::with_capacity(BLOCK_BYTES, BlockWriter(blocks)),
        )
    });
    let passed = async {
        let mut alive = tokio::time::interval(ALIVE);
        loop {
            let frame = tokio::select! {
                block = taken.recv() => match block {
                    Some(block) => RemoteFrame::Input(block),
                    None => break,
                },
                _ = alive.tick() => RemoteFrame::Alive,
            };
            sender.send(&frame).await?;
        }
        sender.send(&RemoteFrame::InputEnd).await?;
        stay_alive(&mut sender).await
    };
    let end = tokio::select! {
        end = from_task(receiver, None) => end?,
        Err(error) = passed => return Err(error.into()),
    };
    succeeded(&end)?;
    let sent = packed.await?.context("pack the copy")?;
    for skipped in &sent.skipped {
        note!(
            "muster: {} is neither a file nor a folder, and not copied",
            skipped.display()
        );
    }
    line(&format!("{} files copied", sent.files))
}

/// Never returns `Ok`.
async fn stay_alive(sender: &mut RemoteSender) -> Result<std::convert::Infallible, RemoteError> {
    let mut alive = tokio::time::interval(ALIVE);
    loop {
        alive.tick().await;
        sender.send(&RemoteFrame::Alive).await?;
    }
}

/// Passes the output on, prints errors, and returns the end.
async fn from_task(
    mut receiver: RemoteReceiver,
    blocks: Option<mpsc::Sender<Vec<u8>>>,
) -> Result<RemoteEnd, RemoteError> {
    loop {
        match receiver.next().await? {
            RemoteFrame::Output(data) => {
                if let Some(blocks) = &blocks {
                    // Fails only if unpacking has failed, which the caller reports.
                    let _ = blocks.send(data).await;
                }
            }
            RemoteFrame::Errors(data) => {
                let text = printable(&String::from_utf8_lossy(&data));
                note!("muster: {}", text.trim_end());
            }
            RemoteFrame::Ended(end) => return Ok(end),
            _ => {}
        }
    }
}

fn succeeded(end: &RemoteEnd) -> anyhow::Result<()> {
    match end {
        RemoteEnd::Exited { code: 0 } => Ok(()),
        RemoteEnd::Exited { .. } => bail!("the task's side of the copy failed"),
        end => bail!("the copy ended early: {}", printable(&end.to_string())),
    }
}

struct BlockReader {
    blocks: mpsc::Receiver<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl Read for BlockReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            match self.blocks.blocking_recv() {
                Some(block) => (self.block, self.at) = (block, 0),
                None => return Ok(0),
            }
        }
        let rest = &self.block[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

struct BlockWriter(mpsc::Sender<Vec<u8>>);

impl Write for BlockWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let block = &data[..data.len().min(BLOCK_BYTES)];
        let sent = self.0.blocking_send(block.to_vec());
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_has_the_last_name_of_the_path_or_that_of_the_job() {
        for (path, name) in [
            ("runs/log", "log"),
            ("/runs/", "runs"),
            ("runs/.", "runs"),
            (".", "cnn"),
            ("..", "cnn"),
            ("/", "cnn"),
        ] {
            assert_eq!(copy_name(path, "cnn"), name, "{path}");
        }
    }

    #[test]
    fn name_before_a_colon_is_a_job() {
        let task = |job: &str, path: &str| Side::Task {
            job: job.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Side::parse("cnn:runs/log"), task("cnn", "runs/log"));
        assert_eq!(Side::parse("cnn:"), task("cnn", "."));
        assert_eq!(Side::parse("cnn:/a:b"), task("cnn", "/a:b"));
        for local in ["a", "./a:b", "/a:b", ":a"] {
            assert_eq!(Side::parse(local), Side::Local(local.into()));
        }
    }
}
