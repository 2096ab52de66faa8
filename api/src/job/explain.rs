//! `GET /jobs/{id}/explain`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::node::{GpuClass, NodeState};
use muster_model::plan::PredictedBatch;
use muster_model::spec::{BatchRule, JobSpec};
use muster_model::view::{
    BatchView, BlockingJob, BlockingNode, BlockingQuota, DecidedView, ExplainView, InTheWay,
    NodeObstacle, RunnerUpView,
};
use muster_model::wait::Wait;
use muster_store::StoreError;
use muster_store::job::{self, JobRow};
use muster_store::node::{self, NodeRow};
use muster_store::pool::Transaction;
use muster_store::progress;
use muster_store::round::{self, JobRoundReport};
use serde::Deserialize;
use std::cmp::Reverse;
use time::OffsetDateTime;

const NODES_SHOWN: usize = 16;

/// The part of a round's report about a job that is shown. Other releases may write more or less.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobReportEntry {
    why: String,
    workers: u32,
    ps_shards: u32,
    next_worker_gain: Option<f64>,
    speed: SpeedEntry,
    steps_left: Option<f64>,
    steps_left_between: Option<[f64; 2]>,
    time_left_s: Option<f64>,
    /// Step of the job in that round.
    step: Option<u64>,
    /// Basis of the remaining steps: a name of the core's `Length`.
    length: Option<String>,
    batch: Option<PredictedBatch>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpeedEntry {
    points: u32,
    mean_relative_error: Option<f64>,
    steps_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct RunnerUpEntry {
    job: JobId,
    gain: f64,
}

/// Explain a job's size, or why it waits
///
/// For a waiting job: the nodes, jobs and quota that keep it from starting, and the smallest change
/// that would start it now. For a running job: the gain of one additional worker, compared with
/// that of the job that would get the next GPU.
#[utoipa::path(
    get, path = "/jobs/{id}/explain", operation_id = "explainJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The explanation", body = ExplainView)),
)]
pub async fn explain(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<Json<ExplainView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    let spec = row.job.spec.clone();
    let decided = match round::said_of(&mut tx, id).await? {
        Some(reported) if !row.job.state.phase().is_terminal() => {
            Some(decided(&mut tx, &row, reported).await?)
        }
        _ => None,
    };
    let view = wire::job(row, &caller.tenant_name);
    let why = view.waiting.as_ref().map(|waiting| &waiting.detail.why);
    let in_the_way = match why {
        Some(why) => in_the_way(&mut tx, &spec, why).await?,
        None => InTheWay::default(),
    };
    Ok(Json(ExplainView {
        job_id: id,
        name: view.name,
        phase: view.phase,
        decided,
        waiting: view.waiting,
        in_the_way,
    }))
}

async fn decided(
    tx: &mut Transaction,
    row: &JobRow,
    reported: JobRoundReport,
) -> Result<DecidedView, ApiError> {
    let report =
        JobReportEntry::deserialize(reported.job).map_err(|error| ApiError::internal(&error))?;
    let speeds = progress::speeds_of(tx, row.job.id).await?;
    let now = CurrentEstimates::of(row, &report, reported.at, &speeds);
    let runner_up = match reported.runner_up.map(RunnerUpEntry::deserialize) {
        Some(Ok(other)) => Some(RunnerUpView {
            job_id: other.job,
            name: name(tx, other.job).await?,
            gain: other.gain,
        }),
        _ => None,
    };
    Ok(DecidedView {
        round: reported.round,
        at: reported.at,
        why: report.why,
        workers: report.workers,
        ps_shards: report.ps_shards,
        next_worker_gain: report.next_worker_gain,
        runner_up,
        steps_per_s: now.steps_per_s,
        batch: report.batch.map(BatchView::from),
        measured_sizes: now.measured_sizes,
        speed_error: report.speed.mean_relative_error,
        steps_left: now.steps_left,
        steps_left_between: now.steps_left_between,
        time_left_s: now.time_left_s,
    })
}

/// Progress of a job: the estimates of the newest stored round, updated by later reports. Rounds
/// without decisions are not stored, so the round of an undisturbed job may be old.
#[derive(Debug, PartialEq)]
struct CurrentEstimates {
    steps_per_s: Option<f64>,
    measured_sizes: u32,
    steps_left: Option<f64>,
    steps_left_between: Option<[f64; 2]>,
    time_left_s: Option<f64>,
}

impl CurrentEstimates {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn of(
        row: &JobRow,
        report: &JobReportEntry,
        decided_at: OffsetDateTime,
        speeds: &[((u32, u32), f64)],
    ) -> Self {
        let size = (row.workers, row.ps_shards);
        let grows = row
            .job
            .spec
            .engine
            .as_ref()
            .is_some_and(|engine| engine.batch_rule == BatchRule::AdaScale);
        let newest = row
            .latest
            .as_ref()
            .filter(|_| row.sample_at.is_some_and(|at| at > decided_at));
        // If the batch grows, measured speeds are updates per second, and an update is worth more
        // than a step.
        let here = speeds.iter().find(|(at, _)| *at == size && !grows);
        let told = newest
            .filter(|sample| grows && (sample.workers, sample.ps_shards) == size)
            .map(|sample| sample.steps_per_s);
        let steps_per_s = here
            .map(|(_, speed)| *speed)
            .or(told)
            .or(report.speed.steps_per_s)
            .filter(|speed| *speed > 0.0);
        let done = match (newest, report.step) {
            (Some(sample), Some(then)) => sample.step.saturating_sub(then) as f64,
            _ => 0.0,
        };
        let is_known = !matches!(report.length.as_deref(), Some("unknown" | "outlived"));
        let left = |steps: f64| (steps - done).max(0.0);
        let steps_left = report.steps_left.filter(|_| is_known).map(left);
        let between = report.steps_left_between.filter(|_| is_known);
        let is_same = size == (report.workers, report.ps_shards);
        Self {
            steps_per_s,
            measured_sizes: report
                .speed
                .points
                .max(u32::try_from(speeds.len()).unwrap_or(u32::MAX)),
            steps_left,
            steps_left_between: between.map(|ends| ends.map(left)),
            time_left_s: match steps_left.zip(steps_per_s) {
                Some((steps, speed)) if is_same || row.workers == 0 => Some(steps / speed),
                _ => report.time_left_s.filter(|_| is_known),
            },
        }
    }
}

