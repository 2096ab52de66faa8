//! Speeds of jobs by node, and the deviations that are stored with the nodes.

use crate::family::{add_node, load, run, sampled};
use crate::world::{World, at};
use muster_model::id::{JobId, NodeId};
use muster_model::node::NodeSpeed;
use muster_store::family::{self, SpeedOnNode};
use muster_store::pool;
use std::collections::BTreeMap;

async fn speeds(world: &World, seconds: u64) -> anyhow::Result<Vec<SpeedOnNode>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    Ok(family::speeds_on_nodes(&mut tx, at(seconds)).await?)
}

/// Job, node, and speed with its weight, both rounded.
fn brief(speeds: &[SpeedOnNode]) -> Vec<(JobId, NodeId, f64, f64)> {
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    let speeds = speeds.iter().map(|one| {
        let (speed, samples) = (rounded(one.steps_per_s), rounded(one.samples));
        (one.job, one.node, speed, samples)
    });
    speeds.collect()
}

#[tokio::test]
async fn speed_is_kept_by_node_of_jobs_on_one_node() -> anyhow::Result<()> {
    let world = World::new().await?;
    let other = add_node(&world, "node-b", "cpu").await?;
    let (near, wide) = (world.submit("near").await?, world.submit("wide").await?);
    let task = run(&world, near, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0, 4.0]).await?;
    let task = run(&world, wide, &[(world.node, 1), (other, 0)]).await?;
    sampled(&world, (world.node, task), 2, &[9.0, 8.0]).await?;
    let known = speeds(&world, 5).await?;
    assert_eq!(brief(&known), [(near, world.node, 3.0, 2.0)]);
    let family = load(&world, 5).await?.jobs[0].family.clone();
    assert_eq!(Some(&known[0].family), family.as_ref());
    let measured = (known[0].workers, known[0].ps_shards, &*known[0].gpu_kind);
    assert_eq!((known[0].tenant, measured), (world.red, (1, 1, "cpu")));
    // A week halves the weight, as of the speeds by placement.
    let later = speeds(&world, 4 + 7 * 86_400).await?;
    assert_eq!(brief(&later), [(near, world.node, 3.0, 1.0)]);
    Ok(())
}

#[tokio::test]
async fn speed_of_other_gpus_than_present_ones_is_omitted() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0]).await?;
    assert_eq!(speeds(&world, 5).await?.len(), 1);
    world
        .as_owner("update node set capacity = jsonb_set(capacity, '{gpus,0,model}', '\"new\"')")
        .await?;
    assert_eq!(speeds(&world, 5).await?, []);
    Ok(())
}

#[tokio::test]
async fn forgotten_family_is_forgotten_on_nodes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("one").await?;
    let task = run(&world, job, &[(world.node, 0)]).await?;
    sampled(&world, (world.node, task), 1, &[9.0, 2.0]).await?;
    let key = speeds(&world, 5).await?[0].family.clone();
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    family::forget(&mut tx, &key).await?;
    tx.commit().await?;
    assert_eq!(speeds(&world, 5).await?, []);
    Ok(())
}

#[tokio::test]
async fn deviations_replace_those_of_before() -> anyhow::Result<()> {
    let world = World::new().await?;
    let other = add_node(&world, "node-b", "cpu").await?;
    let slow = NodeSpeed {
        percent: 88,
        jobs: 5,
    };
    let of_nodes = async || {
        let nodes = load(&world, 5).await?.nodes.into_iter();
        anyhow::Ok(
            nodes
                .map(|node| (node.id, node.speed))
                .collect::<BTreeMap<_, _>>(),
        )
    };
    let set = async |known: &[NodeId]| {
        let known = known.iter().map(|&node| (node, slow)).collect();
        let mut tx = pool::begin(&world.scheduler).await?;
        let changed = family::set_deviations(&mut tx, &known).await?;
        tx.commit().await?;
        anyhow::Ok(changed)
    };
    assert_eq!(set(&[world.node]).await?, 1);
    let known = of_nodes().await?;
    assert_eq!((known[&world.node], known[&other]), (Some(slow), None));
    assert_eq!(set(&[world.node]).await?, 0, "nothing changed");
    assert_eq!(set(&[other]).await?, 2);
    let known = of_nodes().await?;
    assert_eq!((known[&world.node], known[&other]), (None, Some(slow)));
    Ok(())
}

#[tokio::test]
async fn locked_node_is_skipped() -> anyhow::Result<()> {
    let world = World::new().await?;
    let known = BTreeMap::from([(
        world.node,
        NodeSpeed {
            percent: 88,
            jobs: 5,
        },
    )]);
    let mut open = pool::begin(&world.scheduler).await?;
    muster_store::node::set_drained(&mut open, "node-a", true, at(1)).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(family::set_deviations(&mut tx, &known).await?, 0);
    tx.commit().await?;
    Ok(())
}
