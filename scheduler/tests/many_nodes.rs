//! Sessions of more nodes than there are connections to Postgres. Equal requests of all sessions
//! are batched, so that rounds and other loops get connections.

use crate::support::{CONNECTIONS, Node, PATIENCE, Shell, Store, TOKEN};
use muster_store::notify::{self, NotifyChannel};
use std::time::Duration;

const LEASE_MS: u64 = 30_000;
/// More than there are connections.
const NODES: usize = 3 * CONNECTIONS as usize;
/// Waiting queries: of heartbeats, of the reader of generations, of rounds and of leases.
const WAITING: i64 = 4;

#[tokio::test]
async fn sessions_of_many_nodes_leave_connections_to_others() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(shell.joined(&format!("node-{number}")).await);
    }
    // The lock blocks all queries, so that they can be counted.
    let held = store.database.hold_table("node").await;
    for node in &mut nodes {
        node.heartbeat().await;
    }
    let owner = muster_store::pool::owner(&store.database.owner_url, 1)?;
    let mut other = muster_store::pool::begin(&owner).await?;
    notify::send(&mut other, &[NotifyChannel::Assignments]).await?;
    other.commit().await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let waiting = store.database.waiting("muster-scheduler").await;
    assert!((1..=WAITING).contains(&waiting), "{waiting} are waiting");
    held.give_back().await;
    for node in &mut nodes {
        node.until_acknowledged().await?;
    }
    Ok(())
}

/// As a commit that takes long.
#[tokio::test]
async fn locked_row_of_one_node_does_not_delay_others() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let (mut locked, mut free) = (shell.joined("held").await, shell.joined("free").await);
    let held = store.database.hold_rows("node", "name = 'held'").await;
    // At the same time, and again after the one that has to wait.
    for _ in 0..3 {
        locked.heartbeat().await;
        free.heartbeat().await;
        free.until_acknowledged().await?;
    }
    let early = tokio::time::timeout(Duration::from_millis(200), locked.until_acknowledged());
    assert!(early.await.is_err(), "nobody could have written it");
    held.give_back().await;
    locked.until_acknowledged().await?;
    Ok(())
}

/// Otherwise its session would live on and retry the row for ever.
#[tokio::test]
async fn session_ends_if_row_stays_locked_for_half_of_lease() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, 2_000).await;
    let mut node = shell.joined("held").await;
    let held = store.database.hold_rows("node", "name = 'held'").await;
    node.heartbeat().await;
    let told = tokio::time::timeout(PATIENCE, node.until_acknowledged()).await?;
    let told = told.expect_err("nobody could have written it");
    assert_eq!(told.message(), "a heartbeat could not be kept");
    held.give_back().await;
    Ok(())
}

/// Otherwise all nodes would dial in again at once.
#[tokio::test]
async fn heartbeats_survive_loss_of_their_connection() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let held = store.database.hold_table("node").await;
    node.heartbeat().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ended = store.database.disconnect_waiting("muster-scheduler").await;
    assert!(ended > 0, "somebody writes it");
    held.give_back().await;
    node.until_acknowledged().await?;
    Ok(())
}

/// As when all nodes report at once and their reports wait for the rows of jobs.
#[tokio::test]
async fn heartbeat_does_not_wait_for_reports_of_others() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(muster_store::pool::begin(&shell.sessions_pool).await?);
    }
    node.heartbeat().await;
    node.until_acknowledged().await?;
    Ok(())
}

/// The node was silent for its lease, as if the scheduler could not write its heartbeats, while its
/// session stayed open.
#[tokio::test]
async fn lost_node_is_notified_and_up_after_next_session() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let mut tx = muster_store::pool::begin(&store.pool).await?;
    let heard = muster_store::node::heard(&mut tx).await?;
    let lost = muster_store::node::lost(&mut tx, &heard, muster_scheduler::clock::now()).await?;
    assert_eq!(lost.len(), 1);
    tx.commit().await?;
    node.heartbeat().await;
    let told = node.until_acknowledged().await;
    let told = told.expect_err("one that is lost is no more acknowledged");
    assert_eq!(told.message(), "the node counts as lost by now");
    let again = Node::dial(shell.address, "node-1", TOKEN, 1).await;
    let mut again = again.expect("welcome");
    again.heartbeat().await;
    again.until_acknowledged().await?;
    Ok(())
}
