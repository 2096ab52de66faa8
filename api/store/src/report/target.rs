//! Ends jobs whose program has reached the target of its document. The built-in engine ends by
//! itself.

use super::facts::finish;
use super::{ReportEffects, ReportedTask};
use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::plan::JobFinishReport;
use muster_model::assignment::TaskReport;
use muster_model::event::Event;
use muster_model::spec::ReachingValue;
use muster_model::task::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// Records that the job is done if a new line of its rank 0 has a value that reaches the target.
/// The next round stops its tasks. Only the first such value counts.
pub(super) async fn check(
    conn: &mut PgConnection,
    known: &ReportedTask,
    new: &[(OffsetDateTime, TaskReport)],
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let task = &known.locked.task;
    let Some(target) = known
        .target
        .as_ref()
        .filter(|_| task.role == (Role::Worker { rank: 0 }))
    else {
        return Ok(());
    };
    let mut reports = new.iter();
    let Some(ReachingValue { step, value }) =
        reports.find_map(|(_, report)| target.reached_by(report))
    else {
        return Ok(());
    };
    let reason = target.reason(value);
    let finished = JobFinishReport {
        step,
        reason: reason.clone(),
        model_path: String::new(),
    };
    if !finish(conn, task.job_id, &finished).await? {
        return Ok(());
    }
    sum.outcome.round_due = true;
    let event = Event::TrainingFinished {
        step,
        reason,
        model_path: String::new(),
    };
    let event = NewEvent {
        node_id: Some(task.node_id),
        ..of_job(sum.now, known.locked.tenant_id, task.job_id, event)
    };
    let volume = sum
        .volumes
        .of(conn, known.locked.tenant_id, task.job_id)
        .await?;
    sum.events.extend(volume.keep(event));
    Ok(())
}
