//! Reports: repetitions change nothing, and older revisions do not affect the newer one.

use crate::world::{World, at, gone, sample, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::checkpoint::Written;
use muster_model::id::{JobId, TaskId};
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::plan::Action;
use muster_model::progress::{Evaluation, Split};
use muster_store::event::EventFilter;
use muster_store::plan::{JobFailureReport, JobFinishReport};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{checkpoint, event, log, pool, progress};

fn progress_line(step: u64, epoch: f64, loss: f64, steps_per_s: f64) -> TaskReport {
    TaskReport::Progress {
        sample: sample(step, epoch, loss, steps_per_s),
    }
}

fn written(step: u64, revision: u64) -> TaskReport {
    let path = format!("t/j/step-{step:010}-r{revision}");
    TaskReport::CheckpointWritten {
        checkpoint: Written {
            step,
            epoch: 0.5,
            revision,
            path,
            bytes: 10,
            manifest_sha256: "ab".repeat(32),
            files: vec!["manifest.json".to_owned()],
            loss: Some(0.5),
            accuracy: Some(0.75),
        },
    }
}

async fn running(world: &World) -> anyhow::Result<(JobId, TaskId, TaskId)> {
    let job = world.submit("told").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    world
        .observe(
            1,
            &[(chief, Observed::Running), (shard, Observed::Running)],
            2,
        )
        .await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((job, chief, shard))
}

/// Stops the job's first revision and starts its second.
async fn restart(
    world: &World,
    job: JobId,
    chief: TaskId,
    shard: TaskId,
) -> anyhow::Result<(TaskId, TaskId)> {
    world
        .step(
            job,
            1,
            stop(AfterStop::Requeue {
                cause: RequeueCause::Resize,
            }),
            10,
        )
        .await?;
    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 11)
        .await?;
    world.step(job, 1, Action::Release, 12).await?;
    world.start(job, 1, &[1], 13).await
}

async fn kinds(world: &World, job: JobId) -> anyhow::Result<Vec<&'static str>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = event::page(
        &mut tx,
        EventFilter {
            job_id: Some(job),
            node_id: None,
        },
        None,
        1000,
    )
    .await?;
    Ok(events.into_iter().map(|event| event.event.kind()).collect())
}

#[tokio::test]
async fn repeated_report_changes_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let lines = [
        TaskReport::Ready { from_step: 0 },
        progress_line(10, 0.5, 2.0, 4.0),
        progress_line(20, 1.0, 1.0, 8.0),
        written(20, 1),
        TaskReport::Evaluated {
            evaluation: Evaluation {
                step: 20,
                epoch: 1.0,
                split: Split::Test,
                loss: Some(0.9),
                accuracy: Some(0.7),
            },
        },
        TaskReport::Note {
            message: "hello".to_owned(),
        },
    ];
    let report = NodeReport {
        statuses: vec![(chief, 1, gone(0)), (shard, 1, Observed::Running)],
        events: vec![TaskEvents {
            task_id: chief,
            revision: 1,
            first_seq: 0,
            events: lines.iter().map(|line| (at(5), line.clone())).collect(),
        }],
        logs: vec![(chief, 0, b"one\n".to_vec()), (chief, 4, b"two\n".to_vec())],
    };
    assert_eq!(world.report(&report, 6).await?.recorded, 6);
    let (loaded, told) = (world.loaded(job, 7).await?, kinds(&world, job).await?);
    for _ in 0..2 {
        let again = world.report(&report, 8).await?;
        assert_eq!((again.recorded, again.round_due), (0, false));
    }
    assert_eq!(world.loaded(job, 7).await?, loaded);
    assert_eq!(kinds(&world, job).await?, told);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let slice = log::read(&mut tx, chief, 0, 100)
        .await?
        .expect("the task is there");
    assert_eq!((slice.bytes.as_slice(), slice.end), (&b"one\ntwo\n"[..], 8));
    assert_eq!(progress::samples(&mut tx, job, None, 10).await?.len(), 2);
    assert_eq!(checkpoint::list(&mut tx, job).await?.len(), 1);

    // A longer run of lines that begins with known ones adds only the new ones.
    drop(tx);
    let longer = [lines[5].clone(), progress_line(30, 1.5, 0.5, 8.0)];
    assert_eq!(world.tell(chief, 1, 5, &longer).await?.recorded, 1);
    assert_eq!(
        world.job(job).await?.latest.map(|latest| latest.step),
        Some(30)
    );
    Ok(())
}

