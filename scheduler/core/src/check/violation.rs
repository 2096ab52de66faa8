//! Rules that a plan can break, with their messages.

use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::spec::UnmetConstraint;
use muster_model::task::Role;

/// Broken rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the plan names job {job}, which the snapshot does not have")]
    UnknownJob { job: JobId },
    #[error("job {job} is decided on at revision {expected}, but has {revision}")]
    WrongRevision {
        job: JobId,
        expected: u64,
        revision: u64,
    },
    #[error("job {job}: {refused}")]
    IllegalTransition { job: JobId, refused: String },
    #[error("job {job} is released while its tasks hold GPUs")]
    ReleasedEarly { job: JobId },
    #[error("job {job} gives up a task that does not wait for its node")]
    GivesUpStarted { job: JobId },
    #[error("job {job} is up, but not all of its tasks are")]
    UpEarly { job: JobId },
    #[error("job {job} starts before {not_before_ms}, the end of its back-off")]
    StartsInBackOff { job: JobId, not_before_ms: i64 },
    #[error("job {job} starts against its owner's intent")]
    StartsAgainstIntent { job: JobId },
    #[error("job {job} starts with {role} {count} times")]
    BrokenGang {
        job: JobId,
        role: &'static str,
        count: u32,
    },
    #[error("job {job} starts with {count} {role}s, outside its range")]
    OutsideRange {
        job: JobId,
        role: &'static str,
        count: u32,
    },
    #[error("{role} of job {job} is given {given} GPUs instead of {needed}")]
    WrongGpus {
        job: JobId,
        role: Role,
        given: usize,
        needed: u32,
    },
    #[error(
        "{role} of job {job} is given {given} parts of GPUs of node {node}, of which a task sees one"
    )]
    SeveralParts {
        job: JobId,
        role: Role,
        node: NodeId,
        given: usize,
    },
    #[error("{role} of job {job} must be a pod, and tasks of node {node} are none")]
    NoPods {
        job: JobId,
        role: Role,
        node: NodeId,
    },
    #[error("{role} of job {job} runs in an image, which node {node} cannot")]
    NoImages {
        job: JobId,
        role: Role,
        node: NodeId,
    },
    #[error("{role} of job {job} starts on node {node}, which lacks what its program needs")]
    UnfitNode {
        job: JobId,
        role: Role,
        node: NodeId,
    },
    #[error("{role} of job {job} starts on node {node}, which {} excludes", .by.field())]
    ForbiddenNode {
        job: JobId,
        role: Role,
        node: NodeId,
        by: UnmetConstraint,
    },
    #[error("job {job} starts on node {node}, which takes no tasks")]
    ClosedNode { job: JobId, node: NodeId },
    #[error("GPU {gpu} of node {node} is given to job {job}, but is held or does not exist")]
    GpuNotFree { job: JobId, node: NodeId, gpu: u32 },
    #[error(
        "job {job} starts on GPU {gpu} of node {node}, where it may not fit beside suspended programs"
    )]
    GpuMemoryExceeded { job: JobId, node: NodeId, gpu: u32 },
    #[error("node {node} is given more CPU than it has")]
    CpuExceeded { node: NodeId },
    #[error("node {node} is given more memory than it has")]
    MemoryExceeded { node: NodeId },
    #[error("tenant {tenant} would hold {held} GPUs, its quota is {quota}")]
    QuotaExceeded {
        tenant: TenantId,
        held: u32,
        quota: u32,
    },
    #[error("job {job} is stopped for another job although none of its kind may displace it")]
    UnjustPreemption { job: JobId },
    #[error("job {job} makes room for another job, {what}")]
    CostlyStop { job: JobId, what: &'static str },
    #[error("job {job} gets the wait reason that it already has")]
    IdleWait { job: JobId },
    #[error("job {job} is turned, {what}")]
    WrongTurn { job: JobId, what: &'static str },
    #[error("job {job} is packed, {what}")]
    UnjustPacking { job: JobId, what: &'static str },
    #[error("a rank of job {job} is judged, {what}")]
    UnjustVerdict { job: JobId, what: &'static str },
    #[error("node {node} is excluded, {what}")]
    UnjustExclusion { node: NodeId, what: &'static str },
    #[error("job {job} is resized in place, {what}")]
    ImpossibleResize { job: JobId, what: &'static str },
}

impl Violation {
    /// Returns the job whose decision breaks the rule; `None` if the rule is not about one job.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::UnknownJob { job }
            | Self::WrongRevision { job, .. }
            | Self::IllegalTransition { job, .. }
            | Self::ReleasedEarly { job }
            | Self::GivesUpStarted { job }
            | Self::UpEarly { job }
            | Self::StartsInBackOff { job, .. }
            | Self::StartsAgainstIntent { job }
            | Self::BrokenGang { job, .. }
            | Self::OutsideRange { job, .. }
            | Self::WrongGpus { job, .. }
            | Self::SeveralParts { job, .. }
            | Self::NoPods { job, .. }
            | Self::NoImages { job, .. }
            | Self::UnfitNode { job, .. }
            | Self::ForbiddenNode { job, .. }
            | Self::ClosedNode { job, .. }
            | Self::GpuNotFree { job, .. }
            | Self::GpuMemoryExceeded { job, .. }
            | Self::UnjustPreemption { job }
            | Self::CostlyStop { job, .. }
            | Self::IdleWait { job }
            | Self::WrongTurn { job, .. }
            | Self::UnjustPacking { job, .. }
            | Self::UnjustVerdict { job, .. }
            | Self::ImpossibleResize { job, .. } => Some(*job),
            Self::CpuExceeded { .. }
            | Self::MemoryExceeded { .. }
            | Self::QuotaExceeded { .. }
            | Self::UnjustExclusion { .. } => None,
        }
    }
}
