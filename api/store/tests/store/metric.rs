//! Metrics of users' programs: buckets, restarts, the limit of names, and tenants.

use crate::world::{World, at, gone, sample, stop};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId};
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::metric::{MAX_BUCKETS, MAX_METRICS, MergedValues, MetricPoint};
use muster_model::plan::Action;
use muster_model::view::{MetricSeriesView, MetricView};
use muster_store::event::EventFilter;
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::{event, metric, pool, progress};

fn point(name: &str, step: u64, value: f64) -> MetricPoint {
    MetricPoint {
        name: name.to_owned(),
        step,
        value,
        merged: None,
    }
}

fn told(points: impl IntoIterator<Item = MetricPoint>) -> [TaskReport; 1] {
    let points = points.into_iter().collect();
    [TaskReport::Metrics { points }]
}

async fn running(world: &World) -> anyhow::Result<(JobId, TaskId, TaskId)> {
    let job = world.submit("told").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    let up = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    Ok((job, chief, shard))
}

/// Stops the job's first revision and starts its second.
async fn restart(
    world: &World,
    job: JobId,
    (chief, shard): (TaskId, TaskId),
) -> anyhow::Result<TaskId> {
    let cause = RequeueCause::Resize;
    let requeue = stop(AfterStop::Requeue { cause });
    world.step(job, 1, requeue, 10).await?;
    let ended = [(chief, gone(0)), (shard, gone(0))];
    world.observe(1, &ended, 11).await?;
    world.step(job, 1, Action::Release, 12).await?;
    Ok(world.start(job, 1, &[1], 13).await?.0)
}

async fn listed(world: &World, job: JobId) -> anyhow::Result<Vec<MetricView>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    Ok(metric::list(&mut tx, job).await?)
}

async fn series(world: &World, job: JobId, name: &str) -> anyhow::Result<MetricSeriesView> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let mut found = metric::points(&mut tx, job, &[name.to_owned()], MAX_BUCKETS).await?;
    assert_eq!(found.len(), 1);
    Ok(found.remove(0))
}

/// Returns step, mean and number of values of each point.
fn means(series: &MetricSeriesView) -> Vec<(u64, f64, u64)> {
    let points = series.points.iter();
    points
        .map(|point| (point.step, point.mean, point.values))
        .collect()
}

#[tokio::test]
async fn points_are_stored_once_by_name_and_step() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let merged = MergedValues {
        count: 3,
        mean: 2.0,
        min: 1.0,
        max: 4.0,
    };
    let summary = MetricPoint {
        merged: Some(merged),
        ..point("train/f1", 8, 1.5)
    };
    let points = [point("train/f1", 7, 0.5), point("lr", 7, 0.1), summary];
    let lines = told(points);
    for _ in 0..2 {
        world.tell(chief, 1, 0, &lines).await?;
    }
    world
        .tell(chief, 1, 1, &told([point("train/f1", 8, 6.0)]))
        .await?;
    // Only rank 0 counts.
    world
        .tell(shard, 1, 0, &told([point("lr", 9, 9.0)]))
        .await?;
    let f1 = MetricView {
        name: "train/f1".to_owned(),
        last_step: 8,
        last: 6.0,
        min: 0.5,
        max: 6.0,
        values: 5,
    };
    let lr = MetricView {
        name: "lr".to_owned(),
        last_step: 7,
        last: 0.1,
        min: 0.1,
        max: 0.1,
        values: 1,
    };
    assert_eq!(listed(&world, job).await?, [lr, f1]);
    let found = series(&world, job, "train/f1").await?;
    assert_eq!(found.bucket_steps, 1);
    assert_eq!(means(&found), [(7, 0.5, 1), (8, 3.0, 4)]);
    let newest = &found.points[1];
    assert_eq!((newest.last, newest.min, newest.max), (6.0, 1.0, 6.0));
    Ok(())
}

/// The former workers of an elastic launcher report under the same revision as the new ones.
#[tokio::test]
async fn restarted_workers_replace_values_of_the_former() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let loss = |step: u64, value: f64| TaskReport::Progress {
        sample: sample(step, 0.5, value, 10.0),
    };
    let [f1] = told([
        point("f1", 1, 0.1),
        point("f1", 20, 0.2),
        point("f1", 30, 0.3),
    ]);
    let former = [
        TaskReport::Ready { from_step: 0 },
        loss(1, 2.0),
        loss(20, 1.0),
        loss(30, 0.5),
        f1,
        TaskReport::WorkersRestarted { from_step: 19 },
        loss(22, 0.9),
    ];
    world.tell(chief, 1, 0, &former).await?;
    world
        .tell(chief, 1, 7, &told([point("f1", 20, 0.4)]))
        .await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let samples = progress::samples(&mut tx, job, None, 100).await?;
    let steps: Vec<u64> = samples.iter().map(|(_, sample)| sample.step).collect();
    assert_eq!(steps, [1, 22]);
    let f1 = series(&world, job, "f1").await?;
    assert_eq!(means(&f1), [(1, 0.1, 1), (20, 0.4, 1)]);
    Ok(())
}

