//! All calls about studies, one method each.

use crate::error::ClientError;
use crate::request::{Client, answer, send, unreachable};
use muster_model::id::StudyId;
use muster_model::view::{
    Ask, Asked, BestTrialView, Page, Proposal, StudyExtension, StudyView, Tell, TellAnswer,
    TrialView,
};
use reqwest::Method;
use serde::Serialize;

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Creates a study. With a unique key the request can be repeated without a second study.
    pub async fn create_study(
        &self,
        document: &impl Serialize,
        idempotency_key: Option<&str>,
    ) -> Result<StudyView, ClientError> {
        let mut request = self.request(Method::POST, &["studies"]).json(document);
        if let Some(key) = idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        answer(send(request).await?).await
    }

    /// Returns the study that would be created.
    pub async fn dry_run_study(&self, document: &impl Serialize) -> Result<StudyView, ClientError> {
        let request = self.request(Method::POST, &["studies"]);
        let request = request.query(&[("dry_run", "true")]).json(document);
        answer(send(request).await?).await
    }

    /// Returns a page of studies, newest first.
    pub async fn studies(
        &self,
        name: Option<&str>,
        limit: u32,
        after: Option<&str>,
    ) -> Result<Page<StudyView>, ClientError> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(name.map(|name| ("name", name.to_owned())));
        query.extend(after.map(|after| ("continue", after.to_owned())));
        self.get(&["studies"], &query).await
    }

    pub async fn study(&self, id: StudyId) -> Result<StudyView, ClientError> {
        self.get(&["studies", &id.to_string()], &[]).await
    }

    /// Returns all trials, in the order of their creation.
    pub async fn trials(&self, id: StudyId, curves: bool) -> Result<Vec<TrialView>, ClientError> {
        let mut items = Vec::new();
        let mut query = vec![("limit", "500".to_owned()), ("curves", curves.to_string())];
        loop {
            let id = id.to_string();
            let page: Page<TrialView> = self.get(&["studies", &id, "trials"], &query).await?;
            items.extend(page.items);
            let Some(next) = page.next else {
                return Ok(items);
            };
            query.truncate(2);
            query.push(("continue", next));
        }
    }

    /// Returns the best trial or the Pareto front, with checkpoints.
    pub async fn best_trials(&self, id: StudyId) -> Result<Vec<BestTrialView>, ClientError> {
        let mut items = Vec::new();
        let mut query = vec![("limit", "500".to_owned())];
        loop {
            let id = id.to_string();
            let page: Page<BestTrialView> = self.get(&["studies", &id, "best"], &query).await?;
            items.extend(page.items);
            let Some(next) = page.next else {
                return Ok(items);
            };
            query.truncate(1);
            query.push(("continue", next));
        }
    }

    pub async fn pause_study(&self, id: StudyId) -> Result<StudyView, ClientError> {
        self.post(&["studies", &id.to_string(), "pause"]).await
    }

    pub async fn resume_study(&self, id: StudyId) -> Result<StudyView, ClientError> {
        self.post(&["studies", &id.to_string(), "resume"]).await
    }

    pub async fn cancel_study(&self, id: StudyId) -> Result<StudyView, ClientError> {
        self.post(&["studies", &id.to_string(), "cancel"]).await
    }

    /// Adds trials, at most once per `key`.
    pub async fn extend_study(
        &self,
        id: StudyId,
        trials: u32,
        key: Option<&str>,
    ) -> Result<StudyView, ClientError> {
        let mut request = self.request(Method::POST, &["studies", &id.to_string(), "extend"]);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        answer(send(request.json(&StudyExtension { trials })).await?).await
    }

    pub async fn delete_study(&self, id: StudyId) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["studies", &id.to_string()]);
        send(request).await.map(drop)
    }

    /// Returns all trials as one text; `format` is `csv` or `json`.
    pub async fn export_study(&self, id: StudyId, format: &str) -> Result<String, ClientError> {
        let request = self.request(Method::GET, &["studies", &id.to_string(), "export"]);
        let response = send(request.query(&[("format", format)])).await?;
        response.text().await.map_err(unreachable)
    }

    /// Proposes trials of a searcher outside. With a unique key the request can be repeated without
    /// a second proposal.
    pub async fn propose(
        &self,
        id: StudyId,
        trials: &Proposal,
        key: Option<&str>,
    ) -> Result<StudyView, ClientError> {
        let mut request = self.request(Method::POST, &["studies", &id.to_string(), "propose"]);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        answer(send(request.json(trials)).await?).await
    }

    /// Asks for trials to train outside.
    pub async fn ask(&self, id: StudyId, ask: Ask) -> Result<Asked, ClientError> {
        let request = self.request(Method::POST, &["studies", &id.to_string(), "ask"]);
        answer(send(request.json(&ask)).await?).await
    }

    /// Reports results of trials that are trained outside.
    pub async fn tell(&self, id: StudyId, tell: &Tell) -> Result<TellAnswer, ClientError> {
        let request = self.request(Method::POST, &["studies", &id.to_string(), "tell"]);
        answer(send(request.json(tell)).await?).await
    }
}
