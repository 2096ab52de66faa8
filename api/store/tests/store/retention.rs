//! Retention: after a year of load every table is bounded, and needed rows remain.

use crate::world::{World, id, spec};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::spec::{JobSpec, Origin};
use muster_store::event::EventFilter;
use muster_store::job::NewJob;
use muster_store::retention::{self, RetentionRules, once};
use muster_store::{code, erasure, event, job, pool};
use sqlx::{Connection as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use time::OffsetDateTime;

const DAY: Duration = Duration::from_secs(86_400);
/// Days between two passes of the simulated year.
const STEP_DAYS: i32 = 2;
/// Steps between two vacuums. Autovacuum runs once a minute and would act in only few steps.
const VACUUM_STEPS: i32 = 15;

const KEEP: RetentionRules = RetentionRules {
    rounds: Duration::from_secs(7 * 86_400),
    ended_jobs: Some(Duration::from_secs(180 * 86_400)),
    deleted_jobs: Duration::from_secs(30 * 86_400),
    events: Duration::from_secs(90 * 86_400),
    gone_nodes: Duration::from_secs(30 * 86_400),
};

/// Returns a day of the year 2020. Postgres refuses to delete events of its last hour, so the year
/// is in the past.
fn day(number: i32) -> OffsetDateTime {
    let first = OffsetDateTime::from_unix_timestamp(1_577_836_800).expect("a date");
    first + DAY * u32::try_from(number).expect("not negative")
}

async fn tables(conn: &mut PgConnection) -> anyhow::Result<BTreeSet<String>> {
    let names: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
         where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and relname <> '_sqlx_migrations'",
    )
    .fetch_all(conn)
    .await?;
    Ok(names.into_iter().collect())
}

/// Returns the number of rows of every table, and the size of the database in bytes.
async fn measure(conn: &mut PgConnection) -> anyhow::Result<(BTreeMap<String, i64>, i64)> {
    let mut rows = BTreeMap::new();
    for table in tables(conn).await? {
        let count = format!("select count(*) from {table}");
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .fetch_one(&mut *conn)
            .await?;
        rows.insert(table, count);
    }
    let bytes = sqlx::query_scalar("select pg_database_size(current_database())")
        .fetch_one(conn)
        .await?;
    Ok((rows, bytes))
}

async fn vacuum(conn: &mut PgConnection) -> anyhow::Result<()> {
    let all: Vec<String> = tables(conn).await?.into_iter().collect();
    let statement = format!("vacuum (analyze) {}", all.join(", "));
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(conn)
        .await?;
    Ok(())
}

#[tokio::test]
async fn tables_are_bounded_after_a_simulated_year() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut conn = PgConnection::connect(&world.db.owner_url).await?;
    sqlx::raw_sql(include_str!("year.sql"))
        .execute(&mut conn)
        .await?;
    begin_at(&mut conn, day(0)).await?;
    let mut after_8_months = None;
    for step in 0..=360 / STEP_DAYS {
        sqlx::query("select load_days($1)")
            .bind(step)
            .execute(&mut conn)
            .await?;
        once(&world.scheduler, &KEEP, day(step * STEP_DAYS)).await?;
        // Uploads of a tenant remove its unused code.
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        code::remove_unused(&mut tx, day(step * STEP_DAYS) - 7 * DAY).await?;
        tx.commit().await?;
        if step % VACUUM_STEPS == 0 {
            vacuum(&mut conn).await?;
        }
        if step == 240 / STEP_DAYS {
            after_8_months = Some(measure(&mut conn).await?);
        }
    }
    let (rows_before, bytes_before) = after_8_months.expect("measured");
    let (mut rows, bytes) = measure(&mut conn).await?;
    let unused: Vec<_> = rows_before.iter().filter(|(_, rows)| **rows == 0).collect();
    assert_eq!(unused, [], "the year loads no row into these tables");
    // Submissions merge the rows of a tenant's use above 256.
    let parts = rows.remove("job_use");
    assert!(parts.is_some_and(|parts| parts < 300), "{parts:?} parts");
    let grown: Vec<_> = rows
        .iter()
        .map(|(table, rows)| (table, rows_before[table], *rows))
        .filter(|(_, before, now)| *now > before + before / 20 + 10)
        .collect();
    assert_eq!(grown, [], "rows after 8 and after 12 months");
    assert!(
        bytes <= bytes_before + bytes_before / 20,
        "{bytes_before} bytes after 8 months, {bytes} after 12"
    );
    Ok(())
}

