//! Limits of tenants hold, also for concurrent transactions.

use crate::study::created;
use crate::world::{World, at, id, spec};
use muster_model::id::{JobId, TenantId, TokenId};
use muster_model::plan::Action;
use muster_model::tenant::{Access, LimitsSet, LimitsUse};
use muster_store::job::{self, NewJob};
use muster_store::limit::{self, TenantLimitExceeded};
use muster_store::token::{self, NewTokenRecord};
use muster_store::{StoreError, edit, pool, tenant_scope};

async fn set(world: &World, limits: LimitsSet) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.api).await?;
    tenant_scope::admin(&mut tx).await?;
    limit::write(&mut tx, world.red, &limits).await?;
    tx.commit().await?;
    Ok(())
}

async fn used(world: &World, tenant: TenantId) -> anyhow::Result<LimitsUse> {
    let mut tx = pool::begin_for(&world.api, tenant).await?;
    Ok(limit::used(&mut tx, at(1)).await?[&tenant])
}

fn new(world: &World, name: &str) -> NewJob {
    NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: spec(name),
    }
}

async fn submit(world: &World, name: &str) -> Result<JobId, StoreError> {
    let new = new(world, name);
    let mut conn = world.api.acquire().await?;
    job::submit(&mut conn, &new, at(1)).await?;
    Ok(new.id)
}

fn exceeded<T: std::fmt::Debug>(done: Result<T, StoreError>) -> TenantLimitExceeded {
    match done {
        Err(StoreError::Exceeded(exceeded)) => exceeded,
        other => panic!("it is above a limit: {other:?}"),
    }
}

/// The first submissions share a lock; the last ones wait for each other. Postgres has 100
/// connections here.
#[tokio::test]
async fn concurrent_submissions_stop_at_the_limit() -> anyhow::Result<()> {
    let world = World::new().await?;
    let most = 260;
    set(
        &world,
        LimitsSet {
            open_jobs: Some(most),
            ..LimitsSet::default()
        },
    )
    .await?;
    let submitted = (0..most + 60).map(|_| submit(&world, "many"));
    let submitted = futures::future::join_all(submitted).await;
    let accepted = submitted.iter().filter(|done| done.is_ok()).count();
    assert_eq!(accepted as u64, most);
    for refused in submitted.into_iter().filter(Result::is_err) {
        let exceeded = exceeded(refused);
        assert_eq!(exceeded.limit, "open_jobs");
        assert_eq!((exceeded.most, exceeded.used), (most, most));
    }
    assert_eq!(used(&world, world.red).await?.open_jobs, most);
    let blue = used(&world, world.blue).await?;
    assert_eq!(blue, LimitsUse::default());
    Ok(())
}

#[tokio::test]
async fn ended_job_frees_its_place_within_the_limit() -> anyhow::Result<()> {
    let world = World::new().await?;
    let one = LimitsSet {
        open_jobs: Some(1),
        ..LimitsSet::default()
    };
    set(&world, one).await?;
    let first = submit(&world, "first").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let refused = job::insert(&mut tx, &new(&world, "second"), at(1)).await;
    assert_eq!(exceeded(refused).used, 1);
    drop(tx);
    world.step(first, 0, Action::Cancel, 2).await?;
    assert_eq!(used(&world, world.red).await?, LimitsUse::default());
    submit(&world, "second").await?;
    Ok(())
}

#[tokio::test]
async fn bytes_of_documents_are_limited_and_follow_edits() -> anyhow::Result<()> {
    let world = World::new().await?;
    let bytes = limit::document_bytes(&spec("first"));
    let limits = LimitsSet {
        open_job_bytes: Some(2 * bytes - 1),
        ..LimitsSet::default()
    };
    set(&world, limits).await?;
    let first = submit(&world, "first").await?;
    let refused = exceeded(submit(&world, "other").await);
    assert_eq!(refused.limit, "open_job_bytes");
    assert_eq!((refused.used, refused.asked), (bytes, bytes));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let editing = edit::begin(&mut tx, first).await?.expect("a job");
    let longer = muster_model::spec::JobSpec {
        name: format!("{}-with-a-longer-name", editing.spec.name),
        ..editing.spec.clone()
    };
    edit::write(&mut tx, &editing, &longer, None, at(2)).await?;
    tx.commit().await?;
    let counted = used(&world, world.red).await?.open_job_bytes;
    assert_eq!(counted, limit::document_bytes(&longer));
    world.step(first, 0, Action::Cancel, 3).await?;
    assert_eq!(used(&world, world.red).await?.open_job_bytes, 0);
    Ok(())
}

#[tokio::test]
async fn changes_of_open_jobs_are_merged() -> anyhow::Result<()> {
    let world = World::new().await?;
    for _ in 0..300 {
        submit(&world, "many").await?;
    }
    let owner = pool::owner(&world.db.owner_url, 1)?;
    let rows: i64 = sqlx::query_scalar("select count(*) from job_use")
        .fetch_one(&owner)
        .await?;
    assert!(rows < 100, "{rows} rows");
    assert_eq!(used(&world, world.red).await?.open_jobs, 300);
    Ok(())
}

#[tokio::test]
async fn open_studies_are_limited() -> anyhow::Result<()> {
    let world = World::new().await?;
    let limits = LimitsSet {
        open_studies: Some(1),
        ..LimitsSet::default()
    };
    set(&world, limits).await?;
    created(&world).await?;
    let refused = created(&world).await.expect_err("above the limit");
    let refused = refused.downcast::<StoreError>()?;
    assert_eq!(exceeded::<()>(Err(refused)).limit, "open_studies");
    Ok(())
}

#[tokio::test]
async fn live_tokens_are_limited_for_tenant_and_user() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (limits, name) in [
        (
            LimitsSet {
                tokens: Some(2),
                ..LimitsSet::default()
            },
            "tokens",
        ),
        (
            LimitsSet {
                user_tokens: Some(2),
                ..LimitsSet::default()
            },
            "user_tokens",
        ),
    ] {
        set(&world, limits).await?;
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let mut made: Vec<TokenId> = Vec::new();
        for number in 0..2_u8 {
            limit::admit_token(&mut tx, world.red, world.red_user, at(1)).await?;
            let new = NewTokenRecord {
                id: id(),
                tenant_id: world.red,
                user_id: world.red_user,
                name: "one".to_owned(),
                access: Access::Member,
                hash: [number; 32],
                expires_at: None,
            };
            token::create(&mut tx, &new, at(1)).await?;
            made.push(new.id);
        }
        let refused = limit::admit_token(&mut tx, world.red, world.red_user, at(1)).await;
        assert_eq!(exceeded(refused).limit, name);
        token::revoke(&mut tx, made[0], at(2)).await?;
        limit::admit_token(&mut tx, world.red, world.red_user, at(3)).await?;
    }
    Ok(())
}
