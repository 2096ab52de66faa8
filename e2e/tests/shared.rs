//! Three tenants share four slots: the first one's job has them all while it is alone, makes room as the others come, and takes back
//! what they leave; whoever waits is told what for, and every decision can be asked for its reason and planned again.

use muster_client::Client;
use muster_e2e::cluster::{Cluster, Options};
use muster_e2e::story::{document, every_round_replays};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::tenant::Access;
use muster_model::view::{ExplainView, JobView, NewTenant, NewToken};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(400);

#[tokio::test]
async fn by_three_tenants_the_cluster_is_shared_and_every_decision_has_its_reason() {
    let mut cluster = Cluster::start(Options { nodes: 2, slots: 2 }).await;
    let (ada, bob, cleo) = (
        tenant(&cluster, "ada").await,
        tenant(&cluster, "bob").await,
        tenant(&cluster, "cleo").await,
    );
    let wide = submit(&ada, &document("wide", (1, 4), (1, 2), 8_000)).await;
    until(&ada, wide, "training on all slots", |job| {
        job.workers.running == 4 && job.progress.as_ref().is_some_and(|p| p.step >= 100)
    })
    .await;

    let pair = submit(&bob, &document("pair", (2, 2), (1, 1), 400)).await;
    until(&bob, pair, "its share", |job| {
        job.phase == JobPhase::Running
    })
    .await;
    let next = submit(&bob, &document("next", (2, 2), (1, 1), 200)).await;
    let single = submit(&cleo, &document("single", (1, 1), (1, 1), 300)).await;
    until(&cleo, single, "its share", |job| {
        job.phase == JobPhase::Running
    })
    .await;

    // Somebody's second job waits, and says for what.
    let waits = until(&bob, next, "a reason or a start", |job| {
        job.waiting.is_some() || job.phase != JobPhase::Queued
    })
    .await;
    if let Some(waiting) = &waits.waiting {
        assert!(
            !waiting.message.is_empty() && waiting.position > 0,
            "{waiting:?}"
        );
    }
    for (client, job) in [(&ada, wide), (&bob, pair), (&cleo, single)] {
        let told: ExplainView = client.explain(job).await.expect("an owner may ask");
        if told.phase == JobPhase::Running {
            let decided = told.decided.expect("a round has considered it");
            assert!(!decided.why.is_empty());
        }
    }
    // One tenant's jobs are none of another's business.
    assert!(bob.job(wide).await.is_err());

    for (client, job) in [(&bob, pair), (&bob, next), (&cleo, single), (&ada, wide)] {
        let ended = until(client, job, "success", |job| {
            job.phase == JobPhase::Succeeded
        })
        .await;
        assert_eq!(ended.failures, 0, "{} was resized, not failed", ended.name);
    }
    let sizes = sizes(&ada, wide).await;
    assert_eq!(sizes.first(), Some(&4), "alone it has all: {sizes:?}");
    assert!(
        sizes.iter().any(|size| *size <= 2),
        "it made room: {sizes:?}"
    );
    let smallest = sizes
        .iter()
        .position(|size| Some(size) == sizes.iter().min());
    let after = &sizes[smallest.unwrap_or(0)..];
    assert!(
        after.iter().any(|size| *size > after[0]),
        "it took back what was left: {sizes:?}"
    );
    every_round_replays(&cluster);
    cluster.down();
}

async fn tenant(cluster: &Cluster, name: &str) -> Client {
    let admin = cluster.client();
    let new = NewTenant {
        name: name.to_owned(),
        gpu_quota: None,
        weight: 1.0,
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

async fn submit(client: &Client, document: &str) -> JobId {
    let document: serde_json::Value = serde_norway::from_str(document).expect("YAML");
    let job = client.submit(&document, None).await;
    job.expect("the document is right").id
}

async fn until(
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
