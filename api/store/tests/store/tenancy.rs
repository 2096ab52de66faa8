//! Row level security: a tenant neither sees nor changes rows of another tenant.

use crate::world::{World, at, id, spec};
use muster_model::event::Event;
use muster_model::id::TokenId;
use muster_model::job::Intent;
use muster_model::tenant::{Access, Tenant, TenantPods, TenantPodsChange};
use muster_store::event::{EventFilter, NewEvent};
use muster_store::idempotency::{self, Claim};
use muster_store::job::{DeleteOutcome, IntentOutcome, JobFilter, NewJob};
use muster_store::task::{self, Revisions};
use muster_store::token::{self, NewTokenRecord};
use muster_store::{
    StoreError, checkpoint, event, job, log, node, pool, progress, tenant, tenant_scope,
};
use sqlx::Executor as _;
use std::time::Duration;

#[tokio::test]
async fn tenant_sees_no_rows_of_others_through_any_function() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("mine").await?;
    let (chief, _) = world.start(job_id, 0, &[0], 1).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    log::append(
        &mut tx,
        chief,
        0,
        b"secret",
        time::OffsetDateTime::UNIX_EPOCH,
    )
    .await?;
    tx.commit().await?;

    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(job::get(&mut tx, job_id).await?, None);
    assert_eq!(
        job::list(&mut tx, &JobFilter::default(), None, 10).await?,
        []
    );
    assert_eq!(task::list(&mut tx, job_id, Revisions::All).await?, []);
    assert_eq!(
        event::page(
            &mut tx,
            EventFilter {
                job_id: Some(job_id),
                node_id: None
            },
            None,
            10
        )
        .await?,
        []
    );
    assert!(
        event::page(&mut tx, EventFilter::default(), None, 100)
            .await?
            .iter()
            .all(|event| event.tenant_id.is_none())
    );
    assert_eq!(log::read(&mut tx, chief, 0, 10).await?, None);
    assert_eq!(log::tail(&mut tx, chief, 10).await?, None);
    assert_eq!(progress::samples(&mut tx, job_id, None, 10).await?, []);
    assert_eq!(checkpoint::list(&mut tx, job_id).await?, []);
    assert_eq!(
        job::set_intent(&mut tx, job_id, Intent::Cancel, None, at(2)).await?,
        IntentOutcome::NotFound
    );
    assert_eq!(
        job::delete(&mut tx, job_id, None, at(2)).await?,
        DeleteOutcome::NotFound
    );
    assert_eq!(tenant::list(&mut tx).await?.len(), 1);
    assert_eq!(
        tenant::change(
            &mut tx,
            world.red,
            tenant::TenantUpdate {
                gpu_quota: Some(Some(0)),
                weight: Some(9.0),
                pods: None,
                preemption: None,
                shares_families: Some(true),
                interactive: Some(true),
            }
        )
        .await?,
        None
    );
    // The taken slot is visible, its owner is not.
    let nodes = node::list(&mut tx).await?;
    assert_eq!((nodes[0].held.len(), &nodes[0].held[0].owner), (1, &None));
    tx.rollback().await?;

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(
        job::list(&mut tx, &JobFilter::default(), None, 10)
            .await?
            .len(),
        1
    );
    assert_eq!(
        log::tail(&mut tx, chief, 10)
            .await?
            .map(|slice| slice.bytes),
        Some(b"secret".to_vec())
    );
    let owner = node::list(&mut tx).await?[0].held[0]
        .owner
        .clone()
        .expect("its own");
    assert_eq!(
        (owner.tenant_name.as_str(), owner.job_name.as_str()),
        ("red", "mine")
    );
    Ok(())
}

