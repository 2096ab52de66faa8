//! Requests about checkpoints of programs to the scheduler.

use super::client::{ArtifactClient, answered, folder, is_object, malformed, refusal};
use super::error::ArtifactError;
use muster_model::id::TaskId;
use muster_model::program_checkpoint::is_program_path;
use muster_proto::session::admit_checkpoint_answer::Verdict;
use muster_proto::session::{
    AdmitCheckpointRequest, DeclaredCheckpoint, FirstCheckpoint, FirstCheckpointRequest,
    ForgetCheckpointRequest, KeepCheckpointAnswer, KeepCheckpointRequest,
};

/// What the scheduler says about a checkpoint before its upload.
pub(super) enum CheckpointAdmission {
    /// A content in a bucket belongs into this folder of the checkpoint store.
    Fits {
        folder: String,
    },
    Present,
}

/// How a program begins.
pub(crate) struct Beginning {
    /// The registered checkpoint, and the folder of its content in a bucket.
    pub checkpoint: Option<(String, FirstCheckpoint)>,
    pub is_trial: bool,
}

impl ArtifactClient {
    /// Asks whether a task may store a checkpoint.
    pub(super) async fn admit_checkpoint(
        &self,
        task: TaskId,
        declared: &DeclaredCheckpoint,
    ) -> Result<CheckpointAdmission, ArtifactError> {
        let request = AdmitCheckpointRequest {
            task: Some(self.of_task(task)),
            declared: Some(declared.clone()),
        };
        let mut client = self.client().await?;
        let answer = answered(client.admit_checkpoint(request)).await?;
        match answer.verdict {
            Some(Verdict::Fits(_)) => Ok(CheckpointAdmission::Fits {
                folder: folder(&answer.tenant_id, &answer.job_id)?,
            }),
            Some(Verdict::Present(_)) => Ok(CheckpointAdmission::Present),
            Some(Verdict::Refused(refused)) => Err(refusal(refused)),
            None => Err(malformed()),
        }
    }

    /// Records a checkpoint. Returns all checkpoints of the job.
    pub(super) async fn keep_checkpoint(
        &self,
        task: TaskId,
        request: &KeepCheckpointRequest,
    ) -> Result<KeepCheckpointAnswer, ArtifactError> {
        let request = KeepCheckpointRequest {
            task: Some(self.of_task(task)),
            ..request.clone()
        };
        let mut client = self.client().await?;
        let answer = answered(client.keep_checkpoint(request)).await?;
        if let Some(refused) = answer.refused {
            return Err(refusal(refused));
        }
        let is_right = answer.checkpoints.iter().all(|one| {
            is_program_path(&one.path) && (one.object.is_empty() || is_object(&one.object))
        });
        if !is_right || !answer.replaced.iter().all(|object| is_object(object)) {
            return Err(malformed());
        }
        Ok(answer)
    }

    /// Removes the record of a checkpoint whose files are gone.
    pub(super) async fn forget_checkpoint(
        &self,
        task: TaskId,
        id: &str,
        is_lost: bool,
    ) -> Result<(), ArtifactError> {
        let request = ForgetCheckpointRequest {
            task: Some(self.of_task(task)),
            id: id.to_owned(),
            is_lost,
        };
        let mut client = self.client().await?;
        answered(client.forget_checkpoint(request)).await.map(drop)
    }

    /// Returns the checkpoint with which the program of a task begins. A scheduler of an earlier
    /// release registers no checkpoints, and starts only trials from other jobs.
    pub(super) async fn first_checkpoint(&self, task: TaskId) -> Result<Beginning, ArtifactError> {
        let request = FirstCheckpointRequest {
            task: Some(self.of_task(task)),
        };
        let mut client = self.client().await?;
        let answer = match answered(client.first_checkpoint(request)).await {
            Err(ArtifactError::Scheduler(status))
                if status.code() == tonic::Code::Unimplemented =>
            {
                return Ok(Beginning {
                    checkpoint: None,
                    is_trial: true,
                });
            }
            answer => answer?,
        };
        let is_trial = answer.is_trial;
        let Some(found) = answer.checkpoint else {
            return Ok(Beginning {
                checkpoint: None,
                is_trial,
            });
        };
        if !is_program_path(&found.path) || !(found.object.is_empty() || is_object(&found.object)) {
            return Err(malformed());
        }
        let folder = folder(&answer.tenant_id, &found.job_id)?;
        Ok(Beginning {
            checkpoint: Some((folder, found)),
            is_trial,
        })
    }
}
