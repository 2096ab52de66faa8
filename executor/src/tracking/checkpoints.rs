//! Checkpoints over HTTP: the report of a program, and the checkpoint with which it begins, for the
//! task's process before it becomes the program.

use super::app::{MlflowResponse, TrackingApp};
use super::artifacts;
use super::error::{MlflowError, not_kept};
use super::message::{self, Malformed};
use crate::events;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use muster_model::assignment::TaskReport;
use muster_model::program_checkpoint::is_program_path;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the routes.
pub(super) fn routes() -> Router<Arc<TrackingApp>> {
    Router::new()
        .route("/muster/v1/checkpoint", post(report))
        .route("/muster/v1/checkpoint/first", get(first))
        .route("/muster/v1/checkpoint/first/content", get(first_content))
}

/// Records that the program has written a checkpoint from which it continues at `step`. With `path`
/// the node registers it.
async fn report(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let step = body.get("step").and_then(message::integer);
        let step = step.and_then(|step| u64::try_from(step).ok());
        let step = step.ok_or(Malformed {
            field: "step",
            expected: "a whole number of at least 0",
        })?;
        let path = match body.get("path") {
            None | Some(Value::Null) => None,
            Some(path) => Some(path_of(path)?),
        };
        if path.is_some() {
            // Metrics that were logged before it are recorded with it.
            open.flush(true)?;
        }
        let report = TaskReport::CheckpointReported { step, path };
        events::append(&open.folder.events(), &[report]).map_err(not_kept)?;
        Ok(json!({}))
    })
}

fn path_of(given: &Value) -> Result<String, Malformed> {
    let path = given.as_str().filter(|path| is_program_path(path));
    path.map(str::to_owned).ok_or(Malformed {
        field: "path",
        expected: "the relative path of a file or folder below MUSTER_CHECKPOINT_DIR",
    })
}

/// Answers with the checkpoint with which the program begins; `null` if there is none.
async fn first(State(app): State<Arc<TrackingApp>>, headers: HeaderMap) -> MlflowResponse {
    let launch = app.launch(&headers)?;
    let beginning = app.artifacts.first_checkpoint(launch.task_id).await;
    let beginning = beginning.map_err(|error| artifacts::answer(&error))?;
    let found = beginning.checkpoint.map(|(_, found)| {
        json!({
            "job_id": found.job_id, "path": found.path, "step": found.step,
            "sha256": found.sha256, "bytes": found.bytes, "is_in_bucket": !found.object.is_empty(),
        })
    });
    Ok(Json(
        json!({ "checkpoint": found, "is_trial": beginning.is_trial }),
    ))
}

/// Answers with its content in a bucket, a tar file.
async fn first_content(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
) -> Result<Response, MlflowError> {
    let launch = app.launch(&headers)?;
    let content = app.artifacts.open_first_checkpoint(launch.task_id).await;
    let content = content.map_err(|error| artifacts::answer(&error))?;
    Ok(Body::from_stream(content).into_response())
}
