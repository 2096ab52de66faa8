//! Logged models of MLflow 3, as far as `log_model` needs them: a model gets an id, its files are
//! artifacts below `models/<id>`, and its status changes when they are complete. The entries are in
//! memory, so a restart of the daemon forgets them; the files stay.

use super::app::{MlflowResponse, TrackingApp};
use super::message;
use super::models::{self, LoggedModel};
use super::tracked::EXPERIMENT;
use crate::clock;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the routes below `/api/2.0/mlflow`.
pub(super) fn routes() -> Router<Arc<TrackingApp>> {
    Router::new()
        .route("/logged-models", post(create))
        .route("/logged-models/search", post(search))
        .route("/logged-models/{id}", get(show).patch(finalize))
        .route("/logged-models/{id}/tags", patch(set_tags))
        .route("/logged-models/{id}/params", post(log_params))
}

async fn create(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    let id = clock::random_id().map_err(super::error::not_kept)?;
    let id = format!("m-{}", id.simple());
    app.with(&headers, |open| {
        let batch = message::batch(&body)?;
        let now_ms = clock::unix_ms();
        let [name, kind] = ["name", "model_type"].map(|field| body.get(field)?.as_str());
        let info = json!({
            "model_id": id, "experiment_id": EXPERIMENT, "name": name.unwrap_or("model"),
            "creation_timestamp_ms": now_ms, "last_updated_timestamp_ms": now_ms,
            "artifact_uri": format!("mlflow-artifacts:/{EXPERIMENT}/models/{id}/artifacts"),
            "status": "LOGGED_MODEL_PENDING", "model_type": kind.unwrap_or_default(),
            "source_run_id": open.launch.job_id.0.simple().to_string(),
        });
        let model = LoggedModel {
            info,
            tags: batch.tags.into_iter().collect(),
            params: batch.params.into_iter().collect(),
        };
        let shown = model.shown();
        open.models.insert(id, model)?;
        Ok(shown)
    })
}

async fn show(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> MlflowResponse {
    app.with(&headers, |open| Ok(open.models.get(&id)?.shown()))
}

async fn finalize(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let model = open.models.get(&id)?;
        if let Some(given) = body.get("status") {
            model.info["status"] = models::status(given)?.into();
        }
        model.info["last_updated_timestamp_ms"] = clock::unix_ms().into();
        Ok(model.shown())
    })
}

async fn set_tags(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let tags = message::batch(&body)?.tags;
        let model = open
            .models
            .add(&id, (|model| &mut model.tags, "tags"), tags)?;
        Ok(model.shown())
    })
}

async fn log_params(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let params = message::batch(&body)?.params;
        open.models
            .add(&id, (|model| &mut model.params, "params"), params)?;
        Ok(json!({}))
    })
}

async fn search(State(app): State<Arc<TrackingApp>>, headers: HeaderMap) -> MlflowResponse {
    app.with(&headers, |open| {
        let models = open.models.all();
        let models: Vec<Value> = models.map(|model| model.shown()["model"].clone()).collect();
        Ok(json!({ "models": models }))
    })
}
