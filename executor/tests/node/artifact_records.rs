//! Artifacts of the scheduler for tests: rows in memory, with the rules of the store.

use crate::checkpoint_records::CheckpointRecords;
use muster_model::assignment::TaskLaunch;
use muster_model::task::Role;
use muster_proto::session::admit_artifact_answer::Verdict;
use muster_proto::session::{
    AdmitArtifactAnswer, AdmitArtifactRequest, Artifact, ArtifactRefusal, KeepArtifactAnswer,
    KeepArtifactRequest, ListArtifactsAnswer, ListArtifactsRequest, NodeTask, RemoveArtifactAnswer,
    RemoveArtifactRequest,
};
use std::collections::BTreeMap;
use tonic::Status;

/// A recorded artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedArtifact {
    pub object: String,
    pub bytes: u64,
    pub sha256: String,
    pub revision: u64,
    pub role: Role,
}

/// Artifacts of all tasks, as those of one job.
#[derive(Default)]
pub struct ArtifactRecords {
    pub rows: BTreeMap<String, RecordedArtifact>,
    pub launches: BTreeMap<String, TaskLaunch>,
    /// Maximum number of artifacts; `None` permits any.
    pub most: Option<usize>,
    pub is_unreachable: bool,
    pub checkpoints: CheckpointRecords,
    /// Number of recorded contents.
    pub kept: u32,
}

impl ArtifactRecords {
    pub(crate) fn launch(&self, task: Option<&NodeTask>) -> Result<&TaskLaunch, Status> {
        if self.is_unreachable {
            return Err(Status::unavailable("this one does not lead"));
        }
        let task = task.and_then(|task| self.launches.get(&task.task_id));
        task.ok_or_else(|| Status::permission_denied("not a task of this node"))
    }

    fn refusal(&self, path: &str) -> Option<ArtifactRefusal> {
        let is_full = self.most.is_some_and(|most| self.rows.len() >= most);
        (is_full && !self.rows.contains_key(path)).then(|| ArtifactRefusal {
            message: "limit job_artifacts of the tenant".to_owned(),
            limit: "job_artifacts".to_owned(),
        })
    }

    pub fn admit(&self, request: &AdmitArtifactRequest) -> Result<AdmitArtifactAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?;
        let row = self.rows.get(&request.path);
        let verdict = match self.refusal(&request.path) {
            Some(refused) => Verdict::Refused(refused),
            None if row.is_some_and(|row| row.sha256 == request.sha256) => Verdict::Present(true),
            None => Verdict::MostBytes(1 << 40),
        };
        Ok(AdmitArtifactAnswer {
            tenant_id: launch.tenant_id.to_string(),
            job_id: launch.job_id.to_string(),
            verdict: Some(verdict),
        })
    }

    pub fn keep(&mut self, request: KeepArtifactRequest) -> Result<KeepArtifactAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?;
        if let Some(refused) = self.refusal(&request.path) {
            return Ok(KeepArtifactAnswer {
                replaced: String::new(),
                refused: Some(refused),
            });
        }
        let row = RecordedArtifact {
            object: request.object,
            bytes: request.bytes,
            sha256: request.sha256,
            revision: launch.revision,
            role: launch.role,
        };
        self.kept += 1;
        let before = self.rows.insert(request.path, row);
        Ok(KeepArtifactAnswer {
            replaced: before.map_or_else(String::new, |row| row.object),
            refused: None,
        })
    }

    pub fn list(&self, request: &ListArtifactsRequest) -> Result<ListArtifactsAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?;
        let rows = self.rows.iter();
        let rows = rows.filter(|(path, _)| path.starts_with(&request.prefix));
        let rows = rows.filter(|(path, _)| **path > request.after);
        let artifacts = rows.map(|(path, row)| Artifact {
            path: path.clone(),
            object: row.object.clone(),
            bytes: row.bytes,
            content_type: "text/plain".to_owned(),
        });
        Ok(ListArtifactsAnswer {
            tenant_id: launch.tenant_id.to_string(),
            job_id: launch.job_id.to_string(),
            artifacts: artifacts.collect(),
            has_more: false,
        })
    }

    pub fn remove(
        &mut self,
        request: &RemoveArtifactRequest,
    ) -> Result<RemoveArtifactAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?.clone();
        let removed = self.rows.remove(&request.path);
        Ok(RemoveArtifactAnswer {
            tenant_id: launch.tenant_id.to_string(),
            job_id: launch.job_id.to_string(),
            removed: removed.map_or_else(String::new, |row| row.object),
        })
    }
}
