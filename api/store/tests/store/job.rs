//! Jobs of users: pages, filters, intents and deletion.

use crate::world::{World, at, stop};
use muster_model::actor::Actor;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobPhase, JobState};
use muster_model::plan::Action;
use muster_store::event::EventFilter;
use muster_store::job::{DeleteOutcome, IntentOutcome, JobFilter};
use muster_store::task::{self, Revisions};
use muster_store::{event, job, log, plan, pool};
use std::collections::BTreeMap;

async fn names(
    world: &World,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: u32,
) -> anyhow::Result<Vec<(String, JobId)>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let rows = job::list(&mut tx, filter, after, limit).await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.job.spec.name, row.job.id))
        .collect())
}

#[tokio::test]
async fn pages_of_jobs_list_each_job_once_despite_new_jobs() -> anyhow::Result<()> {
    let world = World::new().await?;
    for number in 0..5 {
        world.submit(&format!("job-{number}")).await?;
    }
    let first = names(&world, &JobFilter::default(), None, 2).await?;
    world.submit("newcomer").await?;
    let second = names(&world, &JobFilter::default(), Some(first[1].1), 2).await?;
    let third = names(&world, &JobFilter::default(), Some(second[1].1), 2).await?;
    let all: Vec<String> = first
        .into_iter()
        .chain(second)
        .chain(third)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(all, ["job-4", "job-3", "job-2", "job-1", "job-0"]);
    Ok(())
}

