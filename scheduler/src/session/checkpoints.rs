//! Checkpoints of a task's program: admission before an upload, the record after it, and the
//! checkpoint with which a program begins. The content never passes the scheduler.

use super::artifacts::{exceeded, unstored, writer};
use crate::clock;
use muster_model::artifact::PATH_RULE;
use muster_model::checkpoint::Checkpoint;
use muster_model::metric::{is_name, is_stored};
use muster_model::program_checkpoint::{
    MAX_PROGRAM_BYTES, MAX_PROGRAM_FILES, MAX_PROGRAM_METRICS, is_program_path,
};
use muster_model::spec::is_sha256;
use muster_model::task::Role;
use muster_proto::session as proto;
use muster_proto::session::admit_checkpoint_answer::Verdict;
use muster_store::artifact::ArtifactWriter;
use muster_store::pool::StorePool;
use muster_store::program_checkpoint::{
    self, CheckpointAdmission, CheckpointRecorded, DeclaredCheckpoint, StoredContent,
};
use time::Duration;
use tonic::Status;
use uuid::Uuid;

pub(super) async fn admit(
    pool: StorePool,
    request: proto::AdmitCheckpointRequest,
) -> Result<proto::AdmitCheckpointAnswer, Status> {
    let declared = declared(request.declared)?;
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    check_rank(&writer)?;
    let admitted = program_checkpoint::admit(&mut tx, &writer, &declared).await;
    let verdict = match admitted {
        Ok(CheckpointAdmission::Fits) => Verdict::Fits(true),
        Ok(CheckpointAdmission::Present) => Verdict::Present(true),
        Ok(CheckpointAdmission::Stale) => Verdict::Refused(stale()),
        Ok(CheckpointAdmission::Overlapping { path }) => Verdict::Refused(overlapping(&path)),
        Err(error) => Verdict::Refused(exceeded(error)?),
    };
    Ok(proto::AdmitCheckpointAnswer {
        tenant_id: writer.tenant.to_string(),
        job_id: writer.job.to_string(),
        verdict: Some(verdict),
    })
}

pub(super) async fn keep(
    pool: StorePool,
    request: proto::KeepCheckpointRequest,
) -> Result<proto::KeepCheckpointAnswer, Status> {
    let declared = declared(request.declared)?;
    let object = match request.object.as_str() {
        "" => None,
        object => Some((parsed(object)?, request.sha256)),
    };
    if object
        .as_ref()
        .is_some_and(|(_, sha256)| !is_sha256(sha256))
    {
        return Err(Status::invalid_argument("sha256 is no SHA-256"));
    }
    let metrics = request.metrics.into_iter();
    let metrics = metrics.filter(|(name, value)| is_name(name) && is_stored(*value));
    let content = StoredContent {
        object,
        metrics: metrics.take(MAX_PROGRAM_METRICS).collect(),
    };
    let now = clock::now();
    let age_ms = i64::try_from(request.age_ms).unwrap_or(i64::MAX);
    let at = now
        .checked_sub(Duration::milliseconds(age_ms))
        .unwrap_or(now);
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    check_rank(&writer)?;
    let recorded =
        program_checkpoint::record(&mut tx, &writer, &declared, &content, (at, now)).await;
    match recorded {
        Ok(CheckpointRecorded::Recorded { replaced, all }) => {
            tx.commit().await.map_err(|error| unstored(error.into()))?;
            Ok(proto::KeepCheckpointAnswer {
                refused: None,
                replaced: replaced.iter().map(Uuid::to_string).collect(),
                checkpoints: all.into_iter().map(shown).collect(),
            })
        }
        Ok(CheckpointRecorded::Stale) => Ok(refusal(stale())),
        Ok(CheckpointRecorded::Overlapping { path }) => Ok(refusal(overlapping(&path))),
        Err(error) => Ok(refusal(exceeded(error)?)),
    }
}

