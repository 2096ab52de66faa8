//! Why an artifact is not kept or not found.

use super::walk;
use muster_model::artifact::PATH_RULE;
use muster_objects::ObjectsError;
use std::io;
use tonic::{Code, Status};

/// Why an artifact is not kept or not found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("{0:?} is no path of an artifact: {PATH_RULE}")]
    Path(String),
    #[error("there is no session with the scheduler")]
    NoSession,
    #[error("the scheduler does not answer")]
    Silent,
    #[error("the scheduler refuses: {}", .0.message())]
    Scheduler(Box<Status>),
    /// `limit` is the name of a limit of the tenant; empty if a later start of the job has written
    /// the path.
    #[error("{message}")]
    Refused { message: String, limit: String },
    #[error("it became larger during the upload than the {most_bytes} bytes that it may have")]
    Grown { most_bytes: u64 },
    #[error("other uploads of the job take the rest of its limit now")]
    Busy,
    #[error("it changed during the upload")]
    Changed,
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    #[error("the checkpoint store is full")]
    StoreFull,
    #[error("the checkpoint store cannot be used")]
    Store(#[source] io::Error),
    #[error("the checkpoint store cannot be used")]
    Objects(#[from] ObjectsError),
    #[error("there is no artifact {0:?} of this job")]
    Missing(String),
    #[error("MUSTER_CHECKPOINT_DIR has no file of this name")]
    NoCheckpoint,
    #[error("it has more than {most} bytes")]
    Large { most: u64 },
    #[error(
        "another checkpoint has the same step; let checkpoint.files match only one name per step. Other matches like it are not reported"
    )]
    SameStep,
}

impl ArtifactError {
    /// Returns the error of a write into the store.
    pub(super) fn store(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::StoreFull,
            _ => Self::Store(error),
        }
    }

    /// Whether the same content may be accepted later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NoSession
            | Self::Silent
            | Self::Busy
            | Self::Changed
            | Self::StoreFull
            | Self::Store(_)
            | Self::Objects(_) => true,
            Self::Scheduler(_) => !self.is_over(),
            Self::Read(error) => walk::is_transient(error),
            Self::Path(_)
            | Self::Refused { .. }
            | Self::Grown { .. }
            | Self::Missing(_)
            | Self::NoCheckpoint
            | Self::Large { .. }
            | Self::SameStep => false,
        }
    }

    /// Whether the scheduler is not reached now.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::NoSession | Self::Silent | Self::Scheduler(_))
    }

    /// Whether the scheduler may have recorded the content: its answer is lost, or is no refusal.
    pub(super) fn may_be_recorded(&self) -> bool {
        match self {
            Self::NoSession | Self::Silent => true,
            Self::Scheduler(status) => !matches!(
                status.code(),
                Code::PermissionDenied | Code::InvalidArgument
            ),
            _ => false,
        }
    }

    /// Whether a later start of the job has written the path.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Refused { limit, .. } if limit.is_empty())
    }

    /// Whether the job has as many artifacts as it may have.
    pub(crate) fn is_count(&self) -> bool {
        matches!(self, Self::Refused { limit, .. } if limit == "job_artifacts")
    }

    /// Whether the scheduler can never record this content.
    pub(crate) fn is_invalid(&self) -> bool {
        matches!(self, Self::Scheduler(status) if status.code() == Code::InvalidArgument)
    }

    /// Whether the scheduler takes no artifact of the task any more: its job was deleted, or the
    /// scheduler is of an earlier release.
    pub(crate) fn is_over(&self) -> bool {
        let Self::Scheduler(status) = self else {
            return false;
        };
        matches!(
            status.code(),
            Code::PermissionDenied | Code::Unimplemented | Code::InvalidArgument
        )
    }
}
