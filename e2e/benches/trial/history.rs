//! What the database and the rounds tell of a finished trial: the run in the form of a simulation,
//! and the checks that no simulation needs.

use crate::live::PlayedWorkload;
use crate::settings::TrialInputs;
use anyhow::{Context as _, ensure};
use muster_e2e::clock::unix_s;
use muster_e2e::cluster::TestCluster;
use muster_lab::run::{AllocationSpan, JobRun, RunNode, SimulationRun};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Row as _};
use std::collections::BTreeMap;
use std::path::Path;
use time::OffsetDateTime;
use uuid::Uuid;

/// A finished trial.
pub struct TrialHistory {
    pub run: SimulationRun,
    pub starts: StartTimes,
}

/// Durations in seconds of the workload.
pub struct StartTimes {
    /// From the placement of a job to the end of its first step, for every start.
    pub start_s: Vec<f64>,
    /// From the last progress of a job that has ended to the release of its last slot.
    pub release_s: Vec<f64>,
    /// From the order to stop a job to the release of its last slot.
    pub stop_s: Vec<f64>,
}

/// One slot held by one task. Times are seconds from the start of the workload.
struct SlotHold {
    job: JobId,
    node: String,
    slot: i32,
    from_s: f64,
    to_s: f64,
}

/// Reads the history. `alone` is the simulated run of the same jobs, for the bounds that depend
/// on the profiles only.
///
/// # Errors
/// If a job did not succeed, or a slot was held twice or is still held.
pub async fn read(
    cluster: &TestCluster,
    played: &PlayedWorkload,
    inputs: &TrialInputs,
    alone: &SimulationRun,
) -> anyhow::Result<TrialHistory> {
    for job in &played.jobs {
        if job.phase != JobPhase::Succeeded {
            cluster.print_history(job.id).await;
        }
        let (id, phase) = (job.id, job.phase);
        ensure!(phase == JobPhase::Succeeded, "job {id} is {phase:?}");
        ensure!(
            job.failures == 0,
            "job {id} has failed {} times",
            job.failures
        );
    }
    let mut conn = PgConnection::connect(&owner_url(&cluster.data())?).await?;
    let holds = holds(&mut conn, played.start_s).await?;
    held_once(&holds)?;
    let starts = starts(&mut conn).await?;
    let nodes = nodes(cluster).await?;
    let run = run(played, inputs, alone, &holds, &nodes);
    Ok(TrialHistory { run, starts })
}

/// Returns the URL of the database's owner in a cluster of `muster up`.
fn owner_url(data: &Path) -> anyhow::Result<String> {
    let secrets = table(&data.join("secrets.toml"))?;
    let password = secrets["postgres_password"].as_str().context("password")?;
    let state = table(&data.join("up.toml"))?;
    let port = state["postgres_port"].as_integer().context("port")?;
    Ok(format!(
        "postgres://muster_owner:{password}@127.0.0.1:{port}/muster"
    ))
}

fn table(path: &Path) -> anyhow::Result<toml::Table> {
    Ok(std::fs::read_to_string(path)?.parse()?)
}

async fn holds(conn: &mut PgConnection, start_s: f64) -> anyhow::Result<Vec<SlotHold>> {
    let rows = sqlx::query(
        "select a.job_id, n.name, a.gpu_index, a.allocated_at, a.released_at
         from allocation a join node n on n.id = a.node_id
         order by n.name, a.gpu_index, a.allocated_at, a.released_at",
    )
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| hold(row, start_s)).collect()
}

fn hold(row: &PgRow, start_s: f64) -> anyhow::Result<SlotHold> {
    let released: Option<OffsetDateTime> = row.try_get(4)?;
    let released = released.context("a slot of an ended job is still held")?;
    Ok(SlotHold {
        job: row.try_get::<Uuid, _>(0)?.into(),
        node: row.try_get(1)?,
        slot: row.try_get(2)?,
        from_s: unix_s(row.try_get(3)?) - start_s,
        to_s: unix_s(released) - start_s,
    })
}

/// Checks that no slot was held by two tasks at one time. `holds` are in the order of nodes, slots
/// and starts.
fn held_once(holds: &[SlotHold]) -> anyhow::Result<()> {
    for pair in holds.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        let is_same = (&one.node, one.slot) == (&next.node, next.slot);
        ensure!(
            !is_same || next.from_s >= one.to_s,
            "slot {} of {} is held by job {} until {:.3} s and by job {} from {:.3} s",
            one.slot,
            one.node,
            one.job,
            one.to_s,
            next.job,
            next.from_s
        );
    }
    println!("{} allocations, no slot held twice", holds.len());
    Ok(())
}

