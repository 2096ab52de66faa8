//! `DELETE /tokens/{id}`.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::{Named, Params};
use crate::state::App;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::TokenId;
use muster_store::token::{self, Token};
use muster_store::{PgConnection, StoreError};
use uuid::Uuid;

/// Revoke a token
///
/// It is refused from now on, by other replicas of this daemon within 5 seconds. Members may revoke their own tokens,
/// administrators any of their tenant's. Revoking again changes nothing.
#[utoipa::path(
    delete, path = "/tokens/{id}", operation_id = "revokeToken", tag = "tokens",
    params(("id" = TokenId, Path, description = "The token")),
    responses((status = 204, description = "Revoked")),
)]
#[tracing::instrument(name = "api.token.revoke", skip_all, fields(token.id = %id))]
pub async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<TokenId>,
    Params(()): Params<()>,
) -> Result<StatusCode, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let found = find(&mut tx, id)
        .await?
        .ok_or_else(|| Refusal::not_found(format!("token {id}")))?;
    if found.user_id != caller.user_id && !caller.is_admin() {
        let detail = format!(
            "the token is {}'s; only its user and administrators may revoke it",
            found.user_name
        );
        return Err(Refusal::new(Kind::Forbidden, detail));
    }
    token::revoke(&mut tx, id, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    app.tokens.forget(id);
    Ok(StatusCode::NO_CONTENT)
}

/// Lists go down from an id that is not among them; the one just above makes the wanted token their first.
async fn find(conn: &mut PgConnection, id: TokenId) -> Result<Option<Token>, StoreError> {
    let above = Uuid::from_u128(id.0.as_u128().saturating_add(1));
    let first = token::list(conn, Some(above.into()), 1).await?.pop();
    Ok(first.filter(|token| token.id == id))
}
