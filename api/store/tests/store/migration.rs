//! Migrations run once, also with concurrent processes, and every table follows the rules.

use muster_store::migrate;
use muster_testdb::TestDb;
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn concurrent_migrations_succeed() -> anyhow::Result<()> {
    let db = TestDb::unmigrated().await;
    let (a, b, c) = tokio::join!(
        migrate::run(&db.owner_url),
        migrate::run(&db.owner_url),
        migrate::run(&db.owner_url)
    );
    for migrated in [a, b, c] {
        migrated?;
    }
    migrate::run(&db.owner_url).await?;
    let mut conn = PgConnection::connect(&db.owner_url).await?;
    let applied: i64 = sqlx::query_scalar("select count(*) from _sqlx_migrations where success")
        .fetch_one(&mut conn)
        .await?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
    let names = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let scripts = names
        .iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "sql"));
    assert_eq!(usize::try_from(applied)?, scripts.count());
    Ok(())
}

#[tokio::test]
async fn migration_is_retried_if_a_table_is_in_use() -> anyhow::Result<()> {
    let db = TestDb::new().await;
    let held = db.hold_table("_sqlx_migrations").await;
    let until_waiting = async |count| {
        while db.waiting("muster-migrate").await != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let step_back = async {
        until_waiting(1).await;
        // Transactions that queue behind the migration proceed.
        until_waiting(0).await;
        held.give_back().await;
    };
    let both = async { tokio::join!(migrate::run(&db.owner_url), step_back) };
    let (migrated, ()) = tokio::time::timeout(PATIENCE, both).await?;
    migrated?;
    Ok(())
}

#[tokio::test]
async fn every_table_forces_row_level_security_and_has_comments() -> anyhow::Result<()> {
    let db = TestDb::new().await;
    let mut conn = PgConnection::connect(&db.owner_url).await?;
    let open: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
         where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> '_sqlx_migrations'
           and not (relrowsecurity and relforcerowsecurity)",
    )
    .fetch_all(&mut conn)
    .await?;
    assert_eq!(open, [""; 0]);
    let unexplained: Vec<String> = sqlx::query_scalar(
        "select c.relname || coalesce('.' || a.attname, '')
         from pg_class c
         cross join lateral (
             select 0 as attnum, null::name as attname
             union all select attnum, attname from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
         ) a
         where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relname <> '_sqlx_migrations'
           and col_description(c.oid, a.attnum) is null and obj_description(c.oid, 'pg_class') is not null = (a.attnum > 0)",
    )
    .fetch_all(&mut conn)
    .await?;
    assert_eq!(unexplained, [""; 0]);
    // Nodes, their faults and priority classes belong to the cluster and not to a tenant.
    let homeless: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class c
         where relnamespace = 'public'::regnamespace and relkind = 'r'
           and relname not in ('_sqlx_migrations', 'tenant', 'node', 'node_fault', 'node_join', 'round', 'event_forgotten',
                               'retention_begun', 'priority_class')
           and not exists (select from pg_attribute where attrelid = c.oid and attname = 'tenant_id')",
    )
    .fetch_all(&mut conn)
    .await?;
    assert_eq!(homeless, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn committed_rows_survive_a_crash_of_the_server() -> anyhow::Result<()> {
    let world = crate::world::World::new().await?;
    let job = world.submit("kept").await?;
    let mut open = muster_store::pool::begin(&world.scheduler).await?;
    muster_store::node::set_drained(&mut open, "node-a", true, crate::world::at(1)).await?;
    world.db.crash_and_restart();
    drop(open);
    // New connections replace the broken ones of the pool.
    let pool = muster_store::pool::scheduler(&world.db.scheduler_url, 1)?;
    let mut tx = muster_store::pool::begin_snapshot(&pool).await?;
    let loaded = muster_store::plan::Loader::new(1_000)
        .load(&mut tx, crate::world::at(2))
        .await?;
    assert_eq!(
        loaded
            .jobs
            .iter()
            .map(|loaded| loaded.job.id)
            .collect::<Vec<_>>(),
        [job]
    );
    assert!(!loaded.nodes[0].drained, "it was not committed");
    Ok(())
}

#[tokio::test]
async fn owner_without_superuser_migrates_and_creates_a_tenant() -> anyhow::Result<()> {
    let db = TestDb::unmigrated().await;
    let mut conn = PgConnection::connect(&db.owner_url).await?;
    for statement in [
        "create role plain login createrole",
        "create database plain owner plain",
    ] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    let url = db
        .owner_url
        .replace("://owner@", "://plain@")
        .replace("/test?", "/plain?");
    migrate::run(&url).await?;
    let mut conn = PgConnection::connect(&url).await?;
    let now = time::OffsetDateTime::UNIX_EPOCH;
    let tenant = muster_model::tenant::Tenant {
        id: uuid::Uuid::from_u128(1).into(),
        name: "first".into(),
        gpu_quota: None,
        weight: muster_model::tenant::EQUAL_WEIGHT,
        pods: muster_model::tenant::TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    muster_store::tenant::create(&mut conn, &tenant, now).await?;
    let user = muster_store::user::User {
        id: uuid::Uuid::from_u128(2).into(),
        tenant_id: tenant.id,
        name: "ada".into(),
    };
    muster_store::user::create(&mut conn, &user, now).await?;
    let token = muster_store::token::NewTokenRecord {
        id: uuid::Uuid::from_u128(3).into(),
        tenant_id: tenant.id,
        user_id: user.id,
        name: "bootstrap".into(),
        access: muster_model::tenant::Access::Admin,
        hash: [7; 32],
        expires_at: None,
    };
    muster_store::token::create(&mut conn, &token, now).await?;
    let found = muster_store::tenant::by_name(&mut conn, "first").await?;
    assert_eq!(found.map(|found| found.id), Some(tenant.id));
    // The owner restores the tenant after its last administrator has deleted it.
    assert!(muster_store::tenant::delete(&mut conn, tenant.id, now).await?);
    assert_eq!(
        muster_store::tenant::by_name(&mut conn, "first").await?,
        None
    );
    let back = muster_store::tenant::revive(&mut conn, "first").await?;
    assert_eq!(back, Some(tenant.id));
    assert_eq!(
        muster_store::tenant::revive(&mut conn, "first").await?,
        None
    );
    let revoked = muster_store::token::revoke_all(&mut conn, tenant.id, now).await?;
    assert_eq!(revoked, 1);
    let held = sqlx::query_scalar::<_, bool>("select muster_hold_tenant($1)")
        .bind(tenant.id.0)
        .fetch_one(&mut conn)
        .await?;
    assert!(
        held,
        "the function runs as the owner, whom row level security binds"
    );
    Ok(())
}