#[tokio::test]
async fn scope_is_required_and_ends_with_its_transaction() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("mine").await?;
    let one = pool::api(&world.db.api_url, 1)?;
    let mut tx = pool::begin_for(&one, world.red).await?;
    assert!(job::get(&mut tx, job_id).await?.is_some());
    tx.commit().await?;
    let mut tx = pool::begin(&one).await?;
    assert_eq!(job::get(&mut tx, job_id).await?, None);
    assert_eq!(tenant::list(&mut tx).await?, []);
    Ok(())
}

/// Both submissions use one connection, so the second would see a remaining scope.
#[tokio::test]
async fn single_statement_submission_leaves_no_scope() -> anyhow::Result<()> {
    let world = World::new().await?;
    let pool = pool::api(&world.db.api_url, 1)?;
    let mut ids = Vec::new();
    for (tenant_id, submitted_by) in [(world.red, world.red_user), (world.blue, world.blue_user)] {
        let new = NewJob {
            id: id(),
            tenant_id,
            submitted_by,
            spec: spec("alone"),
        };
        let mut conn = pool.acquire().await?;
        let stored = job::submit(&mut conn, &new, at(7)).await?;
        assert_eq!(job::get(&mut conn, new.id).await?, None);
        drop(conn);

        let mut tx = pool::begin_for(&pool, tenant_id).await?;
        let row = job::get(&mut tx, new.id).await?.expect("it is committed");
        assert_eq!(row.job, stored);
        ids.push(new.id);
    }
    let mut tx = pool::begin_for(&pool, world.red).await?;
    assert!(job::get(&mut tx, ids[0]).await?.is_some());
    assert_eq!(job::get(&mut tx, ids[1]).await?, None);
    let mine = EventFilter {
        job_id: Some(ids[0]),
        node_id: None,
    };
    let told = event::page(&mut tx, mine, None, 10).await?;
    let name = "alone".to_owned();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].event, Event::JobSubmitted { name });
    Ok(())
}

#[tokio::test]
async fn write_for_another_tenant_is_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: spec("theirs"),
    };
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert!(
        job::insert(&mut tx, &new, at(0))
            .await
            .expect_err("it is red's")
            .is_forbidden()
    );
    tx.rollback().await?;

    let note = NewEvent {
        at: at(0),
        tenant_id: Some(world.red),
        job_id: None,
        node_id: None,
        event: Event::Note {
            message: "forged".to_owned(),
        },
    };
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert!(
        event::append(&mut tx, &[note])
            .await
            .expect_err("it is red's")
            .is_forbidden()
    );
    tx.rollback().await?;

    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    let tenant = Tenant {
        id: id(),
        name: "green".to_owned(),
        gpu_quota: None,
        weight: muster_model::tenant::EQUAL_WEIGHT,
        pods: muster_model::tenant::TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    assert!(
        tenant::create(&mut tx, &tenant, at(0))
            .await
            .expect_err("no administrator")
            .is_forbidden()
    );
    tx.rollback().await?;

    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    // The tenant sees nodes, but none that it may change.
    let drained = node::set_drained(&mut tx, "node-a", true, at(0)).await?;
    assert_eq!(drained, None);
    let seen = node::get(&mut tx, "node-a").await?;
    assert!(seen.is_some_and(|row| !row.node.drained));
    Ok(())
}

#[tokio::test]
async fn api_role_cannot_bypass_security_or_act_as_scheduler() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("mine").await?;
    let statements = [
        "set role muster_scheduler",
        "set row_security = off; select count(*) from job",
        "update job set phase = 'succeeded'",
        "update job set revision = 7",
        "update task set phase = 'released'",
        "delete from job",
        "update event set at = now()",
        "delete from event",
        "truncate event",
        "insert into event (xid, at, kind, body) values ('1', now(), 'note', '{}')",
        "insert into allocation select * from allocation",
        "delete from round",
        "update round set report = '{}'",
        "insert into round select * from round",
        "update node set generation = 0",
        "alter table job disable row level security",
        "create policy mine on job using (true)",
        "drop function muster_tenant() cascade",
    ];
    for statement in statements {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        assert!(
            tx.execute(statement).await.is_err(),
            "{statement} must be refused"
        );
    }
    assert!(world.job(job_id).await.is_ok());
    // The scheduler's role cannot change history either.
    for statement in [
        "update event set at = now()",
        "delete from event",
        "truncate event",
    ] {
        let mut tx = pool::begin(&world.scheduler).await?;
        assert!(
            tx.execute(statement).await.is_err(),
            "{statement} must be refused"
        );
    }
    Ok(())
}

