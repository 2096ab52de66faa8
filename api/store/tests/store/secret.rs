//! Secrets: rows of a tenant, versions, use by open work, and which node gets which rows.

use crate::world::{self, World, at, id, spec};
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::job::AfterStop;
use muster_model::plan::{Action, PlannedTask};
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use muster_store::event;
use muster_store::job::{self, NewJob};
use muster_store::membership::{self, SecretHash};
use muster_store::secret::{self, AskingNode, SecretRow, SecretUsers};
use muster_store::{pool, tenant_scope};

const CREDENTIAL: SecretHash = [7; 32];
const NODE: AskingNode<'_> = AskingNode {
    name: "node-a",
    credential: &CREDENTIAL,
};

fn ann() -> Actor {
    Actor {
        user: "ann".to_owned(),
        as_administrator: false,
    }
}

async fn put(world: &World, tenant: TenantId, name: &str) -> anyhow::Result<SecretRow> {
    let mut tx = pool::begin_for(&world.api, tenant).await?;
    let row = SecretRow {
        name: name.to_owned(),
        version: secret::next_version(&mut tx, tenant, name).await?,
        key_id: "a".to_owned(),
        nonce: vec![1; 12],
        ciphertext: format!("{name} of {tenant}").into_bytes(),
    };
    secret::put(&mut tx, tenant, &row, &ann(), at(1)).await?;
    tx.commit().await?;
    Ok(row)
}

fn program(name: &str) -> JobSpec {
    let mut spec = spec(name);
    let command = r#"{"argv": ["true"], "secrets": [{"name": "A"}, {"name": "B", "file": "b"}]}"#;
    spec.engine = None;
    spec.command = Some(serde_json::from_str(command).expect("a command"));
    spec
}

async fn submit(world: &World) -> anyhow::Result<JobId> {
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec: program("program"),
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::insert(&mut tx, &new, at(0)).await?;
    tx.commit().await?;
    Ok(new.id)
}

async fn start(world: &World, job: JobId) -> anyhow::Result<TaskId> {
    let tasks = vec![PlannedTask {
        role: Role::Worker { rank: 0 },
        node: world.node,
        gpus: vec![0],
    }];
    Ok(world.step(job, 0, world::start(tasks), 2).await?[0])
}

async fn bind(world: &World) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let node = (world.node, "node-a");
    assert!(membership::bind(&mut tx, node, &CREDENTIAL, None, at(1)).await?);
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn secrets_of_other_tenants_are_invisible() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, world.red, "A").await?;
    assert_eq!(put(&world, world.red, "A").await?.version, 2);
    assert_eq!(put(&world, world.blue, "B").await?.version, 1);
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    // Administrators see them only in the scope of the tenant.
    tenant_scope::admin(&mut tx).await?;
    let listed = secret::list(&mut tx).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].version), ("B", 1));
    assert!(secret::known(&mut tx).await?.contains("B"));
    let deleted = secret::delete(&mut tx, world.blue, "A", &ann(), at(2)).await?;
    assert!(!deleted, "row level security hides it from a deletion");
    let stolen = SecretRow {
        version: 3,
        ..put(&world, world.red, "A").await?
    };
    let moved = secret::put(&mut tx, world.red, &stolen, &ann(), at(2)).await;
    assert!(moved.is_err(), "row level security refuses it");
    Ok(())
}

#[tokio::test]
async fn changes_of_secrets_are_events_of_the_tenant() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, world.red, "A").await?;
    put(&world, world.red, "A").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert!(secret::delete(&mut tx, world.red, "A", &ann(), at(2)).await?);
    tx.commit().await?;
    let set = |version| Event::SecretSet {
        name: "A".to_owned(),
        version,
        by: ann(),
    };
    let deleted = Event::SecretDeleted {
        name: "A".to_owned(),
        version: 2,
        by: ann(),
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::recent(&mut tx, &[], None, 500).await?;
    let mut events: Vec<Event> = events.into_iter().map(|stored| stored.event).collect();
    events.retain(|event| event.kind().starts_with("secret"));
    assert!(events.len() == 3 && events.contains(&set(1)) && events.contains(&set(2)));
    assert!(events.contains(&deleted));
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    let events = event::recent(&mut tx, &[], None, 500).await?;
    let of_red = events
        .iter()
        .filter(|stored| stored.event.kind().starts_with("secret"));
    assert_eq!(of_red.count(), 0);
    Ok(())
}

#[tokio::test]
async fn open_work_that_names_a_secret_is_counted() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, world.red, "A").await?;
    put(&world, world.red, "C").await?;
    let job = submit(&world).await?;
    world.submit("without").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let listed = secret::list(&mut tx).await?;
    let counts: Vec<(&str, u64)> = listed
        .iter()
        .map(|secret| (secret.name.as_str(), secret.open_jobs))
        .collect();
    assert_eq!(counts, [("A", 1), ("C", 0)]);
    let users = secret::users(&mut tx, "A", 10).await?;
    assert_eq!(users.jobs, ["program"]);
    assert_eq!(
        secret::users(&mut tx, "C", 10).await?,
        SecretUsers::default()
    );
    drop(tx);
    world.step(job, 0, Action::Cancel, 2).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(secret::list(&mut tx).await?[0].open_jobs, 0);
    assert_eq!(
        secret::users(&mut tx, "A", 10).await?,
        SecretUsers::default()
    );
    Ok(())
}

#[tokio::test]
async fn only_the_node_of_a_live_task_gets_its_secrets() -> anyhow::Result<()> {
    let world = World::new().await?;
    bind(&world).await?;
    let own = put(&world, world.red, "A").await?;
    put(&world, world.red, "C").await?;
    put(&world, world.blue, "B").await?;
    let job = submit(&world).await?;
    let task = start(&world, job).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let found = secret::of_task(&mut tx, NODE, (task, 1)).await?;
    let found = found.expect("it is the node of the task");
    assert_eq!(found.tenant, world.red);
    assert!(found.names.iter().eq(["A", "B"]));
    assert_eq!(found.rows, [own], "B belongs to another tenant");
    let other_name = AskingNode {
        name: "node-b",
        ..NODE
    };
    let other_credential = AskingNode {
        credential: &[8; 32],
        ..NODE
    };
    for (node, asked) in [
        (other_name, (task, 1)),
        (other_credential, (task, 1)),
        (NODE, (task, 2)),
        (NODE, (id(), 1)),
    ] {
        assert_eq!(secret::of_task(&mut tx, node, asked).await?, None);
    }
    drop(tx);
    world
        .step(job, 1, world::stop(AfterStop::Cancel), 3)
        .await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(secret::of_task(&mut tx, NODE, (task, 1)).await?, None);
    Ok(())
}

#[tokio::test]
async fn reencryption_keeps_versions_and_skips_the_first_key() -> anyhow::Result<()> {
    let world = World::new().await?;
    put(&world, world.red, "A").await?;
    put(&world, world.red, "B").await?;
    put(&world, world.blue, "A").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert!(secret::of_other_keys(&mut tx, "a", "").await?.is_empty());
    let rows = secret::of_other_keys(&mut tx, "b", "A").await?;
    assert_eq!(rows.len(), 1);
    let changed = SecretRow {
        key_id: "b".to_owned(),
        ciphertext: vec![9],
        ..rows[0].clone()
    };
    secret::reencrypt(&mut tx, &changed).await?;
    let rest = secret::of_other_keys(&mut tx, "b", "").await?;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].name, "A");
    let rows = secret::of_other_keys(&mut tx, "a", "").await?;
    assert_eq!(rows, [changed]);
    Ok(())
}
