//! Nodes: sessions, loss and return.

use crate::world::{World, at, gone, id, ids_of, plan_of, slots, start};
use muster_model::assignment::Observed;
use muster_model::id::NodeId;
use muster_model::node::{Closed, Excluded, Node, NodeState, Notice};
use muster_model::plan::JobDecision;
use muster_model::task::{Outcome, TaskState};
use muster_store::event::EventFilter;
use muster_store::plan::CommitRefusal;
use muster_store::{assignment, event, fault, node, pool, tenant_scope};
use std::time::Duration;

async fn touch(
    world: &World,
    nodes: &[NodeId],
    seconds: u64,
) -> anyhow::Result<node::HeartbeatBatchResult> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let nodes = nodes.iter().copied().collect();
    let touched = node::touch(&mut tx, &nodes, at(seconds)).await?;
    tx.commit().await?;
    Ok(touched)
}

async fn heard(world: &World) -> anyhow::Result<Vec<node::NodeHeartbeat>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    Ok(node::heard(&mut tx).await?)
}

async fn lost(
    world: &World,
    silent: &[node::NodeHeartbeat],
    seconds: u64,
) -> anyhow::Result<Vec<Node>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let lost = node::lost(&mut tx, silent, at(seconds)).await?;
    tx.commit().await?;
    Ok(lost)
}

#[tokio::test]
async fn heartbeat_skips_nodes_with_locked_rows() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let other = node::hello(&mut tx, id(), "node-b", &slots(1), at(1))
        .await?
        .id;
    let gone: NodeId = id();
    tx.commit().await?;
    let all = [world.node, other, gone];
    let held = world.db.hold_rows("node", "name = 'node-b'").await;
    let touched = touch(&world, &all, 10).await?;
    assert_eq!(
        (touched.up, touched.locked),
        ([world.node].into(), [other].into())
    );
    held.give_back().await;
    let touched = touch(&world, &all, 11).await?;
    assert_eq!(
        (touched.up, touched.locked),
        ([world.node, other].into(), [].into())
    );
    Ok(())
}

#[tokio::test]
async fn silent_node_is_lost_and_returns_without_its_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("lost").await?;
    let (chief, shard) = world.start(job, 0, &[0], 1).await?;
    world.observe(1, &[(chief, Observed::Running)], 2).await?;
    let before = heard(&world).await?;
    let touched = touch(&world, &[world.node], 10).await?;
    assert_eq!(touched.up, [world.node].into());
    assert_eq!(lost(&world, &before, 30).await?, [], "it was heard since");
    let silent = heard(&world).await?;
    let nodes = lost(&world, &silent, 31).await?;
    assert_eq!(
        (nodes.len(), nodes[0].id, nodes[0].state),
        (1, world.node, NodeState::Lost)
    );
    assert_eq!(heard(&world).await?, []);
    assert_eq!(lost(&world, &silent, 32).await?, [], "it is lost once");
    let touched = touch(&world, &[world.node], 33).await?;
    assert!(
        touched.up.is_empty(),
        "a heartbeat alone does not bring it back"
    );
    let tasks = world.loaded(job, 34).await?.tasks;
    assert!(tasks.iter().all(|task| task.state
        == TaskState::Released {
            outcome: Outcome::NodeLost
        }));
    let late = JobDecision {
        job: world.submit("late").await?,
        expected_revision: 0,
        action: start(world.tasks(&[0])),
    };
    let refused = world.commit(std::slice::from_ref(&late), 35).await?;
    assert!(matches!(
        refused.conflicts[0].why,
        CommitRefusal::NodesUnavailable { .. }
    ));

    let mut tx = pool::begin(&world.scheduler).await?;
    let back = node::hello(&mut tx, id(), "node-a", &slots(4), at(40)).await?;
    tx.commit().await?;
    assert_eq!(
        (back.id, back.state),
        (world.node, NodeState::Up),
        "the same node under the same name"
    );
    // The node reports the tasks that it ran. They are already released.
    let outcome = world
        .observe(1, &[(chief, Observed::Running), (shard, gone(1))], 41)
        .await?;
    assert!(!outcome.round_due);
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(assignment::load(&mut tx, world.node, 1).await?.tasks, []);
    let events = event::page(
        &mut tx,
        EventFilter {
            job_id: None,
            node_id: Some(world.node),
        },
        None,
        100,
    )
    .await?;
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "node_state_changed")
            .count(),
        3,
        "up, lost, up"
    );
    drop(tx);
    assert_eq!(
        world.commit(&[late], 42).await?.conflicts,
        [],
        "its slots are free"
    );
    Ok(())
}

