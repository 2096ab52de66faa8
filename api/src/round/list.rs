//! `GET /rounds`.

use crate::auth::Admin;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::view::{Page, RoundSummaryView};
use muster_store::round::{self, RoundSummary};
use muster_store::tenant_scope;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RoundParams {
    /// Only rounds at or after this time (RFC 3339).
    #[param(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page; any round number lists the rounds below it.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+$")]
    pub after: Option<u64>,
}

impl FromQuery for RoundParams {
    const NAMES: &'static [&'static str] = &["since", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        let expected = "a time such as 2026-01-31T12:00:00Z";
        let since = query.one::<String>("since", expected).and_then(|text| {
            let parsed = OffsetDateTime::parse(&text, &Rfc3339);
            if parsed.is_err() {
                query.wrong("since", &text, expected);
            }
            parsed.ok()
        });
        Self {
            since,
            limit: query.limit(),
            after: query.count("continue"),
        }
    }
}

/// List the scheduler's rounds, newest first
///
/// For administrators. Rounds without changes are not stored. Rounds older than the scheduler's
/// `keep_rounds_s` are removed.
#[utoipa::path(
    get, path = "/rounds", operation_id = "listRounds", tag = "rounds", params(RoundParams),
    responses((status = 200, description = "A page of rounds", body = Page<RoundSummaryView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Params(params): Params<RoundParams>,
) -> Result<Json<Page<RoundSummaryView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let rows = round::list(&mut tx, params.after, params.since, params.limit + 1).await?;
    Ok(Json(query::page(
        rows,
        params.limit,
        |round| round.number.to_string(),
        summary,
    )))
}

fn summary(round: RoundSummary) -> RoundSummaryView {
    RoundSummaryView {
        number: round.number,
        at: round.at,
        policy: round.policy,
        decisions: round.decisions,
        // Another release may write other totals; they are then left out.
        totals: round
            .totals
            .and_then(|totals| serde_json::from_value(totals).ok()),
    }
}
