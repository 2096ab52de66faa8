//! GPU time that jobs have held: over revisions, and of ended jobs.

use crate::world::{World, at, gone, start, stop};
use muster_model::assignment::Observed;
use muster_model::id::{JobId, TaskId};
use muster_model::job::{AfterStop, Charge};
use muster_model::plan::{Action, PlannedTask};
use muster_model::task::Role;
use muster_store::{plan, pool};

/// Starts a job on the slots at 1 s. Returns its workers.
async fn running(world: &World, gpus: &[u32]) -> anyhow::Result<(JobId, Vec<TaskId>)> {
    let job = world.submit("elastic").await?;
    let ids = world.step(job, 0, start(world.tasks(gpus)), 1).await?;
    let up: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, Observed::Running)).collect();
    world.observe(1, &up, 1).await?;
    world.step(job, 1, Action::Up, 1).await?;
    Ok((job, ids))
}

fn resize(leave: TaskId, join: Vec<PlannedTask>) -> Action {
    Action::Resize {
        leave: vec![leave],
        join,
        why: "others gain more".to_owned(),
        charge: Charge::None,
    }
}

async fn service(world: &World, job: JobId, seconds: u64) -> anyhow::Result<f64> {
    Ok(world.loaded(job, seconds).await?.attained_gpu_s)
}

#[tokio::test]
async fn service_of_resized_job_is_sum_over_its_revisions() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, ids) = running(&world, &[0, 1]).await?;
    assert!((service(&world, job, 5).await? - 8.0).abs() < 1e-6);
    let newcomer = PlannedTask {
        role: Role::Worker { rank: 2 },
        node: world.node,
        gpus: vec![3],
    };
    let joins = world
        .step(job, 1, resize(ids[1], vec![newcomer]), 10)
        .await?[0];
    // The leaving worker holds its GPU until it is gone.
    assert!((service(&world, job, 12).await? - 24.0).abs() < 1e-6);
    world.observe(1, &[(ids[1], gone(0))], 13).await?;
    assert!((service(&world, job, 20).await? - 41.0).abs() < 1e-6);

    world.step(job, 2, stop(AfterStop::Pause), 21).await?;
    let all = [(ids[0], gone(0)), (ids[2], gone(0))];
    world.observe(1, &all, 22).await?;
    world.observe(2, &[(joins, gone(0))], 23).await?;
    world.step(job, 2, Action::Release, 24).await?;
    assert!((service(&world, job, 30).await? - 46.0).abs() < 1e-6);

    let mut tx = pool::begin(&world.scheduler).await?;
    let pruned = sqlx::query("delete from allocation where released_at is not null")
        .execute(&mut *tx)
        .await?;
    assert_eq!(pruned.rows_affected(), 3);
    tx.commit().await?;
    assert!((service(&world, job, 40).await? - 46.0).abs() < 1e-6);
    Ok(())
}

#[tokio::test]
async fn demotion_keeps_its_time_after_later_resize() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, ids) = running(&world, &[0, 1]).await?;
    // 16 GPU-hours on 2 GPUs.
    assert_eq!(world.loaded(job, 28_800).await?.demoted_at, None);
    assert_eq!(
        world.loaded(job, 30_000).await?.demoted_at,
        Some(at(28_801))
    );
    world
        .step(job, 1, resize(ids[1], Vec::new()), 31_000)
        .await?;
    world.observe(1, &[(ids[1], gone(0))], 32_000).await?;
    // Now it holds a single GPU.
    assert_eq!(
        world.loaded(job, 60_000).await?.demoted_at,
        Some(at(28_801))
    );
    Ok(())
}

#[tokio::test]
async fn history_has_service_of_newest_ended_jobs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut loader = plan::Loader::new(10);
    for (revision_end, gpus) in [(11, &[0, 1][..]), (31, &[0][..])] {
        let (job, ids) = running(&world, gpus).await?;
        world
            .step(job, 1, stop(AfterStop::Cancel), revision_end)
            .await?;
        let all: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, gone(0))).collect();
        world.observe(1, &all, revision_end).await?;
        world.step(job, 1, Action::Release, revision_end).await?;
    }
    // It never held a GPU.
    world.submit("waiting").await?;
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let history = loader.load(&mut tx, at(40)).await?.history_gpu_s;
    assert_eq!(history, [20.0, 30.0]);
    tx.commit().await?;

    // 130 further jobs of 1 to 130 GPU-seconds: equal parts of them.
    let mut tx = pool::begin(&world.scheduler).await?;
    sqlx::query("update job set held_gpu_s = 0")
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    for number in 1..=130 {
        let job = world.submit("ended").await?;
        let mut tx = pool::begin(&world.scheduler).await?;
        sqlx::query(
            r#"update job set phase = 'cancelled', state = '{"phase": "cancelled"}', waiting = null,
                   finished_at = $2, held_gpu_s = $3 where id = $1"#,
        )
        .bind(job.0)
        .bind(at(50))
        .bind(f64::from(number))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let kept = loader.load(&mut tx, at(60)).await?.history_gpu_s;
    assert_eq!(kept, history, "read at most once a minute");
    let history = loader.load(&mut tx, at(101)).await?.history_gpu_s;
    assert_eq!(history.len(), 64);
    assert!(history.is_sorted());
    // The first two parts have three jobs, the others two.
    assert_eq!((history[0], history[63]), (2.0, 129.5));
    let late = loader.load(&mut tx, at(51 + 30 * 86_400)).await?;
    assert!(late.history_gpu_s.is_empty(), "too old");
    Ok(())
}
