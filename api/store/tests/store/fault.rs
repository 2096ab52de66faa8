//! Faults of nodes: they are charged once, even if they are reported repeatedly.

use crate::world::{World, at};
use muster_model::assignment::Observed;
use muster_model::event::Event;
use muster_model::fault::NodeFault;
use muster_model::plan::Action;
use muster_model::task::Outcome;
use muster_store::event::{self, EventFilter};
use muster_store::plan;
use muster_store::{fault, pool, tenant_scope};
use std::time::Duration;
use time::OffsetDateTime;

/// Returns the faults that rounds load for the node.
async fn charged(world: &World, seconds: u64) -> anyhow::Result<Vec<fault::FaultCharge>> {
    let mut tx = pool::begin_snapshot(&world.scheduler).await?;
    let loaded = plan::Loader::new(1_000).load(&mut tx, at(seconds)).await?;
    Ok(loaded.faults.get(&world.node).cloned().unwrap_or_default())
}

/// Returns the faults in the node's history.
async fn history(world: &World) -> anyhow::Result<Vec<NodeFault>> {
    let mut tx = pool::begin(&world.api).await?;
    tenant_scope::admin(&mut tx).await?;
    let of_node = EventFilter {
        job_id: None,
        node_id: Some(world.node),
    };
    let events = event::page(&mut tx, of_node, None, 1_000).await?;
    let faults = events.into_iter().filter_map(|one| match one.event {
        Event::NodeFaulted { fault, .. } => Some(fault),
        _ => None,
    });
    Ok(faults.collect())
}

async fn tell(
    world: &World,
    told: &[(OffsetDateTime, NodeFault)],
    seconds: u64,
) -> anyhow::Result<()> {
    let mut tx = pool::begin(&world.scheduler).await?;
    fault::charge_hardware(&mut tx, world.node, told, at(seconds)).await?;
    Ok(tx.commit().await?)
}

/// A session that breaks before the scheduler's answer repeats its report seconds later.
#[tokio::test]
async fn repeated_error_is_charged_once_with_any_node_clock() -> anyhow::Result<()> {
    for ahead_s in [0, 500] {
        let world = World::new().await?;
        let xid = NodeFault::Xid { gpu: 1, xid: 79 };
        let told = [(at(10) + Duration::from_secs(ahead_s), xid)];
        tell(&world, &told, 11).await?;
        tell(&world, &told, 14).await?;
        let charged = charged(&world, 15).await?;
        assert_eq!(charged.len(), 1, "{ahead_s} s ahead: {charged:?}");
        assert!(charged[0].at <= at(11), "not in the future: {charged:?}");
        assert_eq!(history(&world).await?, [xid]);
        // Another error of the same number counts separately.
        let again = [(told[0].0 + Duration::from_secs(2), xid)];
        tell(&world, &again, 16).await?;
        assert_eq!(history(&world).await?.len(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn program_blocked_by_the_driver_is_charged_to_its_gpu_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("lost").await?;
    let (chief, shard) = world.start(job, 0, &[2], 1).await?;
    let up = [(chief, Observed::Running), (shard, Observed::Running)];
    world.observe(1, &up, 2).await?;
    world.step(job, 1, Action::Up, 3).await?;
    let outcome = Outcome::lost_by_driver("cuCheckpointProcessRestore: 999".to_owned());
    let gone = Observed::Gone {
        outcome: outcome.clone(),
    };
    for seconds in [10, 20] {
        world.observe(1, &[(chief, gone.clone())], seconds).await?;
    }
    let lost = NodeFault::DriverLost { gpu: 2 };
    assert_eq!(history(&world).await?, [lost]);
    let charged = charged(&world, 21).await?;
    assert_eq!(charged.len(), 1, "{charged:?}");
    assert_eq!(charged[0].of, Some((job, chief)));
    let loaded = world.loaded(job, 21).await?;
    assert!(loaded.measured.is_none_or(|known| known.hurt.is_none()));
    // An ordered stop is not a fault.
    let stopped = Observed::Gone {
        outcome: Outcome::killed_late(),
    };
    world.observe(1, &[(shard, stopped)], 30).await?;
    assert_eq!(history(&world).await?.len(), 1);
    Ok(())
}
