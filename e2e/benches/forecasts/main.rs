//! Share of 80 % intervals of forecasts that hold, on real processes: three tenants submit a few
//! hundred short jobs to twelve slots.
//!
//! The jobs repeat 27 documents: programs of random length, programs that report steps, and engine
//! jobs, some of them elastic. Every two seconds each tenant lists its open jobs, as a user does,
//! and the bench stores the list. After the last job has ended, each stored interval is compared
//! with the real start or end.
//!
//! Every job counts once: its share is the mean over the polls of it, and the printed share is the
//! mean over the jobs. Before some submissions the bench asks for a plan of the same document, and
//! compares that too.
//!
//! `make bench-forecasts`; `ARGS=120` sets another number of seconds of submissions than 360,
//! `ARGS="csv=FILE"` writes every poll.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod report;
mod work;

use muster_client::{Client, JobQuery};
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_model::forecast::Interval;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::tenant::{Access, TenantPods};
use muster_model::view::{JobView, NewTenant, NewToken};
use report::{ActualTimes, ListedForecast, PlanAnswer};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use work::{WorkloadDocument, WorkloadRandom};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 4, slots: 3 };
const LEASE_MS: u32 = 15_000;
const TENANTS: [&str; 3] = ["red", "green", "blue"];
/// Seconds during which jobs are submitted.
const SUBMITTED_S: u64 = 360;
/// Mean time between two submissions in milliseconds, and the jobs of a burst at each minute.
const BETWEEN_MS: f64 = 1_300.0;
const BURST: u32 = 8;
const LOOK: Duration = Duration::from_secs(2);
/// One of this number of submissions is planned before.
const PLANNED: u32 = 5;
/// Time after the last submission after which unfinished jobs are left out.
const PATIENCE: Duration = Duration::from_secs(150);

/// Observations of the run.
#[derive(Default)]
struct ForecastObservations {
    looks: Vec<ListedForecast>,
    plans: Vec<PlanAnswer>,
    documents: BTreeMap<JobId, WorkloadDocument>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let is_built = own
        .ancestors()
        .any(|folder| folder.join("muster-task").is_file());
    if !is_built {
        eprintln!("forecasts: not run; the programs are not built (make bench-forecasts builds)");
        return Ok(());
    }
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let csv = std::env::args().find_map(|argument| Some(argument.strip_prefix("csv=")?.to_owned()));
    let mut cluster = TestCluster::start_leasing(NODES, LEASE_MS).await;
    let mut clients = Vec::new();
    for name in TENANTS {
        clients.push(tenant(&cluster, name).await?);
    }
    let mut seen = ForecastObservations::default();
    let began = Instant::now();
    run(
        &clients,
        Duration::from_secs(seconds.unwrap_or(SUBMITTED_S)),
        &mut seen,
    )
    .await?;
    let jobs = ended(&clients).await?;
    let came: BTreeMap<JobId, ActualTimes> = jobs
        .iter()
        .filter_map(|job| Some((job.id, come(job, *seen.documents.get(&job.id)?)?)))
        .collect();
    println!(
        "\nforecasts of {} jobs of {} submitted, {} slots, {} s",
        came.len(),
        seen.documents.len(),
        NODES.nodes * NODES.slots,
        began.elapsed().as_secs()
    );
    report::print(&came, &seen.looks, &seen.plans);
    if let Some(path) = csv {
        std::fs::write(path, report::csv(&came, &seen.looks))?;
    }
    cluster.down();
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

/// Submits jobs for the duration `submitted` and polls them until all have ended.
async fn run(
    clients: &[Client],
    submitted: Duration,
    seen: &mut ForecastObservations,
) -> anyhow::Result<()> {
    let mut dice = WorkloadRandom::new(7);
    let began = Instant::now();
    let (mut next_job, mut next_look) = (Duration::ZERO, Duration::ZERO);
    let mut next_burst = Duration::from_secs(60);
    loop {
        let now = began.elapsed();
        if now >= next_look {
            let open = look(clients, seen).await?;
            let is_over = now > submitted && (open == 0 || now > submitted + PATIENCE);
            if is_over {
                return Ok(());
            }
            next_look = now + LOOK;
        }
        if now >= next_job && now <= submitted {
            let jobs = if now >= next_burst { BURST } else { 1 };
            for _ in 0..jobs {
                submit(clients, &mut dice, seen).await?;
            }
            if jobs > 1 {
                next_burst += Duration::from_secs(60);
            }
            let wait_ms = -dice.uniform().ln() * BETWEEN_MS;
            next_job += Duration::from_millis(wait_ms as u64);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Submits one job of a random document, and sometimes asks for its plan before.
async fn submit(
    clients: &[Client],
    dice: &mut WorkloadRandom,
    seen: &mut ForecastObservations,
) -> anyhow::Result<()> {
    let tenant = dice.below(clients.len());
    let document = WorkloadDocument::thrown(tenant, dice);
    let json = document.json();
    let planned = match dice.below(PLANNED as usize) {
        0 => Some(clients[tenant].plan(&json).await?),
        _ => None,
    };
    let earlier = seen.documents.values().filter(|one| **one == document);
    let runs_before = earlier.count();
    let job = clients[tenant].submit(&json, None).await?.id;
    seen.documents.insert(job, document);
    if let Some(plan) = planned {
        seen.plans.push(PlanAnswer {
            job,
            made_at: plan.made_at,
            finish: plan.finish,
            runs_before,
        });
    }
    Ok(())
}

/// Stores the tenants' lists and returns the number of open jobs.
async fn look(clients: &[Client], seen: &mut ForecastObservations) -> anyhow::Result<usize> {
    let mut open = 0;
    for client in clients {
        let query = JobQuery {
            phases: vec![
                JobPhase::Queued,
                JobPhase::Starting,
                JobPhase::Running,
                JobPhase::Suspended,
                JobPhase::Stopping,
            ],
            limit: Some(500),
            ..JobQuery::default()
        };
        let at = OffsetDateTime::now_utc();
        for job in client.jobs(&query).await?.items {
            open += 1;
            let interval = |of: fn(&muster_model::forecast::Forecast) -> Option<Interval>| {
                job.forecast.as_ref().and_then(of)
            };
            seen.looks.push(ListedForecast {
                job: job.id,
                at,
                has_started: job.started_at.is_some(),
                start: interval(|one| one.start),
                finish: interval(|one| one.finish),
            });
        }
    }
    Ok(open)
}

async fn ended(clients: &[Client]) -> anyhow::Result<Vec<JobView>> {
    let query = JobQuery {
        phases: vec![JobPhase::Succeeded],
        ..JobQuery::default()
    };
    let mut jobs = Vec::new();
    for client in clients {
        jobs.extend(client.all_jobs(&query).await?);
    }
    Ok(jobs)
}

fn come(job: &JobView, document: WorkloadDocument) -> Option<ActualTimes> {
    Some(ActualTimes {
        document,
        started_at: job.started_at?,
        finished_at: job.finished_at?,
    })
}