#[tokio::test]
async fn node_without_the_program_is_stored_with_the_job() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let lost_peer = TaskReport::Failed {
        message: "lost its peer".to_owned(),
        retryable: true,
        lacks: None,
    };
    let lacks = TaskReport::Failed {
        message: "no mpirun here".to_owned(),
        retryable: true,
        lacks: Some("mpirun".to_owned()),
    };
    world.tell(shard, 1, 0, &[lost_peer]).await?;
    world.tell(chief, 1, 0, &[lacks.clone(), lacks]).await?;
    let loaded = world.loaded(job, 5).await?;
    let node = loaded.tasks.iter().find(|task| task.id == chief);
    assert_eq!(loaded.unfit, [node.expect("its task").node_id], "once");
    let lacking = loaded.failed.and_then(|failed| failed.lacks);
    assert_eq!(
        lacking.as_deref(),
        Some("mpirun"),
        "it outweighs its consequence"
    );
    restart(&world, job, chief, shard).await?;
    let loaded = world.loaded(job, 15).await?;
    assert_eq!((loaded.unfit.len(), loaded.failed), (1, None));
    Ok(())
}

fn validated(step: u64, loss: f64) -> TaskReport {
    let evaluation = Evaluation {
        step,
        epoch: 0.0,
        split: Split::Validation,
        loss: Some(loss),
        accuracy: None,
    };
    TaskReport::Evaluated { evaluation }
}

async fn validations(world: &World, job: JobId) -> anyhow::Result<Vec<(u64, Option<f64>)>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let all = progress::evaluations(&mut tx, job).await?;
    for (_, evaluation) in &all {
        assert_eq!(
            (evaluation.split, evaluation.accuracy),
            (Split::Validation, None)
        );
    }
    Ok(all
        .into_iter()
        .map(|(_, one)| (one.step, one.loss))
        .collect())
}

#[tokio::test]
async fn evaluation_reported_before_the_start_is_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let first = [
        validated(1, 0.9),
        TaskReport::Ready { from_step: 0 },
        progress_line(1, 1.0, 2.0, 0.0),
        validated(2, 0.8),
        progress_line(2, 2.0, 1.0, 1.0),
    ];
    world.tell(chief, 1, 0, &first).await?;
    let expected = [(1, Some(0.9)), (2, Some(0.8))];
    assert_eq!(validations(&world, job).await?, expected);

    let (chief, _) = restart(&world, job, chief, shard).await?;
    let second = [
        validated(1, 0.7),
        TaskReport::Ready { from_step: 0 },
        progress_line(1, 1.0, 2.0, 0.0),
    ];
    world.tell(chief, 2, 0, &second).await?;
    assert_eq!(validations(&world, job).await?, [(1, Some(0.7))]);
    Ok(())
}

#[tokio::test]
async fn command_with_evaluations_only_continues_its_series() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, worker, shard) = running(&world).await?;
    sqlx::query("update job set edits = edits + 1, spec = spec - 'engine' || '{\"command\": {\"argv\": [\"true\"]}}' where id = $1")
        .bind(job.0)
        .execute(&world.scheduler)
        .await?;
    let first = [
        TaskReport::Ready { from_step: 0 },
        validated(100, 0.9),
        validated(200, 0.8),
        validated(300, 0.7),
    ];
    world.tell(worker, 1, 0, &first).await?;
    let (worker, _) = restart(&world, job, worker, shard).await?;
    // Its checkpoint was of step 200: the first evaluation after the start is that of step 300.
    let second = [TaskReport::Ready { from_step: 299 }, validated(300, 0.6)];
    world.tell(worker, 2, 0, &second).await?;
    let expected = [(100, Some(0.9)), (200, Some(0.8)), (300, Some(0.6))];
    assert_eq!(validations(&world, job).await?, expected);
    Ok(())
}

