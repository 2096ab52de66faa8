//! Templates of the tenant.

use crate::error::ClientError;
use crate::request::{Client, answer, send};
use muster_model::view::TemplateView;
use reqwest::Method;
use serde_json::Value;

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Returns all templates by name.
    pub async fn templates(&self) -> Result<Vec<TemplateView>, ClientError> {
        self.rest(&["templates"], Vec::new()).await
    }

    pub async fn template(&self, name: &str) -> Result<TemplateView, ClientError> {
        self.get(&["templates", name], &[]).await
    }

    /// Creates or replaces a template. The server checks the document.
    pub async fn set_template(
        &self,
        name: &str,
        document: &Value,
    ) -> Result<TemplateView, ClientError> {
        let request = self.request(Method::PUT, &["templates", name]);
        answer(send(request.json(document)).await?).await
    }

    /// Deletes a template; its jobs stay.
    pub async fn delete_template(&self, name: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["templates", name]);
        send(request).await.map(drop)
    }
}
