//! Idleness of programs: the reports of nodes, and what the history states of it.

use crate::world::{World, start};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId};
use muster_model::idle::{GpuEvidence, IdleFinding, IdleReport, Idleness};
use muster_model::plan::Action;
use muster_model::task::Role;
use muster_store::event::{self, EventFilter};
use muster_store::task::{self, Revisions};
use muster_store::{job, pool};

const REPORT: IdleReport = IdleReport {
    idle_ms: 5_000,
    output_ms: Some(9_000),
    metric_ms: None,
    session_ms: None,
    cpu_milli: 3,
    gpu: GpuEvidence::Absent,
};

async fn running(world: &World) -> anyhow::Result<(JobId, [TaskId; 3])> {
    let job = world.submit("idle").await?;
    let ids = world.step(job, 0, start(world.tasks(&[0, 1])), 1).await?;
    let ids = <[TaskId; 3]>::try_from(ids).expect("two workers and a shard");
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((job, ids))
}

#[tokio::test]
async fn newest_idleness_of_a_task_is_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, _]) = running(&world).await?;
    let idle = TaskReport::Activity { idle: Some(REPORT) };
    world.tell(chief, 1, 0, std::slice::from_ref(&idle)).await?;
    let active = TaskReport::Activity { idle: None };
    world.tell(other, 1, 0, &[idle, active]).await?;
    let loaded = world.loaded(job, 20).await?;
    let kept = loaded.idle_tasks[&chief];
    let output_ms = kept.output_ms.expect("there was output");
    assert_eq!(kept.since_ms - output_ms, 4_000);
    assert_eq!((kept.cpu_milli, loaded.idle_tasks.len()), (3, 1));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let shown = task::list(&mut tx, job, Revisions::Current).await?;
    let shown: Vec<_> = shown.iter().filter_map(|row| row.idle).collect();
    assert_eq!(shown, [kept]);
    Ok(())
}

#[tokio::test]
async fn finding_is_an_event_and_ends_with_activity() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, _) = running(&world).await?;
    let finding = IdleFinding {
        role: Role::Worker { rank: 0 },
        idle: Idleness::of(&REPORT, 20_000),
        for_ms: 5_000,
        ends_after_ms: None,
    };
    let idle = |idle| Action::Idle { idle };
    world.step(job, 1, idle(Some(finding)), 4).await?;
    assert_eq!(world.loaded(job, 5).await?.idle, Some(finding));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let row = job::get(&mut tx, job).await?.expect("it is there");
    assert_eq!(row.idle, Some(finding));
    drop(tx);
    world.step(job, 1, idle(None), 6).await?;
    assert_eq!(world.loaded(job, 7).await?.idle, None);
    world.step(job, 1, idle(Some(finding)), 8).await?;
    let why = "others".to_owned();
    world.step(job, 1, Action::Suspend { why }, 9).await?;
    assert_eq!(world.loaded(job, 10).await?.idle, None, "it does not run");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let filter = EventFilter {
        job_id: Some(job),
        ..EventFilter::default()
    };
    let events = event::page(&mut tx, filter, None, 100).await?;
    let told = events
        .into_iter()
        .map(|one| one.event)
        .filter(|event| matches!(event, Event::JobIdle { .. } | Event::JobActive {}));
    let idle = Event::JobIdle { finding };
    let expected = [idle.clone(), Event::JobActive {}, idle];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    Ok(())
}
