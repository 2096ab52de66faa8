//! `PUT /secrets/{name}`.

use super::body::{NewSecret, SecretBody};
use super::{named, no_keys, not_stored};
use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use muster_model::view::SecretVersion;
use muster_secret::{Owner, Sealed};
use muster_store::StoreError;
use muster_store::secret::{self, SecretRow};

/// Create or replace a secret
///
/// The value is encrypted before it is stored, and no route returns it. Programs whose document
/// names the secret in `command.secrets` receive it when they start; a new version reaches the next
/// start. 501 `no-secret-key` if the cluster has no key.
#[utoipa::path(
    put, path = "/secrets/{name}", operation_id = "setSecret", tag = "secrets",
    params(("name" = String, Path, description = "Name of the secret")),
    request_body = NewSecret,
    responses((status = 200, description = "Created or replaced", body = SecretVersion)),
)]
#[tracing::instrument(name = "api.secret.set", skip_all, fields(secret = name))]
pub async fn set(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
    SecretBody(value): SecretBody,
) -> Result<Response, ApiError> {
    named(&name)?;
    let keys = app
        .secret_keys
        .get()
        .await
        .map_err(|error| no_keys(&error))?;
    let (tenant, now) = (caller.tenant_id, clock::now());
    let mut tx = app.begin(&caller).await?;
    let version = secret::next_version(&mut tx, tenant, &name).await?;
    let owner = Owner {
        tenant,
        name: &name,
        version,
    };
    let sealed = Sealed::seal(&keys, owner, &value).map_err(|error| no_keys(&error))?;
    drop(value);
    let Sealed {
        key_id,
        nonce,
        ciphertext,
    } = sealed;
    let row = SecretRow {
        name: name.clone(),
        version,
        key_id,
        nonce,
        ciphertext,
    };
    secret::put(&mut tx, tenant, &row, &caller.actor(), now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(not_stored(Json(SecretVersion {
        name,
        version,
        updated_at: now,
    })))
}
