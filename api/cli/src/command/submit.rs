//! `muster submit`: reads a job document and posts it.

use super::{Session, UsageError, wait};
use crate::output::line;
use anyhow::Context as _;
use clap::Args;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct Submit {
    /// The document, YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// Say what would be submitted, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Submit at most once under this key, however often it is tried.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the job has ended; the exit code says how.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

impl Submit {
    /// # Errors
    /// An unreadable file, a document that is not YAML, or what the server says is wrong with it.
    pub async fn run(self, session: &Session) -> anyhow::Result<ExitCode> {
        let document = read(&self.file)?;
        if self.dry_run {
            let job = session.client.dry_run(&document).await?;
            session.output.print(&job, |job| {
                format!("{} would be submitted; nothing was changed", job.name)
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let job = session
            .client
            .submit(&document, self.idempotency_key.as_deref())
            .await?;
        if self.wait {
            line(&format!("job {} ({}) submitted", job.name, job.id))?;
            return wait::until_ended(session, job.id, None).await;
        }
        session.output.print(&job, |job| {
            format!("job {} ({}) submitted", job.name, job.id)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// YAML, of which JSON is a part, as the JSON that REST takes.
///
/// # Errors
/// When the file cannot be read, or is neither.
pub fn read(file: &PathBuf) -> anyhow::Result<serde_json::Value> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("read the document from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    }
    serde_norway::from_str(&text).map_err(|error| {
        UsageError(format!("{} is not YAML or JSON: {error}", file.display())).into()
    })
}
