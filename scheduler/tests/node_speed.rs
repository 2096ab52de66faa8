//! Deviations of nodes over the live path: reports, comparison, rows of the nodes, snapshot, plan.

use crate::inputs::Driver;
use muster_core::plan;
use muster_core::plan::Action;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_model::id::{JobId, NodeId};
use muster_model::job::AfterStop;
use muster_model::node::NodeSpeed;
use muster_scheduler::{clock, node_speed};

/// Node on which the job starts.
fn starts_on(snapshot: &ClusterSnapshot, job: JobId) -> NodeId {
    let (plan, _) = plan(snapshot, &Policy::named(PolicyName::Fifo));
    let mut decisions = plan.decisions.iter().filter(|decision| decision.job == job);
    let action = decisions.find_map(|decision| match &decision.action {
        Action::Start { tasks, .. } => tasks.first().map(|task| task.node),
        _ => None,
    });
    action.expect("the job starts")
}

/// The driver reports 10 steps/s on the first node and 25 on the second.
#[tokio::test]
async fn job_starts_on_the_node_measured_to_be_faster() -> anyhow::Result<()> {
    let driver = Driver::of([("a-slow", "A100"), ("b-fast", "A100")]).await?;
    let policy = Policy::named(PolicyName::Fifo);
    let mut at = 0;
    for number in 0..3 {
        for node in [0, 1] {
            let job = driver.submit(&format!("job-{number}-{node}")).await;
            let tasks = driver.run((job, 0), (node, 1), at).await?;
            driver
                .train((node, 1), (tasks[0], 1), 0..20, at + 30)
                .await?;
            let measured = driver.snapshot().await?.nodes.into_iter();
            let known: Vec<Option<NodeSpeed>> = measured.map(|node| node.speed).collect();
            assert_eq!(known, [None, None], "too few jobs");
            driver
                .stop((job, 1), (node, &tasks), AfterStop::Succeed, at + 60)
                .await?;
            if (number, node) != (2, 1) {
                let changed = node_speed::once(&driver.store.pool, &policy, clock::now()).await?;
                assert_eq!(changed, 0);
            }
        }
        at += 600;
    }
    let changed = node_speed::once(&driver.store.pool, &policy, clock::now()).await?;
    assert_eq!(changed, 2);
    let waiting = driver.submit("waiting").await;
    let mut snapshot = driver.snapshot().await?;
    let speeds = snapshot.nodes.iter().map(|node| node.speed);
    let speed = |percent| Some(NodeSpeed { percent, jobs: 3 });
    assert_eq!(speeds.collect::<Vec<_>>(), [speed(63), speed(158)]);
    assert_eq!(starts_on(&snapshot, waiting), driver.nodes[1]);
    for node in &mut snapshot.nodes {
        node.speed = None;
    }
    assert_eq!(starts_on(&snapshot, waiting), driver.nodes[0]);
    Ok(())
}
