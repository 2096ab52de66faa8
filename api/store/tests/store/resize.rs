//! Resize in place: a new revision that keeps most tasks.

use crate::world::{World, at, gone, id, sample, start, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, TaskId};
use muster_model::job::{AfterStop, Charge, JobPhase, RequeueCause};
use muster_model::plan::{Action, JobDecision, PlannedTask};
use muster_model::task::{Outcome, Role};
use muster_store::plan::CommitRefusal;
use muster_store::{plan, pool};

/// Starts a job with two workers and a shard. Returns rank 0, rank 1 and the shard.
async fn running(world: &World) -> anyhow::Result<(JobId, [TaskId; 3])> {
    let job = world.submit("elastic").await?;
    let tasks = world.tasks(&[0, 1]);
    let ids = world.step(job, 0, start(tasks), 1).await?;
    let ids = <[TaskId; 3]>::try_from(ids).expect("two workers and a shard");
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((job, ids))
}

fn resize(leave: &[TaskId], join: Vec<PlannedTask>) -> Action {
    Action::Resize {
        leave: leave.to_vec(),
        join,
        why: "others gain more".to_owned(),
        charge: Charge::None,
    }
}

fn worker(world: &World, rank: u32, gpu: u32) -> PlannedTask {
    PlannedTask {
        role: Role::Worker { rank },
        node: world.node,
        gpus: vec![gpu],
    }
}

#[tokio::test]
async fn resized_job_keeps_tasks_and_gpus_of_leaving_ones_are_held() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, shard]) = running(&world).await?;
    let before = world.assignment().await?;
    let newcomer = worker(&world, 2, 3);
    let joins = world
        .step(job, 1, resize(&[other], vec![newcomer]), 10)
        .await?[0];

    let loaded = world.loaded(job, 11).await?;
    assert_eq!(
        (loaded.job.state.phase(), loaded.job.revision),
        (JobPhase::Running, 2)
    );
    let ids: Vec<TaskId> = loaded.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [shard, chief, joins]);
    let leaving: Vec<TaskId> = loaded.leaving.iter().map(|task| task.id).collect();
    assert_eq!(leaving, [other]);
    assert!(loaded.trained_s > 7.5, "it has trained all the time");

    let after = world.assignment().await?;
    assert!(after.generation > before.generation);
    for task in &after.tasks {
        let peers = &task.peers;
        assert_eq!(peers.revision, 2);
        let workers: Vec<TaskId> = peers.workers.iter().map(|peer| peer.task_id).collect();
        assert_eq!(workers, [chief, joins], "by rank, without who leaves");
        assert_eq!(task.launch.secret, before.tasks[0].launch.secret);
        assert_eq!(task.stop, task.launch.task_id == other);
    }

    let rival = world.submit("rival").await?;
    let on_held = JobDecision {
        job: rival,
        expected_revision: 0,
        action: start(world.tasks(&[1])),
    };
    let refused = world.commit(std::slice::from_ref(&on_held), 12).await?;
    assert_eq!(refused.conflicts[0].why, CommitRefusal::GpuHeld);
    world.observe(1, &[(other, gone(0))], 13).await?;
    assert_eq!(world.loaded(job, 14).await?.leaving, []);
    assert_eq!(world.commit(&[on_held], 15).await?.conflicts, []);
    Ok(())
}

/// The shard is needed until others hold its pieces, and they may start later than any grace
/// period.
#[tokio::test]
async fn leaving_shard_is_stopped_only_with_its_job() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [_, _, shard]) = running(&world).await?;
    let newcomer = PlannedTask {
        role: Role::PsShard { index: 1 },
        node: world.node,
        gpus: Vec::new(),
    };
    let joins = world
        .step(job, 1, resize(&[shard], vec![newcomer]), 10)
        .await?[0];
    let moving = world.assignment().await?;
    assert_eq!(moving.tasks.len(), 4);
    for task in &moving.tasks {
        let shards: Vec<TaskId> = task.peers.ps_shards.iter().map(|one| one.task_id).collect();
        assert_eq!((shards, task.stop), (vec![joins], false));
    }
    let loaded = world.loaded(job, 11).await?;
    let leaving: Vec<TaskId> = loaded.leaving.iter().map(|task| task.id).collect();
    assert_eq!(
        leaving,
        [shard],
        "what it holds is its own until it is gone"
    );

    world.step(job, 2, stop(AfterStop::Pause), 20).await?;
    let stopping = world.assignment().await?;
    assert!(stopping.generation > moving.generation);
    assert!(stopping.tasks.iter().all(|task| task.stop));
    Ok(())
}

#[tokio::test]
async fn refused_growth_is_counted_until_a_task_joins() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [_, _, shard]) = running(&world).await?;
    let refused = Observed::Gone {
        outcome: Outcome::refused("OutOfcpu".to_owned()),
    };
    for times in 1..=2 {
        let newcomer = worker(&world, 2, 3);
        let revision = u64::from(times) * 2;
        let (grows, at_s) = (resize(&[], vec![newcomer]), 10 * revision);
        let joins = world.step(job, revision - 1, grows, at_s).await?[0];
        // A running task of another role does not reset the count.
        let reported = [(shard, Observed::Running), (joins, refused.clone())];
        world.observe(revision, &reported, at_s + 1).await?;
        let Action::Resize {
            leave, join, why, ..
        } = resize(&[joins], Vec::new())
        else {
            unreachable!("it is one")
        };
        let without = Action::Resize {
            leave,
            join,
            why,
            charge: Charge::Refusal,
        };
        world.step(job, revision, without, at_s + 2).await?;
        let loaded = world.loaded(job, at_s + 3).await?;
        assert_eq!((loaded.put_off, loaded.job.failures), (times, 0));
        assert_eq!(world.job(job).await?.put_off, times);
    }
    let newcomer = worker(&world, 2, 3);
    let joins = world.step(job, 5, resize(&[], vec![newcomer]), 90).await?[0];
    assert_eq!(world.loaded(job, 91).await?.put_off, 2, "it is not up yet");
    world.observe(6, &[(joins, Observed::Running)], 92).await?;
    assert_eq!(world.loaded(job, 93).await?.put_off, 0);
    Ok(())
}

