//! Pace reports of ranks, and verdicts.

use crate::world::{World, at, start};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId};
use muster_model::pace::{Doing, PaceReport, Suspect, Suspicion};
use muster_model::plan::Action;
use muster_model::task::Role;
use muster_model::verdict::{Finding, Remedy, Verdict};
use muster_store::event::{self, EventFilter};
use muster_store::pool;
use muster_store::task;

async fn running(world: &World) -> anyhow::Result<(JobId, [TaskId; 3])> {
    let job = world.submit("watched").await?;
    let tasks = world.tasks(&[0, 1]);
    let ids = world.step(job, 0, start(tasks), 1).await?;
    let ids = <[TaskId; 3]>::try_from(ids).expect("two workers and a shard");
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((job, ids))
}

fn pace(step: u64, own_ms: Option<f64>) -> TaskReport {
    let doing = Doing::Working;
    let pace = PaceReport {
        step,
        own_ms,
        doing,
    };
    TaskReport::Pace { pace }
}

#[tokio::test]
async fn newest_pace_of_a_rank_is_stored_with_its_task() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, _]) = running(&world).await?;
    world.tell(other, 1, 0, &[pace(4, Some(12.5))]).await?;
    world.tell(other, 1, 1, &[pace(4, None)]).await?;
    // The report is repeated, as after a reconnect.
    world.tell(other, 1, 0, &[pace(4, Some(12.5))]).await?;
    let loaded = world.loaded(job, 20).await?;
    assert_eq!(loaded.paces.get(&chief), None);
    let kept = loaded.paces[&other];
    assert_eq!((kept.step, kept.own_ms, kept.reports), (4, Some(12.5), 2));
    Ok(())
}

#[tokio::test]
async fn verdict_is_an_event_and_suspects_end_with_the_task_set() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, _]) = running(&world).await?;
    let suspects = vec![Suspect {
        task_id: other,
        of: Suspicion::Straggler,
        since_ms: 7,
    }];
    let action = Action::Suspect {
        suspects: suspects.clone(),
    };
    world.step(job, 1, action, 4).await?;
    let loaded = world.loaded(job, 5).await?;
    assert_eq!((loaded.suspects, loaded.verdicts), (suspects.clone(), 0));
    world.tell(other, 1, 0, &[pace(4, Some(30.0))]).await?;
    world.tell(chief, 1, 0, &[pace(4, Some(10.0))]).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let shown = task::paces(&mut tx, job).await?;
    let shown: Vec<_> = shown
        .iter()
        .map(|rank| (rank.task_id, rank.pace.own_ms, rank.suspect))
        .collect();
    let wanted = [
        (chief, Some(10.0), None),
        (other, Some(30.0), Some(suspects[0])),
    ];
    assert_eq!(shown, wanted, "by rank");
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(task::paces(&mut tx, job).await?, [], "of another tenant");

    let verdict = Verdict {
        task_id: other,
        role: Role::Worker { rank: 1 },
        node_id: world.node,
        node: "node-a".to_owned(),
        finding: Finding::Straggler {
            own_us: 30_000,
            median_us: 10_000,
        },
        for_ms: 60_000,
        remedy: Remedy::LeftOut,
    };
    let steps = [
        Action::Judge {
            verdict: verdict.clone(),
        },
        Action::Resize {
            leave: vec![other],
            join: Vec::new(),
            why: verdict.to_string(),
            charge: muster_model::job::Charge::None,
        },
    ];
    let steps = steps.map(|action| muster_model::plan::JobDecision {
        job,
        expected_revision: 1,
        action,
    });
    let outcome = world.commit(&steps, 6).await?;
    assert_eq!(outcome.applied, [job]);
    let loaded = world.loaded(job, 7).await?;
    assert_eq!((loaded.suspects, loaded.verdicts), (Vec::new(), 1));
    assert_eq!(loaded.job.revision, 2);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let filter = EventFilter {
        job_id: Some(job),
        ..EventFilter::default()
    };
    let events = event::page(&mut tx, filter, None, 100).await?;
    let judged = events.iter().filter_map(|one| match &one.event {
        Event::RankJudged { verdict } => Some((one.at, verdict.clone())),
        _ => None,
    });
    assert_eq!(judged.collect::<Vec<_>>(), [(at(6), verdict)]);
    Ok(())
}
