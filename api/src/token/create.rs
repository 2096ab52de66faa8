//! `POST /tokens`.

use super::revoke::find_in_scope;
use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use crate::tenant::wire::invalid;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::tenant::Access;
use muster_model::view::{CreatedToken, NewToken};
use muster_store::token::{self, NewTokenRecord};
use muster_store::{PgConnection, StoreError, limit, tenant, tenant_scope};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Create a token
///
/// The secret is in the answer only. Members create tokens for themselves; administrators also for
/// other users and tenants, and with access `admin`. The token of a member expires no later than
/// the token that creates it.
#[utoipa::path(
    post, path = "/tokens", operation_id = "createToken", tag = "tokens", request_body = NewToken,
    responses((status = 201, description = "Created", body = CreatedToken)),
)]
#[tracing::instrument(name = "api.token.create", skip_all)]
pub async fn create(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
    document: ParsedBody<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiError> {
    let now = clock::now();
    let wanted = document.value;
    check(&wanted, &caller, now)?;
    let mut tx = app.begin(&caller).await?;
    if !caller.is_admin() {
        must_not_outlive(&mut tx, &wanted, &caller).await?;
    }
    let (tenant_id, tenant) = match &wanted.tenant {
        Some(name) if *name != caller.tenant_name => {
            tenant_scope::admin(&mut tx).await?;
            let found = tenant::by_name(&mut tx, name).await?;
            let found = found
                .ok_or_else(|| invalid("tenant", &format!("{name:?}"), "the name of a tenant"))?;
            // Tokens belong to the tenant in scope, also for administrators.
            tenant_scope::tenant(&mut tx, found.id).await?;
            (found.id, found.name)
        }
        _ => (caller.tenant_id, caller.tenant_name.clone()),
    };
    let user = wanted
        .user
        .clone()
        .unwrap_or_else(|| caller.user_name.clone());
    let user_id = wire::user_id(&mut tx, tenant_id, &user, now).await?;
    limit::admit_token(&mut tx, tenant_id, user_id, now).await?;
    let (secret, hash) = wire::secret()?;
    let new = NewTokenRecord {
        id: clock::new_id().into(),
        tenant_id,
        user_id,
        name: wanted.name,
        access: wanted.access,
        hash,
        expires_at: wanted.expires_at,
    };
    token::create(&mut tx, &new, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let NewTokenRecord {
        id,
        name,
        access,
        expires_at,
        ..
    } = new;
    Ok((
        StatusCode::CREATED,
        Json(CreatedToken {
            id,
            name,
            user,
            tenant,
            access,
            expires_at,
            secret,
        }),
    ))
}

fn check(wanted: &NewToken, caller: &Caller, now: OffsetDateTime) -> Result<(), ApiError> {
    for (field, text) in [("name", Some(&wanted.name)), ("user", wanted.user.as_ref())] {
        if let Some(text) = text.filter(|text| !is_name(text)) {
            return Err(invalid(field, &format!("{text:?}"), "1 to 255 characters"));
        }
    }
    if let Some(at) = wanted.expires_at.filter(|at| *at <= now) {
        return Err(invalid("expires_at", &at.to_string(), "a time to come"));
    }
    let for_other = wanted
        .user
        .as_ref()
        .is_some_and(|user| *user != caller.user_name)
        || wanted
            .tenant
            .as_ref()
            .is_some_and(|tenant| *tenant != caller.tenant_name);
    if !caller.is_admin() && (for_other || wanted.access == Access::Admin) {
        let detail =
            "tokens for other users or tenants, or with access admin, are made by administrators";
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.chars().count()) && !text.contains('\0')
}

/// A stolen token that expires must not be exchanged for one that does not.
async fn must_not_outlive(
    conn: &mut PgConnection,
    wanted: &NewToken,
    caller: &Caller,
) -> Result<(), ApiError> {
    let own = find_in_scope(conn, caller.token_id).await?;
    let Some(ends) = own.and_then(|own| own.expires_at) else {
        return Ok(());
    };
    if wanted.expires_at.is_some_and(|at| at <= ends) {
        return Ok(());
    }
    let value = wanted.expires_at.map_or_else(|| "null".to_owned(), rfc3339);
    let expected = format!(
        "{} or earlier, when the token ends that makes it",
        rfc3339(ends)
    );
    Err(invalid("expires_at", &value, &expected))
}

fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).expect("a date of this era")
}
