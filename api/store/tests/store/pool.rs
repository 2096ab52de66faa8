//! Connections that are given back by whoever does not wait for what it asked.

use muster_model::id::{StudyId, TenantId};
use muster_store::study::outside;
use muster_store::{StoreError, pool};
use muster_testdb::TestDb;

/// So that whoever waits beside this is asked after so many times whether it has its answer.
async fn moments(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

const TENANT: TenantId = TenantId(uuid::Uuid::from_u128(7));

#[tokio::test]
async fn a_transaction_that_nobody_waits_for_is_nobodys() -> anyhow::Result<()> {
    nobodys(async |pool| pool::begin_for(pool, TENANT).await).await
}

#[tokio::test]
async fn who_tells_a_study_something_and_does_not_wait_leaves_nothing_behind() -> anyhow::Result<()>
{
    let study = StudyId(uuid::Uuid::from_u128(8));
    nobodys(async |pool| outside::begin(pool, TENANT, study).await).await
}

#[tokio::test]
async fn postgres_ends_whoever_is_in_a_transaction_and_asks_nothing() -> anyhow::Result<()> {
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

/// As when a request is given up before the answer has come, sooner or later. Whoever has the connection next would be in that transaction, and
/// act for its tenant.
async fn nobodys(
    begin: impl AsyncFn(&pool::Pool) -> Result<pool::Transaction, StoreError>,
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
