//! Response types of the REST interface, apart from the basic types themselves. The API server
//! writes them; the client, the command line and the web page read them.
//!
//! They are in this crate because the client must depend on no other crate of Muster, and copies
//! would drift. They contain no behaviour: `muster-api` decides what they show.

mod artifact;
mod code;
mod explain;
mod family;
mod forecast;
mod job;
mod metric;
mod node;
mod problem;
mod question;
mod round;
mod schedule;
mod secret;
mod stream;
mod study;
mod template;
mod tenant;

pub use artifact::ArtifactView;
pub use code::CodeView;
pub use explain::{
    BatchView, BlockingJob, BlockingNode, BlockingQuota, DecidedView, ExplainView, InTheWay,
    NodeObstacle, RunnerUpView,
};
pub use family::{FamilySpeedView, FamilyView};
pub use forecast::{AccuracyView, HitRate};
pub use job::{
    CheckpointView, Count, EvaluationView, EventView, IdleView, JobChange, JobView, PaceView,
    ProgressView, SampleView, SeriesView, SuspectedView, TaskView, TrialRef, WaitingView,
};
pub use metric::{MetricBucketView, MetricSeriesView, MetricView};
pub use node::{CreatedJoinToken, GpuView, NewJoinToken, NodeView, Occupant};
pub use problem::Problem;
pub use question::{
    AddedNodes, ImaginedJob, ImaginedQuota, JobShift, PlanView, Shift, ShiftedJob, ShiftedJobs,
    TenantShift, WhatIf, WhatIfView,
};
pub use round::{RoundSummaryView, RoundTotals, RoundView};
pub use schedule::{PlannedTime, ScheduleView};
pub use secret::{SecretVersion, SecretView};
pub use stream::{LogEnd, LogPiece, Opened, ProgressMessage, name};
pub use study::{
    Ask, Asked, BestTrialView, Proposal, ProposedTrial, StudyExtension, StudyView, Tell,
    TellAnswer, TrialCounts, TrialPoint, TrialResult, TrialSource, TrialView,
};
pub use template::{TemplateValues, TemplateView};
pub use tenant::{
    CreatedToken, Me, NewTenant, NewToken, RevokedTokens, TenantChange, TenantView, TokenView,
    UserView,
};

use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Value of the query parameter `continue` for the next page; null on the last one. Opaque.
    #[serde(rename = "continue")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub next: Option<String>,
}
