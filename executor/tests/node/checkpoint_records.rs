//! Checkpoints of the scheduler for tests: rows in memory. The newest rows stay.

use crate::artifact_records::ArtifactRecords;
use muster_model::task::Role;
use muster_proto::session::admit_checkpoint_answer::Verdict;
use muster_proto::session::{
    AdmitCheckpointAnswer, AdmitCheckpointRequest, DeclaredCheckpoint, FirstCheckpoint,
    FirstCheckpointAnswer, FirstCheckpointRequest, ForgetCheckpointAnswer, ForgetCheckpointRequest,
    KeepCheckpointAnswer, KeepCheckpointRequest, RecordedCheckpoint,
};
use std::collections::HashMap;
use tonic::Status;
use uuid::Uuid;

/// A recorded checkpoint.
#[derive(Debug, Clone)]
pub struct CheckpointRow {
    pub id: String,
    pub declared: DeclaredCheckpoint,
    pub metrics: HashMap<String, f64>,
}

/// Checkpoints of all tasks, as those of one job, in the order of their records.
#[derive(Default)]
pub struct CheckpointRecords {
    pub rows: Vec<CheckpointRow>,
    /// Number of newest rows that stay; 0 for all.
    pub keep: usize,
    /// Checkpoint with which every program begins.
    pub first: Option<FirstCheckpoint>,
    recorded: u128,
}

impl ArtifactRecords {
    pub fn admit_checkpoint(
        &self,
        request: &AdmitCheckpointRequest,
    ) -> Result<AdmitCheckpointAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?;
        assert_eq!(launch.role, Role::Worker { rank: 0 });
        let declared = request.declared.clone().unwrap_or_default();
        let is_present =
            self.checkpoints.rows.iter().any(|row| {
                (&row.declared.path, row.declared.step) == (&declared.path, declared.step)
            });
        Ok(AdmitCheckpointAnswer {
            tenant_id: launch.tenant_id.to_string(),
            job_id: launch.job_id.to_string(),
            verdict: Some(if is_present {
                Verdict::Present(true)
            } else {
                Verdict::Fits(true)
            }),
        })
    }

    pub fn keep_checkpoint(
        &mut self,
        request: KeepCheckpointRequest,
    ) -> Result<KeepCheckpointAnswer, Status> {
        self.launch(request.task.as_ref())?;
        let declared = request.declared.expect("declared");
        let all = &mut self.checkpoints;
        all.rows.retain(|row| row.declared.path != declared.path);
        all.recorded += 1;
        all.rows.push(CheckpointRow {
            id: Uuid::from_u128(all.recorded).to_string(),
            declared,
            metrics: request.metrics,
        });
        let kept = match all.keep {
            0 => all.rows.len(),
            keep => keep,
        };
        let pruned = all.rows.len().saturating_sub(kept);
        let rows = all.rows.iter().enumerate();
        let checkpoints = rows.map(|(index, row)| RecordedCheckpoint {
            id: row.id.clone(),
            path: row.declared.path.clone(),
            object: String::new(),
            is_retained: index >= pruned,
        });
        Ok(KeepCheckpointAnswer {
            refused: None,
            replaced: Vec::new(),
            checkpoints: checkpoints.collect(),
        })
    }

    pub fn forget_checkpoint(
        &mut self,
        request: &ForgetCheckpointRequest,
    ) -> Result<ForgetCheckpointAnswer, Status> {
        self.launch(request.task.as_ref())?;
        self.checkpoints.rows.retain(|row| row.id != request.id);
        Ok(ForgetCheckpointAnswer {})
    }

    pub fn first_checkpoint(
        &self,
        request: &FirstCheckpointRequest,
    ) -> Result<FirstCheckpointAnswer, Status> {
        let launch = self.launch(request.task.as_ref())?;
        Ok(FirstCheckpointAnswer {
            tenant_id: launch.tenant_id.to_string(),
            checkpoint: self.checkpoints.first.clone(),
            is_trial: false,
        })
    }
}
