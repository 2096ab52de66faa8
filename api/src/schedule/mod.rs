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

use crate::problem::ApiError;
use muster_model::spec::is_dns_label;
use muster_store::PgConnection;
use muster_store::schedule::{self, ScheduleRow};

/// Checks the name of a schedule in a path.
fn named(name: &str) -> Result<(), ApiError> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(ApiError::parameter(
        "name",
        &format!("{name:?}"),
        "1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    ))
}

/// Returns a schedule of the tenant in scope.
async fn found(conn: &mut PgConnection, name: &str) -> Result<ScheduleRow, ApiError> {
    named(name)?;
    let row = schedule::get(conn, name).await?;
    row.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> ApiError {
    ApiError::not_found(format!("schedule {name}; `muster schedule list` lists all"))
}
