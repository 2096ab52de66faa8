//! Values of secrets, requested from the scheduler when a task starts. They are held in memory
//! only, for the time of one request.

use muster_model::assignment::TaskLaunch;
use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_proto::session::task_secret::Result as Found;
use muster_proto::session::{TaskSecret, TaskSecretsRequest};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, Status};
use zeroize::Zeroizing;

/// Maximum time until there is a session with a leading scheduler.
const SESSION_WITHIN: Duration = Duration::from_secs(10);
/// Time limit of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Connection of the present session with the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerLink(Arc<watch::Sender<Option<Channel>>>);

impl Default for SchedulerLink {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl SchedulerLink {
    /// Sets the connection; `None` after the end of a session.
    pub fn set(&self, channel: Option<Channel>) {
        self.0.send_replace(channel);
    }

    pub(crate) async fn channel(&self) -> Option<Channel> {
        let mut link = self.0.subscribe();
        let there = link.wait_for(Option::is_some);
        let there = tokio::time::timeout(SESSION_WITHIN, there).await.ok()?;
        there.ok()?.clone()
    }
}

/// Requests secrets of this node's tasks.
#[derive(Clone)]
pub struct SecretClient {
    pub link: SchedulerLink,
    pub node_name: String,
    pub credential: String,
}

impl fmt::Debug for SecretClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretClient")
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

/// Why a task does not get its secrets.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("there is no session with the scheduler")]
    NoSession,
    #[error("the scheduler does not answer")]
    Silent,
    #[error("the scheduler refuses: {}", .0.message())]
    Refused(Box<Status>),
    /// Names the secrets and never a value.
    #[error("{0}")]
    Missing(String),
}

impl SecretError {
    /// Whether no repetition can help. A task that is being stopped is refused too. It waits for
    /// its stop, because its report of a failure would end the job.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NoSession | Self::Silent => false,
            Self::Refused(status) => {
                matches!(status.code(), Code::InvalidArgument | Code::Unimplemented)
            }
            Self::Missing(_) => true,
        }
    }
}

/// A secret and its value.
pub type NamedValue = (String, Zeroizing<String>);

impl SecretClient {
    /// Returns the values of all secrets that the task's document names.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn fetch(&self, launch: &TaskLaunch) -> Result<Vec<NamedValue>, SecretError> {
        let channel = self.link.channel().await.ok_or(SecretError::NoSession)?;
        let request = TaskSecretsRequest {
            node_name: self.node_name.clone(),
            credential: self.credential.clone(),
            task_id: launch.task_id.to_string(),
            revision: launch.revision,
        };
        let mut client =
            NodeSessionsClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let answer = client.task_secrets(request);
        let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
        let answer = answer.map_err(|_| SecretError::Silent)?;
        let answer = answer.map_err(|status| SecretError::Refused(Box::new(status)))?;
        values(answer.into_inner().secrets)
    }
}

fn values(secrets: Vec<TaskSecret>) -> Result<Vec<NamedValue>, SecretError> {
    let mut values = Vec::with_capacity(secrets.len());
    let mut problems = Vec::new();
    for TaskSecret { name, result } in secrets {
        match result {
            Some(Found::Value(value)) => values.push((name, Zeroizing::new(value))),
            Some(Found::Problem(problem)) => problems.push(format!("secret {name}: {problem}")),
            None => problems.push(format!("secret {name}: the scheduler sends no value")),
        }
    }
    if problems.is_empty() {
        Ok(values)
    } else {
        Err(SecretError::Missing(problems.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, result: Option<Found>) -> TaskSecret {
        TaskSecret {
            name: name.to_owned(),
            result,
        }
    }

    #[test]
    fn error_names_each_missing_secret_and_no_value() {
        let gone = Found::Problem("it does not exist any more".to_owned());
        let error = values(vec![
            secret("A", Some(Found::Value("hunter2".to_owned()))),
            secret("B", Some(gone)),
            secret("C", None),
        ]);
        let error = error.expect_err("two are missing");
        assert!(error.is_permanent());
        let text = error.to_string();
        assert!(text.contains("secret B: it does not exist") && text.contains("secret C"));
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn credential_is_not_printed() {
        let client = SecretClient {
            link: SchedulerLink::default(),
            node_name: "node-1".to_owned(),
            credential: "hunter2".to_owned(),
        };
        assert!(!format!("{client:?}").contains("hunter2"));
    }
}