/// Returns the name of a job of the tenant in scope; `None` for jobs of other tenants.
async fn name(tx: &mut Transaction, id: JobId) -> Result<Option<String>, StoreError> {
    let row = job::get(tx, id).await?;
    Ok(row.map(|row| row.job.spec.name))
}

async fn in_the_way(
    tx: &mut Transaction,
    spec: &JobSpec,
    why: &Wait,
) -> Result<InTheWay, ApiError> {
    let nodes = node::list(tx).await?;
    let ids: &[JobId] = match why {
        Wait::WaitingForGpus { held_by, .. } => held_by,
        Wait::WaitingForPreemptedWorkloads { jobs } => jobs,
        _ => &[],
    };
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(BlockingJob {
            id: *id,
            name: name(tx, *id).await?,
            held_gpus: held_gpus(&nodes, *id),
        });
    }
    let quota = match *why {
        Wait::WaitingForQuota {
            needed_gpus,
            used_gpus,
            quota_gpus,
        } => Some(BlockingQuota {
            needed_gpus,
            used_gpus,
            gpu_quota: quota_gpus,
        }),
        Wait::ExceedsMaxQuota {
            needed_gpus,
            quota_gpus,
        } => Some(BlockingQuota {
            needed_gpus,
            used_gpus: 0,
            gpu_quota: quota_gpus,
        }),
        _ => None,
    };
    let wants_room = matches!(
        why,
        Wait::WaitingForGpus { .. }
            | Wait::NoMatchingNodes { .. }
            | Wait::ExceedsCluster { .. }
            | Wait::WaitingForCpuAndMemory { .. }
            | Wait::TopologyPlacementFailed { .. }
    );
    let nodes = if wants_room {
        let is_kept = matches!(why, Wait::WaitingForGpus { kept_gpus, .. } if *kept_gpus > 0);
        obstacles(nodes, spec, is_kept)
    } else {
        Vec::new()
    };
    Ok(InTheWay { jobs, nodes, quota })
}

fn held_gpus(nodes: &[NodeRow], job: JobId) -> u32 {
    let held = nodes.iter().flat_map(|row| &row.held);
    u32::try_from(held.filter(|held| held.job_id == job).count()).unwrap_or(u32::MAX)
}

fn obstacles(nodes: Vec<NodeRow>, spec: &JobSpec, is_kept: bool) -> Vec<BlockingNode> {
    let (worker, needs_pods) = (spec.resources.worker.demand(), spec.pod.needs_pods());
    let gpus_per_worker = worker.gpus;
    let constraints = spec.resources.worker.node_constraints();
    let classes = nodes.iter().filter_map(|row| row.node.gpu_class());
    let best = classes.max().unwrap_or(GpuClass::CpuSlot);
    let mut obstacles: Vec<BlockingNode> = nodes
        .into_iter()
        .map(|row| {
            let gpus = count(row.node.capacity.gpus.len());
            let free_gpus = {
                let held = row.held.iter().filter(|held| !held.is_guest);
                gpus.saturating_sub(count(held.count()))
            };
            let why = if row.node.state != NodeState::Up {
                NodeObstacle::Down
            } else if row.node.is_to_be_empty()
                || row.node.excluded.is_some()
                || row.node.is_cordoned()
            {
                NodeObstacle::Drained
            } else if row.node.unmet(&constraints, best).is_some() {
                NodeObstacle::Forbidden
            } else if needs_pods && !row.node.capacity.has_pods() {
                NodeObstacle::NoPods
            } else if spec.pod.image.is_some() && !row.node.capacity.runs_images() {
                NodeObstacle::NoImages
            } else if gpus < gpus_per_worker
                || row.node.capacity.memory_bytes < worker.memory_bytes
                || row.node.capacity.cpu_milli < worker.cpu_milli
            {
                NodeObstacle::TooSmall
            } else if gpus_per_worker == 0 {
                NodeObstacle::NoCpuOrMemory
            } else if free_gpus < gpus_per_worker {
                NodeObstacle::Busy
            } else if is_kept {
                NodeObstacle::Kept
            } else {
                NodeObstacle::NotEnough
            };
            BlockingNode {
                name: row.node.name,
                gpus,
                free_gpus,
                why,
            }
        })
        .collect();
    obstacles.sort_by_key(|node| (Reverse(node.free_gpus), node.why));
    obstacles.truncate(NODES_SHOWN);
    obstacles
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
