//! Schedules: rows of a tenant, due times, and one submission by two servers.

use crate::world::{World, at, id, spec};
use muster_model::actor::Actor;
use muster_model::id::{TenantId, UserId};
use muster_model::schedule::{
    CatchUp, Overlap, ScheduleDocument, SchedulePause, ScheduleResult, ScheduleRun,
};
use muster_model::tenant::{Access, LimitsSet};
use muster_store::job::{self, JobFilter, NewJob};
use muster_store::retention;
use muster_store::schedule::{self, DueSchedule, NewSchedule, Owner};
use muster_store::token::{self, NewTokenRecord};
use muster_store::{StoreError, limit, pool, tenant_scope};

const DUE_S: u64 = 60;

fn ann() -> Actor {
    Actor {
        user: "ann".to_owned(),
        as_administrator: false,
    }
}

async fn put(
    world: &World,
    (tenant, user): (TenantId, UserId),
    name: &str,
) -> Result<(), StoreError> {
    let document = ScheduleDocument {
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        catch_up: CatchUp::Latest,
        overlap: Overlap::Skip,
        job: spec("planned"),
    };
    let new = NewSchedule {
        tenant,
        name,
        user,
        document: &document,
        next_at: at(DUE_S),
    };
    let mut tx = pool::begin_for(&world.api, tenant).await?;
    schedule::put(&mut tx, &new, &ann(), at(1)).await?;
    tx.commit().await?;
    Ok(())
}

fn red(world: &World) -> (TenantId, UserId) {
    (world.red, world.red_user)
}

/// Does what a server does for a due schedule. Returns whether it has submitted a job.
async fn submit(world: &World, seconds: u64) -> anyhow::Result<bool> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let Some((row, _)) = schedule::lock_due(&mut tx, "nightly", at(seconds)).await? else {
        return Ok(false);
    };
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: row.user_id,
        spec: row.document.job,
    };
    let job = job::insert(&mut tx, &new, at(seconds)).await?.id;
    // The other server looks while this one holds the lock.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    advance(&mut tx, world, ScheduleResult::Submitted { job }, seconds).await?;
    tx.commit().await?;
    Ok(true)
}

async fn advance(
    conn: &mut muster_store::PgConnection,
    world: &World,
    result: ScheduleResult,
    seconds: u64,
) -> Result<(), StoreError> {
    let run = ScheduleRun {
        planned_at: at(DUE_S),
        at: at(seconds),
        result,
    };
    let next = at(seconds + 60);
    schedule::advance(conn, (world.red, "nightly"), &run, next).await
}

#[tokio::test]
async fn two_servers_submit_one_job_per_planned_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    for round in 0..5 {
        let seconds = DUE_S + 61 * round;
        let (first, second) = tokio::join!(submit(&world, seconds), submit(&world, seconds));
        assert_eq!(u8::from(first?) + u8::from(second?), 1);
        assert!(!submit(&world, seconds).await?, "the time has passed");
    }
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let jobs = job::list(&mut tx, &JobFilter::default(), None, 50).await?;
    assert_eq!(jobs.rows.len(), 5);
    let row = schedule::get(&mut tx, "nightly").await?.expect("stored");
    assert_eq!(row.last_job, Some(jobs.rows[0].job.id));
    Ok(())
}

#[tokio::test]
async fn due_schedules_of_all_tenants_are_found() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    put(&world, red(&world), "paused").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let paused = (world.red, "paused");
    let why = SchedulePause::ByUser;
    schedule::pause(&mut tx, paused, why, Some(&ann()), at(2)).await?;
    tx.commit().await?;
    let mut conn = world.api.acquire().await?;
    let expected = DueSchedule {
        tenant: world.red,
        name: "nightly".to_owned(),
        next_at: at(DUE_S),
    };
    let early = schedule::due(&mut conn, at(DUE_S - 1), None, 10).await?;
    assert_eq!(early, []);
    let found = schedule::due(&mut conn, at(DUE_S), None, 10).await?;
    assert_eq!(found, [expected]);
    drop(conn);
    // No other tenant sees or changes it.
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    assert_eq!(schedule::list(&mut tx).await?, []);
    assert_eq!(
        schedule::lock_due(&mut tx, "nightly", at(DUE_S)).await?,
        None
    );
    assert!(!schedule::delete(&mut tx, world.blue, "nightly", &ann(), at(2)).await?);
    Ok(())
}

#[tokio::test]
async fn pages_of_due_schedules_continue_after_failed_ones() -> anyhow::Result<()> {
    let world = World::new().await?;
    for name in ["a", "b", "c"] {
        put(&world, red(&world), name).await?;
    }
    put(&world, (world.blue, world.blue_user), "a").await?;
    let mut conn = world.api.acquire().await?;
    let mut found = Vec::new();
    // No schedule advances, as if each submission failed.
    loop {
        let page = schedule::due(&mut conn, at(DUE_S), found.last(), 1).await?;
        let Some(due) = page.into_iter().next() else {
            break;
        };
        assert!(!found.contains(&due), "{due:?}");
        found.push(due);
    }
    assert_eq!(found.len(), 4);
    Ok(())
}

