//! Rounds: their snapshots and the commits of their plans.

use crate::world::{World, at, gone, id, ids_of, plan_of, slots, start, stop};
use muster_model::assignment::Observed;
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobPhase, JobState, RequeueCause};
use muster_model::plan::{Action, JobDecision, PlannedTask};
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::{Wait, Waiting};
use muster_store::event::EventFilter;
use muster_store::plan::CommitRefusal;
use muster_store::{event, node, plan, pool};
use std::time::Duration;

fn first_start(job: JobId, tasks: Vec<PlannedTask>) -> JobDecision {
    JobDecision {
        job,
        expected_revision: 0,
        action: start(tasks),
    }
}

/// Nodes are marked as lost while a round starts jobs on them, the first job on a later node than
/// the second.
#[tokio::test(flavor = "multi_thread")]
async fn commit_and_node_loss_lock_nodes_in_one_order() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let later = node::hello(&mut tx, id(), "node-b", &slots(4), at(0)).await?;
    tx.commit().await?;
    let (first, second) = (world.submit("first").await?, world.submit("second").await?);
    let mut on_later = world.tasks(&[0]);
    for task in &mut on_later {
        task.node = later.id;
    }
    let steps = [
        first_start(first, on_later),
        first_start(second, world.tasks(&[0])),
    ];
    // Takes locks in the order of `node::lost`, slowly.
    let mut losing = pool::begin(&world.scheduler).await?;
    locked(&mut losing, "node-a").await?;
    let mut round = pool::begin(&world.scheduler).await?;
    let mut committing = tokio::spawn(async move {
        let plan = plan_of(&steps);
        let outcome = plan::commit(&mut round, &plan, &ids_of(&plan), at(2)).await?;
        round.commit().await?;
        anyhow::Ok(outcome)
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut committing).await;
    assert!(early.is_err(), "it waits for the first node: {early:?}");
    locked(&mut losing, "node-b").await?;
    losing.commit().await?;
    let outcome = committing.await??;
    assert_eq!(
        (outcome.applied, outcome.conflicts),
        (vec![first, second], vec![])
    );
    Ok(())
}

/// Waits until the transaction has locked the node's row, or Postgres has found a deadlock.
async fn locked(tx: &mut pool::Transaction, node: &str) -> anyhow::Result<()> {
    sqlx::query("select from node where name = $1 for no key update")
        .bind(node)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

#[tokio::test]
async fn each_change_in_the_life_of_a_job_is_an_event() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("life").await?;
    assert_eq!(
        world.job(job).await?.job.waiting.map(|waiting| waiting.why),
        Some(Wait::NotConsidered)
    );

    let (chief, shard) = world.start(job, 0, &[2], 10).await?;
    let loaded = world.loaded(job, 11).await?;
    assert_eq!(
        (
            loaded.job.state.clone(),
            loaded.job.revision,
            loaded.placed_at
        ),
        (JobState::Starting, 1, Some(at(10)))
    );
    assert_eq!(
        loaded.tasks.iter().map(|task| task.id).collect::<Vec<_>>(),
        [shard, chief]
    );
    assert_eq!(loaded.tasks[1].gpus, [2]);

    let due = world
        .observe(
            1,
            &[(chief, Observed::Running), (shard, Observed::Running)],
            12,
        )
        .await?;
    assert!(due.round_due);
    world.step(job, 1, Action::Up, 13).await?;
    let row = world.job(job).await?;
    assert_eq!(
        (row.workers, row.ps_shards, row.job.started_at),
        (1, 1, Some(at(10)))
    );
    assert!(
        (world.loaded(job, 20).await?.trained_s - 7.0).abs() < 1e-9,
        "it has been up since 13"
    );

    world.step(job, 1, stop(AfterStop::Succeed), 23).await?;
    assert!(
        world
            .loaded(job, 24)
            .await?
            .tasks
            .iter()
            .all(|task| task.state == TaskState::Stopping)
    );
    let early = world
        .commit(
            &[JobDecision {
                job,
                expected_revision: 1,
                action: Action::Release,
            }],
            24,
        )
        .await?;
    assert!(
        matches!(&early.conflicts[0].why, CommitRefusal::TasksHeld { tasks } if tasks.len() == 2)
    );

    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 25)
        .await?;
    world.step(job, 1, Action::Release, 26).await?;
    let row = world.job(job).await?;
    assert_eq!(
        (row.job.state, row.job.finished_at),
        (JobState::Succeeded, Some(at(26)))
    );

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(
        &mut tx,
        EventFilter {
            job_id: Some(job),
            node_id: None,
        },
        None,
        100,
    )
    .await?;
    let phases: Vec<JobPhase> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::JobStateChanged { state, .. } => Some(state.phase()),
            _ => None,
        })
        .collect();
    assert_eq!(
        phases,
        [
            JobPhase::Starting,
            JobPhase::Running,
            JobPhase::Stopping,
            JobPhase::Succeeded
        ]
    );
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event.event.kind())
        .take(3)
        .collect();
    assert_eq!(kinds, ["job_submitted", "job_placed", "job_state_changed"]);
    // Two tasks, each assigned, running, stopping, released.
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "task_state_changed")
            .count(),
        8
    );
    Ok(())
}

