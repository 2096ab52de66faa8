//! Sessions of more nodes than there are connections to Postgres: what they all ask for at one time is asked once, so the rounds and whoever
//! else needs a connection get one.

mod support;

use muster_store::wake::{self, Channel};
use std::time::Duration;
use support::{CONNECTIONS, Node, PATIENCE, Shell, Store, TOKEN};

const LEASE_MS: u64 = 30_000;
/// More than there are connections.
const NODES: usize = 3 * CONNECTIONS as usize;
/// Of heartbeats, of the reader of generations, of rounds and of the watch over leases.
const WAITING: i64 = 4;

#[tokio::test]
async fn sessions_of_many_nodes_leave_connections_to_others() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(shell.joined(&format!("node-{number}")).await);
    }
    // Nobody comes by, so all that is asked for at this time is there to be counted.
    let held = store.database.hold_table("node").await;
    for node in &mut nodes {
        node.heartbeat().await;
    }
    let owner = muster_store::pool::owner(&store.database.owner_url, 1)?;
    let mut other = muster_store::pool::begin(&owner).await?;
    wake::send(&mut other, &[Channel::Assignments]).await?;
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

/// As a commit does that is long in coming to its end.
#[tokio::test]
async fn whoever_holds_the_row_of_one_node_delays_no_other() -> anyhow::Result<()> {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let (mut locked, mut free) = (shell.joined("held").await, shell.joined("free").await);
    let held = store.database.hold_rows("node", "name = 'held'").await;
    // Together, and once more after the one that has to wait.
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

/// Its session would go on, and the row be tried again, without end.
#[tokio::test]
async fn a_node_whose_row_stays_locked_for_half_of_its_lease_is_to_dial_in_anew()
-> anyhow::Result<()> {
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

/// All nodes would dial in anew at one time.
#[tokio::test]
async fn heartbeats_outlive_the_connection_on_which_they_are_written() -> anyhow::Result<()> {
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

/// As when all nodes report at one time, and what they report waits for the rows of jobs.
#[tokio::test]
async fn a_heartbeat_waits_for_no_report_of_others() -> anyhow::Result<()> {
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

/// It was silent for its lease, as where the scheduler could not write its heartbeats, and its session is there all the same.
#[tokio::test]
async fn a_node_that_counts_as_lost_is_told_so_and_is_up_when_it_has_dialled_again()
-> anyhow::Result<()> {
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
