//! Code archives: upload of a working folder, and `muster code`, which unpacks that of a job.

use super::{CliSession, NotFound, UsageError};
use crate::output::{bytes, counted, line};
use anyhow::Context as _;
use clap::Args;
use futures::TryStreamExt as _;
use muster_archive::{ArchiveDigest, Packed};
use muster_client::{Client, ClientError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct CodeArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Folder to create [default: the job's name followed by -code].
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl CodeArgs {
    /// Unpacks the code of the job into a new folder.
    ///
    /// # Errors
    /// If the job has no code, or the folder exists.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let command = job.spec.command.as_ref();
        let code = command.and_then(|command| command.code.as_ref());
        if let Some(git) = command.and_then(|command| command.git.as_ref()) {
            let (name, url, commit) = (&job.name, &git.url, &git.commit);
            let text = format!("the code of job {name} is commit {commit} of {url}; git has it");
            return Err(NotFound(text).into());
        }
        let sha256 = code.map(|code| code.archive.as_str()).ok_or_else(|| {
            let name = &job.name;
            NotFound(format!(
                "job {name} has no code archive; muster show -o yaml {name} shows its document"
            ))
        })?;
        let to = self
            .to
            .unwrap_or_else(|| PathBuf::from(format!("{}-code", job.name)));
        std::fs::create_dir(&to).with_context(|| format!("create {}", to.display()))?;
        let mut download = session.client.code_archive(sha256).await?;
        let (mut archive, mut digest) = (Vec::new(), ArchiveDigest::default());
        while let Some(piece) = download.body.try_next().await? {
            digest.update(&piece);
            archive.extend_from_slice(&piece);
        }
        let found = digest.hex();
        if found != sha256 {
            anyhow::bail!("the archive has the SHA-256 {found}; expected {sha256}");
        }
        muster_archive::unpack(&archive[..], &to).context("unpack the code")?;
        line(&format!("wrote {}", to.display()))
    }
}

/// Pauses between attempts to upload, in seconds, for example while others upload.
const PAUSES_S: [u64; 6] = [1, 2, 5, 10, 20, 30];

/// Packs a folder and shows its size.
///
/// # Errors
/// If a file cannot be read, or the folder is too large.
pub fn pack(folder: &Path) -> anyhow::Result<Packed> {
    let packed = muster_archive::pack(folder);
    let packed = packed.with_context(|| format!("pack {}", folder.display()))?;
    note!(
        "muster: code: {}, {}, {} compressed",
        counted(packed.files, "file"),
        bytes(packed.unpacked_bytes),
        bytes(packed.bytes.len() as u64)
    );
    Ok(packed)
}

/// Names the archive in `command.code` of a document.
///
/// # Errors
/// If the document has no command, or names an archive already.
pub fn name_in(document: &mut Value, sha256: &str) -> Result<(), UsageError> {
    let command = document.get_mut("command").and_then(Value::as_object_mut);
    let Some(command) = command else {
        let text = "--code is for documents with a command";
        return Err(UsageError(text.to_owned()));
    };
    let code = json!({ "archive": sha256 });
    match command.insert("code".to_owned(), code) {
        None => Ok(()),
        Some(_) => {
            let text = "--code: the document has command.code already";
            Err(UsageError(text.to_owned()))
        }
    }
}

/// Uploads an archive unless the server has it.
///
/// # Errors
/// If the server refuses it.
pub async fn upload(session: &CliSession, packed: Packed) -> anyhow::Result<()> {
    if session.client.find_code(&packed.sha256).await?.is_some() {
        return Ok(());
    }
    let mut pauses_s = PAUSES_S.into_iter();
    loop {
        match put(&session.client, &packed).await {
            Err(error) if error.is_transient() => {
                let Some(pause_s) = pauses_s.next() else {
                    return Err(error).context("upload the code");
                };
                tokio::time::sleep(Duration::from_secs(pause_s)).await;
            }
            done => return done.context("upload the code"),
        }
    }
}

async fn put(client: &Client, packed: &Packed) -> Result<(), ClientError> {
    let stored = client.put_code(&packed.sha256, packed.bytes.clone()).await;
    stored.map(drop)
}