#[tokio::test]
async fn stale_revision_adds_only_to_its_log() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    world
        .tell(chief, 1, 0, &[progress_line(10, 0.5, 2.0, 4.0)])
        .await?;
    restart(&world, job, chief, shard).await?;
    let before = world.loaded(job, 20).await?;
    let late = [
        TaskReport::Listening {
            address: "stale:1".to_owned(),
        },
        progress_line(99, 2.0, 0.1, 99.0),
        written(99, 1),
        TaskReport::Failed {
            message: "late".to_owned(),
            retryable: false,
            lacks: None,
        },
        TaskReport::Finished {
            step: 99,
            reason: "late".to_owned(),
            model_path: "late".to_owned(),
        },
        TaskReport::Ready { from_step: 0 },
    ];
    let report = NodeReport {
        statuses: vec![
            (chief, 1, Observed::Running),
            (chief, 1, gone(1)),
            (shard, 2, gone(1)),
        ],
        events: vec![TaskEvents {
            task_id: chief,
            revision: 1,
            first_seq: 1,
            events: late.iter().map(|line| (at(21), line.clone())).collect(),
        }],
        logs: vec![(chief, 0, b"last words".to_vec())],
    };
    let outcome = world.report(&report, 22).await?;
    assert_eq!(
        (outcome.recorded, outcome.stale, outcome.round_due),
        (0, 6, false)
    );
    assert_eq!(world.loaded(job, 20).await?, before);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(checkpoint::list(&mut tx, job).await?, []);
    assert_eq!(
        log::tail(&mut tx, chief, 5).await?.map(|slice| slice.bytes),
        Some(b"words".to_vec())
    );
    Ok(())
}

#[tokio::test]
async fn speeds_are_means_by_size_without_the_first_sample() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    world
        .tell(
            chief,
            1,
            0,
            &[
                progress_line(10, 0.5, 2.0, 1.0),
                progress_line(20, 1.0, 1.5, 4.0),
            ],
        )
        .await?;
    world
        .tell(chief, 1, 2, &[progress_line(30, 1.5, 1.0, 8.0)])
        .await?;
    let speeds = world.loaded(job, 5).await?.speeds;
    assert_eq!(
        (speeds[0].workers, speeds[0].ps_shards, speeds[0].samples),
        (1, 1, 2)
    );
    assert!((speeds[0].steps_per_s - 6.0).abs() < 1e-9);
    let (chief, _) = restart(&world, job, chief, shard).await?;
    world
        .tell(
            chief,
            2,
            0,
            &[
                TaskReport::Ready { from_step: 30 },
                progress_line(40, 2.0, 0.9, 100.0),
            ],
        )
        .await?;
    assert_eq!(
        world.loaded(job, 20).await?.speeds,
        speeds,
        "the first sample measures the start"
    );
    world
        .tell(chief, 2, 2, &[progress_line(50, 2.5, 0.8, 9.0)])
        .await?;
    let speed = world.loaded(job, 20).await?.speeds[0];
    assert!(
        (speed.steps_per_s - 7.0).abs() < 1e-9 && speed.samples == 3,
        "{speed:?}"
    );
    Ok(())
}

fn progress_of(step: u64, noise_scale: Option<f64>, gain: Option<f64>) -> TaskReport {
    let mut sample = sample(step, 0.5, 1.0, 10.0);
    (sample.noise_scale, sample.gain) = (noise_scale, gain);
    TaskReport::Progress { sample }
}

