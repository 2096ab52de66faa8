//! `POST /jobs/{id}/suspend`.

use super::intent::ConditionalIntent;
use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::JobView;
use muster_store::job;

/// Suspend a running job
///
/// Its workers stop at the end of their step, keep their processes and memory, and release their
/// GPUs until the job is continued. All processes of a `command` are stopped as by SIGSTOP.
///
/// Refused for a job that is not running, and for a job whose workers do not wait for each other in
/// every step. Also refused if the tasks are pods, because Kubernetes does not release the
/// resources of a pod. A repeated request changes nothing.
#[utoipa::path(
    post, path = "/jobs/{id}/suspend", operation_id = "suspendJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.suspend", skip_all, fields(job.id = %id))]
pub async fn suspend(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id).await?;
    let row = row.ok_or_else(|| ApiError::no_job(id))?;
    if row.job.spec.resources.worker.gpus == 0 {
        let detail = "the job uses no GPUs (resources.worker.gpus is 0), so that a suspended job would free none; pause works for every job";
        return Err(ApiError::new(ProblemKind::WrongPhase, detail.to_owned()));
    }
    if !row.job.spec.suspends() {
        let detail = "the job's workers do not all wait for each other in every step, so that they cannot stand still at one: suspend needs \
                      a command, or exchange.consistency bsp without backup workers and no gossip; pause works for every job";
        return Err(ApiError::new(ProblemKind::WrongPhase, detail.to_owned()));
    }
    if job::is_in_pods(&mut tx, id).await? {
        let detail = "the job's tasks are pods, which hold their GPUs, CPU and memory for as long as they are there, so that nobody else could \
                      have them while the job stands still; pause works for every job";
        return Err(ApiError::new(ProblemKind::WrongPhase, detail.to_owned()));
    }
    let wanted = ConditionalIntent {
        verb: "suspend",
        intent: Intent::Suspend,
        fits: |phase, _| matches!(phase, JobPhase::Running | JobPhase::Suspended),
        unfit: |phase| {
            let detail = format!("the job is {}; suspend needs a running job", phase.as_str());
            Err(ApiError::new(ProblemKind::WrongPhase, detail))
        },
    };
    wanted.state_in(tx, &caller, id).await
}
