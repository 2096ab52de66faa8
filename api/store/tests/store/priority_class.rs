//! Priority classes: administrators write them, and all tenants read them.

use crate::world::{World, at};
use muster_model::priority::PriorityClass;
use muster_model::tenant::Access;
use muster_store::{plan, pool, priority_class, tenant_scope};
use std::collections::BTreeSet;

fn urgent() -> PriorityClass {
    PriorityClass {
        name: "urgent".to_owned(),
        description: String::new(),
        lowest: 10,
        highest: 50,
        default: 20,
        roles: BTreeSet::from([Access::Member, Access::Admin]),
        tenants: BTreeSet::from(["red".to_owned()]),
    }
}

#[tokio::test]
async fn only_administrators_write_priority_classes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let refused = priority_class::set(&mut tx, &urgent()).await;
    assert!(refused.is_err(), "row level security refuses it");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    let narrow = PriorityClass {
        highest: 30,
        ..urgent()
    };
    for class in [urgent(), narrow.clone()] {
        priority_class::set(&mut tx, &class).await?;
        assert_eq!(priority_class::list(&mut tx).await?, [class]);
    }
    tx.commit().await?;
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(priority_class::list(&mut tx).await?, [narrow]);
    let deleted = priority_class::delete(&mut tx, "urgent").await?;
    assert!(!deleted, "row level security hides it from a deletion");
    tenant_scope::admin(&mut tx).await?;
    assert!(priority_class::delete(&mut tx, "urgent").await?);
    assert!(!priority_class::delete(&mut tx, "urgent").await?);
    Ok(())
}

#[tokio::test]
async fn rounds_read_the_classes_of_all_tenants() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    priority_class::set(&mut tx, &urgent()).await?;
    tx.commit().await?;
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let loaded = plan::Loader::new(10).load(&mut tx, at(0)).await?;
    assert_eq!(loaded.priority_classes, [urgent()]);
    Ok(())
}

#[tokio::test]
async fn role_of_a_later_release_is_ignored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let owner = pool::owner(&world.db.owner_url, 1)?;
    sqlx::query(
        "insert into priority_class values ('later', '', 0, 9, 0, '{member,auditor}', '{}')",
    )
    .execute(&owner)
    .await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let classes = priority_class::list(&mut tx).await?;
    assert_eq!(classes[0].roles, BTreeSet::from([Access::Member]));
    Ok(())
}
