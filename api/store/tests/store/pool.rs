//! Connections that are given back by whoever does not wait for what it asked.

use muster_model::id::TenantId;
use muster_store::pool;
use muster_testdb::TestDb;

/// So that whoever waits beside this is asked after so many times whether it has its answer.
async fn moments(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// As when a request is given up before the answer has come, sooner or later. Whoever has the connection next would be in that transaction, and
/// act for its tenant.
#[tokio::test]
async fn a_transaction_that_nobody_waits_for_is_nobodys() -> anyhow::Result<()> {
    let database = TestDb::new().await;
    let only_one = pool::scheduler(&database.scheduler_url, 1)?;
    pool::ping(&only_one).await?;
    let tenant = TenantId(uuid::Uuid::from_u128(7));
    let mut in_vain = 0;
    for count in 0..600 {
        tokio::select! {
            biased;
            begun = pool::begin_for(&only_one, tenant) => drop(begun?),
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
