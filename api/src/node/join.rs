//! `POST /nodes/{name}/join-tokens`.

use crate::auth::{self, Admin};
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::spec::{FieldError, is_dns_label};
use muster_model::view::{CreatedJoinToken, NewJoinToken};
use muster_store::{StoreError, membership};
use std::fmt::Write as _;
use time::Duration;

/// One hour.
const DEFAULT_LIFETIME_S: u64 = 3_600;
/// One week.
const MAX_LIFETIME_S: u64 = 604_800;

/// Create a one-time join token
///
/// The token is in the answer only. One executor can join with it under this name, instead of with
/// the cluster's join token. It then replaces the node's earlier executor. The node need not exist
/// yet. For administrators.
#[utoipa::path(
    post, path = "/nodes/{name}/join-tokens", operation_id = "createJoinToken", tag = "nodes", request_body = NewJoinToken,
    params(("name" = String, Path, description = "Name of the node")),
    responses((status = 201, description = "Created", body = CreatedJoinToken)),
)]
#[tracing::instrument(name = "api.node.join", skip_all, fields(node.name = name))]
pub async fn join(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: ParsedBody<NewJoinToken>,
) -> Result<(StatusCode, Json<CreatedJoinToken>), ApiError> {
    let lifetime_s = document.value.lifetime_s.unwrap_or(DEFAULT_LIFETIME_S);
    check(&name, lifetime_s)?;
    let now = clock::now();
    let expires_at = now + Duration::seconds(lifetime_s.cast_signed());
    let mut token = String::from("muster_join_");
    for byte in clock::secret().map_err(|error| ApiError::internal(&error))? {
        let _ = write!(token, "{byte:02x}");
    }
    let hash = auth::hash(&token);
    let mut tx = super::wire::begin(&app, &caller).await?;
    let (times, by) = ((now, expires_at), caller.actor());
    membership::create_join_token(&mut tx, &name, &hash, times, &by).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let created = CreatedJoinToken {
        node: name,
        token,
        expires_at,
    };
    Ok((StatusCode::CREATED, Json(created)))
}

fn check(name: &str, lifetime_s: u64) -> Result<(), ApiError> {
    if !is_dns_label(name) {
        let expected = "1 to 63 characters of a-z, 0-9 and '-'".to_owned();
        return Err(wrong("name", format!("{name:?}"), expected));
    }
    if !(1..=MAX_LIFETIME_S).contains(&lifetime_s) {
        let expected = format!("1 to {MAX_LIFETIME_S} seconds (a week)");
        return Err(wrong("lifetime_s", lifetime_s.to_string(), expected));
    }
    Ok(())
}

fn wrong(field: &str, value: String, expected: String) -> ApiError {
    let error = FieldError {
        field: field.to_owned(),
        value,
        expected,
    };
    ApiError::with_errors(ProblemKind::InvalidBody, error.to_string(), vec![error])
}
