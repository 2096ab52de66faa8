//! `GET /tokens`.

use super::wire;
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::id::TokenId;
use muster_model::view::{Page, TokenView};
use muster_store::token;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TokensParams {
    /// Items on the page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// `continue` of the page before.
    #[param(rename = "continue", value_type = Option<String>)]
    pub after: Option<TokenId>,
}

impl FromQuery for TokensParams {
    const NAMES: &'static [&'static str] = &["limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List the tenant's tokens, newest first
///
/// Revoked ones too; never their secrets.
#[utoipa::path(
    get, path = "/tokens", operation_id = "listTokens", tag = "tokens", params(TokensParams),
    responses((status = 200, description = "A page of tokens", body = Page<TokenView>)),
)]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<TokensParams>,
) -> Result<Json<Page<TokenView>>, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let rows = token::list(&mut tx, params.after, params.limit + 1).await?;
    Ok(Json(query::page(
        rows,
        params.limit,
        |token| token.id.to_string(),
        wire::token,
    )))
}
