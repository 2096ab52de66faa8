//! Checkpoints of programs: pruning, fencing by revision, and the one with which a program begins.

use crate::program::{program, submit};
use crate::world::{World, at, id};
use muster_model::id::JobId;
use muster_model::metric::Goal;
use muster_model::spec::{JobSpec, KeepBest, Measure, Origin};
use muster_model::task::Role;
use muster_store::artifact::ArtifactWriter;
use muster_store::program_checkpoint::{
    self, CheckpointAdmission, CheckpointRecorded, DeclaredCheckpoint, StoredContent,
};
use muster_store::{StoreError, checkpoint, pool};
use std::collections::BTreeMap;

fn writer(world: &World, job: JobId, revision: u64) -> ArtifactWriter {
    ArtifactWriter {
        tenant: world.red,
        job,
        role: Role::Worker { rank: 0 },
        revision,
    }
}

fn declared(step: u64) -> DeclaredCheckpoint {
    DeclaredCheckpoint {
        step,
        path: format!("step-{step}.pt"),
        bytes: 100,
        file_count: 1,
        is_found: false,
    }
}

fn content(f1: f64) -> StoredContent {
    StoredContent {
        object: Some((id(), "a".repeat(64))),
        metrics: BTreeMap::from([("val/f1".to_owned(), f1)]),
    }
}

async fn record(
    world: &World,
    writer: &ArtifactWriter,
    declared: &DeclaredCheckpoint,
    content: &StoredContent,
    seconds: u64,
) -> Result<CheckpointRecorded, StoreError> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let times = (at(seconds), at(seconds + 1));
    let recorded = program_checkpoint::record(&mut tx, writer, declared, content, times).await?;
    tx.commit().await?;
    Ok(recorded)
}

/// Steps and whether they are retained, newest first.
async fn listed(world: &World, job: JobId) -> anyhow::Result<Vec<(u64, bool)>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let all = checkpoint::list(&mut tx, job).await?.into_iter();
    Ok(all.map(|one| (one.written.step, one.retained)).collect())
}

fn keeping(keep: u32, best: Option<Goal>) -> JobSpec {
    let mut spec = program("p", 60);
    spec.checkpoint.keep = keep;
    spec.checkpoint.keep_best = best.map(|goal| KeepBest {
        count: 1,
        by: Measure::default(),
        metric: Some("val/f1".to_owned()),
        goal: Some(goal),
    });
    spec
}

#[tokio::test]
async fn newest_and_best_checkpoint_stay() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(2, Some(Goal::Maximize))).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 1);
    for (step, f1) in [(10, 0.5), (20, 0.9), (30, 0.6), (40, 0.7)] {
        record(&world, &writer, &declared(step), &content(f1), step).await?;
    }
    let expected = [(40, true), (30, true), (20, true), (10, false)];
    assert_eq!(listed(&world, job).await?, expected);
    // The report counts from the registration on, at the time of the report.
    assert_eq!(world.loaded(job, 60).await?.reported, Some((40, at(40))));
    let mut tx = pool::begin(&world.scheduler).await?;
    let all = checkpoint::list(&mut tx, job).await?;
    for (step, is_lost) in [(10, false), (20, false), (30, true)] {
        let one = all
            .iter()
            .find(|one| one.written.step == step)
            .expect("there");
        program_checkpoint::forget(&mut tx, &writer, (one.id.0, is_lost)).await?;
    }
    tx.commit().await?;
    let expected = [(40, true), (20, true)];
    assert_eq!(
        listed(&world, job).await?,
        expected,
        "a retained one is not forgotten"
    );
    Ok(())
}

#[tokio::test]
async fn step_below_the_newest_is_not_pruned_at_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(1, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 1);
    // The report of step 3 is older, and only its upload is later.
    for (step, seconds) in [(30, 30), (5, 40), (3, 35)] {
        record(&world, &writer, &declared(step), &content(0.0), seconds).await?;
    }
    let expected = [(30, true), (5, true), (3, false)];
    assert_eq!(listed(&world, job).await?, expected);
    // A restarted daemon repeats the report.
    let mut tx = pool::begin(&world.scheduler).await?;
    let admitted = program_checkpoint::admit(&mut tx, &writer, &declared(3)).await?;
    assert_eq!(admitted, CheckpointAdmission::Present);
    let beginning = program_checkpoint::beginning(&mut tx, job).await?;
    let newest = beginning.checkpoint.expect("there");
    assert_eq!(newest.written.step, 5);
    Ok(())
}

