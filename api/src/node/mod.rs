//! Nodes: one file per verb. A drain is stored here; the scheduler moves the tasks.

pub mod drain;
pub mod get;
pub mod join;
pub mod list;
pub mod notice;
pub mod remove;
pub mod reset;
pub mod uncordon;
mod wire;

use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::state::ApiState;
use axum::Json;
use axum::http::StatusCode;
use muster_model::view::NodeView;
use muster_store::{StoreError, node};

/// Shared part of drain and uncordon: stores the setting, which takes effect in the next round.
async fn set_drained(
    app: &ApiState,
    caller: &Caller,
    name: &str,
    drained: bool,
) -> Result<(StatusCode, Json<NodeView>), ApiError> {
    let mut tx = wire::begin(app, caller).await?;
    let row = node::set_drained(&mut tx, name, drained, clock::now()).await?;
    let row = row.ok_or_else(|| ApiError::not_found(format!("node {name}")))?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(wire::node(row))))
}
