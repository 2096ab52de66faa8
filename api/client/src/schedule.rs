//! Schedules of the tenant.

use crate::error::ClientError;
use crate::request::{Client, answer, send};
use muster_model::view::{JobView, ScheduleView};
use reqwest::Method;
use serde_json::Value;

#[allow(
    clippy::missing_errors_doc,
    reason = "the same errors as of every call"
)]
impl Client {
    /// Returns all schedules by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, ClientError> {
        self.rest(&["schedules"], Vec::new()).await
    }

    pub async fn schedule(&self, name: &str) -> Result<ScheduleView, ClientError> {
        self.get(&["schedules", name], &[]).await
    }

    /// Creates or replaces a schedule. The server checks the document.
    pub async fn set_schedule(
        &self,
        name: &str,
        document: &Value,
    ) -> Result<ScheduleView, ClientError> {
        let request = self.request(Method::PUT, &["schedules", name]);
        answer(send(request.json(document)).await?).await
    }

    /// Pauses a schedule.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleView, ClientError> {
        self.post(&["schedules", name, "pause"]).await
    }

    /// Resumes a schedule. Times of the pause are not caught up.
    pub async fn resume_schedule(&self, name: &str) -> Result<ScheduleView, ClientError> {
        self.post(&["schedules", name, "resume"]).await
    }

    /// Submits a job of the schedule now.
    pub async fn run_schedule(&self, name: &str) -> Result<JobView, ClientError> {
        self.post(&["schedules", name, "run"]).await
    }

    /// Deletes a schedule; its jobs stay.
    pub async fn delete_schedule(&self, name: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["schedules", name]);
        send(request).await.map(drop)
    }
}
