//! `GET /families`.

use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::{FamilySpeedView, FamilyView, Page};
use muster_store::family::{self, FamilyRow, FamilySpeedRow};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FamilyParams {
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, format = Uuid)]
    pub after: Option<JobId>,
}

impl FromQuery for FamilyParams {
    const NAMES: &'static [&'static str] = &["limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            limit: query.limit(),
            after: query.one("continue", "the `continue` of a page"),
        }
    }
}

/// List what is known of the tenant's families of jobs
///
/// Jobs of a family take equally long for a step on equal GPUs. The speeds by GPU kind and
/// placement are used for all later jobs of the family. The family with the newest measured job
/// comes first.
#[utoipa::path(
    get, path = "/families", operation_id = "listFamilies", tag = "families", params(FamilyParams),
    responses((status = 200, description = "A page of families", body = Page<FamilyView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<FamilyParams>,
) -> Result<Json<Page<FamilyView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let rows = family::list(&mut tx, params.after, params.limit + 1, clock::now()).await?;
    Ok(Json(query::page(
        rows,
        params.limit,
        |row| row.newest_job.to_string(),
        view,
    )))
}

fn view(row: FamilyRow) -> FamilyView {
    FamilyView {
        family: row.family,
        title: row.title,
        jobs: row.jobs,
        speeds: row.speeds.into_iter().map(speed).collect(),
    }
}

fn speed(row: FamilySpeedRow) -> FamilySpeedView {
    FamilySpeedView {
        gpu_kind: row.gpu_kind,
        workers: row.workers,
        ps_shards: row.ps_shards,
        nodes: row.nodes,
        steps_per_s: row.steps_per_s,
        jobs: row.jobs,
        samples: row.samples,
        weight: row.weight,
        observed_at: row.observed_at,
    }
}
