//! `GET /studies/{id}/export`: all trials in one file.

use super::wire;
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{FromQuery, Named, Params, Query};
use crate::state::App;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use muster_model::id::StudyId;
use muster_model::study::StudySpec;
use muster_model::view::TrialView;
use muster_store::study::trial;
use serde_json::Value;

/// No study has more.
const ALL: u32 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Json,
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportParams {
    /// `csv`: a line a trial, without curves. `json`: a list of trials with their curves.
    #[param(required = false, value_type = String, default = "csv")]
    pub format: Format,
}

impl FromQuery for ExportParams {
    const NAMES: &'static [&'static str] = &["format"];

    fn take(query: &mut Query) -> Self {
        let text: Option<String> = query.one("format", "csv or json");
        let format = match text.as_deref() {
            None | Some("csv") => Format::Csv,
            Some("json") => Format::Json,
            Some(other) => {
                query.wrong("format", other, "csv or json");
                Format::Csv
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
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(params): Params<ExportParams>,
) -> Result<Response, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let study = wire::find(&mut tx, id).await?;
    let curves = params.format == Format::Json;
    let trials = trial::list(&mut tx, id, None, curves, None, ALL).await?;
    drop(tx);
    let (kind, ending, body) = match params.format {
        Format::Csv => (
            "text/csv; charset=utf-8",
            "csv",
            csv(&study.document, &trials),
        ),
        Format::Json => {
            let text = serde_json::to_string(&trials).expect("trials are JSON");
            ("application/json", "json", text)
        }
    };
    let name = format!("attachment; filename=\"{}.{ending}\"", study.document.name);
    let headers = [(CONTENT_TYPE, kind.to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, body).into_response())
}

/// A line a trial: what is known of it, its parameters by name, its objectives by metric. Missing values are empty.
fn csv(document: &StudySpec, trials: &[TrialView]) -> String {
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
    let mut text = header.join(",") + "\n";
    for trial in trials {
        let maybe = |value: Option<String>| value.unwrap_or_default();
        let mut row = vec![
            trial.number.to_string(),
            trial.state.as_str().to_owned(),
            trial.budget.to_string(),
            trial.rung.to_string(),
            maybe(trial.from.map(|from| from.trial.to_string())),
            maybe(trial.from.map(|from| from.step.to_string())),
            trial.seed.to_string(),
            maybe(trial.job_id.map(|id| id.to_string())),
            trial.best.to_string(),
            maybe(trial.outcome.as_ref().map(|one| one.step.to_string())),
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
            row.push(maybe(value.map(|value| value.to_string())));
        }
        text.push_str(&row.join(","));
        text.push('\n');
    }
    text
}

/// RFC 4180; what a spreadsheet would take for a formula is a text to it.
fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '@', '\t', '\r'])
        || (text.starts_with('-') && text.parse::<f64>().is_err());
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_stay_in_their_cell_and_are_no_formulas() {
        for (text, cell) in [
            ("sgd", "sgd"),
            ("[64,32]", "\"[64,32]\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("-0.5", "-0.5"),
            ("=1+1", "'=1+1"),
            ("-cmd", "'-cmd"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }
}
