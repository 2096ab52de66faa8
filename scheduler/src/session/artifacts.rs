//! Artifacts of a task's job: admission before an upload, and the record after it. The content
//! never passes the scheduler.

use super::{Sessions, decode, decode_status, join, registry};
use crate::clock;
use muster_model::artifact::{PATH_RULE, content_type_of, is_artifact_path};
use muster_model::error_chain::chain;
use muster_model::spec::is_sha256;
use muster_proto::session as proto;
use muster_proto::session::admit_artifact_answer::Verdict;
use muster_store::artifact::{
    self, ArtifactAdmission, ArtifactContent, ArtifactKept, ArtifactWriter,
};
use muster_store::pool::StorePool;
use muster_store::secret::AskingNode;
use muster_store::{PgConnection, StoreError};
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// Artifacts per page of a list.
const PAGE: u32 = 1_000;

/// Largest size that the database can store.
const MAX_BYTES: u64 = 1 << 53;

impl Sessions {
    /// Answers a request about an artifact if this process leads.
    pub(super) async fn answer<Asked, Answer, Answering>(
        &self,
        request: Request<Asked>,
        act: impl FnOnce(StorePool, Asked) -> Answering,
    ) -> Result<Response<Answer>, Status>
    where
        Answering: Future<Output = Result<Answer, Status>> + Send,
    {
        registry::leads(&self.leader)?;
        let answer = act(self.pool.clone(), request.into_inner()).await?;
        Ok(Response::new(answer))
    }
}

pub(super) async fn admit(
    pool: StorePool,
    request: proto::AdmitArtifactRequest,
) -> Result<proto::AdmitArtifactAnswer, Status> {
    checked(&request.path, request.bytes)?;
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    let sha256 = Some(request.sha256.as_str()).filter(|sha256| !sha256.is_empty());
    let content = (request.bytes, sha256);
    let verdict = match artifact::admit(&mut tx, &writer, &request.path, content).await {
        Ok(ArtifactAdmission::Fits { most_bytes }) => Verdict::MostBytes(most_bytes),
        Ok(ArtifactAdmission::Present) => Verdict::Present(true),
        Ok(ArtifactAdmission::Stale) => Verdict::Refused(stale()),
        Ok(ArtifactAdmission::Clash { other }) => Verdict::Refused(clash(&other)),
        Err(error) => Verdict::Refused(exceeded(error)?),
    };
    Ok(proto::AdmitArtifactAnswer {
        tenant_id: writer.tenant.to_string(),
        job_id: writer.job.to_string(),
        verdict: Some(verdict),
    })
}

pub(super) async fn keep(
    pool: StorePool,
    request: proto::KeepArtifactRequest,
) -> Result<proto::KeepArtifactAnswer, Status> {
    checked(&request.path, request.bytes)?;
    if !is_sha256(&request.sha256) {
        return Err(Status::invalid_argument("sha256 is no SHA-256"));
    }
    let object: Uuid = request
        .object
        .parse()
        .map_err(|_| Status::invalid_argument("object is no UUID"))?;
    let content = ArtifactContent {
        object,
        bytes: request.bytes,
        sha256: request.sha256,
        content_type: content_type_of(&request.path).to_owned(),
    };
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    let kept = artifact::keep(&mut tx, &writer, &request.path, &content, clock::now()).await;
    let answer = match kept {
        Ok(ArtifactKept::Kept { replaced }) => proto::KeepArtifactAnswer {
            replaced: replaced.map_or_else(String::new, |object| object.to_string()),
            refused: None,
        },
        Ok(ArtifactKept::Stale) => refusal(stale()),
        Ok(ArtifactKept::Clash { other }) => refusal(clash(&other)),
        Err(error) => refusal(exceeded(error)?),
    };
    if answer.refused.is_none() {
        tx.commit().await.map_err(|error| unstored(error.into()))?;
    }
    Ok(answer)
}

pub(super) async fn list(
    pool: StorePool,
    request: proto::ListArtifactsRequest,
) -> Result<proto::ListArtifactsAnswer, Status> {
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    let from = (request.prefix.as_str(), request.after.as_str());
    let page = artifact::list(&mut tx, writer.job, from, PAGE).await;
    let page = page.map_err(unstored)?;
    let has_more = page.more;
    let artifacts = page.into_iter().map(|row| proto::Artifact {
        path: row.path,
        object: row.content.object.to_string(),
        bytes: row.content.bytes,
        content_type: row.content.content_type,
    });
    Ok(proto::ListArtifactsAnswer {
        tenant_id: writer.tenant.to_string(),
        job_id: writer.job.to_string(),
        artifacts: artifacts.collect(),
        has_more,
    })
}

pub(super) async fn remove(
    pool: StorePool,
    request: proto::RemoveArtifactRequest,
) -> Result<proto::RemoveArtifactAnswer, Status> {
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    let removed = artifact::remove(&mut tx, &writer, &request.path).await;
    let removed = removed.map_err(unstored)?;
    tx.commit().await.map_err(|error| unstored(error.into()))?;
    Ok(proto::RemoveArtifactAnswer {
        tenant_id: writer.tenant.to_string(),
        job_id: writer.job.to_string(),
        removed: removed.map_or_else(String::new, |object| object.to_string()),
    })
}

fn checked(path: &str, bytes: u64) -> Result<(), Status> {
    if !is_artifact_path(path) {
        return Err(Status::invalid_argument(format!("path is not {PATH_RULE}")));
    }
    if bytes > MAX_BYTES {
        return Err(Status::invalid_argument("bytes is above 2^53"));
    }
    Ok(())
}

pub(super) async fn writer(
    conn: &mut PgConnection,
    task: Option<&proto::NodeTask>,
) -> Result<ArtifactWriter, Status> {
    let given = task.ok_or_else(|| Status::invalid_argument("task is missing"))?;
    let task = decode::task_id("task_id", &given.task_id).map_err(decode_status)?;
    let node = AskingNode {
        name: &given.node_name,
        credential: &join::hash(&given.credential),
    };
    let found = artifact::writer(conn, node, task).await.map_err(unstored)?;
    found.ok_or_else(|| {
        let detail = format!("task {task} is not a task of this node, or its job was deleted");
        Status::permission_denied(detail)
    })
}

fn refusal(refused: proto::ArtifactRefusal) -> proto::KeepArtifactAnswer {
    proto::KeepArtifactAnswer {
        replaced: String::new(),
        refused: Some(refused),
    }
}

fn stale() -> proto::ArtifactRefusal {
    proto::ArtifactRefusal {
        message: "a later start of the job has written it".to_owned(),
        limit: String::new(),
    }
}

fn clash(other: &str) -> proto::ArtifactRefusal {
    proto::ArtifactRefusal {
        message: format!("a path cannot be a file and a folder, and the job has {other:?}"),
        limit: "path".to_owned(),
    }
}

/// Returns the refusal if a limit is exceeded.
pub(super) fn exceeded(error: StoreError) -> Result<proto::ArtifactRefusal, Status> {
    match error {
        StoreError::Exceeded(exceeded) => Ok(proto::ArtifactRefusal {
            message: exceeded.to_string(),
            limit: exceeded.limit,
        }),
        error => Err(unstored(error)),
    }
}

pub(super) fn unstored(error: StoreError) -> Status {
    tracing::warn!(
        error = chain(&error),
        "a request of a node about files failed"
    );
    Status::unavailable("the store is not reachable now; try again")
}
