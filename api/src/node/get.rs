//! `GET /nodes/{name}`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::NodeView;
use muster_store::node;

/// Get a node
#[utoipa::path(
    get, path = "/nodes/{name}", operation_id = "getNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 200, description = "The node", body = NodeView)),
)]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<NodeView>, ApiError> {
    let mut tx = wire::begin(&app, &caller).await?;
    let row = node::get(&mut tx, &name)
        .await?
        .ok_or_else(|| ApiError::not_found(format!("node {name}")))?;
    Ok(Json(wire::node(row)))
}