#[tokio::test]
async fn api_refuses_a_login_that_could_bypass_security() -> anyhow::Result<()> {
    let world = World::new().await?;
    for url in [&world.db.owner_url, &world.db.scheduler_url] {
        assert!(matches!(
            pool::verify_api(url).await,
            Err(StoreError::Bypass { .. })
        ));
        let pool = pool::api(url, 1)?;
        let begun = tokio::time::timeout(Duration::from_millis(500), pool::begin(&pool)).await;
        assert!(
            !matches!(begun, Ok(Ok(_))),
            "no connection of it is handed out"
        );
    }
    pool::verify_api(&world.db.api_url).await?;
    Ok(())
}

#[tokio::test]
async fn token_is_found_by_hash_until_revoked_or_expired() -> anyhow::Result<()> {
    let world = World::new().await?;
    let token = NewTokenRecord {
        id: id(),
        tenant_id: world.red,
        user_id: world.red_user,
        name: "laptop".to_owned(),
        access: Access::Admin,
        hash: [7; 32],
        expires_at: Some(at(100)),
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    token::create(&mut tx, &token, at(0)).await?;
    tx.commit().await?;

    let mut conn = world.api.acquire().await?;
    let found = token::authenticate(&mut conn, &[7; 32], at(99))
        .await?
        .expect("it is valid");
    assert_eq!(
        (
            found.tenant_name.as_str(),
            found.user_name.as_str(),
            found.access
        ),
        ("red", "ann", Access::Admin)
    );
    assert_eq!(
        token::authenticate(&mut conn, &[8; 32], at(99)).await?,
        None
    );
    assert_eq!(
        token::authenticate(&mut conn, &[7; 32], at(100)).await?,
        None
    );
    drop(conn);

    let revoke = async |tenant| -> anyhow::Result<bool> {
        let mut tx = pool::begin_for(&world.api, tenant).await?;
        let done = token::revoke(&mut tx, token.id, at(5)).await?;
        tx.commit().await?;
        Ok(done)
    };
    assert!(!revoke(world.blue).await?, "it is not blue's");
    assert!(revoke(world.red).await?);
    assert!(!revoke(world.red).await?, "it was revoked before");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(token::authenticate(&mut tx, &[7; 32], at(6)).await?, None);
    let listed: Vec<TokenId> = token::list(&mut tx, None, 10)
        .await?
        .into_iter()
        .map(|token| token.id)
        .collect();
    assert_eq!(listed, [token.id]);
    Ok(())
}

/// The scheduler deletes tokens of all tenants.
#[tokio::test]
async fn sweep_deletes_only_expired_or_revoked_tokens() -> anyhow::Result<()> {
    let world = World::new().await?;
    let tenants = [(world.red, world.red_user), (world.blue, world.blue_user)];
    let mut left = Vec::new();
    for (number, (tenant_id, user_id)) in (0..).zip(tenants) {
        for (place, expires_at) in (0..).zip([Some(at(100)), Some(at(101)), None]) {
            let token = NewTokenRecord {
                id: id(),
                tenant_id,
                user_id,
                name: "operator".to_owned(),
                access: Access::Member,
                hash: [3 * number + place; 32],
                expires_at,
            };
            let mut tx = pool::begin_for(&world.api, tenant_id).await?;
            token::create(&mut tx, &token, at(0)).await?;
            tx.commit().await?;
            if expires_at != Some(at(100)) {
                left.push(token.id);
            }
        }
    }
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(token::sweep(&mut tx, at(100)).await?, 2);
    tx.commit().await?;
    let mut listed = Vec::new();
    for (tenant, _) in tenants {
        let mut tx = pool::begin_for(&world.api, tenant).await?;
        let tokens = token::list(&mut tx, None, 10).await?;
        listed.extend(tokens.into_iter().rev().map(|token| token.id));
    }
    assert_eq!(listed, left);
    Ok(())
}

#[tokio::test]
async fn token_cannot_combine_a_user_with_another_tenant() -> anyhow::Result<()> {
    let world = World::new().await?;
    let token = NewTokenRecord {
        id: id(),
        tenant_id: world.red,
        user_id: world.blue_user,
        name: "mixed".to_owned(),
        access: Access::Member,
        hash: [9; 32],
        expires_at: None,
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert!(
        token::create(&mut tx, &token, at(0))
            .await
            .expect_err("the user is blue's")
            .is_dangling()
    );
    Ok(())
}

#[tokio::test]
async fn administrator_manages_tenants_without_seeing_their_jobs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("mine").await?;
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    assert_eq!(tenant::list(&mut tx).await?.len(), 2);
    assert_eq!(
        tenant::change(
            &mut tx,
            world.red,
            tenant::TenantUpdate {
                gpu_quota: Some(None),
                ..tenant::TenantUpdate::default()
            }
        )
        .await?
        .map(|tenant| (tenant.gpu_quota, tenant.weight)),
        Some((None, 1.0))
    );
    assert_eq!(
        tenant::by_name(&mut tx, "red")
            .await?
            .map(|tenant| tenant.gpu_quota),
        Some(None)
    );
    let heavier = tenant::TenantUpdate {
        weight: Some(2.5),
        ..tenant::TenantUpdate::default()
    };
    tenant::change(&mut tx, world.blue, heavier).await?;
    assert_eq!(
        tenant::by_name(&mut tx, "blue")
            .await?
            .map(|tenant| (tenant.gpu_quota, tenant.weight)),
        Some((Some(8), 2.5)),
        "the quota stays"
    );
    assert_eq!(job::get(&mut tx, job_id).await?, None);
    let taken = tenant::create(
        &mut tx,
        &Tenant {
            id: id(),
            name: "red".to_owned(),
            gpu_quota: None,
            weight: muster_model::tenant::EQUAL_WEIGHT,
            pods: muster_model::tenant::TenantPods::default(),
            preemption: muster_model::tenant::TenantPreemption::default(),
            shares_families: false,
            interactive: false,
        },
        at(0),
    )
    .await;
    assert!(taken.expect_err("the name exists").is_taken());
    Ok(())
}

#[tokio::test]
async fn idempotency_keys_are_separate_for_each_tenant() -> anyhow::Result<()> {
    let world = World::new().await?;
    for tenant in [world.red, world.blue] {
        let mut tx = pool::begin_for(&world.api, tenant).await?;
        assert_eq!(
            idempotency::claim(&mut tx, tenant, "k", &[1; 32], at(0), at(9)).await?,
            Claim::New
        );
        idempotency::store(&mut tx, tenant, "k", 201, "{}").await?;
        tx.commit().await?;
    }
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert!(
        idempotency::claim(&mut tx, world.red, "k", &[1; 32], at(0), at(9))
            .await
            .is_err()
    );
    Ok(())
}

async fn administrator(world: &World) -> anyhow::Result<pool::Transaction> {
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    Ok(tx)
}

/// The deletion waits for a submission in progress and counts it.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_deletion_waits_for_a_submission_in_progress() -> anyhow::Result<()> {
    let world = World::new().await?;
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: spec("begun"),
    };
    let mut submitting = pool::begin_for(&world.api, world.red).await?;
    job::insert(&mut submitting, &new, at(1)).await?;
    let mut deleting = administrator(&world).await?;
    let mut counting = tokio::spawn(async move {
        tenant::closed_by_name(&mut deleting, "red")
            .await?
            .expect("it is there");
        tenant_scope::tenant(&mut deleting, new.tenant_id).await?;
        tenant::open_work(&mut deleting).await
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut counting).await;
    assert!(early.is_err(), "{early:?}");
    submitting.commit().await?;
    assert_eq!(counting.await??, (1, 0));
    Ok(())
}

