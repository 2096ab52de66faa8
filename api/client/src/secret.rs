//! Secrets of the tenant.

use crate::error::ClientError;
use crate::request::{Client, answer, send};
use muster_model::view::{SecretVersion, SecretView};
use reqwest::Method;
use serde::Serialize;

/// Value of a secret on its way to the server. It has no `Debug`.
#[derive(Serialize)]
struct NewSecret<'a> {
    value: &'a str,
}

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Returns all secrets by name, without their values.
    pub async fn secrets(&self) -> Result<Vec<SecretView>, ClientError> {
        self.rest(&["secrets"], Vec::new()).await
    }

    /// Creates or replaces a secret.
    pub async fn set_secret(&self, name: &str, value: &str) -> Result<SecretVersion, ClientError> {
        let request = self.request(Method::PUT, &["secrets", name]);
        answer(send(request.json(&NewSecret { value })).await?).await
    }

    /// Deletes a secret; with `force` also while open jobs or studies name it.
    pub async fn delete_secret(&self, name: &str, force: bool) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["secrets", name]);
        let force = if force { "true" } else { "false" };
        send(request.query(&[("force", force)])).await.map(drop)
    }
}
