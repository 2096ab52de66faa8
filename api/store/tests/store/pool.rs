//! Connections whose callers drop their futures before the answer arrives.

use muster_model::id::{StudyId, TenantId};
use muster_store::study::outside;
use muster_store::{StoreError, pool};
use muster_testdb::TestDb;

/// Yields `count` times. A `select!` with it drops the other future after that many polls.
async fn moments(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

const TENANT: TenantId = TenantId(uuid::Uuid::from_u128(7));

#[tokio::test]
async fn dropped_begin_leaves_no_open_transaction() -> anyhow::Result<()> {
    nobodys(async |pool| pool::begin_for(pool, TENANT).await).await
}

#[tokio::test]
async fn dropped_begin_of_a_tell_leaves_no_open_transaction() -> anyhow::Result<()> {
    let study = StudyId(uuid::Uuid::from_u128(8));
    nobodys(async |pool| outside::begin(pool, TENANT, study).await).await
}

#[tokio::test]
async fn postgres_ends_sessions_idle_in_a_transaction() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let scheduler = pool::scheduler(&database.scheduler_url, 1)?;
    let api = pool::api(&database.api_url, 1)?;
    for pool in [scheduler, api] {
        let limit: String =
            sqlx::query_scalar("select current_setting('idle_in_transaction_session_timeout')")
                .fetch_one(&pool)
                .await?;
        assert_eq!(limit, "15s");
    }
    Ok(())
}

/// Drops the future of `begin` at different times, like a cancelled request. The next user of the
/// connection must not find an open transaction that acts for the tenant.
async fn nobodys(
    begin: impl AsyncFn(&pool::StorePool) -> Result<pool::Transaction, StoreError>,
) -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let only_one = pool::scheduler(&database.scheduler_url, 1)?;
    pool::ping(&only_one).await?;
    let mut in_vain = 0;
    for count in 0..600 {
        tokio::select! {
            biased;
            begun = begin(&only_one) => drop(begun?),
            () = moments(count % 60) => in_vain += 1,
        }
        let mut next = pool::begin(&only_one).await?;
        let acts_for: Option<String> =
            sqlx::query_scalar("select nullif(current_setting('muster.tenant', true), '')")
                .fetch_one(&mut *next)
                .await?;
        assert_eq!(acts_for, None, "after {count}");
    }
    assert!(in_vain > 10, "{in_vain} were not waited for");
    Ok(())
}