/// Leases detect heartbeats by a change of this time, even if the scheduler's clock is set back.
#[tokio::test]
async fn heartbeat_changes_the_node_if_the_clock_is_set_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    for seconds in [100, 50, 60] {
        node::touch(&mut tx, &[world.node].into(), at(seconds)).await?;
        assert_eq!(node::heard(&mut tx).await?[0].last_seen_at, at(seconds));
    }
    Ok(())
}

#[tokio::test]
async fn concurrent_loss_and_start_leave_no_task_on_a_lost_node() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("race").await?;
    let steps = [JobDecision {
        job,
        expected_revision: 0,
        action: start(world.tasks(&[0])),
    }];
    let mut starting = pool::begin(&world.scheduler).await?;
    let plan = plan_of(&steps);
    let ids = ids_of(&plan);
    let outcome = muster_store::plan::commit(&mut starting, &plan, &ids, at(100)).await?;
    assert_eq!(outcome.applied, [job]);
    let losing = async {
        let mut tx = pool::begin(&world.scheduler).await?;
        let silent = node::heard(&mut tx).await?;
        let lost = node::lost(&mut tx, &silent, at(100)).await?;
        tx.commit().await?;
        anyhow::Ok(lost)
    };
    let finish = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        starting.commit().await?;
        anyhow::Ok(())
    };
    let (lost, finished) = tokio::join!(losing, finish);
    finished?;
    assert_eq!(lost?.len(), 1);
    assert!(
        world
            .loaded(job, 101)
            .await?
            .tasks
            .iter()
            .all(|task| task.state.is_released())
    );
    Ok(())
}

#[tokio::test]
async fn drain_needs_an_administrator_and_is_recorded_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    for _ in 0..2 {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        tenant_scope::admin(&mut tx).await?;
        assert!(
            node::set_drained(&mut tx, "node-a", true, at(1))
                .await?
                .is_some_and(|row| row.node.drained)
        );
        assert_eq!(
            node::set_drained(&mut tx, "no-such", true, at(1)).await?,
            None
        );
        tx.commit().await?;
    }
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "node_drained")
            .count(),
        1,
        "every tenant is told"
    );
    Ok(())
}

async fn set_unfit(
    world: &World,
    why: Option<&str>,
    seconds: u64,
) -> anyhow::Result<Option<Excluded>> {
    let mut tx = pool::begin(&world.scheduler).await?;
    fault::set_unfit(&mut tx, world.node, why, at(seconds)).await?;
    let row = node::get(&mut tx, "node-a").await?;
    tx.commit().await?;
    Ok(row.expect("it is there").node.excluded)
}

#[tokio::test]
async fn unfit_node_reopens_only_by_its_own_report() -> anyhow::Result<()> {
    let world = World::new().await?;
    let told = set_unfit(&world, Some("its disk\0 is full"), 1)
        .await?
        .expect("closed");
    assert_eq!(
        (told.why.as_str(), told.by_itself),
        ("its disk is full", true)
    );
    assert_eq!(
        set_unfit(&world, Some("its disk is full"), 2).await?,
        Some(told),
        "told once"
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    node::set_drained(&mut tx, "node-a", true, at(3)).await?;
    let row = node::set_drained(&mut tx, "node-a", false, at(4)).await?;
    tx.commit().await?;
    let node = row.expect("it is there").node;
    assert!(
        !node.drained && node.is_unfit(),
        "uncordoning frees no disk"
    );
    let job = world.submit("where").await?;
    let step = JobDecision {
        job,
        expected_revision: 0,
        action: start(world.tasks(&[0])),
    };
    assert_eq!(world.commit(&[step], 5).await?.conflicts.len(), 1);
    assert_eq!(set_unfit(&world, None, 6).await?, None);
    let mut tx = pool::begin(&world.scheduler).await?;
    assert!(fault::exclude(&mut tx, world.node, "3 jobs failed there", at(7)).await?);
    tx.commit().await?;
    for (why, seconds) in [(Some("its disk is full"), 8), (None, 9)] {
        let stays = set_unfit(&world, why, seconds)
            .await?
            .expect("it is excluded for faults");
        assert_eq!(
            (stays.why.as_str(), stays.by_itself),
            ("3 jobs failed there", false)
        );
    }
    Ok(())
}

async fn set_notice(world: &World, notice: &Notice) -> anyhow::Result<Node> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    tenant_scope::admin(&mut tx).await?;
    let row = node::set_notice(&mut tx, "node-a", notice, at(1)).await?;
    assert_eq!(
        node::set_notice(&mut tx, "no-such", notice, at(1)).await?,
        None
    );
    tx.commit().await?;
    Ok(row.expect("it is there").node)
}

