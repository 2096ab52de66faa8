//! Services that the leader keeps under load and faults.

use crate::support::{Greeting, Node, PATIENCE, Shell, Store};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_model::job::JobPhase;
use muster_model::question::{Answer, Question};
use muster_model::wait::Wait;
use muster_scheduler::clock;
use muster_scheduler::lease::{self, Silence};
use muster_scheduler::question::{self, ServedTenants};
use muster_scheduler::round::{self, RoundMemory};
use muster_sim::Cancel;
use muster_store::leader::Leadership;
use muster_testdb::Relay;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

const LEASE_MS: u64 = 30_000;
const STEP: Duration = Duration::from_millis(20);

#[tokio::test]
async fn heartbeats_are_acknowledged_while_a_round_plans() {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let (planning, plans) = oneshot::channel();
    let (acknowledged, until_acknowledged) = mpsc::channel();
    let planner = move |snapshot: &ClusterSnapshot, policy: &Policy, memory: &mut _| {
        planning.send(()).expect("the test waits");
        let waited = until_acknowledged.recv_timeout(PATIENCE);
        waited.expect("a heartbeat is acknowledged before the plan is made");
        muster_core::plan_again(snapshot, policy, memory)
    };
    let policy = Policy::named(PolicyName::Optimus);
    let mut remembered = RoundMemory::default();
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

/// As if a router drops the state of the scheduler's connections.
#[tokio::test]
async fn scheduling_resumes_after_every_connection_went_silent() {
    let store = Store::new().await;
    let relay = Relay::before(&store.database).await;
    let url = relay.url(&store.database.scheduler_url);
    let mut shell = Shell::start_at(&url, &store, LEASE_MS).await;
    shell.until_it_leads().await;
    // A round waits for a table when its connection becomes silent.
    let held = store.database.hold_table("job").await;
    while store.database.waiting("muster-scheduler").await == 0 {
        tokio::time::sleep(STEP).await;
    }
    relay.cut();
    held.give_back().await;
    let job = store.submit((1, 1)).await;
    store
        .until(job, "a round that considers it", |job| {
            let waiting = job.waiting.as_ref();
            waiting.is_some_and(|waiting| waiting.why != Wait::NotConsidered)
        })
        .await;
    assert_eq!(store.job(job).await.state.phase(), JobPhase::Queued);
}

/// The wall clock steps forward by an hour, on this scheduler or on the previous leader.
#[tokio::test]
async fn node_loss_depends_on_monotonic_clock_only() {
    const LOST_AFTER: Duration = Duration::from_secs(21);
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = shell.joined("node-1").await;
    let (mut silence, begin) = (Silence::default(), clock::instant());
    let mut look = async |after_s| {
        let now = begin + Duration::from_secs(after_s);
        let lost = lease::once(&store.pool, &mut silence, LOST_AFTER, || now).await;
        lost.expect("a look").len()
    };
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    let [heard] = muster_store::node::heard(&mut tx).await.expect("read")[..] else {
        panic!("one node is up");
    };
    for hours in [-1, 1] {
        let then = clock::now() + time::Duration::hours(hours);
        let touched = muster_store::node::touch(&mut tx, &[heard.id].into(), then).await;
        assert_eq!(touched.expect("written").up.len(), 1);
    }
    tx.commit().await.expect("committed");
    assert_eq!(look(0).await, 0, "it begins to count");
    assert_eq!(look(20).await, 0);
    node.heartbeat().await;
    node.until_acknowledged().await.expect("the session lives");
    assert_eq!(look(30).await, 0, "it was heard since");
    assert_eq!(look(50).await, 0);
    assert_eq!(look(51).await, 1);
}

#[tokio::test]
async fn withdrawn_question_is_cancelled() {
    let store = Store::new().await;
    let changes = serde_json::json!({"add_nodes": [{"nodes": 1, "gpus": 8}]});
    let changes = serde_json::from_value(changes).expect("changes");
    let asked = store.ask(Question::WhatIf { changes }).await;
    let (begins, began) = oneshot::channel();
    let (ends, ended) = mpsc::channel();
    let computation = move |_: &_, _: &_, _: &_, _: &_, _, cancel: &Cancel| {
        begins.send(()).expect("the test waits");
        let begun = clock::instant();
        while !cancel.is_cancelled() && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        ends.send(cancel.is_cancelled()).expect("the test waits");
        Ok(Answer::Failed { why: String::new() })
    };
    let policy = Policy::named(PolicyName::Optimus);
    let mut served = ServedTenants::default();
    let answer = question::once_by(computation, &store.pool, &policy, &mut served);
    let withdraw = async {
        began.await.expect("it is computed");
        store.withdraw(asked).await;
    };
    let (answered, ()) = tokio::join!(answer, withdraw);
    assert!(answered.expect("a turn"));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "it is cancelled");
}

/// Leadership is lost between the opening of a session and its Hello. The node must look for the
/// new leader.
#[tokio::test]
async fn session_opened_at_loss_of_leadership_is_refused() {
    let store = Store::new().await;
    let mut shell = Shell::leading(&store, LEASE_MS).await;
    let address = shell.address;
    let the_lead_is_lost = async {
        // The handler has already checked the leadership.
        tokio::time::sleep(10 * STEP).await;
        store
            .database
            .execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'muster-leader'")
            .await;
        // The scheduler notices at its next ping, and tries to lead again half a second later.
        let rival = loop {
            let url = &store.database.scheduler_url;
            if let Some(held) = Leadership::acquire(url).await.expect("an answer") {
                break held;
            }
            tokio::time::sleep(STEP).await;
        };
        let lost = shell.leads.wait_for(|leads| !leads);
        let lost = tokio::time::timeout(PATIENCE, lost).await;
        lost.expect("in time").expect("it lives");
        // The sessions of the term have been ended.
        tokio::time::sleep(10 * STEP).await;
        rival
    };
    let rival = std::cell::OnceCell::new();
    let until = async {
        rival.set(the_lead_is_lost.await).expect("once");
    };
    let refused = Node::greet_after(address, &Greeting::default(), until).await;
    let refused = refused.err().expect("this scheduler leads no more");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
}