/// A submission during the deletion waits and is refused, because no user could stop the job later.
#[tokio::test(flavor = "multi_thread")]
async fn submission_during_a_tenant_deletion_is_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let study = crate::study::created(&world).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    sqlx::query("update study set phase = 'finished', finished_at = now() where id = $1")
        .bind(study.0)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    let new = |name: &str| NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: spec(name),
    };
    let mut deleting = administrator(&world).await?;
    tenant::closed_by_name(&mut deleting, "red")
        .await?
        .expect("it is there");
    let (api, job) = (world.api.clone(), new("late"));
    let mut submitting = tokio::spawn(async move {
        let mut conn = api.acquire().await?;
        job::submit(&mut conn, &job, at(1)).await
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut submitting).await;
    assert!(early.is_err(), "{early:?}");
    assert!(tenant::delete(&mut deleting, world.red, at(2)).await?);
    deleting.commit().await?;
    assert!(matches!(submitting.await?, Err(StoreError::TenantDeleted)));

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let inserted = job::insert(&mut tx, &new("later"), at(3)).await;
    assert!(matches!(inserted, Err(StoreError::TenantDeleted)));
    let more = muster_model::study::StudyOrder::Extend { trials: 1 };
    let ordered = muster_store::study::order(&mut tx, study, &[more], at(3)).await;
    assert!(
        matches!(ordered, Err(StoreError::TenantDeleted)),
        "{ordered:?}"
    );
    assert_eq!(
        job::list(&mut tx, &JobFilter::default(), None, 10).await?,
        []
    );
    drop(tx);
    let created = crate::study::created(&world).await;
    assert!(created.is_err(), "{created:?}");
    Ok(())
}

