//! Loads the snapshot of a round with a few statements, each for the jobs that have changed since
//! an earlier round.
//!
//! Every statement starts from the ids of these jobs and finds further rows by key. So its cost
//! depends only on their number, even if the statistics of Postgres are stale.

use super::documents::Documents;
use super::known_jobs::{KnownJob, KnownJobs};
use super::window::{self, QueueWindow, Queues};
// The text of a statement names these two types by their aliases.
use super::{JobFailureReport as FailedReport, JobFinishReport as Finished};
use super::{Loaded, LoadedJob, MeasuredSpeed};
use crate::error::StoreError;
use crate::family::{self, FamilyCache, RestartTotals};
use crate::fault;
use crate::int_convert::{unsigned, unsigned32};
use crate::job::intent;
use crate::node;
use crate::priority_class;
use crate::service::{self, ServiceHistory};
use crate::task::role;
use muster_model::actor::Actor;
use muster_model::id::{JobId, NodeId, StudyId, TaskId};
use muster_model::idle::{IdleFinding, Idleness};
use muster_model::job::{Job, JobState};
use muster_model::node::{Capacity, Node, Notice};
use muster_model::pace::{Pace, Suspect};
use muster_model::packing::Measured;
use muster_model::progress::{Filled, Sample};
use muster_model::spec::{BatchRule, same_place};
use muster_model::task::{Task, TaskState};
use muster_model::tenant::{Tenant, TenantPods, TenantPreemption};
use muster_model::wait::Waiting;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Age up to which released GPUs are part of the snapshot.
const FREED: Duration = Duration::minutes(1);

/// Loads snapshots of rounds, and caches what does not change between rounds.
#[derive(Debug)]
pub struct Loader {
    most_queued: u32,
    queues: Queues,
    documents: Documents,
    jobs: KnownJobs,
    families: FamilyCache,
    history: ServiceHistory,
}

impl Loader {
    /// Returns a loader. It loads at most `most_queued` jobs of the queue, in addition to all jobs
    /// that hold something.
    #[must_use]
    pub fn new(most_queued: u32) -> Self {
        Self {
            most_queued,
            queues: Queues::default(),
            documents: Documents::default(),
            jobs: KnownJobs::default(),
            families: FamilyCache::default(),
            history: ServiceHistory::default(),
        }
    }

    /// Loads a snapshot. The transaction should be one of `pool::begin_snapshot`, so that all
    /// statements see the same state.
    ///
    /// # Errors
    /// [`StoreError::Statement`].
    pub async fn load(
        &mut self,
        conn: &mut PgConnection,
        now: OffsetDateTime,
    ) -> Result<Loaded, StoreError> {
        let nodes = nodes(conn).await?;
        let tenants = tenants(conn).await?;
        let QueueWindow {
            ids,
            left_out,
            has_more,
        } = window::choose(conn, &mut self.queues, self.most_queued, now).await?;
        let versions = self.jobs.outdated(conn, &ids, now).await?;
        self.documents
            .keep(&ids.iter().copied().map(JobId::from).collect());
        if !versions.is_empty() {
            let changed: Vec<Uuid> = versions.keys().map(|id| id.0).collect();
            let read = read(conn, &changed, &mut self.documents, now).await?;
            self.jobs.add(read, versions, now);
        }
        let jobs = self.jobs.at(now, &guests(conn).await?);
        let wanted = jobs
            .iter()
            .filter_map(|loaded| Some((loaded.job.tenant_id, loaded.family.clone()?)));
        let wanted = wanted.collect();
        let families = self
            .families
            .load(conn, wanted, has_several_kinds(&nodes), now)
            .await?;
        let faults = fault::load(conn, now).await?;
        let freed = freed(conn, now).await?;
        Ok(Loaded {
            now,
            faults,
            freed,
            jobs,
            left_out,
            has_more,
            nodes,
            tenants,
            families,
            history_gpu_s: self.history.load(conn, now).await?,
            priority_classes: priority_class::list(conn).await?,
        })
    }
}