#[tokio::test]
async fn second_commit_for_a_revision_is_a_conflict() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("twice").await?;
    let one = [first_start(job, world.tasks(&[0]))];
    let other = [first_start(job, world.tasks(&[1]))];
    let (first, second) = tokio::join!(world.commit(&one, 1), world.commit(&other, 1));
    let (first, second) = (first?, second?);
    assert_eq!(first.applied.len() + second.applied.len(), 1);
    let conflicts: Vec<_> = first
        .conflicts
        .into_iter()
        .chain(second.conflicts)
        .collect();
    assert_eq!(
        conflicts[0].why,
        CommitRefusal::Revision {
            expected: 0,
            found: 1
        }
    );
    assert_eq!(world.loaded(job, 2).await?.tasks.len(), 2);
    Ok(())
}

#[tokio::test]
async fn held_slot_is_refused_and_the_job_unchanged() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (first, second) = (world.submit("first").await?, world.submit("second").await?);
    let steps = [
        JobDecision {
            job: first,
            expected_revision: 0,
            action: start(world.tasks(&[0, 1])),
        },
        JobDecision {
            job: second,
            expected_revision: 0,
            action: start(world.tasks(&[2, 1])),
        },
    ];
    let outcome = world.commit(&steps, 1).await?;
    assert_eq!(outcome.applied, [first]);
    assert_eq!(
        (outcome.conflicts[0].job_id, &outcome.conflicts[0].why),
        (second, &CommitRefusal::GpuHeld)
    );
    let refused = world.loaded(second, 2).await?;
    assert_eq!(
        (refused.job.state, refused.job.revision, refused.tasks.len()),
        (JobState::Queued, 0, 0)
    );
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(
        node::list(&mut tx).await?[0]
            .held
            .iter()
            .map(|held| held.gpu_index)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    Ok(())
}

#[tokio::test]
async fn slot_is_free_only_after_its_task_is_reported_gone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (first, second) = (world.submit("first").await?, world.submit("second").await?);
    let (chief, shard) = world.start(first, 0, &[0], 1).await?;
    world
        .step(
            first,
            1,
            stop(AfterStop::Requeue {
                cause: RequeueCause::Preempted,
            }),
            2,
        )
        .await?;
    assert_eq!(
        world
            .commit(&[first_start(second, world.tasks(&[0]))], 3)
            .await?
            .conflicts[0]
            .why,
        CommitRefusal::GpuHeld
    );
    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 4)
        .await?;
    let outcome = world
        .commit(&[first_start(second, world.tasks(&[0]))], 5)
        .await?;
    assert_eq!(outcome.applied, [second]);
    Ok(())
}

#[tokio::test]
async fn steps_of_one_job_are_applied_in_order_and_all_or_none() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("steps").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    world
        .step(
            job,
            1,
            stop(AfterStop::Requeue {
                cause: RequeueCause::Resize,
            }),
            2,
        )
        .await?;
    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 3)
        .await?;
    let step = |action| JobDecision {
        job,
        expected_revision: 1,
        action,
    };
    let refused = world
        .commit(&[step(Action::Release), step(Action::Resume)], 4)
        .await?;
    assert!(matches!(
        refused.conflicts[0].why,
        CommitRefusal::Transition(_)
    ));
    assert_eq!(world.job(job).await?.job.state.phase(), JobPhase::Stopping);
    let outcome = world
        .commit(
            &[step(Action::Release), step(start(world.tasks(&[1, 2])))],
            5,
        )
        .await?;
    assert_eq!(outcome.applied, [job]);
    let loaded = world.loaded(job, 6).await?;
    assert_eq!(
        (loaded.job.state, loaded.job.revision, loaded.tasks.len()),
        (JobState::Starting, 2, 3)
    );
    Ok(())
}

#[tokio::test]
async fn charged_stop_counts_a_failure_and_delays_the_start() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("fails").await?;
    world.start(job, 0, &[0], 1).await?;
    let then = AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    };
    let action = Action::Stop {
        then,
        why: "worker-0 failed".to_owned(),
        charge: muster_model::job::Charge::Failure,
        not_before_ms: Some(1_800_000_060_000),
    };
    world.step(job, 1, action, 2).await?;
    let loaded = world.loaded(job, 3).await?;
    assert_eq!(
        (loaded.job.failures, loaded.job.not_before),
        (1, Some(at(60)))
    );
    Ok(())
}

fn wait(job: JobId, free_gpus: u32, position: u32) -> JobDecision {
    let why = Wait::TopologyPlacementFailed {
        short: None,
        needed_gpus: 4,
        free_gpus,
    };
    let waiting = Waiting {
        why,
        smallest_change: None,
        position,
    };
    JobDecision {
        job,
        expected_revision: 0,
        action: Action::Wait { waiting },
    }
}

