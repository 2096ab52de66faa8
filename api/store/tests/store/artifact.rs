//! Artifacts: limits per job and tenant, replacement, revisions, and which node may write them.

use crate::world::{self, World, at, id};
use muster_model::id::{JobId, TaskId};
use muster_model::plan::PlannedTask;
use muster_model::task::Role;
use muster_model::tenant::LimitsSet;
use muster_store::artifact::{
    self, ArtifactAdmission, ArtifactContent, ArtifactKept, ArtifactWriter,
};
use muster_store::membership::{self, SecretHash};
use muster_store::secret::AskingNode;
use muster_store::{StoreError, limit, pool, tenant_scope};

const CREDENTIAL: SecretHash = [7; 32];
const NODE: AskingNode<'_> = AskingNode {
    name: "node-a",
    credential: &CREDENTIAL,
};

fn writer(world: &World, job: JobId, revision: u64) -> ArtifactWriter {
    ArtifactWriter {
        tenant: world.red,
        job,
        role: Role::Worker { rank: 0 },
        revision,
    }
}

fn content(bytes: u64, digit: &str) -> ArtifactContent {
    ArtifactContent {
        object: crate::world::id(),
        bytes,
        sha256: digit.repeat(64),
        content_type: "text/plain".to_owned(),
    }
}

async fn keep(
    world: &World,
    writer: &ArtifactWriter,
    path: &str,
    content: &ArtifactContent,
) -> Result<ArtifactKept, StoreError> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let kept = artifact::keep(&mut tx, writer, path, content, at(3)).await?;
    tx.commit().await?;
    Ok(kept)
}

async fn set_limits(world: &World, set: LimitsSet) -> anyhow::Result<()> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    limit::write(&mut tx, world.red, &set).await?;
    tx.commit().await?;
    Ok(())
}

fn exceeded(kept: Result<ArtifactKept, StoreError>) -> String {
    match kept {
        Err(StoreError::Exceeded(exceeded)) => exceeded.limit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn limits_of_job_and_tenant_refuse_by_name() -> anyhow::Result<()> {
    let world = World::new().await?;
    let set = LimitsSet {
        artifact_bytes: Some(150),
        job_artifact_bytes: Some(100),
        job_artifacts: Some(2),
        ..LimitsSet::default()
    };
    set_limits(&world, set).await?;
    let first = writer(&world, world.submit("first").await?, 1);
    let second = writer(&world, world.submit("second").await?, 1);
    keep(&world, &first, "a", &content(60, "a")).await?;
    let above = keep(&world, &first, "b", &content(41, "b")).await;
    assert_eq!(exceeded(above), "job_artifact_bytes");
    // A replaced content does not count.
    keep(&world, &first, "a", &content(99, "c")).await?;
    keep(&world, &first, "b", &content(1, "b")).await?;
    let above = keep(&world, &first, "c", &content(0, "c")).await;
    assert_eq!(exceeded(above), "job_artifacts");
    let above = keep(&world, &second, "a", &content(51, "a")).await;
    assert_eq!(exceeded(above), "artifact_bytes");
    let mut tx = pool::begin(&world.scheduler).await?;
    let admitted = artifact::admit(&mut tx, &second, "a", (0, None)).await?;
    assert_eq!(admitted, ArtifactAdmission::Fits { most_bytes: 50 });
    assert!(artifact::remove(&mut tx, &first, "a").await?.is_some());
    let admitted = artifact::admit(&mut tx, &second, "a", (100, None)).await?;
    assert_eq!(admitted, ArtifactAdmission::Fits { most_bytes: 100 });
    Ok(())
}

async fn delete(world: &World, job: JobId) {
    let delete = format!(
        "update job set phase = 'cancelled', state = '{{\"phase\": \"cancelled\"}}', finished_at = now(), deleted_at = now()
         where id = '{job}'"
    );
    world.db.execute(&delete).await;
}

#[tokio::test]
async fn deleted_job_does_not_count() -> anyhow::Result<()> {
    let world = World::new().await?;
    let set = LimitsSet {
        artifact_bytes: Some(150),
        ..LimitsSet::default()
    };
    set_limits(&world, set).await?;
    let gone = world.submit("gone").await?;
    keep(&world, &writer(&world, gone, 1), "a", &content(100, "a")).await?;
    let second = writer(&world, world.submit("second").await?, 1);
    let above = keep(&world, &second, "a", &content(51, "a")).await;
    assert_eq!(exceeded(above), "artifact_bytes");
    delete(&world, gone).await;
    keep(&world, &second, "a", &content(150, "a")).await?;
    Ok(())
}

#[tokio::test]
async fn path_is_a_file_or_a_folder() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, other) = (world.submit("job").await?, world.submit("other").await?);
    let own = writer(&world, job, 1);
    for path in ["a/b", "c", "ab"] {
        let kept = keep(&world, &own, path, &content(1, "a")).await?;
        assert_eq!(kept, ArtifactKept::Kept { replaced: None }, "{path}");
    }
    for (path, present) in [("a", "a/b"), ("c/d/e", "c"), ("a/b/c", "a/b")] {
        let other = present.to_owned();
        let kept = keep(&world, &own, path, &content(1, "a")).await?;
        assert_eq!(
            kept,
            ArtifactKept::Clash {
                other: other.clone()
            },
            "{path}"
        );
        let mut tx = pool::begin(&world.scheduler).await?;
        let admitted = artifact::admit(&mut tx, &own, path, (1, None)).await?;
        assert_eq!(admitted, ArtifactAdmission::Clash { other }, "{path}");
    }
    // Paths of another job do not matter.
    let kept = keep(&world, &writer(&world, other, 1), "a", &content(1, "a")).await?;
    assert_eq!(kept, ArtifactKept::Kept { replaced: None });
    Ok(())
}

