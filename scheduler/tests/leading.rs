//! What a scheduler that leads keeps serving, whatever else it does.

mod support;

use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::Snapshot;
use muster_scheduler::round::{self, Remembered};
use std::sync::mpsc;
use support::{PATIENCE, Shell, Store};
use tokio::sync::oneshot;

const LEASE_MS: u64 = 30_000;

#[tokio::test]
async fn heartbeats_are_acknowledged_while_a_round_plans() {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let (planning, plans) = oneshot::channel();
    let (acknowledged, until_acknowledged) = mpsc::channel();
    let planner = move |snapshot: &Snapshot, policy: &Policy, memory: &mut _| {
        planning.send(()).expect("the test waits");
        let waited = until_acknowledged.recv_timeout(PATIENCE);
        waited.expect("a heartbeat is acknowledged before the plan is made");
        muster_core::plan_again(snapshot, policy, memory)
    };
    let policy = Policy::named(PolicyName::Optimus);
    let mut remembered = Remembered::default();
    let round = round::once_by(planner, &store.pool, &policy, &mut remembered);
    let heartbeat = async {
        plans.await.expect("a round plans");
        node.heartbeat().await;
        let answered = node.until_acknowledged().await;
        answered.expect("the session lives");
        acknowledged.send(()).expect("the planner waits");
    };
    let (round, ()) = tokio::join!(round, heartbeat);
    round.expect("a round");
}
