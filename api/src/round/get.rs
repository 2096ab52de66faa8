//! `GET /rounds/{number}`.

use crate::auth::Admin;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::RoundView;
use muster_store::round::{self, RoundRecord};
use muster_store::tenant_scope;
use serde_json::value::RawValue;
use time::OffsetDateTime;

/// Why a stored round cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("unpack its snapshot")]
    Unpack(#[from] std::io::Error),
    #[error("read its snapshot as text")]
    Text(#[from] std::string::FromUtf8Error),
    #[error("read its JSON")]
    Json(#[from] serde_json::Error),
}

/// Get a complete round
///
/// For administrators, because its snapshot contains the jobs of every tenant. The same snapshot
/// and policy give the same plan and report again, byte for byte (`muster replay`).
#[utoipa::path(
    get, path = "/rounds/{number}", operation_id = "getRound", tag = "rounds",
    params(("number" = u64, Path, description = "Number of the round")),
    responses((status = 200, description = "The round", body = RoundView)),
)]
pub async fn get(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(named): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<RoundView>, ApiError> {
    let missing = || ApiError::not_found(format!("round {named}"));
    let number = named
        .parse::<u64>()
        .ok()
        .filter(|number| i64::try_from(*number).is_ok())
        .ok_or_else(missing)?;
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let (at, record) = round::get(&mut tx, number).await?.ok_or_else(missing)?;
    drop(tx);
    // Unpacking the snapshot of a large cluster blocks.
    let read = tokio::task::spawn_blocking(move || view(at, record)).await;
    match read {
        Ok(Ok(view)) => Ok(Json(view)),
        Ok(Err(error)) => Err(ApiError::internal(&error)),
        Err(error) => Err(ApiError::internal(&error)),
    }
}

fn view(at: OffsetDateTime, record: RoundRecord) -> Result<RoundView, ReadError> {
    let snapshot = String::from_utf8(zstd::decode_all(record.snapshot_zstd.as_slice())?)?;
    Ok(RoundView {
        number: record.number,
        at,
        policy: record.policy.map(RawValue::from_string).transpose()?,
        snapshot: RawValue::from_string(snapshot)?,
        plan: RawValue::from_string(record.plan)?,
        report: RawValue::from_string(record.report)?,
    })
}
