//! Commands: the step from which a start continues, and the duration history.

use crate::world::{World, at, gone, id, sample, spec, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::plan::{Action, PreemptionCost};
use muster_model::spec::JobSpec;
use muster_store::duration_history::{self, JobDuration};
use muster_store::event::EventFilter;
use muster_store::job::NewJob;
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{event, job, pool};

pub fn program(name: &str, seconds: u32) -> JobSpec {
    let command = serde_json::json!({ "argv": ["sleep", seconds.to_string()] });
    JobSpec {
        engine: None,
        command: Some(serde_json::from_value(command).expect("a command")),
        ..spec(name)
    }
}

pub async fn submit(world: &World, spec: JobSpec) -> anyhow::Result<JobId> {
    let new = NewJob {
        id: id(),
        tenant_id: world.red,
        submitted_by: world.red_user,
        spec,
    };
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    job::insert(&mut tx, &new, at(0)).await?;
    tx.commit().await?;
    Ok(new.id)
}

/// Runs a start in which the command logs these steps, up to its end or an ordered stop.
async fn run(
    world: &World,
    job: JobId,
    revision: u64,
    steps: &[u64],
    (up, end): (u64, u64),
    then: AfterStop,
) -> anyhow::Result<()> {
    let (chief, shard) = world.start(job, revision, &[0], up - 1).await?;
    let revision = revision + 1;
    let both = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(revision, &both, up).await?;
    world.step(job, revision, Action::Up, up).await?;
    if let Some(first) = steps.first() {
        let from_step = if revision == 1 { 0 } else { first - 1 };
        world
            .tell(chief, revision, 0, &[TaskReport::Ready { from_step }])
            .await?;
    }
    for (number, step) in (1..).zip(steps) {
        let sample = sample(*step, 0.0, 1.0, 10.0);
        world
            .tell(chief, revision, number, &[TaskReport::Progress { sample }])
            .await?;
    }
    world.step(job, revision, stop(then), end).await?;
    world
        .observe(revision, &[(chief, gone(0)), (shard, gone(0))], end)
        .await?;
    world.step(job, revision, Action::Release, end).await?;
    Ok(())
}

fn requeue() -> AfterStop {
    AfterStop::Requeue {
        cause: RequeueCause::Preempted,
    }
}

async fn resumed_at(world: &World, job: JobId) -> anyhow::Result<Vec<u64>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let filter = EventFilter {
        job_id: Some(job),
        node_id: None,
    };
    let events = event::page(&mut tx, filter, None, 1000).await?;
    let resumed = events.into_iter().filter_map(|event| match event.event {
        Event::Resumed { from_step } => Some(from_step),
        _ => None,
    });
    Ok(resumed.collect())
}

/// The command logs every tenth step, from step 9 on.
#[tokio::test]
async fn command_without_a_checkpoint_restarts_from_zero() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, program("p", 60)).await?;
    run(&world, job, 0, &[9, 19, 29], (10, 20), requeue()).await?;
    run(&world, job, 1, &[9, 19], (30, 40), requeue()).await?;
    assert_eq!(resumed_at(&world, job).await?, [0_u64; 0]);
    let known = world.loaded(job, 45).await?.restarts;
    assert_eq!((known.starts, known.resumed, known.lost_steps), (2, 0, 0.0));

    run(&world, job, 2, &[29, 39], (50, 60), requeue()).await?;
    assert_eq!(
        resumed_at(&world, job).await?,
        [20],
        "it found a checkpoint"
    );
    let known = world.loaded(job, 65).await?.restarts;
    assert_eq!((known.starts, known.resumed), (3, 1));
    Ok(())
}

#[tokio::test]
async fn queued_command_keeps_its_step_only_if_it_resumed_before() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, program("train", 10)).await?;
    let begins_anew = async || -> anyhow::Result<bool> {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        Ok(job::get(&mut tx, job)
            .await?
            .expect("it is there")
            .begins_anew)
    };
    run(&world, job, 0, &[10, 20, 30], (5, 8), requeue()).await?;
    assert!(begins_anew().await?, "nobody knows of a checkpoint");
    run(&world, job, 1, &[21, 30, 40], (15, 18), requeue()).await?;
    assert!(!begins_anew().await?, "it went on from one");
    Ok(())
}

#[tokio::test]
async fn newest_checkpoint_report_of_rank_0_is_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, program("p", 60)).await?;
    let (chief, _) = world.start(job, 0, &[0], 9).await?;
    assert_eq!(world.loaded(job, 10).await?.reported, None);
    let reports = [5, 8].map(|step| TaskReport::CheckpointReported { step, path: None });
    world.tell(chief, 1, 0, &reports).await?;
    assert_eq!(world.loaded(job, 60).await?.reported, Some((8, at(50))));
    // Older lines after a reconnection change nothing, and a clock that is ahead does not count.
    for (first_seq, step, seconds, expected) in [(2, 3, 40, 8), (3, 9, 80, 9)] {
        let told = TaskReport::CheckpointReported { step, path: None };
        let events = vec![(at(seconds), told)];
        let run = TaskEvents {
            task_id: chief,
            revision: 1,
            first_seq,
            events,
        };
        let report = NodeReport {
            events: vec![run],
            ..NodeReport::default()
        };
        world.report(&report, 50).await?;
        let reported = world.loaded(job, 60).await?.reported;
        assert_eq!(reported, Some((expected, at(50))));
    }
    Ok(())
}