#[tokio::test]
async fn series_keeps_noise_and_gain_and_speeds_count_updates() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let lines = [
        progress_of(10, None, None),
        progress_of(20, Some(640.0), Some(2.5)),
        progress_of(30, Some(700.0), None),
    ];
    world.tell(chief, 1, 0, &lines).await?;
    let speed = world.loaded(job, 5).await?.speeds[0];
    assert!(
        (speed.steps_per_s - 7.0).abs() < 1e-9,
        "of 10 / 2.5 and 10: {speed:?}"
    );
    let series = async || -> anyhow::Result<Vec<_>> {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let samples = progress::samples(&mut tx, job, None, 100).await?;
        let kept = samples.into_iter();
        Ok(kept.map(|(_, s)| (s.step, s.noise_scale, s.gain)).collect())
    };
    let first = [
        (10, None, None),
        (20, Some(640.0), Some(2.5)),
        (30, Some(700.0), None),
    ];
    assert_eq!(series().await?, first);
    // A repeated step replaces its sample.
    world
        .tell(chief, 1, 3, &[progress_of(30, Some(800.0), Some(1.5))])
        .await?;
    assert_eq!(series().await?[2], (30, Some(800.0), Some(1.5)));
    Ok(())
}

#[tokio::test]
async fn epoch_losses_are_means_and_a_resumed_job_has_one_curve() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let first = [
        progress_line(10, 0.5, 3.0, 4.0),
        progress_line(20, 1.0, 1.0, 4.0),
        written(20, 1),
        progress_line(30, 1.5, 0.8, 4.0),
        progress_line(40, 2.0, 0.6, 4.0),
    ];
    world.tell(chief, 1, 0, &first).await?;
    assert_eq!(
        world.loaded(job, 5).await?.epoch_losses,
        [(0, 2.0), (1, 0.7)]
    );
    let (chief, _) = restart(&world, job, chief, shard).await?;
    assert_eq!(world.loaded(job, 14).await?.resume_step, Some(20));
    world
        .tell(
            chief,
            2,
            0,
            &[
                TaskReport::Ready { from_step: 20 },
                progress_line(35, 1.75, 0.5, 4.0),
            ],
        )
        .await?;
    assert_eq!(
        world.loaded(job, 15).await?.epoch_losses,
        [(0, 2.0), (1, 0.5)]
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let steps: Vec<u64> = progress::samples(&mut tx, job, None, 100)
        .await?
        .iter()
        .map(|(_, sample)| sample.step)
        .collect();
    assert_eq!(steps, [10, 20, 35]);
    assert!(kinds(&world, job).await?.contains(&"resumed"));
    let restarts = world.loaded(job, 16).await?.restarts;
    // The job stopped at 10 and was gone at 12; 20 of its 40 steps were repeated.
    assert_eq!((restarts.stops, restarts.stop_s), (1, 2.0));
    assert_eq!((restarts.resumed, restarts.lost_steps), (1, 20.0));
    Ok(())
}

#[tokio::test]
async fn crash_counts_lost_steps_once_and_no_stop_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let trained = [written(20, 1), progress_line(40, 2.0, 0.6, 4.0)];
    world.tell(chief, 1, 0, &trained).await?;
    for revision in 1..3 {
        let fails = AfterStop::Requeue {
            cause: RequeueCause::TaskFailed,
        };
        let tasks = world.loaded(job, 5).await?.tasks;
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        world.step(job, revision, stop(fails), 20).await?;
        let ends: Vec<(TaskId, Observed)> = ids.iter().map(|id| (*id, gone(1))).collect();
        world.observe(revision, &ends, 20).await?;
        world.step(job, revision, Action::Release, 20).await?;
        let (chief, _) = world
            .start(job, revision, &[u32::try_from(revision)?], 21)
            .await?;
        let ready = TaskReport::Ready { from_step: 20 };
        world.tell(chief, revision + 1, 0, &[ready]).await?;
        let now = world.loaded(job, 22).await?;
        world
            .observe(
                revision + 1,
                &now.tasks
                    .iter()
                    .map(|task| (task.id, Observed::Running))
                    .collect::<Vec<_>>(),
                23,
            )
            .await?;
        world.step(job, revision + 1, Action::Up, 24).await?;
    }
    let restarts = world.loaded(job, 30).await?.restarts;
    assert_eq!((restarts.resumed, restarts.lost_steps), (2, 20.0));
    assert_eq!(restarts.stops, 0);
    let _ = shard;
    Ok(())
}