#[tokio::test]
async fn unreadable_document_leaves_its_times_readable() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    sqlx::query("update schedule set document = '{}'")
        .execute(&mut *tx)
        .await?;
    let locked = schedule::lock_due(&mut tx, "nightly", at(DUE_S)).await;
    assert!(
        matches!(&locked, Err(StoreError::Decode { what, .. }) if what == "schedule nightly"),
        "{locked:?}"
    );
    let times = schedule::lock_due_times(&mut tx, "nightly", at(DUE_S)).await?;
    assert_eq!(times.expect("due").next_at, at(DUE_S));
    let reason = "unreadable".to_owned();
    advance(&mut tx, &world, ScheduleResult::Refused { reason }, DUE_S).await?;
    let times = schedule::lock_due_times(&mut tx, "nightly", at(DUE_S)).await?;
    assert_eq!(times, None);
    Ok(())
}

#[tokio::test]
async fn pause_by_a_user_replaces_that_of_the_owner() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let (user, owner) = (SchedulePause::ByUser, SchedulePause::OwnerWithoutToken);
    for (why, expected) in [(owner, owner), (user, user), (owner, user)] {
        let at = (world.red, "nightly");
        schedule::pause(&mut tx, at, why, Some(&ann()), crate::world::at(2)).await?;
        let row = schedule::get(&mut tx, "nightly").await?.expect("stored");
        assert_eq!(row.paused, Some(expected));
    }
    Ok(())
}

#[tokio::test]
async fn owner_of_a_schedule_is_not_forgotten() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let forgotten = retention::forget_users(&mut tx, at(100)).await?;
    tx.commit().await?;
    assert_eq!(forgotten, 1, "the user of the other tenant");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(schedule::list(&mut tx).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn refusal_keeps_the_last_job_and_the_schedule() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, red(&world), "nightly").await?;
    assert!(submit(&world, DUE_S).await?);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let later = at(DUE_S + 60);
    let (row, open) = schedule::lock_due(&mut tx, "nightly", later)
        .await?
        .expect("due");
    assert!(open.is_some() && open == row.last_job, "the job is queued");
    let reason = "limit".to_owned();
    advance(&mut tx, &world, ScheduleResult::Refused { reason }, 200).await?;
    let after = schedule::get(&mut tx, "nightly").await?.expect("stored");
    assert_eq!(after.last_job, open);
    assert_eq!(after.next_at, at(260));
    let last = after.last.expect("a result");
    assert!(matches!(last.result, ScheduleResult::Refused { .. }));
    Ok(())
}

#[tokio::test]
async fn owner_needs_a_valid_token() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(schedule::owner(&mut tx, world.red_user, at(0)).await?, None);
    for (number, access) in [(1_u8, Access::Member), (2, Access::Admin)] {
        let token = NewTokenRecord {
            id: id(),
            tenant_id: world.red,
            user_id: world.red_user,
            name: "t".to_owned(),
            access,
            hash: [number; 32],
            expires_at: (number == 2).then(|| at(100)),
        };
        token::create(&mut tx, &token, at(0)).await?;
    }
    let owner = |access| {
        Some(Owner {
            tenant_name: "red".to_owned(),
            access,
        })
    };
    let user = world.red_user;
    let early = schedule::owner(&mut tx, user, at(50)).await?;
    assert_eq!(early, owner(Access::Admin));
    let late = schedule::owner(&mut tx, user, at(100)).await?;
    assert_eq!(late, owner(Access::Member), "the other token has expired");
    token::revoke_of(&mut tx, user, at(101)).await?;
    assert_eq!(schedule::owner(&mut tx, user, at(102)).await?, None);
    Ok(())
}

#[tokio::test]
async fn limit_counts_schedules_and_not_replacements() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    let set = LimitsSet {
        schedules: Some(1),
        ..LimitsSet::default()
    };
    limit::write(&mut tx, world.red, &set).await?;
    tx.commit().await?;
    put(&world, red(&world), "a").await?;
    put(&world, red(&world), "a").await?;
    let refused = put(&world, red(&world), "b").await;
    assert!(
        matches!(refused, Err(StoreError::Exceeded(_))),
        "{refused:?}"
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    let set = LimitsSet {
        schedules: Some(0),
        ..LimitsSet::default()
    };
    limit::write(&mut tx, world.red, &set).await?;
    tx.commit().await?;
    put(&world, red(&world), "a").await?;
    Ok(())
}