pub(super) async fn forget(
    pool: StorePool,
    request: proto::ForgetCheckpointRequest,
) -> Result<proto::ForgetCheckpointAnswer, Status> {
    let id = parsed(&request.id)?;
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    check_rank(&writer)?;
    let forgotten = program_checkpoint::forget(&mut tx, &writer, (id, request.is_lost)).await;
    forgotten.map_err(unstored)?;
    tx.commit().await.map_err(|error| unstored(error.into()))?;
    Ok(proto::ForgetCheckpointAnswer {})
}

pub(super) async fn first(
    pool: StorePool,
    request: proto::FirstCheckpointRequest,
) -> Result<proto::FirstCheckpointAnswer, Status> {
    let mut tx = muster_store::pool::begin(&pool).await.map_err(unstored)?;
    let writer = writer(&mut tx, request.task.as_ref()).await?;
    let found = program_checkpoint::beginning(&mut tx, writer.job).await;
    let found = found.map_err(unstored)?;
    let checkpoint = found.checkpoint.map(|found| proto::FirstCheckpoint {
        object: object_of(&found),
        job_id: found.job_id.to_string(),
        path: found.written.path,
        step: found.written.step,
        sha256: found.written.manifest_sha256,
        bytes: found.written.bytes,
    });
    Ok(proto::FirstCheckpointAnswer {
        tenant_id: writer.tenant.to_string(),
        checkpoint,
        is_trial: found.is_trial,
    })
}

fn declared(given: Option<proto::DeclaredCheckpoint>) -> Result<DeclaredCheckpoint, Status> {
    let given = given.ok_or_else(|| Status::invalid_argument("declared is missing"))?;
    if !is_program_path(&given.path) {
        return Err(Status::invalid_argument(format!("path is not {PATH_RULE}")));
    }
    let files = 1..=MAX_PROGRAM_FILES as u64;
    if !files.contains(&given.file_count) || given.bytes > MAX_PROGRAM_BYTES {
        return Err(Status::invalid_argument(
            "it has no file, too many or too large ones",
        ));
    }
    if i64::try_from(given.step).is_err() {
        return Err(Status::invalid_argument("step is not below 2^63"));
    }
    Ok(DeclaredCheckpoint {
        step: given.step,
        path: given.path,
        bytes: given.bytes,
        file_count: given.file_count,
        is_found: given.is_found,
    })
}

fn check_rank(writer: &ArtifactWriter) -> Result<(), Status> {
    match writer.role {
        Role::Worker { rank: 0 } => Ok(()),
        role => Err(Status::permission_denied(format!(
            "{role} records no checkpoint; only worker 0 does"
        ))),
    }
}

fn shown(checkpoint: Checkpoint) -> proto::RecordedCheckpoint {
    proto::RecordedCheckpoint {
        id: checkpoint.id.to_string(),
        object: object_of(&checkpoint),
        is_retained: checkpoint.retained,
        path: checkpoint.written.path,
    }
}

fn object_of(checkpoint: &Checkpoint) -> String {
    let object = checkpoint
        .program
        .as_ref()
        .and_then(|program| program.object);
    object.map_or_else(String::new, |object| object.to_string())
}

fn parsed(id: &str) -> Result<Uuid, Status> {
    id.parse()
        .map_err(|_| Status::invalid_argument("an id is no UUID"))
}

fn refusal(refused: proto::ArtifactRefusal) -> proto::KeepCheckpointAnswer {
    proto::KeepCheckpointAnswer {
        refused: Some(refused),
        ..proto::KeepCheckpointAnswer::default()
    }
}

fn overlapping(path: &str) -> proto::ArtifactRefusal {
    proto::ArtifactRefusal {
        message: format!(
            "checkpoint {path:?} is a folder above or below it; use separate paths, which can be pruned separately"
        ),
        limit: "path".to_owned(),
    }
}

fn stale() -> proto::ArtifactRefusal {
    proto::ArtifactRefusal {
        message: "the job has started again since".to_owned(),
        limit: String::new(),
    }
}