fn pods_update(pods: TenantPodsChange) -> tenant::TenantUpdate {
    tenant::TenantUpdate {
        pods: Some(pods),
        ..tenant::TenantUpdate::default()
    }
}

fn names<T: FromIterator<String>>(names: &[&str]) -> Option<T> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Of two concurrent administrators, the second waits for the first one's row lock and changes
/// another list.
#[tokio::test]
async fn concurrent_changes_of_different_pod_lists_are_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = administrator(&world).await?;
    let both = TenantPodsChange {
        service_account: Some(Some("trainers".to_owned())),
        secrets: names(&["wandb", "leaked"]),
        ..TenantPodsChange::default()
    };
    tenant::change(&mut tx, world.red, pods_update(both)).await?;
    tx.commit().await?;

    let mut first = administrator(&world).await?;
    let fewer = TenantPodsChange {
        secrets: names(&["wandb"]),
        ..TenantPodsChange::default()
    };
    tenant::change(&mut first, world.red, pods_update(fewer)).await?;
    let mut second = administrator(&world).await?;
    let red = world.red;
    let images = pods_update(TenantPodsChange {
        service_account: Some(None),
        images: names(&["r.io/vision/*"]),
        ..TenantPodsChange::default()
    });
    let mut waiting = tokio::spawn(async move {
        let changed = tenant::change(&mut second, red, images).await?;
        second.commit().await?;
        anyhow::Ok(changed)
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "it has not waited for the other");
    first.commit().await?;
    let changed = waiting.await??.expect("a tenant").pods;
    let expected = TenantPods {
        images: names(&["r.io/vision/*"]).expect("names"),
        secrets: names(&["wandb"]).expect("names"),
        ..TenantPods::default()
    };
    assert_eq!(changed, expected);
    Ok(())
}
