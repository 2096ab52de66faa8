//! Downloads of checkpoints, models and metrics.

use crate::error::ClientError;
use crate::request::{Client, Request, send, unreachable};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use muster_model::id::JobId;
use reqwest::Method;

/// A file during its download.
pub struct Download {
    /// Its size, if the server gives it.
    pub bytes: Option<u64>,
    /// Hex SHA-256, if the server gives it; callers that store the file should compare it.
    pub sha256: Option<String>,
    pub body: BoxStream<'static, Result<Vec<u8>, ClientError>>,
}

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Downloads a file of the checkpoint at `step`; `CheckpointView::files` lists the names.
    pub async fn checkpoint_file(
        &self,
        id: JobId,
        step: u64,
        name: &str,
    ) -> Result<Download, ClientError> {
        let (id, step) = (id.to_string(), step.to_string());
        download(self.request(
            Method::GET,
            &["jobs", &id, "checkpoints", &step, "files", name],
        ))
        .await
    }

    /// Downloads the checkpoint of a program at `step` as a tar file.
    pub async fn checkpoint_archive(&self, id: JobId, step: u64) -> Result<Download, ClientError> {
        let (id, step) = (id.to_string(), step.to_string());
        let path = ["jobs", &id, "checkpoints", &step, "archive"];
        download(self.request(Method::GET, &path)).await
    }

    /// Downloads an artifact of a job.
    pub async fn artifact(&self, id: JobId, path: &str) -> Result<Download, ClientError> {
        let request = self.request(
            Method::GET,
            &["jobs", &id.to_string(), "artifacts", "content"],
        );
        download(request.query(&[("path", path)])).await
    }

    /// Downloads the artifacts of a job whose path begins with `prefix`, as one tar file.
    pub async fn artifact_archive(&self, id: JobId, prefix: &str) -> Result<Download, ClientError> {
        let request = self.request(
            Method::GET,
            &["jobs", &id.to_string(), "artifacts", "archive"],
        );
        let request = match prefix {
            "" => request,
            prefix => request.query(&[("prefix", prefix)]),
        };
        download(request).await
    }

    /// Downloads metrics of a job as CSV; without names all of them.
    pub async fn export_metrics(
        &self,
        id: JobId,
        names: &[String],
    ) -> Result<Download, ClientError> {
        let names: Vec<_> = names.iter().map(|name| ("name", name)).collect();
        let request = self.request(Method::GET, &["jobs", &id.to_string(), "metrics", "export"]);
        download(request.query(&names)).await
    }

    /// Downloads the final model of a job that has succeeded.
    pub async fn model(&self, id: JobId) -> Result<Download, ClientError> {
        download(self.request(Method::GET, &["jobs", &id.to_string(), "model"])).await
    }
}

pub(crate) async fn download(request: Request) -> Result<Download, ClientError> {
    let response = send(request).await?;
    let sha256 = response
        .headers()
        .get("muster-sha256")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let bytes = response.content_length();
    let body = response
        .bytes_stream()
        .map(|piece| piece.map(Vec::from).map_err(unreachable))
        .boxed();
    Ok(Download {
        bytes,
        sha256,
        body,
    })
}
