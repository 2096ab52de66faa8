//! Sessions of more nodes than there are connections to Postgres: what they all ask for at one time is asked once, so the rounds and whoever
//! else needs a connection get one.

mod support;

use muster_proto::session::to_node::Message as To;
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
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let name = format!("node-{number}");
        let mut node = Node::dial(shell.address, &name, TOKEN, 1)
            .await
            .expect("welcome");
        node.assignment(|_| true).await;
        nodes.push(node);
    }
    // Nobody comes by, so all that is asked for at this time is there to be counted.
    let owner = muster_store::pool::owner(&store.database.owner_url, 2)?;
    let mut lock = muster_store::pool::begin(&owner).await?;
    sqlx::query("lock table node in access exclusive mode")
        .execute(&mut *lock)
        .await?;
    for node in &mut nodes {
        node.heartbeat().await;
    }
    let mut other = muster_store::pool::begin(&owner).await?;
    wake::send(&mut other, &[Channel::Assignments]).await?;
    other.commit().await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut other = muster_store::pool::begin(&owner).await?;
    let waiting: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and application_name = 'muster-scheduler' and wait_event_type = 'Lock'",
    )
    .fetch_one(&mut *other)
    .await?;
    assert!((1..=WAITING).contains(&waiting), "{waiting} are waiting");
    lock.commit().await?;
    for node in &mut nodes {
        until_acknowledged(node).await?;
    }
    Ok(())
}

/// As when all nodes report at one time, and what they report waits for the rows of jobs.
#[tokio::test]
async fn a_heartbeat_waits_for_no_report_of_others() -> anyhow::Result<()> {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    node.assignment(|_| true).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(muster_store::pool::begin(&shell.sessions_pool).await?);
    }
    node.heartbeat().await;
    until_acknowledged(&mut node).await?;
    Ok(())
}

async fn until_acknowledged(node: &mut Node) -> Result<(), tonic::Status> {
    loop {
        if matches!(node.next().await?, To::HeartbeatAck(_)) {
            return Ok(());
        }
    }
}

/// It was silent for its lease, as where the scheduler could not write its heartbeats, and its session is there all the same.
#[tokio::test]
async fn a_node_that_counts_as_lost_is_told_so_and_is_up_when_it_has_dialled_again()
-> anyhow::Result<()> {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let mut tx = muster_store::pool::begin(&store.pool).await?;
    let later = muster_scheduler::clock::now() + PATIENCE;
    let lost = muster_store::node::lost(&mut tx, later, Duration::from_secs(1)).await?;
    assert_eq!(lost.len(), 1);
    tx.commit().await?;
    node.heartbeat().await;
    let told = until_acknowledged(&mut node).await;
    let told = told.expect_err("one that is lost is no more acknowledged");
    assert_eq!(told.message(), "the node counts as lost by now");
    let again = Node::dial(shell.address, "node-1", TOKEN, 1).await;
    let mut again = again.expect("welcome");
    again.heartbeat().await;
    until_acknowledged(&mut again).await?;
    Ok(())
}
