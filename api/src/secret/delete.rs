//! `DELETE /secrets/{name}`.

use super::{named, not_stored};
use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, Params, Query};
use crate::state::ApiState;
use crate::suggestion::hint;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use muster_store::StoreError;
use muster_store::secret::{self, SecretUsers};

/// Maximum number of jobs and of studies that a refusal names.
const MOST_NAMED: u32 = 10;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeleteParams {
    /// Delete the secret although open jobs or studies name it. Their programs fail at their next
    /// start.
    #[param(required = false, default = false)]
    pub force: bool,
}

impl FromQuery for DeleteParams {
    const NAMES: &'static [&'static str] = &["force"];

    fn take(query: &mut Query) -> Self {
        Self {
            force: query.one("force", "true or false").unwrap_or(false),
        }
    }
}

/// Delete a secret
///
/// Refused while open jobs or studies name it (409 `secret-in-use`), unless `force=true`.
#[utoipa::path(
    delete, path = "/secrets/{name}", operation_id = "deleteSecret", tag = "secrets",
    params(("name" = String, Path, description = "Name of the secret"), DeleteParams),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.secret.delete", skip_all, fields(secret = name))]
pub async fn delete(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(params): Params<DeleteParams>,
) -> Result<Response, ApiError> {
    named(&name)?;
    let mut tx = app.begin(&caller).await?;
    if !params.force {
        let users = secret::users(&mut tx, &name, MOST_NAMED).await?;
        if let Some(text) = in_use(&users) {
            let detail = format!(
                "secret {name} is named by {text}; cancel them, or delete it with force (`muster secrets delete {name} --force`), after which their programs fail at their next start"
            );
            return Err(ApiError::new(ProblemKind::SecretInUse, detail));
        }
    }
    let (tenant, actor) = (caller.tenant_id, caller.actor());
    if !secret::delete(&mut tx, tenant, &name, &actor, clock::now()).await? {
        let known = secret::known(&mut tx).await?;
        let known = known.iter().map(String::as_str);
        let hint = hint(&name, known, "muster secrets list");
        return Err(ApiError::not_found(format!("secret {name}{hint}")));
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(not_stored(StatusCode::NO_CONTENT))
}

/// Returns the users as text; `None` if there are none.
fn in_use(users: &SecretUsers) -> Option<String> {
    let parts: Vec<String> = [("open jobs", &users.jobs), ("open studies", &users.studies)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| {
            let more = if names.len() < MOST_NAMED as usize {
                ""
            } else {
                " and possibly more"
            };
            format!("{what} {}{more}", names.join(", "))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}
