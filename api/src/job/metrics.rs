//! `GET /jobs/{id}/metrics`, their points, and all of them in one CSV file.

use super::tasks;
use crate::auth::Caller;
use crate::csv::quoted;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use muster_model::id::JobId;
use muster_model::metric::{MAX_BUCKETS, MAX_METRICS};
use muster_model::view::{MetricSeriesView, MetricView, Page};
use muster_store::{StoreError, job, metric};
use std::fmt::Write as _;

/// Maximum number of names of a request for points.
const MAX_NAMES: usize = 10;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MetricPointsParams {
    /// Name of a metric; repeated for up to 10 metrics.
    #[param(min_items = 1, max_items = 10)]
    pub name: Vec<String>,
    /// Maximum number of points of each metric. Neighbouring points of a longer series are merged.
    #[param(minimum = 2, maximum = 2000, default = 2000, required = false)]
    pub max_points: u32,
}

impl FromQuery for MetricPointsParams {
    const NAMES: &'static [&'static str] = &["name", "max_points"];

    fn take(query: &mut Query) -> Self {
        let name = query.all("name");
        if !(1..=MAX_NAMES).contains(&name.len()) {
            let given = format!("given {} times", name.len());
            query.wrong("name", &given, &format!("1 to {MAX_NAMES} names"));
        }
        let most = u64::from(MAX_BUCKETS);
        let max_points = query.number("max_points", most, 2..=most);
        Self {
            name,
            max_points: u32::try_from(max_points).unwrap_or(MAX_BUCKETS),
        }
    }
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MetricExportParams {
    /// Name of a metric; may be repeated. Default: all metrics of the job.
    #[param(max_items = 500, required = false)]
    pub name: Vec<String>,
}

impl FromQuery for MetricExportParams {
    const NAMES: &'static [&'static str] = &["name"];

    fn take(query: &mut Query) -> Self {
        let name = query.all("name");
        if name.len() > MAX_METRICS as usize {
            let given = format!("given {} times", name.len());
            query.wrong("name", &given, &format!("at most {MAX_METRICS} names"));
        }
        Self { name }
    }
}

/// List the metrics of a job
///
/// All metrics that its program has logged, by name, on one page.
#[utoipa::path(
    get, path = "/jobs/{id}/metrics", operation_id = "listJobMetrics", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "Its metrics", body = Page<MetricView>)),
)]
pub async fn metrics(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<Json<Page<MetricView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    Ok(Json(Page {
        items: metric::list(&mut tx, id).await?,
        next: None,
    }))
}

/// Get the points of metrics of a job
///
/// Names that the job has not logged are left out. A point covers 2^k steps; after a restart from a
/// checkpoint the values of repeated steps replace the earlier ones.
#[utoipa::path(
    get, path = "/jobs/{id}/metrics/points", operation_id = "getJobMetricPoints", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), MetricPointsParams),
    responses((status = 200, description = "Their series, in the order of the names", body = Page<MetricSeriesView>)),
)]
pub async fn points(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<MetricPointsParams>,
) -> Result<Json<Page<MetricSeriesView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    Ok(Json(Page {
        items: metric::points(&mut tx, id, &params.name, params.max_points).await?,
        next: None,
    }))
}

/// Export metrics of a job
///
/// One line per point: name, step, last, mean, min, max and the number of values.
#[utoipa::path(
    get, path = "/jobs/{id}/metrics/export", operation_id = "exportJobMetrics", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), MetricExportParams),
    responses((status = 200, description = "The file", content_type = "text/csv", body = String)),
)]
pub async fn export(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<MetricExportParams>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id).await?;
    let row = row.ok_or_else(|| ApiError::no_job(id))?;
    let names = if params.name.is_empty() {
        let all = metric::list(&mut tx, id).await?;
        all.into_iter().map(|metric| metric.name).collect()
    } else {
        params.name
    };
    drop(tx);
    let file = format!("attachment; filename=\"{}-metrics.csv\"", row.job.spec.name);
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, file),
    ];
    let file = MetricFile {
        app,
        caller,
        id,
        left: names.into_iter(),
        is_begun: false,
    };
    let body = Body::from_stream(futures::stream::try_unfold(file, MetricFile::more));
    Ok((headers, body).into_response())
}

/// A file during its transfer. Each metric has its own transaction, so that a slow client keeps
/// none open.
struct MetricFile {
    app: ApiState,
    caller: Caller,
    id: JobId,
    left: std::vec::IntoIter<String>,
    is_begun: bool,
}

impl MetricFile {
    /// Returns the next piece of the file and the remaining state. If the store fails, the body
    /// ends early, which clients detect.
    async fn more(mut self) -> Result<Option<(String, Self)>, StoreError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Ok(Some((HEADER.to_owned(), self)));
        }
        let Some(name) = self.left.next() else {
            return Ok(None);
        };
        let mut tx = self.app.begin(&self.caller).await?;
        let series = metric::points(&mut tx, self.id, &[name], MAX_BUCKETS).await?;
        drop(tx);
        let lines = series.iter().map(lines).collect();
        Ok(Some((lines, self)))
    }
}

const HEADER: &str = "name,step,last,mean,min,max,values\n";

fn lines(series: &MetricSeriesView) -> String {
    let name = quoted(&series.name);
    let mut text = String::new();
    for point in &series.points {
        writeln!(
            text,
            "{name},{},{},{},{},{},{}",
            point.step, point.last, point.mean, point.min, point.max, point.values
        )
        .expect("a text grows");
    }
    text
}