#[tokio::test]
async fn later_start_replaces_and_earlier_one_does_not() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("job").await?;
    let (early, late) = (writer(&world, job, 1), writer(&world, job, 2));
    let first = content(1, "a");
    let kept = keep(&world, &early, "a", &first).await?;
    assert_eq!(kept, ArtifactKept::Kept { replaced: None });
    // A repeated request after a lost answer removes nothing.
    let kept = keep(&world, &early, "a", &first).await?;
    assert_eq!(kept, ArtifactKept::Kept { replaced: None });
    let kept = keep(&world, &late, "a", &content(2, "b")).await?;
    let replaced = Some(first.object);
    assert_eq!(kept, ArtifactKept::Kept { replaced });
    let kept = keep(&world, &early, "a", &content(3, "c")).await?;
    assert_eq!(kept, ArtifactKept::Stale);
    let mut tx = pool::begin(&world.scheduler).await?;
    let digest = "b".repeat(64);
    let same = artifact::admit(&mut tx, &late, "a", (2, Some(&digest))).await?;
    assert_eq!(same, ArtifactAdmission::Present);
    let stale = artifact::admit(&mut tx, &early, "a", (2, Some(&digest))).await?;
    assert_eq!(stale, ArtifactAdmission::Stale);
    drop(tx);
    // Another tenant sees nothing.
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(artifact::get(&mut tx, job, "a").await?, None);
    assert!(artifact::list(&mut tx, job, ("", ""), 10).await?.is_empty());
    Ok(())
}

async fn start(world: &World, job: JobId) -> anyhow::Result<TaskId> {
    let tasks = vec![PlannedTask {
        role: Role::Worker { rank: 0 },
        node: world.node,
        gpus: vec![0],
    }];
    Ok(world.step(job, 0, world::start(tasks), 2).await?[0])
}

#[tokio::test]
async fn only_the_node_of_a_task_writes_for_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let node = (world.node, "node-a");
    assert!(membership::bind(&mut tx, node, &CREDENTIAL, None, at(1)).await?);
    tx.commit().await?;
    let job = world.submit("job").await?;
    let task = start(&world, job).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let found = artifact::writer(&mut tx, NODE, task).await?;
    assert_eq!(found, Some(writer(&world, job, 1)));
    let other = AskingNode {
        credential: &[8; 32],
        ..NODE
    };
    assert_eq!(artifact::writer(&mut tx, other, task).await?, None);
    assert_eq!(artifact::writer(&mut tx, NODE, id()).await?, None);
    drop(tx);
    world.observe(1, &[(task, world::gone(0))], 3).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let ended = artifact::writer(&mut tx, NODE, task).await?;
    assert!(ended.is_some(), "files are uploaded after the end");
    drop(tx);
    delete(&world, job).await;
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(artifact::writer(&mut tx, NODE, task).await?, None);
    Ok(())
}
