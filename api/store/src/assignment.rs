//! Assignment of a node: all its unreleased tasks, with the addresses of their jobs' other tasks.

use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::int_convert::{unsigned, unsigned32};
use crate::notify::{self, NotifyChannel};
use crate::origin;
use crate::plan::JobFailureReport;
use crate::task::role;
use muster_model::assignment::{Peer, Peers, TaskLaunch};
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId};
use muster_model::spec::JobSpec;
use muster_model::study::{JobMetric, Objective};
use muster_model::task::Role;
use muster_model::tenant::TenantPreemption;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use time::OffsetDateTime;
use uuid::Uuid;

/// Complete desired task set of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeAssignment {
    pub generation: u64,
    pub tasks: Vec<TaskAssignment>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TaskAssignment {
    /// Constant over the life of the task.
    pub launch: TaskLaunch,
    /// Task set of the task's job.
    pub peers: Arc<Peers>,
    /// Whether the task is to stop.
    pub stop: bool,
    /// Whether its program is first asked for a checkpoint.
    pub asks: bool,
}

/// Loads the assignment of a node. `grace_ms` is the time from SIGTERM to SIGKILL of a task.
///
/// A shard that a resize in place has ordered to leave is not stopped while its job runs. It exits
/// after the other shards have taken over its pieces. A shard that takes over may start later than
/// any grace period.
///
/// The generation is read first. If the set changes in between, the newer set is sent under the
/// older generation and then again under its own.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn load(
    conn: &mut PgConnection,
    node: NodeId,
    grace_ms: u64,
) -> Result<NodeAssignment, StoreError> {
    let generation = crate::node::generation(conn, node).await?;
    let rows = sqlx::query!(
        r#"select t.id, t.tenant_id, t.job_id, t.revision, t.role, t.role_index, t.gpus, t.phase,
                  j.spec as "spec: Json<JobSpec>", j.secret as "secret!", j.trained_s, j.revision as job_revision, j.phase as job_phase, j.asked_at is not null and exists (select from task chief where chief.job_id = j.id and chief.revision = j.revision
                      and chief.role = 'worker' and chief.role_index = 0 and chief.released_at is null) as "is_asked!", newest.step as "resume_step?",
                  case when j.spec -> 'command' is not null then s.document -> 'search' -> 'objectives' end as "objectives: Json<Vec<Objective>>",
                  case when j.spec -> 'command' is not null and s.document -> 'search' -> 'stopper' ->> 'kind' = 'pbt'
                       then (r.outcome ->> 'step')::bigint end as finished_rung,
                  o.number as tenant_number, o.pods ->> 'service_account' as service_account, o.preemption as "caps: Json<TenantPreemption>"
           from task t
           join job j on j.id = t.job_id
           join tenant o on o.id = t.tenant_id
           left join study s on s.id = j.study_id
           left join study_trial r on r.study_id = j.study_id and r.number = j.trial
           cross join lateral (select max(step) as step from checkpoint where job_id = j.id and retained) newest
           where t.node_id = $1 and t.released_at is null
           order by t.id"#,
        node.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs: Vec<Uuid> = rows.iter().map(|row| row.job_id).collect();
    let peers = peers(conn, &jobs).await?;
    let tasks = rows.into_iter().map(|row| {
        let peers = peers.get(&row.job_id).map(Arc::clone).unwrap_or_default();
        let mut spec = row.spec.0;
        spec.preemption = row.caps.0.cap(&spec);
        let role = role(&row.role, row.role_index);
        let objectives = row.objectives.map(|objectives| objectives.0);
        let (cpu_milli, memory_bytes) = match role {
            // A worker with GPUs gets its share of the node, which the executor knows.
            Role::Worker { .. } if spec.resources.worker.gpus > 0 => (
                spec.resources.worker.cpu_milli.unwrap_or(0),
                spec.resources.worker.memory_bytes.unwrap_or(0),
            ),
            Role::Worker { .. } => {
                let demand = spec.resources.worker.demand();
                (demand.cpu_milli, demand.memory_bytes)
            }
            Role::PsShard { .. } => (
                spec.resources.ps_shard.cpu_milli,
                spec.resources.ps_shard.memory_bytes,
            ),
        };
        let is_of_before = row.revision < row.job_revision && row.job_phase == "running";
        let hands_over = is_of_before && matches!(role, Role::PsShard { .. });
        let stop = matches!(row.phase.as_str(), "stopping" | "ending") && !hands_over;
        TaskAssignment {
            launch: TaskLaunch {
                task_id: row.id.into(),
                job_id: row.job_id.into(),
                tenant_id: row.tenant_id.into(),
                tenant_number: Some(unsigned32(row.tenant_number)),
                revision: unsigned(row.revision),
                role,
                workers: count(&peers.workers),
                ps_shards: count(&peers.ps_shards),
                gpus: row.gpus.into_iter().map(unsigned32).collect(),
                cpu_milli,
                memory_bytes,
                secret: row.secret,
                spec,
                resume_step: row.resume_step.map(unsigned),
                trained_s: row.trained_s,
                grace_ms,
                service_account: row.service_account,
                objectives: logged(objectives.unwrap_or_default()),
                finished_rung: row.finished_rung.map(unsigned),
            },
            peers,
            stop,
            asks: stop && row.is_asked,
        }
    });
    Ok(NodeAssignment {
        generation,
        tasks: tasks.collect(),
    })
}

/// Returns the objectives that only the trial's program logs.
fn logged(objectives: Vec<Objective>) -> BTreeSet<String> {
    let names = objectives.into_iter().map(|one| one.metric);
    names
        .filter(|name| JobMetric::named(name).is_none())
        .collect()
}

fn count(peers: &[Peer]) -> u32 {
    u32::try_from(peers.len()).expect("at most 1024")
}

/// Returns the task set of each job's present revision.
async fn peers(
    conn: &mut PgConnection,
    jobs: &[Uuid],
) -> Result<BTreeMap<Uuid, Arc<Peers>>, StoreError> {
    let rows = sqlx::query!(
        "select t.job_id, t.id, t.revision, t.role, t.node_id, t.address, j.turn
         from task t join job j on j.id = t.job_id and j.revision = t.revision
         where t.job_id = any($1) order by t.job_id, t.role, t.role_index",
        jobs
    )
    .fetch_all(&mut *conn)
    .await?;
    let spared = origin::spared(conn, jobs).await?;
    let mut jobs: BTreeMap<Uuid, Peers> = BTreeMap::new();
    for row in rows {
        let peers = jobs.entry(row.job_id).or_insert_with(|| Peers {
            spared: spared.get(&row.job_id).cloned().unwrap_or_default(),
            ..Peers::default()
        });
        peers.revision = unsigned(row.revision);
        peers.turn = unsigned(row.turn);
        let role = if row.role == "worker" {
            &mut peers.workers
        } else {
            &mut peers.ps_shards
        };
        role.push(Peer {
            task_id: row.id.into(),
            node_id: row.node_id.into(),
            address: row.address,
        });
    }
    let jobs = jobs.into_iter();
    Ok(jobs.map(|(id, peers)| (id, Arc::new(peers))).collect())
}

/// Marks a job as failed for good because it cannot be sent to a node. The next round stops it.
/// Returns `false` if the job had already failed for good or does not hold tasks.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn cannot_be_sent(
    conn: &mut PgConnection,
    job: JobId,
    why: &str,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let failed = JobFailureReport {
        message: why.to_owned(),
        retryable: false,
        lacks: None,
    };
    let tenant = sqlx::query_scalar!(
        "update job set failed = $2
         where id = $1 and phase in ('starting', 'running', 'suspended') and (failed is null or (failed -> 'retryable')::boolean)
         returning tenant_id",
        job.0,
        Json(&failed) as _
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(tenant) = tenant else {
        return Ok(false);
    };
    let message = format!("cannot be sent to its node: {why}");
    let event = of_job(now, tenant.into(), job, Event::Note { message });
    event::append(conn, &[event]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    Ok(true)
}
