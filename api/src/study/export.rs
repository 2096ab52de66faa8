//! `GET /studies/{id}/export`: all trials in one file.

use super::wire;
use crate::auth::Caller;
use crate::csv::quoted;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use muster_model::id::StudyId;
use muster_model::study::StudySpec;
use muster_model::view::TrialView;
use muster_store::StoreError;
use muster_store::study::trial;
use serde_json::Value;

/// Trials per query; it bounds the memory of an export.
const PAGE: u32 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    Csv,
    Json,
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportParams {
    /// `csv`: one line per trial, without curves. `json`: a list of trials with their curves.
    #[param(required = false, value_type = String, default = "csv", pattern = "^(csv|json)$")]
    pub format: ExportFormat,
}

impl FromQuery for ExportParams {
    const NAMES: &'static [&'static str] = &["format"];

    fn take(query: &mut Query) -> Self {
        let text: Option<String> = query.one("format", "csv or json");
        let format = match text.as_deref() {
            None | Some("csv") => ExportFormat::Csv,
            Some("json") => ExportFormat::Json,
            Some(other) => {
                query.wrong("format", other, "csv or json");
                ExportFormat::Csv
            }
        };
        Self { format }
    }
}

/// Export all trials of a study
#[utoipa::path(
    get, path = "/studies/{id}/export", operation_id = "exportStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study"), ExportParams),
    responses((status = 200, description = "The file", content(
        (String = "text/csv"), (Vec<TrialView> = "application/json"),
    ))),
)]
pub async fn export(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(params): Params<ExportParams>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let study = wire::find(&mut tx, id).await?;
    drop(tx);
    let (kind, ending) = match params.format {
        ExportFormat::Csv => ("text/csv; charset=utf-8", "csv"),
        ExportFormat::Json => ("application/json", "json"),
    };
    let name = format!("attachment; filename=\"{}.{ending}\"", study.document.name);
    let headers = [(CONTENT_TYPE, kind.to_owned()), (CONTENT_DISPOSITION, name)];
    let file = ExportFile {
        app,
        caller,
        id,
        document: study.document,
        format: params.format,
        next: NextExportPage::First,
    };
    let body = Body::from_stream(futures::stream::try_unfold(file, ExportFile::more));
    Ok((headers, body).into_response())
}

/// A file during its transfer. Each page has its own transaction, so that a slow client keeps none
/// open.
struct ExportFile {
    app: ApiState,
    caller: Caller,
    id: StudyId,
    document: StudySpec,
    format: ExportFormat,
    next: NextExportPage,
}

#[derive(Clone, Copy)]
enum NextExportPage {
    First,
    /// Trials after this one.
    After(u32),
    Nothing,
}

impl ExportFile {
    /// Returns the next piece of the file and the remaining state. If the store fails, the body
    /// ends early, which clients detect.
    async fn more(mut self) -> Result<Option<(String, Self)>, StoreError> {
        let after = match self.next {
            NextExportPage::First => None,
            NextExportPage::After(number) => Some(number),
            NextExportPage::Nothing => return Ok(None),
        };
        let curves = self.format == ExportFormat::Json;
        let mut tx = self.app.begin(&self.caller).await?;
        let trials = trial::list(&mut tx, self.id, None, curves, after, PAGE).await?;
        drop(tx);
        let is_last = trials.len() < PAGE as usize;
        let text = match self.format {
            ExportFormat::Csv => csv(&self.document, &trials, after.is_none()),
            ExportFormat::Json => json(&trials, after.is_none(), is_last),
        };
        self.next = match trials.last() {
            Some(last) if !is_last => NextExportPage::After(last.number),
            _ => NextExportPage::Nothing,
        };
        Ok(Some((text, self)))
    }
}

/// Returns a part of a list.
fn json(trials: &[TrialView], is_first: bool, is_last: bool) -> String {
    let mut text = String::new();
    let mut comma = if is_first { "[" } else { "," };
    for trial in trials {
        text.push_str(comma);
        text.push_str(&serde_json::to_string(trial).expect("a trial is JSON"));
        comma = ",";
    }
    if is_last {
        text.push_str(if is_first && trials.is_empty() {
            "[]"
        } else {
            "]"
        });
    }
    text
}

/// Returns the names of the columns.
fn header(document: &StudySpec) -> String {
    let parameters = &document.search.parameters;
    let fixed = [
        "number",
        "state",
        "budget",
        "rung",
        "from_trial",
        "from_step",
        "seed",
        "job_id",
        "best",
        "step",
    ];
    let mut header: Vec<String> = fixed.map(str::to_owned).into();
    header.extend(parameters.iter().map(|one| quoted(&one.name)));
    let objectives = document.search.objectives.iter();
    header.extend(objectives.map(|one| quoted(&one.metric)));
    header.join(",") + "\n"
}

/// Returns one line per trial: its state, its parameters by name, its objectives by metric. Missing
/// values are empty. The column names precede the first line.
fn csv(document: &StudySpec, trials: &[TrialView], is_first: bool) -> String {
    let parameters = &document.search.parameters;
    let mut text = if is_first {
        header(document)
    } else {
        String::new()
    };
    for trial in trials {
        let mut row = vec![
            trial.number.to_string(),
            trial.state.as_str().to_owned(),
            trial.budget.to_string(),
            trial.rung.to_string(),
            or_empty(trial.from.map(|from| from.trial.to_string())),
            or_empty(trial.from.map(|from| from.step.to_string())),
            trial.seed.to_string(),
            or_empty(trial.job_id.map(|id| id.to_string())),
            trial.best.to_string(),
            or_empty(trial.outcome.as_ref().map(|one| one.step.to_string())),
        ];
        row.extend(
            parameters
                .iter()
                .map(|one| match trial.parameters.get(&one.name) {
                    None => String::new(),
                    Some(Value::String(text)) => quoted(text),
                    Some(other) => quoted(&other.to_string()),
                }),
        );
        for i in 0..document.search.objectives.len() {
            let values = trial.outcome.as_ref().map(|one| &one.values);
            let value = values.and_then(|values| *values.get(i)?);
            row.push(or_empty(value.map(|value| value.to_string())));
        }
        text.push_str(&row.join(","));
        text.push('\n');
    }
    text
}

fn or_empty(value: Option<String>) -> String {
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn export_without_trials_is_a_valid_list() {
        assert_eq!(json(&[], true, true), "[]");
        assert_eq!(json(&[], false, true), "]");
    }
}