/// Reads jobs with all that a round needs of them.
async fn read(
    conn: &mut PgConnection,
    ids: &[Uuid],
    documents: &mut Documents,
    now: OffsetDateTime,
) -> Result<BTreeMap<JobId, KnownJob>, StoreError> {
    let mut jobs = jobs(conn, ids, documents).await?;
    tasks(conn, ids, &mut jobs).await?;
    speeds(conn, ids, &mut jobs).await?;
    placed_speeds(conn, ids, &mut jobs, now).await?;
    epoch_losses(conn, ids, &mut jobs).await?;
    let mut held = service::held(conn, ids).await?;
    let jobs = jobs.into_iter().map(|(id, loaded)| {
        let held = held.remove(&id).unwrap_or_default();
        (id, KnownJob { loaded, held })
    });
    Ok(jobs.collect())
}

fn has_several_kinds(nodes: &[Node]) -> bool {
    let mut kinds = nodes.iter().filter_map(|node| {
        let gpu = node.gpus().into_iter().next()?;
        Some(gpu.model)
    });
    let first = kinds.next();
    first.is_some_and(|first| kinds.any(|kind| kind != first))
}

async fn nodes(conn: &mut PgConnection) -> Result<Vec<Node>, StoreError> {
    let rows = sqlx::query_as!(
        node::NodeSqlRow,
        r#"select id, name, state, drained, excluded_at, excluded_why, excluded_by_itself, notice as "notice: Json<Notice>", capacity as "capacity: Json<Capacity>", generation, last_seen_at, speed_percent, speed_jobs
           from node where removed_at is null order by id"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Node::from).collect())
}

/// Returns the GPUs that were released recently, by node, with the time of their last release. GPUs
/// that were released for another job or another placement are omitted.
async fn freed(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<BTreeMap<NodeId, Vec<(u32, OffsetDateTime)>>, StoreError> {
    let rows = sqlx::query!(
        r#"select a.node_id, a.gpu_index, a.released_at as "at!", j.state as "state: Json<JobState>", j.not_before
           from allocation a join job j on j.id = a.job_id
           where a.released_at > $1
           order by a.node_id, a.gpu_index, a.released_at"#,
        now - FREED
    )
    .fetch_all(conn)
    .await?;
    let mut freed: BTreeMap<NodeId, Vec<(u32, OffsetDateTime)>> = BTreeMap::new();
    for row in rows {
        let backs_off = row.not_before.is_some_and(|at| at > now);
        if !leaves_idle_gpus(&row.state.0, backs_off) {
            continue;
        }
        let (gpu, of_node) = (
            unsigned32(row.gpu_index),
            freed.entry(row.node_id.into()).or_default(),
        );
        match of_node.last_mut() {
            Some(last) if last.0 == gpu => last.1 = row.at,
            _ => of_node.push((gpu, row.at)),
        }
    }
    Ok(freed)
}

/// Whether a job in this state has released GPUs that no decision gives to another job. A running
/// job has shrunk for another one.
fn leaves_idle_gpus(state: &JobState, backs_off: bool) -> bool {
    match state {
        JobState::Starting | JobState::Running => false,
        JobState::Queued => backs_off,
        JobState::Stopping { then } => !then.is_for_others(),
        JobState::Suspended
        | JobState::Paused
        | JobState::Succeeded
        | JobState::Failed { .. }
        | JobState::Cancelled => true,
    }
}

async fn tenants(conn: &mut PgConnection) -> Result<Vec<Tenant>, StoreError> {
    let rows = sqlx::query!(
        r#"select id, name, gpu_quota, weight, pods as "pods: Json<TenantPods>", preemption as "preemption: Json<TenantPreemption>", shares_families, interactive from tenant order by id"#
    )
    .fetch_all(conn)
    .await?;
    let tenants = rows.into_iter().map(|row| Tenant {
        id: row.id.into(),
        name: row.name,
        gpu_quota: row.gpu_quota.map(unsigned32),
        weight: row.weight,
        pods: row.pods.0,
        preemption: row.preemption.0,
        shares_families: row.shares_families,
        interactive: row.interactive,
    });
    Ok(tenants.collect())
}

async fn jobs(
    conn: &mut PgConnection,
    ids: &[Uuid],
    documents: &mut Documents,
) -> Result<BTreeMap<JobId, LoadedJob>, StoreError> {
    let rows = sqlx::query!(
        r#"select j.id, j.tenant_id, j.submitted_by, j.edits, j.intent,
                  j.state as "state: Json<JobState>", j.revision, j.failures, j.put_off, j.waiting as "waiting: Json<Waiting>",
                  j.not_before, j.submitted_at, j.started_at, j.finished_at, j.placed_at, j.turned_at, j.lent, j.running_since, j.trained_s,
                  j.stops, j.stop_s, j.starts, j.start_s, j.resumed, j.lost_steps, j.lost_s, j.held_gpu_s, j.demoted_at, j.reported_step, j.reported_at, j.answer_ms,
                  j.finished as "finished: Json<Finished>", j.failed as "failed: Json<FailedReport>", j.unfit_nodes,
                  j.latest as "latest: Json<Filled<Sample>>", j.revision_samples, newest.step as "resume_step?",
                  j.origin_step,
                  t.study_id as "study_id?", t.expected_gain as "expected_gain?",
                  j.verdicts, j.suspects as "suspects: Json<Vec<Suspect>>", j.idle as "idle: Json<IdleFinding>", j.measured as "measured: Json<Measured>",
                  j.intent_by as "intent_by: Json<Actor>", j.intent_at
           from unnest($1::uuid[]) as given (id)
           join job j on j.id = given.id
           left join lateral (select study_id, expected_gain from study_trial where job_id = j.id) t on true
           cross join lateral (select max(step) as step from checkpoint where job_id = j.id and retained) newest"#,
        ids
    )
    .fetch_all(&mut *conn)
    .await?;
    let versions = rows.iter().map(|row| {
        let version = (unsigned(row.edits), row.turned_at);
        (JobId::from(row.id), version)
    });
    documents.refresh(conn, versions.collect()).await?;
    let jobs = rows.into_iter().map(|row| {
        let document = documents.get(row.id.into());
        let resume_step = row.resume_step.map(unsigned);
        // Until the job has trained, it stands at the position of its parent's checkpoint,
        // converted to its own steps.
        let parent = document.parent_steps_per_epoch;
        let parent = parent.filter(|_| row.latest.is_none());
        let begins = parent.zip(row.origin_step).and_then(|(theirs, step)| {
            same_place(unsigned(step), theirs, document.spec.steps_per_epoch())
        });
        let job = Job {
            id: row.id.into(),
            tenant_id: row.tenant_id.into(),
            submitted_by: row.submitted_by.into(),
            spec: document.spec.clone(),
            intent: intent(&row.intent),
            state: row.state.0,
            revision: unsigned(row.revision),
            failures: unsigned32(row.failures),
            waiting: row.waiting.map(|waiting| waiting.0),
            not_before: row.not_before,
            submitted_at: row.submitted_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        };
        let loaded = LoadedJob {
            tasks: Vec::new(),
            leaving: Vec::new(),
            finished: row.finished.map(|finished| finished.0),
            failed: row.failed.map(|failed| failed.0),
            unfit: row.unfit_nodes.into_iter().map(NodeId).collect(),
            speeds: Vec::new(),
            placed_speeds: Vec::new(),
            update_times: Vec::new(),
            family: document.family.clone(),
            latest: row.latest.map(|latest| latest.0.0),
            has_sampled: row.revision_samples > 0,
            epoch_losses: Vec::new(),
            resume_step: resume_step.or(begins),
            paces: BTreeMap::new(),
            idle_tasks: BTreeMap::new(),
            idle: row.idle.map(|idle| idle.0),
            guests: BTreeSet::new(),
            measured: row
                .measured
                .map(|known| known.0.in_revision(unsigned(row.revision))),
            verdicts: unsigned32(row.verdicts),
            put_off: unsigned32(row.put_off),
            suspects: row.suspects.0,
            placed_at: row.placed_at,
            asked: row.intent_at.map(|at| (row.intent_by.map(|by| by.0), at)),
            turned_at: row.turned_at,
            lent: row.lent,
            running_since: row.running_since,
            trial: row.study_id.map(StudyId::from).zip(row.expected_gain),
            trained_s: row.trained_s,
            attained_gpu_s: row.held_gpu_s,
            demoted_at: row.demoted_at,
            lost_s: row.lost_s,
            reported: row.reported_step.map(unsigned).zip(row.reported_at),
            answer_ms: row.answer_ms.map(unsigned),
            restarts: RestartTotals {
                stops: unsigned32(row.stops),
                stop_s: row.stop_s,
                starts: unsigned32(row.starts),
                start_s: row.start_s,
                resumed: unsigned32(row.resumed),
                lost_steps: row.lost_steps,
            },
            job,
        };
        (loaded.job.id, loaded)
    });
    Ok(jobs.collect())
}

async fn tasks(
    conn: &mut PgConnection,
    ids: &[Uuid],
    jobs: &mut BTreeMap<JobId, LoadedJob>,
) -> Result<(), StoreError> {
    let rows = sqlx::query!(
        r#"select t.id, t.job_id, t.revision, t.role, t.role_index, t.node_id, t.gpus, t.state as "state: Json<TaskState>",
                  t.address, t.pace as "pace: Json<Pace>", t.idle as "idle: Json<Idleness>"
           from unnest($1::uuid[]) as given (id)
           join job j on j.id = given.id
           join task t on t.job_id = j.id and (t.revision = j.revision or t.released_at is null)
           order by t.job_id, t.role, t.role_index"#,
        ids
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let Some(loaded) = jobs.get_mut(&JobId::from(row.job_id)) else {
            continue;
        };
        let task = Task {
            id: row.id.into(),
            job_id: row.job_id.into(),
            revision: unsigned(row.revision),
            role: role(&row.role, row.role_index),
            node_id: row.node_id.into(),
            gpus: row.gpus.into_iter().map(unsigned32).collect(),
            state: row.state.0,
            address: row.address,
        };
        if let Some(pace) = row.pace {
            loaded.paces.insert(task.id, pace.0);
        }
        if let Some(idle) = row.idle {
            loaded.idle_tasks.insert(task.id, idle.0);
        }
        if task.revision == loaded.job.revision {
            loaded.tasks.push(task);
        } else {
            loaded.leaving.push(task);
        }
    }
    Ok(())
}

/// Returns the tasks that are guests on a packed GPU. A guest becomes the holder when its host
/// ends, without a change of its task.
async fn guests(conn: &mut PgConnection) -> Result<BTreeSet<TaskId>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select distinct task_id from allocation where released_at is null and lane > 0"
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(TaskId).collect())
}

