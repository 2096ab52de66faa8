//! Notifications arrive after their commit, and after a reconnect every channel wakes.

use crate::world::{World, at};
use muster_model::job::Intent;
use muster_store::leader::Leadership;
use muster_store::notify::{Listener, NotifyChannel, send};
use muster_store::{job, pool};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(100);

#[tokio::test]
async fn notification_arrives_after_the_commit() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("wakes").await?;
    let mut listener = Listener::connect(&world.scheduler, &[NotifyChannel::Rounds]).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::set_intent(&mut tx, job_id, Intent::Pause, None, at(1)).await?;
    assert!(tokio::time::timeout(QUIET, listener.next()).await.is_err());
    tx.commit().await?;
    assert_eq!(
        tokio::time::timeout(SOON, listener.next()).await??,
        NotifyChannel::Rounds
    );
    Ok(())
}

#[tokio::test]
async fn every_channel_wakes_after_a_reconnect() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut listener = Listener::connect(
        &world.scheduler,
        &[NotifyChannel::Rounds, NotifyChannel::Assignments],
    )
    .await?;
    let mut conn = sqlx::PgPool::connect(&world.db.owner_url)
        .await?
        .acquire()
        .await?;
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'",
    )
    .execute(&mut *conn)
    .await?;
    let mut woken = [
        tokio::time::timeout(SOON, listener.next()).await??,
        tokio::time::timeout(SOON, listener.next()).await??,
    ];
    woken.sort();
    assert_eq!(woken, [NotifyChannel::Rounds, NotifyChannel::Assignments]);
    let mut tx = pool::begin(&world.scheduler).await?;
    send(&mut tx, &[NotifyChannel::Assignments]).await?;
    tx.commit().await?;
    assert_eq!(
        tokio::time::timeout(SOON, listener.next()).await??,
        NotifyChannel::Assignments
    );
    Ok(())
}

#[tokio::test]
async fn only_one_process_leads_at_a_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = Leadership::acquire(&world.db.scheduler_url)
        .await?
        .expect("nobody leads");
    assert!(
        Leadership::acquire(&world.db.scheduler_url)
            .await?
            .is_none()
    );
    drop(first);
    let follow = async {
        loop {
            if let Some(held) = Leadership::acquire(&world.db.scheduler_url).await? {
                return anyhow::Ok(held);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut second = tokio::time::timeout(SOON, follow).await??;
    world.db.crash_and_restart();
    tokio::time::timeout(SOON, second.lost()).await?;
    Ok(())
}