/// A migration that adds a table must document when its rows are deleted.
#[tokio::test]
async fn every_table_has_a_retention_rule_in_the_documents() -> anyhow::Result<()> {
    let db = muster_testdb::TestDb::new().await;
    let mut conn = PgConnection::connect(&db.owner_url).await?;
    let limits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let limits = std::fs::read_to_string(limits)?;
    let (_, stored) = limits
        .split_once("| tables | owner | rows are removed |")
        .expect("the table of rules");
    let stored = stored.split("\n## ").next().expect("its text");
    let rows = stored.lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    let named: Vec<String> = named
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    let once: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(once.len(), named.len(), "each table has one rule");
    assert_eq!(once, tables(&mut conn).await?);
    Ok(())
}

/// Ends a job of the red tenant at `at`.
async fn end(conn: &mut PgConnection, job: JobId, at: OffsetDateTime) -> anyhow::Result<()> {
    sqlx::query(
        r#"update job set phase = 'succeeded', state = '{"phase": "succeeded"}', finished_at = $2 where id = $1"#,
    )
    .bind(job.0)
    .bind(at)
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases all tasks.
async fn release(conn: &mut PgConnection) -> anyhow::Result<()> {
    sqlx::query(
        r#"update task set phase = 'released', state = '{"phase": "released"}', released_at = now() where released_at is null"#,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Erases the files of every job deleted before `now`, like the nodes. Returns the jobs with files.
async fn erase(world: &World, now: OffsetDateTime) -> anyhow::Result<Vec<JobId>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let pending = erasure::pending(&mut tx, (now, now), &[], 100).await?;
    let jobs: Vec<JobId> = pending.iter().map(|one| one.job).collect();
    for job in &jobs {
        assert!(erasure::done(&mut tx, *job, now).await?);
        assert!(!erasure::done(&mut tx, *job, now).await?, "once");
    }
    tx.commit().await?;
    Ok(jobs)
}

async fn is_there(conn: &mut PgConnection, job: JobId) -> anyhow::Result<bool> {
    let rows: i64 = sqlx::query_scalar("select count(*) from job where id = $1")
        .bind(job.0)
        .fetch_one(conn)
        .await?;
    Ok(rows == 1)
}

/// Sets the time at which deletion by age was introduced, which the migration writes.
async fn begin_at(conn: &mut PgConnection, at: OffsetDateTime) -> anyhow::Result<()> {
    let done = sqlx::query("update retention_begun set at = $1")
        .bind(at)
        .execute(conn)
        .await?;
    anyhow::ensure!(done.rows_affected() == 1);
    Ok(())
}

#[tokio::test]
async fn upgrade_deletes_no_old_job_before_the_whole_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut conn = PgConnection::connect(&world.db.owner_url).await?;
    let ended = world.submit("ended").await?;
    end(&mut conn, ended, day(0)).await?;
    begin_at(&mut conn, day(400)).await?;
    assert_eq!(once(&world.scheduler, &KEEP, day(579)).await?.expired, 0);
    assert_eq!(once(&world.scheduler, &KEEP, day(581)).await?.expired, 1);
    Ok(())
}

#[tokio::test]
async fn ended_job_is_deleted_by_retention_and_then_purged() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut conn = PgConnection::connect(&world.db.owner_url).await?;
    begin_at(&mut conn, day(0)).await?;
    let ended = world.submit("ended").await?;
    let open = world.submit("open").await?;
    end(&mut conn, ended, day(0)).await?;
    let for_ever = RetentionRules {
        ended_jobs: None,
        ..KEEP
    };
    assert_eq!(
        once(&world.scheduler, &for_ever, day(400)).await?.expired,
        0
    );
    assert_eq!(once(&world.scheduler, &KEEP, day(180)).await?.expired, 0);
    assert_eq!(once(&world.scheduler, &KEEP, day(181)).await?.expired, 1);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(job::get(&mut tx, ended).await?, None);
    let of_job = EventFilter {
        job_id: Some(ended),
        node_id: None,
    };
    let events = event::page(&mut tx, of_job, None, 10).await?;
    let told = events.last().map(|stored| &stored.event);
    assert!(
        matches!(
            told,
            Some(Event::JobDeleted { by: Some(by), .. }) if by.user == "retention" && !by.as_administrator
        ),
        "{told:?}"
    );
    drop(tx);
    erase(&world, day(182)).await?;
    assert_eq!(once(&world.scheduler, &KEEP, day(211)).await?.jobs, 0);
    assert_eq!(once(&world.scheduler, &KEEP, day(212)).await?.jobs, 1);
    assert!(!is_there(&mut conn, ended).await?);
    assert!(is_there(&mut conn, open).await?);
    let left: i64 = sqlx::query_scalar("select count(*) from event where job_id = $1")
        .bind(ended.0)
        .fetch_one(&mut conn)
        .await?;
    assert_eq!(left, 0, "its events went with it");
    Ok(())
}

