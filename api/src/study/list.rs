//! `GET /studies`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::StudyId;
use muster_model::view::{Page, StudyView};
use muster_store::study::{self, StudyFilter};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StudyListParams {
    /// Only studies with exactly this name.
    pub name: Option<String>,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    pub after: Option<StudyId>,
}

impl FromQuery for StudyListParams {
    const NAMES: &'static [&'static str] = &["name", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            name: query.one("name", "a name"),
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List studies, newest first
#[utoipa::path(
    get, path = "/studies", operation_id = "listStudies", tag = "studies", params(StudyListParams),
    responses((status = 200, description = "A page of the tenant's studies", body = Page<StudyView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<StudyListParams>,
) -> Result<Json<Page<StudyView>>, ApiError> {
    let filter = StudyFilter { name: params.name };
    let mut tx = app.begin(&caller).await?;
    let rows = study::list(&mut tx, &filter, params.after, params.limit + 1).await?;
    Ok(Json(query::page(
        rows,
        params.limit,
        |row| row.id.to_string(),
        |row| wire::view(row, &caller.tenant_name),
    )))
}
