//! Schedules of tenants. The caller computes the planned times.

mod due;

pub use due::{
    DueSchedule, DueTimes, Owner, advance, due, lock_due, lock_due_times, lock_open_job, owner,
    record_job,
};

use crate::error::StoreError;
use crate::event;
use crate::int_convert::unsigned;
use crate::limit;
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId, UserId};
use muster_model::schedule::{ScheduleChange, ScheduleDocument, SchedulePause, ScheduleRun};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// A stored schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    pub name: String,
    pub user_id: UserId,
    /// Name of the user.
    pub owner: String,
    pub document: ScheduleDocument,
    pub paused: Option<SchedulePause>,
    /// The next planned time.
    pub next_at: OffsetDateTime,
    /// Result of the newest planned time.
    pub last: Option<ScheduleRun>,
    pub last_job: Option<JobId>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// A schedule that a user stores.
#[derive(Debug, Clone, Copy)]
pub struct NewSchedule<'a> {
    pub tenant: TenantId,
    pub name: &'a str,
    pub user: UserId,
    pub document: &'a ScheduleDocument,
    /// The first planned time.
    pub next_at: OffsetDateTime,
}

struct ScheduleSqlRow {
    name: String,
    user_id: Uuid,
    owner: String,
    cron: String,
    time_zone: String,
    catch_up: String,
    overlap: String,
    /// Read apart from the row: another release may have written it.
    document: Json<Value>,
    paused: Option<String>,
    next_at: OffsetDateTime,
    last: Option<Json<ScheduleRun>>,
    last_job: Option<Uuid>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

/// The columns of every query of schedules. A macro, because `query_as!` takes only literals.
macro_rules! select_schedules {
    ($rest:literal $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            ScheduleSqlRow,
            r#"select s.name, s.user_id, u.name as owner, s.cron, s.time_zone, s.catch_up, s.overlap,
                      s.document as "document: Json<Value>", s.paused, s.next_at,
                      s.last as "last: Json<ScheduleRun>", s.last_job, s.created_at, s.updated_at
               from schedule s join app_user u on u.id = s.user_id "# + $rest
            $(, $argument)*
        )
    };
}
use select_schedules;

/// Creates or replaces a schedule and appends an event. A schedule that a user has paused stays
/// paused; the results of its earlier times stay.
///
/// # Errors
/// [`StoreError::Exceeded`] if it is new and the tenant has the maximum number.
pub async fn put(
    conn: &mut PgConnection,
    new: &NewSchedule<'_>,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    limit::hold(conn, new.tenant).await?;
    if row(conn, new.name).await?.is_none() {
        admit(conn, new).await?;
    }
    let document = new.document;
    sqlx::query!(
        "insert into schedule (tenant_id, name, user_id, cron, time_zone, catch_up, overlap, document, next_at, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
         on conflict (tenant_id, name) do update
            set user_id = excluded.user_id, cron = excluded.cron, time_zone = excluded.time_zone,
                catch_up = excluded.catch_up, overlap = excluded.overlap, document = excluded.document,
                next_at = excluded.next_at, updated_at = excluded.updated_at,
                paused = case when schedule.paused = $11 then schedule.paused end",
        new.tenant.0,
        new.name,
        new.user.0,
        document.cron,
        document.time_zone,
        document.catch_up.as_str(),
        document.overlap.as_str(),
        Json(&document.job) as _,
        new.next_at,
        now,
        SchedulePause::ByUser.as_str()
    )
    .execute(&mut *conn)
    .await?;
    let change = ScheduleChange::Stored;
    record(conn, (new.tenant, new.name), change, Some(by), now).await
}

/// Checks whether the tenant may have one more schedule.
async fn admit(conn: &mut PgConnection, new: &NewSchedule<'_>) -> Result<(), StoreError> {
    let others = sqlx::query_scalar!(
        r#"select count(*) as "others!" from schedule where name <> $1"#,
        new.name
    )
    .fetch_one(&mut *conn)
    .await?;
    let most = limit::of(conn, new.tenant).await?.schedules;
    limit::below("schedules", most, unsigned(others))
}

async fn record(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    change: ScheduleChange,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let event = Event::ScheduleChanged {
        name: name.to_owned(),
        change,
        by: by.cloned(),
    };
    event::append_of_tenant(conn, tenant, event, now).await
}

