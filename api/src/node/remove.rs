//! `DELETE /nodes/{name}`.

use super::wire;
use crate::auth::Admin;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_store::StoreError;
use muster_store::membership::{self, NodeRemovalOutcome};

/// Remove a node
///
/// The node disappears from lists and its credential is deleted. Refused while it is up or holds
/// tasks (409). The history of its tasks stays. A node that joins under the name later is a new
/// node. For administrators.
#[utoipa::path(
    delete, path = "/nodes/{name}", operation_id = "removeNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 204, description = "Removed")),
)]
#[tracing::instrument(name = "api.node.remove", skip_all, fields(node.name = name))]
pub async fn remove(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let mut tx = wire::begin(&app, &caller).await?;
    let why = match membership::remove(&mut tx, &name, &caller.actor(), clock::now()).await? {
        NodeRemovalOutcome::Done => {
            tx.commit().await.map_err(StoreError::from)?;
            return Ok(StatusCode::NO_CONTENT);
        }
        NodeRemovalOutcome::NoSuchNode => return Err(ApiError::not_found(format!("node {name}"))),
        NodeRemovalOutcome::Up => {
            format!("node {name} is up; drain it, stop its executor and wait until it is lost")
        }
        NodeRemovalOutcome::Holds { tasks } => {
            format!("node {name} holds {tasks} tasks that have not ended; wait until they have")
        }
    };
    Err(ApiError::new(ProblemKind::WrongPhase, why))
}
