//! Exact values of objectives that the programs of trials log.
//!
//! A value stays until the study has taken it; of the taken ones the newest of each name stays. So
//! the rows of a job are bounded, and the end of a trial always has the newest value.

use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned};
use muster_model::id::{JobId, StudyId, TenantId};
use muster_model::metric::{ObjectiveValues, is_name, is_stored};
use sqlx::PgConnection;
use std::collections::BTreeMap;

/// Job that logs, in its present revision. Its row is locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectiveOwner {
    pub tenant: TenantId,
    pub job: JobId,
    pub revision: u64,
}

/// Adds reported values, in the order of logging. Values of earlier revisions are deleted from the
/// first new step of their name on, because a restart repeats steps. Only objectives of the study
/// are kept, and only while the trial runs.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn record(
    conn: &mut PgConnection,
    owner: ObjectiveOwner,
    reports: &[&ObjectiveValues],
) -> Result<(), StoreError> {
    // One statement cannot update a row twice. Of two values of one step the later one is kept.
    let mut rows: BTreeMap<(&str, u64), (f64, Option<f64>)> = BTreeMap::new();
    for report in reports {
        for one in report.values.iter().filter(|one| is_name(&one.name)) {
            let value = one.value.filter(|value| is_stored(*value));
            rows.insert((&one.name, report.step), (report.epoch, value));
        }
    }
    let names: Vec<String> = rows.keys().map(|(name, _)| (*name).to_owned()).collect();
    let steps: Vec<i64> = rows.keys().map(|(_, step)| signed(*step)).collect();
    let epochs: Vec<f64> = rows.values().map(|(epoch, _)| *epoch).collect();
    let values: Vec<Option<f64>> = rows.values().map(|(_, value)| *value).collect();
    sqlx::query!(
        "delete from objective_value v
         using (select name, min(step) as first from unnest($3::text[], $4::bigint[]) as new (name, step) group by name) cut
         where v.job_id = $1 and v.name = cut.name and v.step >= cut.first and v.revision < $2",
        owner.job.0,
        signed(owner.revision),
        &names,
        &steps
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "insert into objective_value (job_id, name, step, tenant_id, revision, epoch, value)
         select j.id, new.name, new.step, $2, $3, new.epoch, new.value
         from job j
         join study_trial t on t.study_id = j.study_id and t.number = j.trial and t.state in ('running', 'stopping')
         join study s on s.id = j.study_id
         cross join unnest($4::text[], $5::bigint[], $6::float8[], $7::float8[]) as new (name, step, epoch, value)
         where j.id = $1
           and exists (select from json_array_elements(s.document -> 'search' -> 'objectives') one where one ->> 'metric' = new.name)
         on conflict (job_id, name, step) do update
            set revision = excluded.revision, epoch = excluded.epoch, value = excluded.value",
        owner.job.0,
        owner.tenant.0,
        signed(owner.revision),
        &names,
        &steps,
        &epochs,
        &values as &[Option<f64>]
    )
    .execute(&mut *conn)
    .await?;
    // After a restart, steps that the study has measured are reported again and never taken.
    sqlx::query!(
        "delete from objective_value v using job j, study_trial t
         where j.id = $1 and t.study_id = j.study_id and t.number = j.trial and v.job_id = j.id
           and exists (select from objective_value n where n.job_id = v.job_id and n.name = v.name
                          and n.step > v.step and n.step <= t.fed_step)",
        owner.job.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes the values that the study has taken of these trials, except the newest of each name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget_taken(
    conn: &mut PgConnection,
    study: StudyId,
    trials: &[u32],
) -> Result<u64, StoreError> {
    let numbers: Vec<i32> = trials.iter().copied().map(signed32).collect();
    let done = sqlx::query!(
        "delete from objective_value v using study_trial t
         where t.study_id = $1 and t.number = any($2) and v.job_id = t.job_id
           and exists (select from objective_value n where n.job_id = v.job_id and n.name = v.name
                          and n.step > v.step and n.step <= t.fed_step)",
        study.0,
        &numbers
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Returns the names of all metrics that a job has logged.
pub(crate) async fn logged_names(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Vec<String>, StoreError> {
    let names = sqlx::query_scalar!(
        r#"select name from metric_series where job_id = $1 order by name collate "C""#,
        job.0
    )
    .fetch_all(conn)
    .await?;
    Ok(names)
}

/// Value of an objective at the step of its measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredObjective {
    pub name: String,
    pub step: u64,
    pub epoch: f64,
    /// `None` for a value that is not finite.
    pub value: Option<f64>,
}

/// Returns the values after step `after`, and for each name the newest one up to it, by step.
pub(crate) async fn since(
    conn: &mut PgConnection,
    job: JobId,
    after: i64,
) -> Result<Vec<StoredObjective>, StoreError> {
    let rows = sqlx::query!(
        "select name, step, epoch, value from objective_value v
         where job_id = $1
           and step >= coalesce((select max(n.step) from objective_value n
                                 where n.job_id = v.job_id and n.name = v.name and n.step <= $2), $2 + 1)
         order by step, name",
        job.0,
        after
    )
    .fetch_all(conn)
    .await?;
    let values = rows.into_iter().map(|row| StoredObjective {
        name: row.name,
        step: unsigned(row.step),
        epoch: row.epoch,
        value: row.value,
    });
    Ok(values.collect())
}
