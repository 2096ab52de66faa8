//! `POST /nodes/{name}/uncordon`.

use crate::auth::Admin;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::view::NodeView;

/// Let a drained node take tasks again
///
/// Also ends the exclusion of a node with too many failures and clears the charges. For
/// administrators.
#[utoipa::path(
    post, path = "/nodes/{name}/uncordon", operation_id = "uncordonNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.uncordon", skip_all, fields(node.name = name))]
pub async fn uncordon(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<NodeView>), ApiError> {
    super::set_drained(&app, &caller, &name, false).await
}
