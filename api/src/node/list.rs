//! `GET /nodes`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, PageParams, Params};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::view::{NodeView, Page};
use muster_store::node;

/// List nodes by name
///
/// Every tenant sees all nodes and which GPUs are held. The job that holds a GPU is shown only to
/// its own tenant and to administrators.
#[utoipa::path(
    get, path = "/nodes", operation_id = "listNodes", tag = "nodes", params(PageParams),
    responses((status = 200, description = "A page of the cluster's nodes", body = Page<NodeView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<NodeView>>, ApiError> {
    let mut tx = wire::begin(&app, &caller).await?;
    let after = params.after.unwrap_or_default();
    // A cluster has at most a few thousand nodes, so all are read and the page is cut here.
    let rows: Vec<_> = node::list(&mut tx)
        .await?
        .into_iter()
        .filter(|row| row.node.name > after)
        .collect();
    Ok(Json(query::page(
        rows,
        params.limit,
        |row| row.node.name.clone(),
        wire::node,
    )))
}
