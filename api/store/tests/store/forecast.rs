//! Forecasts: a job shows its newest one, and intervals are compared with actual times.

use crate::world::{World, at, gone, stop};
use muster_model::assignment::Observed;
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::id::JobId;
use muster_model::job::AfterStop;
use muster_model::plan::Action;
use muster_store::forecast::{
    ForecastCoverage, IntervalCoverage, NewForecast, SimulatedForecast, around_s, insert, outcomes,
    prune, start_outcomes, tally,
};
use muster_store::{job, pool};

fn made(made_s: u64, finish: Option<(u64, u64, u64)>) -> Forecast {
    Forecast {
        made_at: at(made_s),
        start: None,
        finish: finish.map(|(p10, p50, p90)| Interval::of((at(p10), at(p50), at(p90)), at(made_s))),
        gpu_s: 12.5,
        unforeseen: finish.is_none().then_some(Unforeseen::NoLength),
    }
}

/// Returns the times until the bounds of the interval, in seconds.
fn left_s(interval: Interval, made_at: time::OffsetDateTime) -> [f64; 3] {
    [interval.p10, interval.p50, interval.p90].map(|at| (at - made_at).as_seconds_f64())
}

fn new(job: JobId, forecast: Forecast) -> NewForecast {
    NewForecast {
        job,
        forecast,
        raw: SimulatedForecast {
            basis: "measured".to_owned(),
            waits: true,
            start_s: forecast.start.map(|start| left_s(start, forecast.made_at)),
            finish_s: forecast
                .finish
                .map(|finish| left_s(finish, forecast.made_at)),
        },
    }
}

/// Runs a job that is placed at 10 s, up at 12 s, ordered to stop at 100 s and gone at 110 s.
async fn run_to_its_end(world: &World, job: JobId) -> anyhow::Result<()> {
    let (chief, shard) = world.start(job, 0, &[0], 10).await?;
    let running = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(1, &running, 11).await?;
    world.step(job, 1, Action::Up, 12).await?;
    world.step(job, 1, stop(AfterStop::Succeed), 100).await?;
    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 109)
        .await?;
    world.step(job, 1, Action::Release, 110).await?;
    Ok(())
}

#[tokio::test]
async fn newest_forecast_is_shown_and_all_are_compared_with_the_end() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("mine").await?;
    let forecasts = [
        made(1, Some((50, 60, 70))),
        made(2, None),
        made(3, Some((90, 100, 120))),
    ];
    let new = forecasts.map(|forecast| new(job, forecast));
    let mut tx = pool::begin(&world.scheduler).await?;
    insert(&mut tx, &new).await?;
    insert(&mut tx, &new[..1]).await?;
    tx.commit().await?;

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let shown = job::get(&mut tx, job).await?.and_then(|row| row.forecast);
    assert_eq!(shown, Some(forecasts[2]));
    assert_eq!(
        tally(&mut tx, at(0)).await?,
        ForecastCoverage::default(),
        "it runs"
    );
    drop(tx);

    run_to_its_end(&world, job).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let row = job::get(&mut tx, job).await?.expect("the job");
    assert_eq!(row.forecast, None, "it has ended");
    let counted = tally(&mut tx, at(0)).await?;
    assert_eq!(counted.start, IntervalCoverage::default());
    let IntervalCoverage {
        forecasts,
        held,
        jobs,
        share,
    } = counted.finish;
    assert_eq!((forecasts, held, jobs), (2, 1, 1));
    // The first forecast was shown for 1 s of 108 s, the last one for 107 s.
    let share = share.expect("a job was counted");
    assert!((share - 107.0 / 108.0).abs() < 1e-6, "{share}");
    assert_eq!(tally(&mut tx, at(2)).await?.finish.forecasts, 1);
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(tally(&mut tx, at(0)).await?, ForecastCoverage::default());

    let mut tx = pool::begin(&world.scheduler).await?;
    let scored = outcomes(&mut tx).await?;
    assert_eq!(scored.len(), 2, "that without an end has no outcome");
    assert_eq!((scored[0].made_at, scored[0].came_at), (at(3), at(110)));
    assert_eq!(scored[0].raw.finish_s, Some([87.0, 97.0, 117.0]));
    assert!(
        (scored[0].weight - 107.0 / 108.0).abs() < 1e-6,
        "{scored:?}"
    );
    assert_eq!(prune(&mut tx, at(3)).await?, 2);
    Ok(())
}

fn with_start(made_s: u64, (p10, p50, p90): (u64, u64, u64)) -> Forecast {
    Forecast {
        start: Some(Interval::of((at(p10), at(p50), at(p90)), at(made_s))),
        ..made(made_s, None)
    }
}

#[tokio::test]
async fn starts_are_compared_and_unsure_forecasts_not_counted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (job, other) = (world.submit("mine").await?, world.submit("later").await?);
    let forecasts = [
        new(job, with_start(1, (5, 9, 20))),
        new(job, with_start(4, (4, 100, 900))),
        new(job, with_start(8, (11, 12, 13))),
        new(job, with_start(10, (11, 12, 13))),
        new(other, with_start(9, (11, 12, 13))),
    ];
    let mut tx = pool::begin(&world.scheduler).await?;
    insert(&mut tx, &forecasts).await?;
    tx.commit().await?;
    run_to_its_end(&world, job).await?;

    let mut tx = pool::begin(&world.scheduler).await?;
    let counted = tally(&mut tx, at(0)).await?;
    let IntervalCoverage {
        forecasts,
        held,
        jobs,
        share,
    } = counted.start;
    assert_eq!(
        (forecasts, held, jobs),
        (2, 1, 1),
        "one is unsure, one came too late"
    );
    assert_eq!(share, Some(0.6), "3 s of 5 s");
    let scored = start_outcomes(&mut tx).await?;
    let made: Vec<_> = scored.iter().map(|one| one.made_at).collect();
    assert_eq!(made, [at(8), at(4), at(1)]);
    let weights: f64 = scored.iter().map(|one| one.weight).sum();
    assert!((weights - 1.0).abs() < 1e-9, "{scored:?}");
    Ok(())
}

#[tokio::test]
async fn start_and_stop_time_is_known_after_five_jobs() -> anyhow::Result<()> {
    let world = World::new().await?;
    for number in 0..5 {
        let mut tx = pool::begin(&world.scheduler).await?;
        assert_eq!(around_s(&mut tx).await?, None, "after {number}");
        drop(tx);
        let job = world.submit("mine").await?;
        run_to_its_end(&world, job).await?;
    }
    let mut tx = pool::begin(&world.scheduler).await?;
    let around_s = around_s(&mut tx).await?.expect("five have ended");
    assert!((around_s - 12.0).abs() < 1e-6, "{around_s}");
    Ok(())
}