#[tokio::test]
async fn same_path_is_replaced_and_repetition_changes_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(3, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 1);
    let last = |step| DeclaredCheckpoint {
        path: "last.pt".to_owned(),
        ..declared(step)
    };
    let (first, second) = (content(0.1), content(0.2));
    let object = |content: &StoredContent| content.object.clone().expect("one").0;
    for (step, content, expected) in [
        (10, &first, vec![]),
        (20, &second, vec![object(&first)]),
        (20, &second, vec![]),
    ] {
        let recorded = record(&world, &writer, &last(step), content, 20).await?;
        let CheckpointRecorded::Recorded { replaced, all } = recorded else {
            panic!("{recorded:?}");
        };
        assert_eq!((replaced, all.len()), (expected, 1), "{step}");
    }
    let found = |bytes| DeclaredCheckpoint {
        is_found: true,
        bytes,
        ..last(20)
    };
    for (declared, expected) in [
        (last(20), CheckpointAdmission::Present),
        (last(30), CheckpointAdmission::Fits),
        (found(100), CheckpointAdmission::Present),
        (found(101), CheckpointAdmission::Fits),
        (
            DeclaredCheckpoint {
                step: 0,
                ..found(100)
            },
            CheckpointAdmission::Present,
        ),
    ] {
        let mut tx = pool::begin(&world.scheduler).await?;
        let admitted = program_checkpoint::admit(&mut tx, &writer, &declared).await?;
        assert_eq!(admitted, expected, "{declared:?}");
    }
    Ok(())
}

#[tokio::test]
async fn path_within_another_checkpoint_is_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(3, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 1);
    let at_path = |step, path: &str| DeclaredCheckpoint {
        path: path.to_owned(),
        ..declared(step)
    };
    let first = at_path(10, "a/b");
    record(&world, &writer, &first, &content(0.0), 10).await?;
    for (path, is_refused) in [
        ("a", true),
        ("a/b/c", true),
        ("a/b", false),
        ("a/bc", false),
    ] {
        let mut tx = pool::begin(&world.scheduler).await?;
        let other = at_path(20, path);
        let admitted = program_checkpoint::admit(&mut tx, &writer, &other).await?;
        let expected = if is_refused {
            let path = "a/b".to_owned();
            CheckpointAdmission::Overlapping { path }
        } else {
            CheckpointAdmission::Fits
        };
        assert_eq!(admitted, expected, "{path}");
    }
    let recorded = record(&world, &writer, &at_path(20, "a"), &content(0.0), 20).await?;
    let path = "a/b".to_owned();
    assert_eq!(recorded, CheckpointRecorded::Overlapping { path });
    Ok(())
}

#[tokio::test]
async fn near_reports_keep_the_order_of_their_records() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(3, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 1);
    for step in [30, 5] {
        record(&world, &writer, &declared(step), &content(0.0), 30).await?;
    }
    let mut tx = pool::begin(&world.scheduler).await?;
    let beginning = program_checkpoint::beginning(&mut tx, job).await?;
    assert_eq!(beginning.checkpoint.expect("there").written.step, 5);
    Ok(())
}

#[tokio::test]
async fn task_of_an_earlier_revision_registers_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(3, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let writer = writer(&world, job, 0);
    let recorded = record(&world, &writer, &declared(10), &content(0.0), 10).await?;
    assert_eq!(recorded, CheckpointRecorded::Stale);
    let mut tx = pool::begin(&world.scheduler).await?;
    let admitted = program_checkpoint::admit(&mut tx, &writer, &declared(10)).await?;
    assert_eq!(admitted, CheckpointAdmission::Stale);
    assert_eq!(listed(&world, job).await?, []);
    assert_eq!(world.loaded(job, 60).await?.reported, None);
    Ok(())
}

#[tokio::test]
async fn origin_of_an_open_job_is_not_pruned() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, keeping(1, None)).await?;
    world.start(job, 0, &[0], 9).await?;
    let own = writer(&world, job, 1);
    record(&world, &own, &declared(10), &content(0.0), 10).await?;
    let mut fork = keeping(1, None);
    fork.name = "fork".to_owned();
    fork.from = Some(Origin {
        job,
        step: Some(10),
    });
    let child = submit(&world, fork).await?;
    record(&world, &own, &declared(20), &content(0.0), 20).await?;
    record(&world, &own, &declared(30), &content(0.0), 30).await?;
    let expected = [(30, true), (20, false), (10, true)];
    assert_eq!(listed(&world, job).await?, expected);

    let beginning = async |job| -> anyhow::Result<Option<(JobId, u64)>> {
        let mut tx = pool::begin(&world.scheduler).await?;
        let found = program_checkpoint::beginning(&mut tx, job).await?;
        assert!(!found.is_trial);
        let found = found.checkpoint;
        Ok(found.map(|found| (found.job_id, found.written.step)))
    };
    assert_eq!(beginning(job).await?, Some((job, 30)));
    assert_eq!(beginning(child).await?, Some((job, 10)));
    world.start(child, 0, &[1], 31).await?;
    let of_child = writer(&world, child, 1);
    record(&world, &of_child, &declared(12), &content(0.0), 40).await?;
    assert_eq!(beginning(child).await?, Some((child, 12)));
    record(&world, &own, &declared(50), &content(0.0), 50).await?;
    let left = listed(&world, job).await?;
    assert!(
        left.contains(&(10, false)),
        "it is needed no more: {left:?}"
    );
    Ok(())
}
