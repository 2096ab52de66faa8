//! `PUT /nodes/{name}/notice`.

use super::wire;
use crate::auth::Admin;
use crate::body::Document;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::Params;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::node::Notice;
use muster_model::spec::FieldError;
use muster_model::view::NodeView;
use muster_store::{StoreError, node};

const WHY_MAX: usize = 500;
const RACK_MAX: usize = 253;

/// Say what the cluster that a machine belongs to says of it
///
/// All of it, in place of what was said before; Muster's operator does so for Kubernetes. An administrator's drain and this stand beside
/// each other: the node takes work where neither closes it. For administrators.
#[utoipa::path(
    put, path = "/nodes/{name}/notice", operation_id = "noticeNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    request_body = Notice,
    responses((status = 202, description = "Stated; the next round obeys", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.notice", skip_all, fields(node.name = name))]
pub async fn notice(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: Document<Notice>,
) -> Result<(StatusCode, Json<NodeView>), Refusal> {
    let notice = document.value;
    check(&notice)?;
    let mut tx = wire::begin(&app, &caller).await?;
    let row = node::set_notice(&mut tx, &name, &notice, clock::now()).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("node {name}")))?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(wire::node(row))))
}

fn check(notice: &Notice) -> Result<(), Refusal> {
    let why = notice.why.chars().count();
    if why > WHY_MAX {
        return Err(invalid("why", why, &format!("at most {WHY_MAX}")));
    }
    let rack = notice.rack.as_deref().map(str::len);
    if let Some(rack) = rack.filter(|length| !(1..=RACK_MAX).contains(length)) {
        return Err(invalid("rack", rack, &format!("1 to {RACK_MAX}, or null")));
    }
    Ok(())
}

fn invalid(field: &str, characters: usize, expected: &str) -> Refusal {
    let error = FieldError {
        field: field.to_owned(),
        value: format!("{characters} characters"),
        expected: expected.to_owned(),
    };
    Refusal::with_errors(Kind::InvalidBody, error.to_string(), vec![error])
}