#[tokio::test]
async fn wait_is_recorded_once_for_each_reason() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("waits").await?;
    assert_eq!(world.commit(&[wait(job, 2, 1)], 1).await?.applied, [job]);
    assert_eq!(
        world.commit(&[wait(job, 2, 1)], 2).await?.applied,
        [],
        "it says nothing new"
    );
    assert_eq!(world.commit(&[wait(job, 3, 2)], 3).await?.applied, [job]);
    assert_eq!(
        world
            .job(job)
            .await?
            .job
            .waiting
            .map(|waiting| waiting.position),
        Some(2)
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "job_waits")
            .count(),
        1
    );
    drop(tx);

    world.start(job, 0, &[0], 4).await?;
    let step = JobDecision {
        expected_revision: 1,
        ..wait(job, 1, 1)
    };
    assert_eq!(
        world.commit(&[step], 5).await?.conflicts[0].why,
        CommitRefusal::NotWaiting {
            phase: JobPhase::Starting
        }
    );
    Ok(())
}

fn first_start_on(world: &World, job: JobId, node: NodeId) -> JobDecision {
    let mut tasks = world.tasks(&[0]);
    tasks[0].node = node;
    first_start(job, tasks)
}

#[tokio::test]
async fn drained_lost_or_unknown_node_accepts_no_start() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("where").await?;
    assert_eq!(
        world
            .commit(&[first_start_on(&world, job, id())], 1)
            .await?
            .conflicts[0]
            .why,
        CommitRefusal::NoSuchNode
    );
    let mut tx = pool::begin(&world.scheduler).await?;
    node::set_drained(&mut tx, "node-a", true, at(1)).await?;
    tx.commit().await?;
    let refused = world
        .commit(&[first_start_on(&world, job, world.node)], 2)
        .await?;
    assert_eq!(
        refused.conflicts[0].why,
        CommitRefusal::NodesUnavailable {
            names: vec!["node-a".to_owned()]
        }
    );
    Ok(())
}

#[tokio::test]
async fn assignment_is_complete_and_its_generation_rises() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("assigned").await?;
    let empty = world.assignment().await?;
    assert_eq!(empty.tasks, []);
    let (chief, shard) = world.start(job, 0, &[0, 3], 1).await?;
    let started = world.assignment().await?;
    assert!(started.generation > empty.generation);
    assert_eq!(started.tasks.len(), 3);
    let launch = &started
        .tasks
        .iter()
        .find(|task| task.launch.task_id == chief)
        .expect("the chief")
        .launch;
    assert_eq!(
        (
            launch.workers,
            launch.ps_shards,
            launch.revision,
            launch.grace_ms
        ),
        (2, 1, 1, 500)
    );
    assert_eq!(
        (
            launch.secret.len(),
            launch.gpus.as_slice(),
            launch.resume_step
        ),
        (64, &[0][..], None)
    );
    assert_eq!(
        launch.spec,
        crate::world::spec("assigned"),
        "the document comes through unchanged"
    );

    let address = "127.0.0.1:4711".to_owned();
    world
        .tell(
            shard,
            1,
            0,
            &[muster_model::assignment::TaskReport::Listening {
                address: address.clone(),
            }],
        )
        .await?;
    let listening = world.assignment().await?;
    assert!(listening.generation > started.generation);
    assert!(
        listening
            .tasks
            .iter()
            .all(|task| task.peers.ps_shards[0].address.as_ref() == Some(&address))
    );

    world.step(job, 1, stop(AfterStop::Pause), 3).await?;
    let stopping = world.assignment().await?;
    assert!(
        stopping.generation > listening.generation && stopping.tasks.iter().all(|task| task.stop)
    );
    world.observe(1, &[(chief, gone(0))], 4).await?;
    let fewer = world.assignment().await?;
    assert!(fewer.generation > stopping.generation);
    assert_eq!(fewer.tasks.len(), 2);
    assert!(
        fewer.tasks.iter().all(|task| task.launch.workers == 2),
        "the size of a revision stays as tasks go"
    );
    Ok(())
}

#[tokio::test]
async fn cancelled_start_and_second_stop_keep_the_stronger_end() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("ends").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    world
        .step(
            job,
            1,
            stop(AfterStop::Requeue {
                cause: RequeueCause::Resize,
            }),
            2,
        )
        .await?;
    world.step(job, 1, stop(AfterStop::Cancel), 3).await?;
    let never = Observed::Gone {
        outcome: Outcome::NeverStarted,
    };
    world
        .observe(1, &[(chief, never.clone()), (shard, never)], 4)
        .await?;
    world.step(job, 1, Action::Release, 5).await?;
    assert_eq!(world.job(job).await?.job.state, JobState::Cancelled);
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    assert_eq!(
        plan::Loader::new(1_000).load(&mut tx, at(6)).await?.jobs,
        [],
        "rounds no longer see it"
    );
    Ok(())
}