#[tokio::test]
async fn training_time_is_summed_over_revisions_without_waiting() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?; // Up at 3.
    let (chief, shard) = restart(&world, job, chief, shard).await?; // Stopped at 10, started at 13.
    assert!((world.loaded(job, 20).await?.trained_s - 7.0).abs() < 1e-9);
    world
        .observe(
            2,
            &[(chief, Observed::Running), (shard, Observed::Running)],
            30,
        )
        .await?;
    world.step(job, 2, Action::Up, 30).await?;
    assert!((world.loaded(job, 35).await?.trained_s - 12.0).abs() < 1e-9);
    Ok(())
}

#[tokio::test]
async fn end_of_a_revision_is_kept_until_the_next_start() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let lost_peer = TaskReport::Failed {
        message: "peer went away".to_owned(),
        retryable: true,
        lacks: None,
    };
    let cause = TaskReport::Failed {
        message: "no such data set".to_owned(),
        retryable: false,
        lacks: None,
    };
    assert!(
        world
            .tell(shard, 1, 0, std::slice::from_ref(&lost_peer))
            .await?
            .round_due
    );
    world.tell(chief, 1, 0, &[cause, lost_peer]).await?;
    let failed = world.loaded(job, 5).await?.failed;
    assert_eq!(
        failed,
        Some(JobFailureReport {
            message: "no such data set".to_owned(),
            retryable: false,
            lacks: None
        })
    );
    let (chief, _) = restart(&world, job, chief, shard).await?;
    assert_eq!(world.loaded(job, 15).await?.failed, None);
    let path = "t/j/final-r2/model.safetensors".to_owned();
    let done = TaskReport::Finished {
        step: 60,
        reason: "3 epochs".to_owned(),
        model_path: path.clone(),
    };
    assert!(world.tell(chief, 2, 0, &[done]).await?.round_due);
    let finished = world.loaded(job, 15).await?.finished;
    assert_eq!(
        finished,
        Some(JobFinishReport {
            step: 60,
            reason: "3 epochs".to_owned(),
            model_path: path
        })
    );
    assert_eq!(
        world.job(job).await?.model_path,
        None,
        "only a job that succeeded has a model"
    );
    Ok(())
}

#[tokio::test]
async fn checkpoints_are_recorded_pruned_and_found() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    world
        .tell(
            chief,
            1,
            0,
            &[
                written(10, 1),
                written(20, 1),
                TaskReport::CheckpointPruned { step: 10 },
            ],
        )
        .await?;
    assert_eq!(world.loaded(job, 5).await?.resume_step, Some(20));
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let retained: Vec<(u64, bool)> = checkpoint::list(&mut tx, job)
        .await?
        .iter()
        .map(|found| (found.written.step, found.retained))
        .collect();
    assert_eq!(retained, [(20, true), (10, false)]);
    assert_eq!(
        checkpoint::get(&mut tx, job, 20)
            .await?
            .map(|found| found.written.bytes),
        Some(10)
    );
    assert_eq!(checkpoint::get(&mut tx, job, 30).await?, None);
    Ok(())
}

#[tokio::test]
async fn node_cannot_report_tasks_of_another_node() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let stranger = {
        let mut tx = pool::begin(&world.scheduler).await?;
        let node = muster_store::node::hello(
            &mut tx,
            crate::world::id(),
            "node-b",
            &crate::world::slots(1),
            at(4),
        )
        .await?;
        tx.commit().await?;
        node.id
    };
    let report = NodeReport {
        statuses: vec![(chief, 1, gone(1))],
        ..NodeReport::default()
    };
    let mut tx = pool::begin(&world.scheduler).await?;
    let outcome = muster_store::report::record(&mut tx, stranger, &report, at(5)).await?;
    tx.commit().await?;
    assert!(outcome.unknown.contains(&chief) && !outcome.round_due);
    assert!(
        world
            .loaded(job, 6)
            .await?
            .tasks
            .iter()
            .all(|task| !task.state.is_released())
    );
    Ok(())
}