#[tokio::test]
async fn work_lost_to_other_jobs_adds_up() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, program("p", 60)).await?;
    for revision in 0..2 {
        let (chief, shard) = world.start(job, revision, &[0], 10 * revision + 1).await?;
        let up = 10 * revision + 2;
        let revision = revision + 1;
        let both = [(chief, Observed::Running), (shard, Observed::Running)];
        world.observe(revision, &both, up).await?;
        world.step(job, revision, Action::Up, up).await?;
        let cost = PreemptionCost {
            borne_by: world.red,
            gainer: job,
            gained_by: world.red,
            gpus: 1,
            work_ms: 1_500,
            restart_ms: 3_000,
            gain_gpu_ms: 60_000,
        };
        world
            .step(job, revision, Action::Displace { cost }, up)
            .await?;
        world.step(job, revision, stop(requeue()), up + 1).await?;
        world
            .observe(revision, &[(chief, gone(0)), (shard, gone(0))], up + 2)
            .await?;
        world.step(job, revision, Action::Release, up + 2).await?;
    }
    assert_eq!(world.loaded(job, 60).await?.lost_s, 3.0);
    Ok(())
}

#[tokio::test]
async fn command_silent_in_its_first_start_restarts_from_zero() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = submit(&world, program("p", 60)).await?;
    run(&world, job, 0, &[], (10, 20), requeue()).await?;
    run(&world, job, 1, &[9, 19], (30, 40), requeue()).await?;
    assert_eq!(resumed_at(&world, job).await?, [0_u64; 0]);
    assert!(world.loaded(job, 45).await?.has_sampled);
    world.start(job, 2, &[0], 50).await?;
    assert!(!world.loaded(job, 51).await?.has_sampled);
    Ok(())
}

#[tokio::test]
async fn duration_history_holds_only_the_same_command() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (name, seconds, end) in [("p", 60, 70), ("p", 100, 110), ("q", 60, 99)] {
        let job = submit(&world, program(name, seconds)).await?;
        run(&world, job, 0, &[], (10, end), AfterStop::Succeed).await?;
    }
    let twice = submit(&world, program("p", 60)).await?;
    run(&world, twice, 0, &[], (10, 20), requeue()).await?;
    run(&world, twice, 1, &[], (30, 90), AfterStop::Succeed).await?;

    let open = submit(&world, program("p", 60)).await?;
    let mut told = program("p", 60);
    if let Some(command) = &mut told.command {
        command.steps = Some(9);
    }
    let says = submit(&world, told.clone()).await?;
    let engine = world.submit("engine").await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let known = duration_history::of_jobs(&mut tx, &[open, says, engine]).await?;
    let known: Vec<_> = known.into_iter().collect();
    assert_eq!(known, [(open, vec![took(60.0)])]);
    let of = duration_history::of_spec(&mut tx, world.red, &program("p", 100)).await?;
    assert_eq!(of, [took(100.0)]);
    assert_eq!(
        duration_history::of_spec(&mut tx, world.red, &told).await?,
        []
    );
    let of_another_tenant =
        duration_history::of_spec(&mut tx, world.blue, &program("p", 60)).await?;
    assert_eq!(of_another_tenant, []);
    Ok(())
}

/// Duration of a command that reported no steps.
fn took(took_s: f64) -> JobDuration {
    JobDuration {
        took_s,
        steps: None,
        size: None,
    }
}

fn earlier(jobs: &[JobDuration]) -> Vec<(f64, Option<f64>)> {
    jobs.iter().map(|one| (one.took_s, one.steps)).collect()
}

/// Jobs of the engine count with their steps, and also after restarts, because they continue from
/// checkpoints.
#[tokio::test]
async fn duration_history_of_engine_jobs_has_steps() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = world.submit("train").await?;
    run(&world, first, 0, &[1, 2], (10, 20), requeue()).await?;
    run(&world, first, 1, &[3, 40], (30, 60), AfterStop::Succeed).await?;
    let second = world.submit("train").await?;
    let mut other = spec("train");
    other.stop.steps = Some(7_777);
    let other = submit(&world, other).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let known = duration_history::of_jobs(&mut tx, &[second, other]).await?;
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!(earlier(&known[&second]), [(40.0, Some(40.0))]);
    let of_spec = duration_history::of_spec(&mut tx, world.red, &spec("train")).await?;
    assert_eq!(earlier(&of_spec), [(40.0, Some(40.0))]);
    Ok(())
}

/// A forecast does not read all jobs of a common name.
#[tokio::test]
async fn duration_history_reads_only_the_newest_of_a_name() -> anyhow::Result<()> {
    let world = World::new().await?;
    let like = submit(&world, program("p", 60)).await?;
    run(&world, like, 0, &[], (10, 70), AfterStop::Succeed).await?;
    let open = submit(&world, program("p", 60)).await?;
    let others = async |many: i32| -> anyhow::Result<()> {
        let owner = pool::owner(&world.db.owner_url, 1)?;
        sqlx::query(
            r#"insert into job
               select (jsonb_populate_record(j, jsonb_build_object(
                   'id', gen_random_uuid(), 'finished_at', j.finished_at + interval '1 s',
                   'spec', jsonb_set(j.spec::jsonb, '{command,argv}', '["another"]')))).*
               from job j, generate_series(1, $2) where j.id = $1"#,
        )
        .bind(like.0)
        .bind(many)
        .execute(&owner)
        .await?;
        Ok(())
    };
    let known = async || -> anyhow::Result<(Vec<JobDuration>, Vec<JobDuration>)> {
        let mut tx = pool::begin(&world.scheduler).await?;
        let mut of_open = duration_history::of_jobs(&mut tx, &[open]).await?;
        let of_spec = duration_history::of_spec(&mut tx, world.red, &program("p", 60)).await?;
        Ok((of_open.remove(&open).unwrap_or_default(), of_spec))
    };
    others(199).await?;
    assert_eq!(known().await?, (vec![took(60.0)], vec![took(60.0)]));
    others(1).await?;
    assert_eq!(known().await?, (vec![], vec![]));
    Ok(())
}
