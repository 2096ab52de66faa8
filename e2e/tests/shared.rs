//! Three tenants share four slots: a job that starts on what the others leave grows when they have ended, shrinks below a lowered
//! quota, and ends; whoever waits is told what for, and every decision can be asked for its reason and planned again.

use muster_client::Client;
use muster_e2e::cluster::{Cluster, Options};
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
async fn by_three_tenants_the_cluster_is_shared_and_every_decision_has_its_reason() {
    let mut cluster = Cluster::start(Options { nodes: 2, slots: 2 }).await;
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

    // What no measurement has tried yet counts as worth trying, so the one that is left alone grows on any machine; whether it
    // grows a second time is the measurements' to say, and two cores may say that it does not pay.
    let wide = submit(&ada, &document("wide", (1, 4), (1, 2), 3_000)).await;
    until(&ada, wide, "more slots than the others left", |job| {
        job.workers.running > 1 && job.progress.as_ref().is_some_and(|p| p.step >= 100)
    })
    .await;
    let alone = sizes(&ada, wide).await;
    assert_eq!(alone.first(), Some(&1), "three of four slots were taken");

    // Whether it makes room for others by itself is again the measurements' to say; below a lowered quota it must.
    let quota = |gpus| TenantChange {
        gpu_quota: Some(gpus),
        ..TenantChange::default()
    };
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

    // Somebody's second job waits, and says for what.
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
    // One tenant's jobs are none of another's business.
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

async fn tenant(cluster: &Cluster, name: &str) -> Client {
    let admin = cluster.client();
    let new = NewTenant {
        name: name.to_owned(),
        gpu_quota: None,
        weight: 1.0,
        pods: muster_model::tenant::TenantPods::default(),
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

/// It was given slots; a short job may have given them back by the time it is looked at.
async fn running(client: &Client, job: JobId) {
    let started = |job: &JobView| matches!(job.phase, JobPhase::Running | JobPhase::Succeeded);
    until(client, job, "its share", started).await;
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
