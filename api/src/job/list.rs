//! `GET /jobs`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, PAGE_MAX, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, Page};
use muster_store::job::{self, JobFilter};
use time::OffsetDateTime;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only jobs with this id; may be repeated up to 500 times.
    #[param(required = false)]
    pub id: Vec<JobId>,
    /// Only jobs in this phase; may be repeated for several phases.
    #[param(required = false)]
    pub phase: Vec<JobPhase>,
    /// Only jobs with this label, as `key=value`; may be repeated to require several labels.
    #[param(required = false)]
    pub label: Vec<String>,
    /// Only jobs with exactly this name.
    pub name: Option<String>,
    /// Only jobs whose id, without hyphens, ends with these hexadecimal digits.
    #[param(pattern = "^[0-9a-f]{4,32}$")]
    pub short_id: Option<String>,
    /// Only jobs that the user of this name has submitted.
    pub user: Option<String>,
    /// Only jobs submitted at this time or later.
    #[param(format = DateTime)]
    pub submitted_since: Option<OffsetDateTime>,
    /// Whether to include jobs that are trials of studies.
    #[param(default = true, required = false)]
    pub trials: bool,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    pub after: Option<JobId>,
}

impl FromQuery for ListParams {
    const NAMES: &'static [&'static str] = &[
        "id",
        "phase",
        "label",
        "name",
        "short_id",
        "user",
        "submitted_since",
        "trials",
        "limit",
        "continue",
    ];

    fn take(query: &mut Query) -> Self {
        Self {
            id: ids(query),
            phase: phases(query),
            label: query.all("label"),
            name: query.one("name", "a name"),
            short_id: short_id(query),
            user: query.one("user", "a name"),
            submitted_since: query.time("submitted_since"),
            trials: query.one("trials", "true or false").unwrap_or(true),
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List jobs, newest first
#[utoipa::path(
    get, path = "/jobs", operation_id = "listJobs", tag = "jobs", params(ListParams),
    responses((status = 200, description = "A page of the tenant's jobs", body = Page<JobView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<JobView>>, ApiError> {
    let mut filter = JobFilter {
        ids: params.id,
        phases: params.phase,
        name: params.name,
        short_id: params.short_id,
        user: params.user,
        submitted_since: params.submitted_since,
        is_without_trials: !params.trials,
        ..JobFilter::default()
    };
    for label in &params.label {
        let Some((key, value)) = label.split_once('=') else {
            return Err(ApiError::parameter("label", label, "key=value"));
        };
        filter.labels.insert(key.to_owned(), value.to_owned());
    }
    let mut tx = app.begin(&caller).await?;
    let rows = job::list(&mut tx, &filter, params.after, params.limit).await?;
    let tenant = &caller.tenant_name;
    Ok(Json(query::shown(
        rows,
        |row| row.job.id.to_string(),
        |row| wire::job(row, tenant),
    )))
}

fn short_id(query: &mut Query) -> Option<String> {
    const EXPECTED: &str = "4 to 32 lowercase hexadecimal digits";
    let text: String = query.one("short_id", EXPECTED)?;
    let digits = text.bytes();
    let is_hex = digits
        .into_iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || !(4..=32).contains(&text.len()) {
        query.wrong("short_id", &text, EXPECTED);
    }
    Some(text)
}

fn ids(query: &mut Query) -> Vec<JobId> {
    let given = query.all("id");
    if given.len() > PAGE_MAX as usize {
        let (times, most) = (given.len(), PAGE_MAX);
        query.wrong(
            "id",
            &format!("given {times} times"),
            &format!("{most} at most"),
        );
    }
    let mut ids = Vec::new();
    for text in given {
        match text.parse() {
            Ok(id) => ids.push(id),
            Err(_) => query.wrong("id", &text, "the id of a job, a UUID"),
        }
    }
    ids
}

fn phases(query: &mut Query) -> Vec<JobPhase> {
    let mut phases = Vec::new();
    for text in query.all("phase") {
        match JobPhase::ALL
            .into_iter()
            .find(|phase| phase.as_str() == text)
        {
            Some(phase) => phases.push(phase),
            None => {
                let known: Vec<_> = JobPhase::ALL.into_iter().map(JobPhase::as_str).collect();
                query.wrong("phase", &text, &format!("one of {}", known.join(", ")));
            }
        }
    }
    phases
}
