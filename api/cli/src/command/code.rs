//! Upload of a working folder as a code archive.

use super::{CliSession, UsageError};
use crate::output::bytes;
use anyhow::Context as _;
use muster_archive::Packed;
use muster_client::{Client, ClientError};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Pauses between attempts to upload, in seconds, for example while others upload.
const PAUSES_S: [u64; 4] = [1, 2, 5, 10];

/// Packs a folder and shows its size.
///
/// # Errors
/// If a file cannot be read, or the folder is too large.
pub fn pack(folder: &Path) -> anyhow::Result<Packed> {
    let packed = muster_archive::pack(folder);
    let packed = packed.with_context(|| format!("pack {}", folder.display()))?;
    note!(
        "muster: code: {} files, {}, {} compressed",
        packed.files,
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
