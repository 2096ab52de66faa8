//! Vanished clients: their connections stay open, but no data passes.

use muster_store::leader::Leadership;
use muster_store::notify::{Listener, NotifyChannel};
use muster_store::{StoreError, pool};
use muster_testdb::{Relay, TestDb};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(100);

#[tokio::test]
async fn vanished_leader_is_replaced_after_it_has_noticed() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let relay = Relay::before(&database).await;
    let first = Leadership::acquire(&relay.url(&database.scheduler_url)).await?;
    let mut first = first.expect("no other leads");
    relay.cut();
    let second = async {
        loop {
            if let Some(second) = Leadership::acquire(&database.scheduler_url).await? {
                return Ok::<_, StoreError>(second);
            }
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::pin!(second);
    tokio::select! {
        biased;
        why = first.lost() => assert!(matches!(why, StoreError::Silent { .. }), "{why}"),
        _ = &mut second => panic!("two lead at once"),
    }
    // `first` keeps its end of the connection open, like a host that is cut off.
    tokio::time::timeout(PATIENCE, second).await??;
    drop(first);
    Ok(())
}

#[tokio::test]
async fn silent_connection_is_replaced() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let relay = Relay::before(&database).await;
    let only_one = pool::scheduler(&relay.url(&database.scheduler_url), 1)?;
    let backend = async || -> anyhow::Result<i32> {
        let mut tx = pool::begin(&only_one).await?;
        let pid = sqlx::query_scalar("select pg_backend_pid()");
        Ok(pid.fetch_one(&mut *tx).await?)
    };
    let before = backend().await?;
    // One connection is idle, the other is in the middle of a statement.
    tokio::time::sleep(Duration::from_millis(200)).await;
    relay.cut();
    let idle = backend().await?;
    assert_ne!(idle, before);
    let mut tx = pool::begin(&only_one).await?;
    relay.cut();
    let asked = sqlx::query("select 1").execute(&mut *tx);
    assert!(tokio::time::timeout(STEP, asked).await.is_err());
    drop(tx);
    assert_ne!(backend().await?, idle);
    Ok(())
}

#[tokio::test]
async fn silent_listener_detects_a_cut_connection() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let relay = Relay::before(&database).await;
    let pool = pool::scheduler(&relay.url(&database.scheduler_url), 1)?;
    let mut listener = Listener::connect(&pool, &[NotifyChannel::Rounds]).await?;
    relay.cut();
    let heard = tokio::time::timeout(PATIENCE, listener.next()).await?;
    assert!(matches!(heard, Err(StoreError::Silent { .. })), "{heard:?}");
    Ok(())
}

async fn statement_limit(mut tx: pool::Transaction) -> anyhow::Result<String> {
    let limit = sqlx::query_scalar("select current_setting('statement_timeout')");
    Ok(limit.fetch_one(&mut *tx).await?)
}

#[tokio::test]
async fn maintenance_has_a_longer_statement_limit() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let scheduler = pool::scheduler(&database.scheduler_url, 1)?;
    let api = pool::api(&database.api_url, 1)?;
    assert_eq!(
        statement_limit(pool::begin(&scheduler).await?).await?,
        "20s"
    );
    assert_eq!(
        statement_limit(pool::begin_maintenance(&scheduler).await?).await?,
        "10min"
    );
    assert_eq!(
        statement_limit(pool::begin(&scheduler).await?).await?,
        "20s"
    );
    assert_eq!(statement_limit(pool::begin(&api).await?).await?, "30s");
    Ok(())
}
