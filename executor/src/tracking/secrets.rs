//! `GET /muster/v1/secrets`: the values that the document of the requesting task names.

use super::app::TrackingApp;
use super::error::MlflowError;
use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Serialize)]
struct Answer<'a> {
    values: BTreeMap<&'a str, &'a str>,
}

pub(super) async fn secrets(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
) -> Result<Response, MlflowError> {
    let launch = app.launch(&headers)?;
    let found = app.secrets.fetch(&launch).await.map_err(|error| {
        let message = muster_model::error_chain::chain(&error);
        if error.is_permanent() {
            MlflowError::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
        } else {
            tracing::warn!(task.id = %launch.task_id, error = message, "a task waits for its secrets");
            MlflowError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "TEMPORARILY_UNAVAILABLE",
                message,
            )
        }
    })?;
    let values = found.iter();
    let values = values.map(|(name, value)| (name.as_str(), value.as_str()));
    let mut response = Json(Answer {
        values: values.collect(),
    })
    .into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
