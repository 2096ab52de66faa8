//! `GET /jobs/{id}/forecast` and `GET /forecasts/accuracy`.

use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::forecast::Forecast;
use muster_model::id::JobId;
use muster_model::view::{AccuracyView, HitRate};
use muster_store::{forecast, job};
use std::time::Duration;

const DAYS_DEFAULT: u64 = 7;
const DAYS_MAX: u64 = 365;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AccuracyParams {
    /// Number of days: only forecasts made in this time count.
    #[param(minimum = 1, maximum = 365, default = 7, required = false)]
    pub days: u64,
}

impl FromQuery for AccuracyParams {
    const NAMES: &'static [&'static str] = &["days"];

    fn take(query: &mut Query) -> Self {
        Self {
            days: query.number("days", DAYS_DEFAULT, 1..=DAYS_MAX),
        }
    }
}

/// Get the forecast of a job's start and end
///
/// The scheduler simulates its own decisions from the present state of the cluster many times.
/// Speeds and remaining work vary by the uncertainty of its estimates. An interval should be right
/// in eight of ten cases. An interval marked `unsure` is too wide to be shown.
#[utoipa::path(
    get, path = "/jobs/{id}/forecast", operation_id = "forecastJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The newest forecast; null before the first, and once the job has ended", body = Option<Forecast>)),
)]
pub async fn forecast(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<Json<Option<Forecast>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    let now = clock::now();
    Ok(Json(row.forecast.map(|found| found.seen_at(now))))
}

/// Get the accuracy of forecasts
///
/// Share of the forecasts of the tenant's succeeded jobs whose interval was right. The target is 80
/// %. A forecast counts for the time in which it was the newest, each job counts once, and
/// forecasts marked `unsure` do not count.
#[utoipa::path(
    get, path = "/forecasts/accuracy", operation_id = "forecastAccuracy", tag = "jobs", params(AccuracyParams),
    responses((status = 200, description = "Hit rates", body = AccuracyView)),
)]
pub async fn accuracy(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<AccuracyParams>,
) -> Result<Json<AccuracyView>, ApiError> {
    let since = clock::now() - Duration::from_secs(params.days * 86_400);
    let mut tx = app.begin(&caller).await?;
    let tally = forecast::tally(&mut tx, since).await?;
    Ok(Json(AccuracyView {
        since,
        target: 0.8,
        finish: rate(tally.finish),
        start: rate(tally.start),
    }))
}

fn rate(counted: forecast::IntervalCoverage) -> HitRate {
    HitRate {
        forecasts: counted.forecasts,
        held: counted.held,
        jobs: counted.jobs,
        share: counted.share,
    }
}