#[tokio::test]
async fn notice_closes_a_node_beside_a_drain_and_is_recorded_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let cordoned = Notice {
        labels: std::collections::BTreeMap::new(),
        closed: Closed::ToNew,
        why: "cordoned in Kubernetes".to_owned(),
        rack: Some("r7".to_owned()),
        gpus: None,
        taken: 0,
        by: Some("kubernetes".to_owned()),
    };
    set_notice(
        &world,
        &Notice {
            by: cordoned.by.clone(),
            ..Notice::default()
        },
    )
    .await?;
    for why in ["tainted", "cordoned in Kubernetes"] {
        let _ = set_notice(
            &world,
            &Notice {
                why: why.to_owned(),
                ..cordoned.clone()
            },
        )
        .await?;
        let node = set_notice(&world, &cordoned).await?;
        assert!(node.is_cordoned() && !node.is_to_be_empty());
        assert_eq!(node.rack(), Some("r7"));
    }
    let job = world.submit("where").await?;
    let refused = world
        .commit(
            &[JobDecision {
                job,
                expected_revision: 0,
                action: start(world.tasks(&[0])),
            }],
            2,
        )
        .await?;
    assert_eq!(
        refused.conflicts[0].why,
        CommitRefusal::NodesUnavailable {
            names: vec!["node-a".to_owned()]
        }
    );
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let demand = muster_store::cluster_load::cluster_load(&mut tx).await?;
    assert_eq!((demand.gpus, demand.closed_gpus), (4, 4));
    assert_eq!((demand.waiting[0].jobs, demand.waiting[0].gpus), (1, 1));
    tenant_scope::admin(&mut tx).await?;
    node::set_drained(&mut tx, "node-a", true, at(3)).await?;
    let row = node::set_drained(&mut tx, "node-a", false, at(4)).await?;
    tx.commit().await?;
    assert_eq!(
        row.and_then(|row| row.node.notice),
        Some(cordoned),
        "neither ends the other"
    );
    let open = set_notice(&world, &Notice::default()).await?;
    assert!(!open.is_cordoned() && open.rack().is_none());
    for (taken, closed_gpus) in [(3, 3), (9, 4), (0, 0)] {
        let said = Notice {
            taken,
            ..Notice::default()
        };
        assert_eq!(set_notice(&world, &said).await?.taken(), taken);
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        let demand = muster_store::cluster_load::cluster_load(&mut tx).await?;
        assert_eq!((demand.gpus, demand.closed_gpus), (4, closed_gpus));
    }
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    let events = event::page(&mut tx, EventFilter::default(), None, 100).await?;
    let told = events
        .iter()
        .filter(|event| event.event.kind() == "node_noticed");
    assert_eq!(
        told.count(),
        2,
        "every tenant is told, once of each, neither that it was open from the first nor in other words"
    );
    Ok(())
}

async fn hello(world: &World) -> anyhow::Result<NodeId> {
    let mut tx = pool::begin(&world.scheduler).await?;
    let node = node::hello(&mut tx, id(), "node-b", &slots(2), at(1)).await?;
    tx.commit().await?;
    Ok(node.id)
}

#[tokio::test]
async fn concurrent_sessions_of_a_new_name_create_one_node() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (a, b, c) = tokio::join!(hello(&world), hello(&world), hello(&world));
    let (a, b, c) = (a?, b?, c?);
    assert!(a == b && b == c);
    Ok(())
}
