//! Probes and metrics of the scheduler: liveness, readiness, leadership and the results of rounds.

use crate::support::{Node, PATIENCE, Shell, Store, TOKEN};
use muster_scheduler::health::{self, Health};
use muster_scheduler::metrics::Metrics;
use muster_scheduler::session::Pools;
use muster_store::pool::StorePool;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const LEASE_MS: u64 = 30_000;
const STEP: Duration = Duration::from_millis(50);

fn of_one(pool: &StorePool) -> Pools {
    Pools {
        own: pool.clone(),
        sessions: pool.clone(),
    }
}

async fn answering(health: Health) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(health::serve(listener, health));
    address
}

/// Status and body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    (status.expect("a status"), body.to_owned())
}

/// Values of all lines that are not comments.
async fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let values = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    values.collect()
}

/// Whether a metric has this value.
fn is(name: &'static str, value: f64) -> impl Fn(&BTreeMap<String, f64>) -> bool {
    move |told| told.get(name) == Some(&value)
}

async fn until(address: SocketAddr, what: &str, right: impl Fn(&BTreeMap<String, f64>) -> bool) {
    let mut waited = Duration::ZERO;
    loop {
        let told = metrics(address).await;
        if right(&told) {
            return;
        }
        assert!(
            waited < PATIENCE,
            "waiting for {what} was in vain: {told:?}"
        );
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

#[tokio::test]
async fn metrics_of_leader_show_rounds_sessions_and_queue() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    let address = answering(Health {
        pools: of_one(&store.pool),
        metrics: Arc::clone(&shell.metrics),
        leader: shell.leads.clone(),
    })
    .await;
    shell.until_it_leads().await;
    assert_eq!(
        get(address, "/readyz").await,
        (200, "ready, leading\n".to_owned())
    );
    let waits = r#"muster_scheduler_queue_jobs{reason="NoMatchingNodes"}"#;
    store.submit((2, 2)).await;
    until(address, "a job that waits for a node", is(waits, 1.0)).await;
    until(address, "no session", is("muster_scheduler_sessions", 0.0)).await;

    let mut node = Node::dial(shell.address, "node-1", TOKEN, 2)
        .await
        .expect("welcome");
    node.assignment(|tasks| tasks.len() == 3).await;
    until(address, "its session", is("muster_scheduler_sessions", 1.0)).await;
    let started = r#"muster_scheduler_decisions_total{action="start"}"#;
    until(address, "its start", |told| {
        told.get(started) == Some(&1.0) && !told.contains_key(waits)
    })
    .await;
    let told = metrics(address).await;
    assert_eq!(told["muster_scheduler_leading"], 1.0);
    assert_eq!(told["muster_scheduler_refusals_total"], 0.0);
    assert!(told[r#"muster_scheduler_rounds_total{outcome="committed"}"#] >= 2.0);
    assert!(told["muster_scheduler_round_ended_timestamp_seconds"] > 1.7e9);
    let within = told[r#"muster_scheduler_round_seconds_bucket{le="+Inf"}"#];
    let rounds = told.iter();
    let rounds = rounds.filter(|(name, _)| name.starts_with("muster_scheduler_rounds_total"));
    assert_eq!(rounds.map(|(_, count)| count).sum::<f64>(), within);

    drop(node);
    until(address, "its end", is("muster_scheduler_sessions", 0.0)).await;
    assert_eq!(get(address, "/healthz").await, (200, "alive\n".to_owned()));
}

#[tokio::test]
async fn standby_is_ready_and_process_without_database_is_not() {
    let store = Store::new().await;
    let (_leads, leader) = watch::channel(false);
    let health = Health {
        pools: of_one(&store.pool),
        metrics: Arc::new(Metrics::default()),
        leader: leader.clone(),
    };
    let address = answering(health.clone()).await;
    let ready = get(address, "/readyz").await;
    assert_eq!(ready, (200, "ready, waiting to lead\n".to_owned()));
    assert_eq!(metrics(address).await["muster_scheduler_leading"], 0.0);
    let nowhere = "postgres://muster_scheduler:x@127.0.0.1:1/muster";
    let pool = muster_store::pool::scheduler(nowhere, 1).expect("an address");
    let address = answering(Health {
        pools: of_one(&pool),
        ..health
    })
    .await;
    assert_eq!(get(address, "/readyz").await.0, 503);
    // A restart would not help: the database is unavailable.
    assert_eq!(get(address, "/healthz").await.0, 200);
}