/// Deletes a schedule and appends an event. Its jobs stay. Returns `false` if it does not exist.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    tenant: TenantId,
    name: &str,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let done = sqlx::query!("delete from schedule where name = $1", name)
        .execute(&mut *conn)
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    let change = ScheduleChange::Deleted;
    record(conn, (tenant, name), change, Some(by), now).await?;
    Ok(true)
}

/// Deletes all schedules of the tenant in scope, which is being deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete_all(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query!("delete from schedule").execute(conn).await?;
    Ok(())
}

/// Pauses a schedule and appends an event, unless it is paused. A pause by a user replaces that of
/// an owner without a token.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn pause(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    why: SchedulePause,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "update schedule set paused = $2 where name = $1 and (paused is null or (paused <> $2 and $3))",
        name,
        why.as_str(),
        why == SchedulePause::ByUser
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    let change = ScheduleChange::Paused;
    record(conn, (tenant, name), change, by, now).await
}

/// Lets a paused schedule submit again, beginning with `next_at`, and appends an event.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn resume(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    next_at: OffsetDateTime,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "update schedule set paused = null, next_at = $2 where name = $1 and paused is not null",
        name,
        next_at
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    let change = ScheduleChange::Resumed;
    record(conn, (tenant, name), change, Some(by), now).await
}

/// Returns the schedules of the tenant in scope by name.
///
/// # Errors
/// [`StoreError::Statement`]; [`StoreError::Decode`] for a document of another release.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<ScheduleRow>, StoreError> {
    let rows = select_schedules!(r#"order by s.name collate "C""#)
        .fetch_all(conn)
        .await?;
    rows.into_iter().map(ScheduleRow::try_from).collect()
}

/// Returns a schedule.
///
/// # Errors
/// [`StoreError::Statement`]; [`StoreError::Decode`] for a document of another release.
pub async fn get(conn: &mut PgConnection, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
    let row = row(conn, name).await?;
    row.map(ScheduleRow::try_from).transpose()
}

/// Returns a row without decoding its document.
async fn row(conn: &mut PgConnection, name: &str) -> Result<Option<ScheduleSqlRow>, StoreError> {
    let row = select_schedules!("where s.name = $1", name)
        .fetch_optional(conn)
        .await?;
    Ok(row)
}

impl TryFrom<ScheduleSqlRow> for ScheduleRow {
    type Error = StoreError;

    fn try_from(row: ScheduleSqlRow) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::Decode {
            what: format!("schedule {}", row.name),
            source,
        };
        let paused = row.paused.map(named).transpose().map_err(wrong)?;
        let document = ScheduleDocument {
            cron: row.cron,
            time_zone: row.time_zone,
            catch_up: named(row.catch_up).map_err(wrong)?,
            overlap: named(row.overlap).map_err(wrong)?,
            job: serde_json::from_value(row.document.0).map_err(wrong)?,
        };
        Ok(Self {
            name: row.name,
            user_id: row.user_id.into(),
            owner: row.owner,
            document,
            paused,
            next_at: row.next_at,
            last: row.last.map(|last| last.0),
            last_job: row.last_job.map(JobId::from),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// Returns the value of a name. A later release may have written a name that this one lacks.
fn named<T: DeserializeOwned>(name: String) -> serde_json::Result<T> {
    serde_json::from_value(Value::String(name))
}

#[cfg(test)]
mod tests {
    use super::{SchedulePause, named};
    use muster_model::schedule::{CatchUp, Overlap};

    #[test]
    fn names_of_columns_are_those_of_the_rules() {
        for rule in CatchUp::ALL {
            assert_eq!(named(rule.as_str().to_owned()).ok(), Some(rule));
        }
        for rule in Overlap::ALL {
            assert_eq!(named(rule.as_str().to_owned()).ok(), Some(rule));
        }
        for why in SchedulePause::ALL {
            assert_eq!(named(why.as_str().to_owned()).ok(), Some(why));
        }
        let unknown = named::<Overlap>("queue".to_owned()).expect_err("unknown");
        assert!(unknown.to_string().contains("`queue`"), "{unknown}");
    }
}
