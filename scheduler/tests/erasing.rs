//! Files of a deleted job: one node gets the order, another one when the first leaves. The store
//! keeps the order until a node reports success.

use crate::support::{Node, PATIENCE, Shell, Store, TOKEN};
use muster_model::assignment::Observed;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::task::Outcome;
use muster_proto::session as proto;
use muster_proto::session::from_node::Message as From;
use muster_proto::session::to_node::Message as To;
use muster_scheduler::{clock, erasure};
use muster_store::job;
use std::time::Duration;

const LEASE_MS: u64 = 30_000;

/// Job that ran on the node and was cancelled and deleted by its user.
async fn deleted(store: &Store, node: &mut Node) -> JobId {
    let id = store.submit((1, 1)).await;
    let tasks = node.assignment(|tasks| !tasks.is_empty()).await;
    let mut tx = store.as_member().await;
    let asked = job::set_intent(&mut tx, id, Intent::Cancel, None, clock::now()).await;
    asked.expect("asked");
    tx.commit().await.expect("committed");
    node.assignment(|tasks| tasks.iter().all(|task| task.stop))
        .await;
    let outcome = Outcome::exited(0);
    node.report_all(&tasks, &Observed::Gone { outcome }).await;
    store
        .until(id, "its end", |job| {
            job.state.phase() == JobPhase::Cancelled
        })
        .await;
    let mut tx = store.as_member().await;
    let done = job::delete(&mut tx, id, None, clock::now()).await;
    assert_eq!(done.expect("deleted"), job::DeleteOutcome::Deleted);
    tx.commit().await.expect("committed");
    id
}

async fn order(node: &mut Node) -> proto::Erase {
    loop {
        if let To::Erase(order) = node.next().await.expect("the session lives") {
            return order;
        }
    }
}

async fn give(store: &Store, shell: &Shell) -> u64 {
    let given = erasure::once(&store.pool, &shell.erasures, Duration::ZERO).await;
    given.expect("the store answers")
}

/// As [`give`], until an order is sent.
async fn until_given(store: &Store, shell: &Shell) {
    let given = async {
        while give(store, shell).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let given = tokio::time::timeout(PATIENCE, given).await;
    given.expect("an order in time");
}

#[tokio::test]
async fn erase_order_is_repeated_until_a_node_succeeds() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let first = Node::dial(shell.address, "node-1", TOKEN, 1).await;
    let mut first = first.expect("welcome");
    let id = deleted(&store, &mut first).await;
    let rest = erasure::once(&store.pool, &shell.erasures, erasure::REST).await;
    assert_eq!(rest.expect("read"), 0, "it was deleted a moment ago");
    until_given(&store, &shell).await;
    assert_eq!(order(&mut first).await.job_id, id.to_string());
    assert_eq!(give(&store, &shell).await, 0, "a node has the order");
    // The node leaves without an answer; another one gets the order.
    drop(first);
    let second = Node::dial(shell.address, "node-2", TOKEN, 1).await;
    let mut second = second.expect("welcome");
    until_given(&store, &shell).await;
    assert_eq!(order(&mut second).await.job_id, id.to_string());
    // A node without the order cannot complete it.
    let third = Node::dial(shell.address, "node-3", TOKEN, 1).await;
    let mut third = third.expect("welcome");
    third.erased(id).await;
    third.heartbeat().await;
    third.until_acknowledged().await.expect("the session lives");
    assert!(!is_settled(&store, id).await);
    second.erased(id).await;
    second.heartbeat().await;
    second
        .until_acknowledged()
        .await
        .expect("the session lives");
    assert!(is_settled(&store, id).await);
}

/// Whether the store has no order left for the job.
async fn is_settled(store: &Store, id: JobId) -> bool {
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    let times = (clock::now(), clock::now());
    let pending = muster_store::erasure::pending(&mut tx, times, &[], 10).await;
    pending.expect("read").iter().all(|one| one.job != id)
}

impl Node {
    async fn erased(&mut self, job: JobId) {
        let erased = proto::Erased {
            job_id: job.to_string(),
            error: String::new(),
        };
        self.send(From::Erased(erased)).await;
    }
}
