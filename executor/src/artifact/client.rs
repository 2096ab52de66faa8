//! Requests about artifacts to the scheduler.

use super::error::ArtifactError;
use crate::secret_client::SchedulerLink;
use muster_model::id::TaskId;
use muster_proto::session::admit_artifact_answer::Verdict;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_proto::session::{
    AdmitArtifactRequest, Artifact, ArtifactRefusal, KeepArtifactRequest, ListArtifactsRequest,
    NodeTask, RemoveArtifactRequest,
};
use std::fmt;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// Time limit of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Requests for tasks of this node.
#[derive(Clone)]
pub struct ArtifactClient {
    pub link: SchedulerLink,
    pub node_name: String,
    pub credential: String,
}

impl fmt::Debug for ArtifactClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactClient")
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

/// What the scheduler says about an artifact before its upload.
pub(super) enum Admission {
    /// The content belongs into this folder of the checkpoint store.
    Fits {
        folder: String,
        most_bytes: u64,
    },
    Present,
}

/// Content of an artifact that the node is about to record.
pub(super) struct Uploaded<'a> {
    pub object: &'a str,
    pub bytes: u64,
    pub sha256: &'a str,
}

/// Artifacts of a job, and their folder of the checkpoint store.
pub(super) struct Listed {
    pub folder: String,
    pub artifacts: Vec<Artifact>,
    pub has_more: bool,
}

impl ArtifactClient {
    /// Asks whether a task may write an artifact.
    pub(super) async fn admit(
        &self,
        task: TaskId,
        path: &str,
        (bytes, sha256): (u64, Option<&str>),
    ) -> Result<Admission, ArtifactError> {
        let request = AdmitArtifactRequest {
            task: Some(self.of_task(task)),
            path: path.to_owned(),
            bytes,
            sha256: sha256.unwrap_or_default().to_owned(),
        };
        let mut client = self.client().await?;
        let answer = answered(client.admit_artifact(request)).await?;
        match answer.verdict {
            Some(Verdict::MostBytes(most_bytes)) => Ok(Admission::Fits {
                folder: folder(&answer.tenant_id, &answer.job_id)?,
                most_bytes,
            }),
            Some(Verdict::Present(_)) => Ok(Admission::Present),
            Some(Verdict::Refused(refused)) => Err(refusal(refused)),
            None => Err(malformed()),
        }
    }

    /// Records an artifact. Returns the object that it replaces.
    pub(super) async fn keep(
        &self,
        task: TaskId,
        path: &str,
        uploaded: &Uploaded<'_>,
    ) -> Result<Option<String>, ArtifactError> {
        let request = KeepArtifactRequest {
            task: Some(self.of_task(task)),
            path: path.to_owned(),
            object: uploaded.object.to_owned(),
            bytes: uploaded.bytes,
            sha256: uploaded.sha256.to_owned(),
        };
        let mut client = self.client().await?;
        let answer = answered(client.keep_artifact(request)).await?;
        match answer.refused {
            Some(refused) => Err(refusal(refused)),
            None => Ok(Some(answer.replaced).filter(|object| is_object(object))),
        }
    }

    /// Returns the artifacts that begin with `prefix` and follow `after`.
    pub(super) async fn list(
        &self,
        task: TaskId,
        prefix: &str,
        after: &str,
    ) -> Result<Listed, ArtifactError> {
        let request = ListArtifactsRequest {
            task: Some(self.of_task(task)),
            prefix: prefix.to_owned(),
            after: after.to_owned(),
        };
        let mut client = self.client().await?;
        let answer = answered(client.list_artifacts(request)).await?;
        if !answer.artifacts.iter().all(|one| is_object(&one.object)) {
            return Err(malformed());
        }
        Ok(Listed {
            folder: folder(&answer.tenant_id, &answer.job_id)?,
            artifacts: answer.artifacts,
            has_more: answer.has_more,
        })
    }

    /// Removes the record of an artifact. Returns the folder and the name of its content.
    pub(super) async fn remove(
        &self,
        task: TaskId,
        path: &str,
    ) -> Result<Option<(String, String)>, ArtifactError> {
        let request = RemoveArtifactRequest {
            task: Some(self.of_task(task)),
            path: path.to_owned(),
        };
        let mut client = self.client().await?;
        let answer = answered(client.remove_artifact(request)).await?;
        let folder = folder(&answer.tenant_id, &answer.job_id)?;
        Ok(is_object(&answer.removed).then_some((folder, answer.removed)))
    }

    pub(super) fn of_task(&self, task: TaskId) -> NodeTask {
        NodeTask {
            node_name: self.node_name.clone(),
            credential: self.credential.clone(),
            task_id: task.to_string(),
        }
    }

    pub(super) async fn client(&self) -> Result<NodeSessionsClient<Channel>, ArtifactError> {
        let channel = self.link.channel().await.ok_or(ArtifactError::NoSession)?;
        Ok(NodeSessionsClient::new(channel)
            .max_decoding_message_size(muster_proto::MAX_MESSAGE_BYTES))
    }
}

pub(super) async fn answered<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, ArtifactError> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, call).await;
    let answer = answer.map_err(|_| ArtifactError::Silent)?;
    let answer = answer.map_err(|status| ArtifactError::Scheduler(Box::new(status)))?;
    Ok(answer.into_inner())
}

pub(super) fn folder(tenant: &str, job: &str) -> Result<String, ArtifactError> {
    let (tenant, job) = tenant
        .parse()
        .ok()
        .zip(job.parse().ok())
        .ok_or_else(malformed)?;
    Ok(muster_model::artifact::artifact_folder(tenant, job))
}

pub(super) fn is_object(text: &str) -> bool {
    text.parse::<uuid::Uuid>().is_ok()
}

pub(super) fn refusal(refused: ArtifactRefusal) -> ArtifactError {
    ArtifactError::Refused {
        message: refused.message,
        limit: refused.limit,
    }
}

pub(super) fn malformed() -> ArtifactError {
    let status = Status::unavailable("its answer is not as expected");
    ArtifactError::Scheduler(Box::new(status))
}