async fn speeds(
    conn: &mut PgConnection,
    ids: &[Uuid],
    jobs: &mut BTreeMap<JobId, LoadedJob>,
) -> Result<(), StoreError> {
    let rows = sqlx::query!(
        "select s.job_id, s.workers, s.ps_shards, s.steps_per_s, s.samples
         from unnest($1::uuid[]) as given (id)
         join speed s on s.job_id = given.id
         order by s.job_id, s.workers, s.ps_shards",
        ids
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let Some(loaded) = jobs.get_mut(&JobId::from(row.job_id)) else {
            continue;
        };
        loaded.speeds.push(MeasuredSpeed {
            workers: unsigned32(row.workers),
            ps_shards: unsigned32(row.ps_shards),
            steps_per_s: row.steps_per_s,
            samples: unsigned(row.samples),
        });
    }
    Ok(())
}

fn chooses_batch(loaded: &LoadedJob) -> bool {
    let engine = loaded.job.spec.engine.as_ref();
    engine.is_some_and(|engine| engine.batch_rule == BatchRule::Goodput)
}

async fn placed_speeds(
    conn: &mut PgConnection,
    ids: &[Uuid],
    jobs: &mut BTreeMap<JobId, LoadedJob>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    for (job, speed) in family::of_jobs(conn, ids, now).await? {
        if let Some(loaded) = jobs.get_mut(&job) {
            loaded.placed_speeds.push(speed);
        }
    }
    let choosing: Vec<Uuid> = jobs
        .values()
        .filter(|loaded| chooses_batch(loaded))
        .map(|loaded| loaded.job.id.0)
        .collect();
    if choosing.is_empty() {
        return Ok(());
    }
    for (job, time) in family::times_of_jobs(conn, &choosing, now).await? {
        if let Some(loaded) = jobs.get_mut(&job) {
            loaded.update_times.push(time);
        }
    }
    Ok(())
}

async fn epoch_losses(
    conn: &mut PgConnection,
    ids: &[Uuid],
    jobs: &mut BTreeMap<JobId, LoadedJob>,
) -> Result<(), StoreError> {
    let rows = sqlx::query!(
        r#"select given.id as "job_id!", e.epoch as "epoch!", e.loss as "loss!"
           from unnest($1::uuid[]) as given (id)
           cross join lateral (
               select epoch, loss_sum / samples as loss from epoch_loss where job_id = given.id order by epoch desc limit 128
           ) e
           order by given.id, e.epoch"#,
        ids
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let Some(loaded) = jobs.get_mut(&JobId::from(row.job_id)) else {
            continue;
        };
        loaded.epoch_losses.push((unsigned(row.epoch), row.loss));
    }
    Ok(())
}
