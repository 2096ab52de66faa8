//! `POST /nodes/{name}/reset`.

use super::wire;
use crate::auth::Admin;
use crate::clock;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::NodeView;
use muster_store::{StoreError, membership};

/// Reset a node's credential
///
/// For a machine that has lost its executor's data folder. The next executor that joins under this
/// name with the cluster's join token gets a new credential. Running tasks are not affected. For
/// administrators.
#[utoipa::path(
    post, path = "/nodes/{name}/reset", operation_id = "resetNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 200, description = "Reset", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.reset", skip_all, fields(node.name = name))]
pub async fn reset(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<NodeView>, ApiError> {
    let mut tx = wire::begin(&app, &caller).await?;
    let row = membership::reset(&mut tx, &name, &caller.actor(), clock::now()).await?;
    let row = row.ok_or_else(|| ApiError::not_found(format!("node {name}")))?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(wire::node(row)))
}
