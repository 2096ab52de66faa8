//! `POST /nodes/{name}/drain`.

use crate::auth::Admin;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::view::NodeView;

/// Drain a node
///
/// The node takes no new task, and its tasks move away with their checkpoints. For administrators.
#[utoipa::path(
    post, path = "/nodes/{name}/drain", operation_id = "drainNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.drain", skip_all, fields(node.name = name))]
pub async fn drain(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<NodeView>), ApiError> {
    super::set_drained(&app, &caller, &name, true).await
}