async fn starts(conn: &mut PgConnection) -> anyhow::Result<StartTimes> {
    let start_s = sqlx::query_scalar(
        "select extract(epoch from min(p.at) - min(t.placed))::float8
         from (select job_id, revision, min(created_at) as placed from task group by 1, 2) t
         join progress_sample p using (job_id, revision)
         group by t.job_id, t.revision",
    )
    .fetch_all(&mut *conn)
    .await?;
    let release_s = sqlx::query_scalar(
        "select extract(epoch from max(t.released_at) - max(p.at))::float8
         from job j join task t on t.job_id = j.id and t.revision = j.revision
         join (select job_id, max(at) as at from progress_sample group by 1) p on p.job_id = j.id
         group by j.id",
    )
    .fetch_all(&mut *conn)
    .await?;
    let stop_s = sqlx::query_scalar(
        "select extract(epoch from released.at - min(e.at))::float8
         from event e
         join lateral (
             select t.revision, max(t.released_at) as at from task t
             where t.job_id = e.job_id and t.created_at < e.at
             group by t.revision order by t.revision desc limit 1
         ) released on true
         where e.kind = 'job_stop_requested' and released.at >= e.at
         group by e.job_id, released.revision, released.at",
    )
    .fetch_all(conn)
    .await?;
    Ok(StartTimes {
        start_s,
        release_s,
        stop_s,
    })
}

fn run(
    played: &PlayedWorkload,
    inputs: &TrialInputs,
    alone: &SimulationRun,
    holds: &[SlotHold],
    nodes: &BTreeMap<String, RunNode>,
) -> SimulationRun {
    let start_s = played.start_s;
    let mut gpu_s: BTreeMap<JobId, f64> = BTreeMap::new();
    for hold in holds {
        *gpu_s.entry(hold.job).or_default() += hold.to_s - hold.from_s;
    }
    let jobs: Vec<JobRun> = played
        .jobs
        .iter()
        .zip(&inputs.workload.jobs)
        .zip(&alone.jobs)
        .map(|((job, trace), alone)| JobRun {
            name: trace.name.clone(),
            application: trace.kind.clone(),
            tenant: trace.tenant.clone(),
            submitted_s: unix_s(job.submitted_at) - start_s,
            started_s: job.started_at.map(|at| unix_s(at) - start_s),
            finished_s: job.finished_at.map(|at| unix_s(at) - start_s),
            restarts: u32::try_from(job.revision.saturating_sub(1)).unwrap_or(u32::MAX),
            gpu_s: gpu_s.get(&job.id).copied().unwrap_or(0.0),
            ..alone.clone()
        })
        .collect();
    let end_s = jobs.iter().filter_map(|job| job.finished_s);
    SimulationRun {
        policy: "live".to_owned(),
        workload: inputs.workload.name.clone(),
        nodes: nodes.values().cloned().collect(),
        end_s: end_s.fold(0.0, f64::max),
        spans: spans(played, holds, nodes),
        decision_s: Vec::new(),
        jobs,
    }
}

/// Returns the nodes by name.
async fn nodes(cluster: &TestCluster) -> anyhow::Result<BTreeMap<String, RunNode>> {
    let nodes = cluster.client().nodes().await?;
    let nodes = nodes.into_iter().map(|node| {
        let kind = node.gpus.first().map(|gpu| gpu.model.clone());
        let run = RunNode {
            name: node.name.clone(),
            kind: kind.unwrap_or_default(),
            gpus: u32::try_from(node.gpus.len())?,
        };
        Ok((node.name, run))
    });
    nodes.collect()
}

/// Returns the allocations of single slots, ordered by their ends.
fn spans(
    played: &PlayedWorkload,
    holds: &[SlotHold],
    nodes: &BTreeMap<String, RunNode>,
) -> Vec<AllocationSpan> {
    let jobs: BTreeMap<JobId, u32> = played.jobs.iter().map(|job| job.id).zip(0..).collect();
    let numbers: BTreeMap<&String, u32> = nodes.keys().zip(0..).collect();
    let mut spans: Vec<AllocationSpan> = holds
        .iter()
        .filter_map(|hold| {
            Some(AllocationSpan {
                job: *jobs.get(&hold.job)?,
                node: numbers[&hold.node],
                gpus: 1,
                from_s: hold.from_s,
                to_s: hold.to_s,
            })
        })
        .collect();
    spans.sort_by(|one, other| one.to_s.total_cmp(&other.to_s));
    spans
}
