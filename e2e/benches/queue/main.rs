//! Cost of a long queue on real processes: three nodes of two slots, and jobs that run `true`.
//!
//! - time from submission to success of one job, on an idle cluster and, for another tenant's job,
//!   beside the queue;
//! - jobs per second on six slots, with a short queue and with a long one;
//! - time of rounds and memory of the scheduler beside the long queue;
//! - time in which `muster down` ends every daemon beside the long queue.
//!
//! All figures are from one run; those of the long queue are also printed relative to the short
//! one. `make bench-queue`; `ARGS=50000` sets another length than 10,000.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod report;

use futures::StreamExt as _;
use muster_client::{Client, JobQuery};
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_model::job::JobPhase;
use muster_model::tenant::{Access, TenantPods};
use muster_model::view::{NewTenant, NewToken};
use report::{Figures, print};
use std::time::{Duration, Instant};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 3, slots: 2 };
const LEASE_MS: u32 = 10_000;
const SHORT_QUEUE: usize = 200;
const LONG_QUEUE: usize = 10_000;
/// Number of single jobs that are timed.
const SINGLE: usize = 20;
const CLIENTS: usize = 16;
/// Time for which finished jobs of the long queue are counted.
const COUNTED: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let is_built = own
        .ancestors()
        .any(|folder| folder.join("muster-task").is_file());
    if !is_built {
        eprintln!("queue: not run; the programs are not built (make bench-queue builds them)");
        return Ok(());
    }
    let long = std::env::args().find_map(|argument| argument.parse().ok());
    let long: usize = long.unwrap_or(LONG_QUEUE);
    let mut cluster = TestCluster::start_leasing(NODES, LEASE_MS).await;
    let (owner, other) = (
        tenant(&cluster, "owner").await?,
        tenant(&cluster, "other").await?,
    );
    let idle_ms = singles(&other).await?;
    let began = Instant::now();
    submit(&owner, SHORT_QUEUE).await?;
    until_succeeded(&owner, SHORT_QUEUE).await?;
    let short_per_s = SHORT_QUEUE as f64 / began.elapsed().as_secs_f64();
    submit(&owner, long).await?;
    let rounds_before = report::round_ms(&cluster)?.len();
    let (before, began) = (succeeded(&owner).await?, Instant::now());
    tokio::time::sleep(COUNTED).await;
    let finished = succeeded(&owner).await? - before;
    let long_per_s = finished as f64 / began.elapsed().as_secs_f64();
    let beside_ms = singles(&other).await?;
    let (round_ms, scheduler_mib) = (report::round_ms(&cluster)?, report::peak_mib(&cluster)?);
    let lost_nodes = report::lost_nodes(&cluster)?;
    let queued = count(&owner, JobPhase::Queued).await?;
    let began = Instant::now();
    cluster.down();
    let figures = Figures {
        long,
        idle_ms,
        beside_ms,
        short_per_s,
        long_per_s,
        round_ms: round_ms[rounds_before..].to_vec(),
        scheduler_mib,
        lost_nodes,
        queued,
        down_s: began.elapsed().as_secs_f64(),
    };
    print(&figures);
    Ok(())
}

async fn tenant(cluster: &TestCluster, name: &str) -> anyhow::Result<Client> {
    let admin = cluster.client();
    let new = NewTenant {
        name: name.to_owned(),
        gpu_quota: None,
        weight: 1.0,
        pods: TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    admin.create_tenant(&new).await?;
    let token = NewToken {
        name: name.to_owned(),
        access: Access::Member,
        user: Some(name.to_owned()),
        tenant: Some(name.to_owned()),
        expires_at: None,
    };
    let token = admin.create_token(&token).await?;
    Ok(Client::new(cluster.server(), &token.secret)?)
}

fn document() -> serde_json::Value {
    serde_json::json!({ "version": "muster/v1", "name": "bench", "command": { "argv": ["true"] } })
}

/// Milliseconds from submission to success of single jobs, one after the other.
async fn singles(client: &Client) -> anyhow::Result<Vec<f64>> {
    let mut times_ms = Vec::new();
    for _ in 0..SINGLE {
        let began = Instant::now();
        let job = client.submit(&document(), None).await?.id;
        while !client.job(job).await?.phase.is_terminal() {
            anyhow::ensure!(began.elapsed() < PATIENCE, "job {job} does not end");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times_ms.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(times_ms)
}

async fn submit(client: &Client, jobs: usize) -> anyhow::Result<()> {
    let document = document();
    let submitted = futures::stream::iter(0..jobs)
        .map(|_| submit_one(client, &document))
        .buffer_unordered(CLIENTS);
    let submitted: Vec<_> = submitted.collect().await;
    for one in submitted {
        one?;
    }
    Ok(())
}

/// Submits one job, and retries while requests are throttled.
async fn submit_one(client: &Client, document: &serde_json::Value) -> anyhow::Result<()> {
    loop {
        match client.submit(document, None).await {
            Err(error) if error.status() == Some(429) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            submitted => {
                submitted?;
                return Ok(());
            }
        }
    }
}

async fn until_succeeded(client: &Client, jobs: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    while succeeded(client).await? < jobs {
        anyhow::ensure!(began.elapsed() < PATIENCE, "the short queue does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn succeeded(client: &Client) -> anyhow::Result<usize> {
    count(client, JobPhase::Succeeded).await
}

/// Number of jobs of the client's tenant in a phase.
async fn count(client: &Client, phase: JobPhase) -> anyhow::Result<usize> {
    let query = JobQuery {
        phases: vec![phase],
        ..JobQuery::default()
    };
    Ok(client.all_jobs(&query).await?.len())
}