fn label(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

async fn found(world: &World, filter: JobFilter) -> anyhow::Result<Vec<JobId>> {
    let found = names(world, &filter, None, 10).await?;
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

#[tokio::test]
async fn filters_are_combined_with_and() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (one, two) = (world.submit("one").await?, world.submit("two").await?);
    world.start(one, 0, &[0], 1).await?;
    assert_eq!(
        found(
            &world,
            JobFilter {
                phases: vec![JobPhase::Starting],
                ..JobFilter::default()
            }
        )
        .await?,
        [one]
    );
    assert_eq!(
        found(
            &world,
            JobFilter {
                labels: label("team", "two-team"),
                ..JobFilter::default()
            }
        )
        .await?,
        [two]
    );
    assert_eq!(
        found(
            &world,
            JobFilter {
                labels: label("stage", "test"),
                ..JobFilter::default()
            }
        )
        .await?,
        [two, one]
    );
    assert_eq!(
        found(
            &world,
            JobFilter {
                name: Some("one".to_owned()),
                ..JobFilter::default()
            }
        )
        .await?,
        [one]
    );
    assert_eq!(
        found(
            &world,
            JobFilter {
                ids: vec![one],
                ..JobFilter::default()
            }
        )
        .await?,
        [one]
    );
    let neither = JobFilter {
        phases: vec![JobPhase::Queued],
        name: Some("one".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(found(&world, neither).await?, []);
    Ok(())
}

#[tokio::test]
async fn conditional_intent_leaves_other_jobs_unchanged() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("paused").await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::set_intent(&mut tx, job_id, Intent::Pause, None, at(1)).await?;
    let go_on = job::set_intent_where(
        &mut tx,
        job_id,
        Intent::Run,
        |_, intent| intent == Intent::Suspend,
        None,
        at(2),
    )
    .await?;
    let phase = JobPhase::Queued;
    assert_eq!(go_on, IntentOutcome::Unfit { phase });
    let row = job::get(&mut tx, job_id).await?.expect("it is there");
    assert_eq!(row.job.intent, Intent::Pause, "it waits for its owner");
    Ok(())
}

#[tokio::test]
async fn author_of_an_intent_is_in_the_snapshot_and_the_history() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("asked").await?;
    let loaded = async || -> anyhow::Result<_> {
        let mut tx = pool::begin_snapshot(&world.scheduler).await?;
        let jobs = plan::Loader::new(1_000).load(&mut tx, at(9)).await?.jobs;
        Ok(jobs.into_iter().next().expect("it is open").asked)
    };
    assert_eq!(loaded().await?, None);
    let by = Actor {
        user: "root@blue".to_owned(),
        as_administrator: true,
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::set_intent(&mut tx, job_id, Intent::Pause, Some(&by), at(1)).await?;
    tx.commit().await?;
    assert_eq!(loaded().await?, Some((Some(by.clone()), at(1))));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    let told = events.into_iter().find_map(|event| match event.event {
        Event::IntentChanged { by, .. } => by,
        _ => None,
    });
    assert_eq!(told, Some(by));
    Ok(())
}

#[tokio::test]
async fn cancel_is_final_and_an_ended_job_accepts_no_intent() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("wanted").await?;
    let want = async |intent| -> anyhow::Result<IntentOutcome> {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let outcome = job::set_intent(&mut tx, job_id, intent, None, at(1)).await?;
        tx.commit().await?;
        Ok(outcome)
    };
    assert_eq!(want(Intent::Run).await?, IntentOutcome::Unchanged);
    assert_eq!(want(Intent::Pause).await?, IntentOutcome::Changed);
    assert_eq!(want(Intent::Cancel).await?, IntentOutcome::Changed);
    let refused = IntentOutcome::Refused {
        phase: JobPhase::Queued,
        intent: Intent::Cancel,
    };
    assert_eq!(want(Intent::Run).await?, refused);
    assert_eq!(want(Intent::Cancel).await?, IntentOutcome::Unchanged);
    world.step(job_id, 0, Action::Cancel, 2).await?;
    assert!(matches!(
        want(Intent::Cancel).await?,
        IntentOutcome::Refused {
            phase: JobPhase::Cancelled,
            ..
        }
    ));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    assert_eq!(
        events
            .iter()
            .filter(|event| matches!(event.event, Event::IntentChanged { .. }))
            .count(),
        2
    );
    Ok(())
}

#[tokio::test]
async fn ended_job_can_be_deleted_and_its_history_stays() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("gone").await?;
    let delete = async || -> anyhow::Result<DeleteOutcome> {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let outcome = job::delete(&mut tx, job_id, None, at(2)).await?;
        tx.commit().await?;
        Ok(outcome)
    };
    assert_eq!(
        delete().await?,
        DeleteOutcome::NotEnded {
            phase: JobPhase::Queued
        }
    );
    let (chief, shard) = world.start(job_id, 0, &[0], 1).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    log::append(&mut tx, chief, 0, b"text", time::OffsetDateTime::UNIX_EPOCH).await?;
    tx.commit().await?;
    let path = "final-r1/model.safetensors".to_owned();
    let done = TaskReport::Finished {
        step: 1,
        reason: "steps".to_owned(),
        model_path: path.clone(),
    };
    world.tell(chief, 1, 0, &[done]).await?;
    world.step(job_id, 1, stop(AfterStop::Succeed), 2).await?;
    let gone = Observed::Gone {
        outcome: muster_model::task::Outcome::exited(0),
    };
    world
        .observe(1, &[(chief, gone.clone()), (shard, gone)], 3)
        .await?;
    world.step(job_id, 1, Action::Release, 4).await?;
    let row = world.job(job_id).await?;
    assert_eq!(
        (row.job.state, row.model_path),
        (JobState::Succeeded, Some(path))
    );

    assert_eq!(delete().await?, DeleteOutcome::Deleted);
    assert_eq!(delete().await?, DeleteOutcome::NotFound);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(job::get(&mut tx, job_id).await?, None);
    assert_eq!(
        job::list(&mut tx, &JobFilter::default(), None, 10).await?,
        []
    );
    assert_eq!(task::list(&mut tx, job_id, Revisions::All).await?, []);
    let events = event::page(
        &mut tx,
        EventFilter {
            job_id: Some(job_id),
            node_id: None,
        },
        None,
        100,
    )
    .await?;
    assert_eq!(
        events.last().map(|event| event.event.kind()),
        Some("job_deleted")
    );
    Ok(())
}

#[tokio::test]
async fn tasks_are_listed_of_the_present_or_of_all_revisions() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job_id = world.submit("tasks").await?;
    let (chief, shard) = world.start(job_id, 0, &[0], 1).await?;
    world.step(job_id, 1, stop(AfterStop::Pause), 2).await?;
    let gone = Observed::Gone {
        outcome: muster_model::task::Outcome::signalled(9),
    };
    world
        .observe(1, &[(chief, gone.clone()), (shard, gone)], 3)
        .await?;
    world.step(job_id, 1, Action::Release, 4).await?;
    world.step(job_id, 1, Action::Resume, 5).await?;
    world.start(job_id, 1, &[1, 2], 6).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let current = task::list(&mut tx, job_id, Revisions::Current).await?;
    assert_eq!(
        current
            .iter()
            .map(|row| row.task.role.to_string())
            .collect::<Vec<_>>(),
        ["ps-0", "worker-0", "worker-1"]
    );
    let all = task::list(&mut tx, job_id, Revisions::All).await?;
    assert_eq!(all.len(), 5);
    assert_eq!(
        (all[4].node_name.as_str(), all[4].released_at),
        ("node-a", Some(at(3)))
    );
    Ok(())
}