#[tokio::test]
async fn released_gpus_are_listed_for_a_minute_unless_the_job_runs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, shard]) = running(&world).await?;
    let freed = async |seconds: u64| -> anyhow::Result<Vec<u32>> {
        let mut tx = pool::begin_snapshot(&world.scheduler).await?;
        let loaded = plan::Loader::new(1_000).load(&mut tx, at(seconds)).await?;
        let of_node = loaded.freed.get(&world.node).into_iter().flatten();
        Ok(of_node.map(|&(gpu, _)| gpu).collect())
    };
    world.step(job, 1, resize(&[other], Vec::new()), 10).await?;
    world.observe(1, &[(other, gone(0))], 11).await?;
    assert_eq!(freed(50).await?, Vec::<u32>::new(), "it shrank on purpose");
    let back = stop(AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    });
    world.step(job, 2, back, 60).await?;
    let all = [(chief, gone(1)), (shard, gone(0))];
    world.observe(1, &all, 61).await?;
    assert_eq!(freed(62).await?, [0, 1]);
    assert_eq!(freed(300).await?, Vec::<u32>::new());
    Ok(())
}

#[tokio::test]
async fn gpus_released_for_other_jobs_are_not_listed() -> anyhow::Result<()> {
    for (cause, expected) in [
        (RequeueCause::Resize, vec![]),
        (RequeueCause::Preempted, vec![]),
        (RequeueCause::OverQuota, vec![]),
        (RequeueCause::TaskFailed, vec![0, 1]),
    ] {
        let world = World::new().await?;
        let (job, tasks) = running(&world).await?;
        let back = stop(AfterStop::Requeue { cause });
        world.step(job, 1, back, 10).await?;
        let gone = tasks.map(|task| (task, gone(0)));
        world.observe(1, &gone, 11).await?;
        let mut tx = pool::begin_snapshot(&world.scheduler).await?;
        let loaded = plan::Loader::new(1_000).load(&mut tx, at(12)).await?;
        let of_node = loaded.freed.get(&world.node).into_iter().flatten();
        let gpus: Vec<u32> = of_node.map(|&(gpu, _)| gpu).collect();
        assert_eq!(gpus, expected, "{cause:?}");
    }
    Ok(())
}

#[tokio::test]
async fn reports_of_remaining_tasks_count_those_of_left_ones_do_not() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [chief, other, _]) = running(&world).await?;
    world.step(job, 1, resize(&[other], Vec::new()), 10).await?;
    // Both tasks were started at revision 1 and report it.
    let sample = TaskReport::Progress {
        sample: sample(70, 1.0, 0.5, 9.0),
    };
    let told = world
        .tell(chief, 1, 0, std::slice::from_ref(&sample))
        .await?;
    assert_eq!((told.recorded, told.stale), (1, 0));
    let failed = TaskReport::Failed {
        message: "cannot leave".to_owned(),
        retryable: true,
        lacks: None,
    };
    let told = world.tell(other, 1, 0, &[failed]).await?;
    assert_eq!((told.recorded, told.stale), (0, 1));
    let loaded = world.loaded(job, 51).await?;
    assert_eq!(loaded.failed, None);
    assert_eq!(loaded.latest.map(|sample| sample.step), Some(70));
    world.observe(1, &[(chief, gone(9))], 52).await?;
    let loaded = world.loaded(job, 53).await?;
    assert!(
        loaded
            .tasks
            .iter()
            .any(|task| task.id == chief && task.state.is_released())
    );
    Ok(())
}

#[tokio::test]
async fn inconsistent_resize_changes_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, [_, other, _]) = running(&world).await?;
    let before = world.loaded(job, 9).await?;
    let stranger: TaskId = id();
    let refusals = [
        (
            resize(&[stranger], Vec::new()),
            CommitRefusal::NoSuchTask { task: stranger },
        ),
        (
            resize(&[], vec![worker(&world, 2, 1)]),
            CommitRefusal::GpuHeld,
        ),
        // This rank is taken.
        (
            resize(&[], vec![worker(&world, 1, 2)]),
            CommitRefusal::GpuHeld,
        ),
    ];
    for (action, why) in refusals {
        let step = JobDecision {
            job,
            expected_revision: 1,
            action,
        };
        let outcome = world.commit(&[step], 9).await?;
        assert_eq!(outcome.conflicts, [plan::Conflict { job_id: job, why }]);
        assert_eq!(world.loaded(job, 9).await?, before);
    }
    world.step(job, 1, stop(AfterStop::Pause), 20).await?;
    let step = JobDecision {
        job,
        expected_revision: 1,
        action: resize(&[other], Vec::new()),
    };
    let outcome = world.commit(&[step], 21).await?;
    assert!(matches!(
        outcome.conflicts[0].why,
        CommitRefusal::Transition(_)
    ));
    Ok(())
}
