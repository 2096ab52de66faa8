//! Bounds on the stored volume of a job's reports.

use crate::world::{World, sample};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::checkpoint::Written;
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId};
use muster_model::plan::Action;
use muster_model::progress::{Evaluation, Split};
use muster_model::tenant::LimitsSet;
use muster_store::event::EventFilter;
use muster_store::report::NodeReport;
use muster_store::{checkpoint, event, limit, log, pool, progress, tenant_scope};

async fn limited(limits: LimitsSet) -> anyhow::Result<(World, JobId, TaskId)> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.api).await?;
    tenant_scope::admin(&mut tx).await?;
    limit::write(&mut tx, world.red, &limits).await?;
    tx.commit().await?;
    let job = world.submit("talks").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    let up = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((world, job, chief))
}

fn note(text: &str) -> TaskReport {
    TaskReport::Note {
        message: text.to_owned(),
    }
}

/// Returns the job's events that these tests report.
async fn told(world: &World, job: JobId) -> anyhow::Result<Vec<String>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let filter = EventFilter {
        job_id: Some(job),
        node_id: None,
    };
    let page = event::page(&mut tx, filter, None, 1_000).await?;
    let told = page.into_iter().filter_map(|stored| match stored.event {
        Event::Note { message } => Some(message),
        Event::Evaluated { step, .. } => Some(format!("evaluated {step}")),
        Event::TrainingFinished { .. } => Some("finished".to_owned()),
        _ => None,
    });
    Ok(told.collect())
}

fn evaluated(step: u64) -> TaskReport {
    TaskReport::Evaluated {
        evaluation: Evaluation {
            step,
            epoch: 1.0,
            split: Split::default(),
            loss: Some(1.0),
            accuracy: Some(0.5),
        },
    }
}

#[tokio::test]
async fn events_above_the_limit_are_dropped_with_one_note() -> anyhow::Result<()> {
    let (world, job, chief) = limited(LimitsSet {
        job_events: Some(3),
        ..LimitsSet::default()
    })
    .await?;
    world.tell(chief, 1, 0, &[note("a"), note("b")]).await?;
    world
        .tell(chief, 1, 2, &[evaluated(1), evaluated(2), note("c")])
        .await?;
    let finished = TaskReport::Finished {
        step: 9,
        reason: "done".to_owned(),
        model_path: "m".to_owned(),
    };
    let outcome = world.tell(chief, 1, 5, &[note("d"), finished]).await?;
    assert!(outcome.round_due, "what it does to the job is done");
    let told = told(&world, job).await?;
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[..3], ["a", "b", "evaluated 1"]);
    assert!(told[3].contains("job_events"), "{}", told[3]);
    Ok(())
}

#[tokio::test]
async fn bytes_of_events_are_limited() -> anyhow::Result<()> {
    let (world, job, chief) = limited(LimitsSet {
        job_event_bytes: Some(2_000),
        ..LimitsSet::default()
    })
    .await?;
    let long = note(&"x".repeat(1_500));
    for seq in 0..5 {
        world
            .tell(chief, 1, seq, std::slice::from_ref(&long))
            .await?;
    }
    assert_eq!(told(&world, job).await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn series_above_the_limit_keeps_the_newest_sample() -> anyhow::Result<()> {
    let (world, job, chief) = limited(LimitsSet {
        job_points: Some(2),
        ..LimitsSet::default()
    })
    .await?;
    for step in 1..=4 {
        let sample = sample(step, 0.1, 1.0, 10.0);
        world
            .tell(chief, 1, step - 1, &[TaskReport::Progress { sample }])
            .await?;
    }
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let points = progress::samples(&mut tx, job, None, 100).await?;
    assert_eq!(points.len(), 2);
    let latest = world.job(job).await?.latest.expect("a sample");
    assert_eq!(latest.step, 4);
    Ok(())
}

fn written(step: u64) -> TaskReport {
    TaskReport::CheckpointWritten {
        checkpoint: Written {
            step,
            epoch: 0.5,
            revision: 1,
            path: format!("p/{step}"),
            bytes: 10,
            manifest_sha256: "ab".repeat(32),
            files: Vec::new(),
            loss: None,
            accuracy: None,
        },
    }
}

#[tokio::test]
async fn oldest_checkpoints_above_the_limit_are_deleted() -> anyhow::Result<()> {
    let (world, job, chief) = limited(LimitsSet {
        job_checkpoints: Some(10),
        ..LimitsSet::default()
    })
    .await?;
    let lines: Vec<TaskReport> = (1..=200).map(written).collect();
    world.tell(chief, 1, 0, &lines).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let left = checkpoint::list(&mut tx, job).await?;
    assert!((10..=74).contains(&left.len()), "{}", left.len());
    assert_eq!(left[0].written.step, 200);
    Ok(())
}

#[tokio::test]
async fn oldest_output_above_the_limit_of_a_job_is_dropped() -> anyhow::Result<()> {
    let (world, _, chief) = limited(LimitsSet {
        job_log_bytes: Some(1_000),
        ..LimitsSet::default()
    })
    .await?;
    for piece in 0..30 {
        let report = NodeReport {
            logs: vec![(chief, piece * 100, vec![b'a' + piece as u8 % 26; 100])],
            ..NodeReport::default()
        };
        world.report(&report, 10).await?;
    }
    let mut tx = pool::begin(&world.scheduler).await?;
    let slice = log::read(&mut tx, chief, 0, 10_000).await?.expect("a log");
    assert_eq!(slice.end, 3_000);
    assert!(
        (800..=1_000).contains(&slice.bytes.len()),
        "{}",
        slice.bytes.len()
    );
    assert_eq!(slice.offset + slice.bytes.len() as u64, 3_000);
    Ok(())
}
