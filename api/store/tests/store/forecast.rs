//! Forecasts: the newest is shown with the job, and their intervals are compared with what came.

use crate::world::{World, at, gone, stop};
use muster_model::assignment::Observed;
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::job::AfterStop;
use muster_store::forecast::{NewForecast, Tally, insert, outcomes, prune, tally};
use muster_store::plan::Action;
use muster_store::{job, pool};

fn made(made_s: u64, finish: Option<(u64, u64, u64)>) -> Forecast {
    Forecast {
        made_at: at(made_s),
        start: None,
        finish: finish.map(|(p10, p50, p90)| Interval {
            p10: at(p10),
            p50: at(p50),
            p90: at(p90),
        }),
        gpu_s: 12.5,
        unforeseen: finish.is_none().then_some(Unforeseen::NoLength),
    }
}

#[tokio::test]
async fn the_newest_is_shown_to_its_tenant_and_all_are_compared_with_the_end() -> anyhow::Result<()>
{
    let world = World::new().await?;
    let job = world.submit("mine").await?;
    let forecasts = [
        made(1, Some((50, 60, 70))),
        made(2, None),
        made(3, Some((90, 100, 120))),
    ];
    let new = forecasts.map(|forecast| NewForecast {
        job,
        forecast,
        widen: 1.5,
        start_widen: 2.0,
    });
    let mut tx = pool::begin(&world.scheduler).await?;
    insert(&mut tx, &new).await?;
    insert(&mut tx, &new[..1]).await?;
    tx.commit().await?;

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let shown = job::get(&mut tx, job).await?.and_then(|row| row.forecast);
    assert_eq!(shown, Some(forecasts[2]));
    assert_eq!(tally(&mut tx, at(0)).await?, Tally::default(), "it runs");
    drop(tx);

    let (chief, shard) = world.start(job, 0, &[0], 10).await?;
    let running = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(1, &running, 11).await?;
    world.step(job, 1, Action::Up, 12).await?;
    world.step(job, 1, stop(AfterStop::Succeed), 100).await?;
    world
        .observe(1, &[(chief, gone(0)), (shard, gone(0))], 109)
        .await?;
    world.step(job, 1, Action::Release, 110).await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let row = job::get(&mut tx, job).await?.expect("the job");
    assert_eq!(row.forecast, None, "it has ended");
    let held = tally(&mut tx, at(0)).await?;
    assert_eq!((held.finishes, held.finishes_held), (2, 1));
    assert_eq!(tally(&mut tx, at(2)).await?.finishes, 1);
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    assert_eq!(tally(&mut tx, at(0)).await?, Tally::default());

    let mut tx = pool::begin(&world.scheduler).await?;
    let scored = outcomes(&mut tx, 10).await?;
    assert_eq!(scored.len(), 2, "that without an end has no outcome");
    assert_eq!((scored[0].made_at, scored[0].came_at), (at(3), at(110)));
    assert_eq!(prune(&mut tx, at(3)).await?, 2);
    Ok(())
}