#[tokio::test]
async fn long_series_gets_wider_buckets() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let values = 2 * u64::from(MAX_BUCKETS) + 1;
    for seq in 0..5 {
        let steps = (0..values).filter(|step| step * 5 / values == seq);
        let points = steps.map(|step| point("loss", step, (step % 4) as f64));
        world.tell(chief, 1, seq, &told(points)).await?;
    }
    let found = series(&world, job, "loss").await?;
    assert_eq!(found.bucket_steps, 4);
    assert_eq!(found.points.len(), 1_001);
    assert_eq!(means(&found)[..2], [(3, 1.5, 4), (7, 1.5, 4)]);
    let last = found.points.last().expect("points");
    assert_eq!((last.step, last.last, last.values), (4_000, 0.0, 1));
    assert_eq!(listed(&world, job).await?[0].values, values);
    // Steps that are far apart end in few buckets too.
    let far = (0..=u64::from(MAX_BUCKETS)).map(|step| point("far", step << 40, 1.0));
    world.tell(chief, 1, 5, &told(far)).await?;
    let far = series(&world, job, "far").await?;
    assert_eq!((far.bucket_steps, far.points.len()), (1 << 41, 1_001));

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let names = ["loss".to_owned(), "none".to_owned()];
    let thinned = metric::points(&mut tx, job, &names, 10).await?;
    let all = thinned
        .iter()
        .map(|one| (one.bucket_steps, one.points.len()));
    assert_eq!(all.collect::<Vec<_>>(), [(512, 8)]);
    Ok(())
}

#[tokio::test]
async fn later_revision_replaces_repeated_steps() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, shard) = running(&world).await?;
    let first = (1..=6).map(|step| point("f1", step, -9.0));
    world.tell(chief, 1, 0, &told(first)).await?;
    let [start, untouched] = [point("f1", 1, 1.0), point("lr", 1, 1.0)];
    world.tell(chief, 1, 1, &told([start, untouched])).await?;
    let again = restart(&world, job, (chief, shard)).await?;
    let resumed = [point("f1", 4, 2.0), point("f1", 5, 3.0)];
    world.tell(again, 2, 0, &told(resumed)).await?;
    let expected = [
        (1, -4.0, 2),
        (2, -9.0, 1),
        (3, -9.0, 1),
        (4, 2.0, 1),
        (5, 3.0, 1),
    ];
    assert_eq!(means(&series(&world, job, "f1").await?), expected);
    world
        .tell(
            again,
            2,
            1,
            &told([point("f1", 5, 5.0), point("f1", 2, 0.5)]),
        )
        .await?;
    let found = means(&series(&world, job, "f1").await?);
    assert_eq!((found[1], found[4]), ((2, 0.5, 1), (5, 4.0, 2)));
    let listed = listed(&world, job).await?;
    let [f1, lr] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!((f1.min, f1.max, f1.last, f1.values), (-9.0, 5.0, 0.5, 8));
    assert_eq!((lr.last, lr.values), (1.0, 1), "it is not logged again");
    // A late report of the old task changes nothing.
    world
        .tell(chief, 1, 2, &told([point("f1", 9, 9.0)]))
        .await?;
    assert_eq!(means(&series(&world, job, "f1").await?), found);
    Ok(())
}

#[tokio::test]
async fn names_above_the_limit_are_dropped_with_one_event() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let names = (0..MAX_METRICS + 2).map(|number| point(&format!("m{number:04}"), 1, 1.0));
    let names: Vec<_> = names.collect();
    let (most, more) = names.split_at(MAX_METRICS as usize - 1);
    world.tell(chief, 1, 0, &told(most.to_vec())).await?;
    for seq in 1..3 {
        world.tell(chief, 1, seq, &told(more.to_vec())).await?;
    }
    let listed = listed(&world, job).await?;
    assert_eq!(listed.len(), MAX_METRICS as usize);
    assert_eq!(listed[499].values, 2, "a known name is stored further on");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let filter = EventFilter {
        job_id: Some(job),
        node_id: None,
    };
    let notes = event::page(&mut tx, filter, None, 1_000).await?;
    let notes = notes.into_iter().filter_map(|stored| match stored.event {
        Event::Note { message } => Some(message),
        _ => None,
    });
    let notes: Vec<String> = notes.collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("500 different metrics") && notes[0].contains("m0500"));
    Ok(())
}

#[tokio::test]
async fn metrics_are_visible_only_to_their_tenant() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, chief, _) = running(&world).await?;
    let events = TaskEvents {
        task_id: chief,
        revision: 1,
        first_seq: 0,
        events: told([point("f1", 1, 1.0)]).map(|line| (at(5), line)).into(),
    };
    let report = NodeReport {
        events: vec![events],
        ..NodeReport::default()
    };
    world.report(&report, 6).await?;
    assert_eq!(listed(&world, job).await?.len(), 1);
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(metric::list(&mut tx, job).await?, []);
    let names = ["f1".to_owned()];
    assert_eq!(metric::points(&mut tx, job, &names, 10).await?, []);
    Ok(())
}
