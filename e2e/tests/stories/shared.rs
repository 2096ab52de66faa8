//! Three tenants share four slots. A job starts on the free slots, grows when others have ended,
//! shrinks below a lowered quota, and ends. Waiting jobs show a reason, and every decision can be
//! explained and replayed.

use muster_client::Client;
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{document, every_round_replays};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::tenant::Access;
use muster_model::view::{ExplainView, JobView, NewTenant, NewToken, TenantChange};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(400);

#[tokio::test]
async fn three_tenants_share_slots_and_decisions_have_reasons() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 2 }).await;
    let (ada, bob, cleo) = (
        tenant(&cluster, "ada").await,
        tenant(&cluster, "bob").await,
        tenant(&cluster, "cleo").await,
    );
    let (pair, single) = (
        submit(&bob, &document("pair", (2, 2), (1, 1), 300)).await,
        submit(&cleo, &document("single", (1, 1), (1, 1), 300)).await,
    );
    running(&bob, pair).await;
    running(&cleo, single).await;

    // An unmeasured size counts as worth trying, so a job that is alone grows on any machine. A
    // second growth depends on measurements; two cores may show that it does not pay.
    let wide = submit(&ada, &document("wide", (1, 4), (1, 2), 3_000)).await;
    until(&ada, wide, "more slots than the others left", |job| {
        job.workers.running > 1 && job.progress.as_ref().is_some_and(|p| p.step >= 100)
    })
    .await;
    let alone = sizes(&ada, wide).await;
    assert_eq!(alone.first(), Some(&1), "three of four slots were taken");

    // Whether it shrinks for others by itself depends on measurements too; below a lowered quota it
    // must.
    let admin = cluster.client();
    admin
        .change_tenant("ada", &quota(Some(1)))
        .await
        .expect("an administrator may");
    until(&ada, wide, "its size below the quota", |job| {
        job.phase == JobPhase::Running && job.workers.running == 1
    })
    .await;
    admin
        .change_tenant("ada", &quota(None))
        .await
        .expect("an administrator may");

    let pressed = [
        (
            &bob,
            submit(&bob, &document("second", (2, 2), (1, 1), 300)).await,
        ),
        (
            &cleo,
            submit(&cleo, &document("another", (1, 1), (1, 1), 300)).await,
        ),
    ];
    for (client, job) in pressed {
        running(client, job).await;
    }
    let next = submit(&bob, &document("next", (2, 2), (1, 1), 200)).await;

    // A tenant's second job waits with a reason.
    let waits = until(&bob, next, "a reason or a start", |job| {
        job.waiting
            .as_ref()
            .is_some_and(|waiting| waiting.position > 0)
            || job.phase != JobPhase::Queued
    })
    .await;
    if let Some(waiting) = &waits.waiting {
        assert!(!waiting.message.is_empty(), "{waiting:?}");
    }
    for (client, job) in [(&ada, wide), pressed[0], pressed[1]] {
        let told: ExplainView = client.explain(job).await.expect("an owner may ask");
        if told.phase == JobPhase::Running {
            let decided = told.decided.expect("a round has considered it");
            assert!(!decided.why.is_empty());
        }
    }
    // A tenant cannot read jobs of another tenant.
    assert!(bob.job(wide).await.is_err());

    let all = [
        (&bob, pair),
        (&cleo, single),
        pressed[0],
        pressed[1],
        (&bob, next),
        (&ada, wide),
    ];
    for (client, job) in all {
        let ended = until(client, job, "success", |job| {
            job.phase == JobPhase::Succeeded
        })
        .await;
        assert_eq!(ended.failures, 0, "{} was resized, not failed", ended.name);
    }
    let sizes = sizes(&ada, wide).await;
    let shrank = sizes.windows(2).any(|pair| pair[1] < pair[0]);
    assert!(shrank, "it made room: {sizes:?}");
    every_round_replays(&cluster);
    cluster.down();
}

pub async fn tenant(cluster: &TestCluster, name: &str) -> Client {
    let admin = cluster.client();
    let new = NewTenant {
        name: name.to_owned(),
        gpu_quota: None,
        weight: 1.0,
        pods: muster_model::tenant::TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    admin.create_tenant(&new).await.expect("a new tenant");
    let token = NewToken {
        name: name.to_owned(),
        access: Access::Member,
        user: Some(name.to_owned()),
        tenant: Some(name.to_owned()),
        expires_at: None,
    };
    let token = admin.create_token(&token).await.expect("a token");
    Client::new(cluster.server(), &token.secret).expect("the server's address")
}

fn quota(gpus: Option<u32>) -> TenantChange {
    TenantChange {
        gpu_quota: Some(gpus),
        ..TenantChange::default()
    }
}

/// Waits until the job has been started; a short job may have ended by the time of the poll.
async fn running(client: &Client, job: JobId) {
    until(client, job, "its share", |job| {
        matches!(job.phase, JobPhase::Running | JobPhase::Succeeded)
    })
    .await;
}

pub async fn submit(client: &Client, document: &str) -> JobId {
    let document: serde_json::Value = serde_norway::from_str(document).expect("YAML");
    let job = client.submit(&document, None).await;
    job.expect("the document is right").id
}

pub async fn until(
    client: &Client,
    job: JobId,
    what: &str,
    right: impl Fn(&JobView) -> bool,
) -> JobView {
    let mut waited = Duration::ZERO;
    loop {
        let view = client.job(job).await.expect("the owner reads its job");
        if right(&view) {
            return view;
        }
        let hopeless = view.phase.is_terminal() || waited >= PATIENCE;
        assert!(!hopeless, "waiting for {what:?} was in vain: {view:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

/// Workers of each revision, in order.
async fn sizes(client: &Client, job: JobId) -> Vec<u32> {
    let query = muster_client::EventQuery {
        after: None,
        limit: Some(500),
    };
    let history = client.events(job, &query).await.expect("events").items;
    let placed = history.iter().filter_map(|entry| match entry.event {
        Event::JobPlaced { workers, .. } => Some(workers),
        _ => None,
    });
    placed.collect()
}
