//! Schedules: job documents that are submitted at the times of a cron expression. Each API server
//! looks for due schedules; a row lock decides which one submits the job.

mod cron;
pub mod delete;
mod fire;
pub mod list;
pub mod pause;
pub mod run;
pub mod set;
mod submitter;
mod timing;
mod wire;

pub use submitter::{submit_all, submit_due};

use crate::problem::{ApiError, ProblemKind};
use muster_model::error_chain::chain;
use muster_store::schedule::{self, ScheduleRow};
use muster_store::{PgConnection, StoreError};

/// Returns a schedule of the tenant in scope.
async fn found(conn: &mut PgConnection, name: &str) -> Result<ScheduleRow, ApiError> {
    ApiError::check_label(name)?;
    let row = schedule::get(conn, name).await.map_err(unreadable)?;
    row.ok_or_else(|| missing(name))
}

/// Returns the refusal of a request that reads schedules. It names one that this release cannot
/// read.
fn unreadable(error: StoreError) -> ApiError {
    let StoreError::Decode { what, source } = &error else {
        return error.into();
    };
    tracing::error!(error = chain(&error), "a schedule cannot be read");
    let detail = format!(
        "this release cannot read {what}: {source}; store it again, or delete it (muster schedule delete)"
    );
    ApiError::new(ProblemKind::Internal, detail)
}

fn missing(name: &str) -> ApiError {
    ApiError::not_found(format!("schedule {name}; `muster schedule list` lists all"))
}

#[cfg(test)]
mod tests {
    use super::unreadable;
    use muster_store::StoreError;

    #[test]
    fn unreadable_schedule_is_named_with_its_remedy() {
        let error = StoreError::Decode {
            what: "schedule nightly".to_owned(),
            source: serde_json::from_str::<u8>("x").expect_err("no number"),
        };
        let refused = unreadable(error);
        assert!(refused.detail().contains("schedule nightly: expected"));
        assert!(refused.detail().ends_with("(muster schedule delete)"));
    }
}
