//! Code archives.

use crate::download::{Download, download};
use crate::error::ClientError;
use crate::request::{Client, answer, send};
use muster_model::view::CodeView;
use reqwest::Method;

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Returns `None` if the tenant has no archive of this SHA-256.
    pub async fn find_code(&self, sha256: &str) -> Result<Option<CodeView>, ClientError> {
        match self.get(&["code", sha256], &[]).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Stores an archive under its SHA-256.
    pub async fn put_code(&self, sha256: &str, archive: Vec<u8>) -> Result<CodeView, ClientError> {
        answer(send(self.upload(Method::PUT, &["code", sha256], archive)).await?).await
    }

    /// Downloads an archive.
    pub async fn code_archive(&self, sha256: &str) -> Result<Download, ClientError> {
        download(self.request(Method::GET, &["code", sha256, "archive"])).await
    }
}