#[tokio::test]
async fn deleted_job_is_kept_while_another_begins_from_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut conn = PgConnection::connect(&world.db.owner_url).await?;
    let origin = world.submit("origin").await?;
    world.start(origin, 0, &[0], 1).await?;
    release(&mut conn).await?;
    end(&mut conn, origin, day(0)).await?;
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: JobSpec {
            from: Some(Origin {
                job: origin,
                step: Some(1),
            }),
            ..spec("continued")
        },
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::insert(&mut tx, &new, day(1)).await?;
    job::delete(&mut tx, origin, None, day(1)).await?;
    tx.commit().await?;
    once(&world.scheduler, &KEEP, day(60)).await?;
    assert!(is_there(&mut conn, origin).await?, "an open job names it");
    assert_eq!(erase(&world, day(60)).await?, []);
    end(&mut conn, new.id, day(60)).await?;
    once(&world.scheduler, &KEEP, day(61)).await?;
    assert!(is_there(&mut conn, origin).await?, "its files are there");
    assert_eq!(erase(&world, day(61)).await?, [origin]);
    once(&world.scheduler, &KEEP, day(61)).await?;
    assert!(!is_there(&mut conn, origin).await?);
    assert_eq!(
        world.job(new.id).await?.job.spec.from,
        new.spec.from,
        "its document stays"
    );
    Ok(())
}

#[tokio::test]
async fn old_events_of_an_open_job_are_deleted_and_young_ones_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("open").await?;
    let note = |number: i32| event::NewEvent {
        at: day(number),
        tenant_id: Some(world.red),
        job_id: Some(job),
        node_id: None,
        event: Event::Note {
            message: number.to_string(),
        },
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    event::append(&mut tx, &[note(0), note(1), note(100)]).await?;
    tx.commit().await?;
    let forgotten = once(&world.scheduler, &KEEP, day(120)).await?;
    assert_eq!(forgotten.events, 2);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    let notes: Vec<String> = events
        .into_iter()
        .filter_map(|stored| match stored.event {
            Event::Note { message } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(notes, ["100"]);
    Ok(())
}

#[tokio::test]
async fn no_role_removes_events_of_the_last_hour() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("open").await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let now: OffsetDateTime = sqlx::query_scalar("select now()")
        .fetch_one(&mut *tx)
        .await?;
    let refused = retention::forget_events(&mut tx, now).await;
    assert!(refused.is_err(), "{refused:?}");
    drop(tx);
    // The same holds for events of jobs that are not deleted.
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(retention::empty(&mut tx, &[job]).await?, 0);
    drop(tx);
    let mut tx = pool::begin(&world.api).await?;
    let refused = sqlx::query("select muster_forget_events(timestamptz '2020-01-01', 1)")
        .execute(&mut *tx)
        .await;
    let refused = refused.expect_err("the api has no right to it").to_string();
    assert!(refused.contains("permission denied"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn files_are_erased_after_deletion_and_end_of_all_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut conn = PgConnection::connect(&world.db.owner_url).await?;
    let job = world.submit("deleted").await?;
    world.start(job, 0, &[0], 1).await?;
    end(&mut conn, job, day(0)).await?;
    assert_eq!(erase(&world, day(1)).await?, [], "it is not deleted");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::delete(&mut tx, job, None, day(1)).await?;
    tx.commit().await?;
    assert_eq!(erase(&world, day(2)).await?, [], "its tasks are there");
    release(&mut conn).await?;
    assert_eq!(erase(&world, day(1)).await?, [], "it was deleted later");
    let mut tx = pool::begin(&world.scheduler).await?;
    let given = erasure::pending(&mut tx, (day(2), day(2)), &[job], 100).await?;
    assert_eq!(given, [], "a node has the order");
    drop(tx);
    assert_eq!(erase(&world, day(2)).await?, [job]);
    assert_eq!(erase(&world, day(2)).await?, [], "its files are gone");
    Ok(())
}
