//! Artifacts over HTTP: the REST interface of MLflow's proxied artifact repository, and the same
//! for programs without MLflow. `mlflow-artifacts:/0/<run>/artifacts` is the job's folder.

use super::app::{TrackingApp, UploadPermits};
use super::error::{MlflowError, denied};
use super::tracked::{EXPERIMENT, artifact_root as root, artifact_uri as uri};
use crate::artifact::{Announced, ArtifactError, ListedArtifact, OpenArtifact};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use muster_connections::PermitError;
use muster_model::artifact::is_artifact_path;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt as _;

/// Maximum time between two pieces of an upload.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum number of uploads of this node at one time; each holds a part of an object in memory.
const MAX_UPLOADS: usize = 32;
const MAX_UPLOADS_OF_TASK: usize = 8;

pub(super) fn permits() -> UploadPermits {
    UploadPermits::new(MAX_UPLOADS, MAX_UPLOADS_OF_TASK)
}

/// Returns the routes.
pub(super) fn routes() -> Router<Arc<TrackingApp>> {
    let own = get(download).put(upload).delete(remove);
    Router::new()
        .route("/api/2.0/mlflow-artifacts/artifacts", get(list_repository))
        .route("/api/2.0/mlflow-artifacts/artifacts/{*path}", own.clone())
        .route("/api/2.0/mlflow/artifacts/list", get(list_run))
        .route("/muster/v1/artifacts/{*path}", own)
}

/// Returns the path of an artifact for a path of MLflow's repository. Models that MLflow logs apart
/// from a run are below `models` there and here. Any other path is used as it is.
fn path_of(launch: &TaskLaunch, given: &str) -> String {
    let given = given.trim_matches('/');
    if let Some(own) = given.strip_prefix(&root(launch)) {
        return own.trim_start_matches('/').to_owned();
    }
    let models = format!("{EXPERIMENT}/models/");
    match given
        .strip_prefix(&models)
        .and_then(|rest| rest.split_once('/'))
    {
        Some((model, rest)) => {
            let rest = rest.strip_prefix("artifacts").unwrap_or(rest);
            let path = format!("models/{model}/{}", rest.trim_start_matches('/'));
            path.trim_end_matches('/').to_owned()
        }
        None => given.to_owned(),
    }
}

async fn upload(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(given): Path<String>,
    body: Body,
) -> Result<Json<Value>, MlflowError> {
    let launch = app.launch(&headers)?;
    let path = path_of(&launch, &given);
    let permit = app.uploads.take(Some(launch.task_id)).map_err(busy)?;
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let announced: u64 = announced.unwrap_or(0);
    let pieces = body.into_data_stream().timeout(SILENCE);
    let pieces = Box::pin(pieces.map(|piece| match piece {
        Ok(piece) => piece.map_err(io::Error::other),
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
    }));
    let (store, task, kept) = (app.artifacts.clone(), launch.task_id, path.clone());
    // Of its own: a client that disconnects must not leave half a content.
    let uploading = tokio::spawn(async move {
        let _permit = permit;
        let announced = Announced {
            bytes: announced,
            sha256: None,
        };
        store.put(task, &kept, announced, pieces).await
    });
    match uploading.await {
        Ok(Ok(())) => Ok(Json(json!({}))),
        Ok(Err(error)) => {
            app.note_refusal(task, &path, &error);
            Err(answer(&error))
        }
        Err(error) => Err(answer(&ArtifactError::Read(io::Error::other(error)))),
    }
}

async fn download(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(given): Path<String>,
) -> Result<Response, MlflowError> {
    let launch = app.launch(&headers)?;
    let path = path_of(&launch, &given);
    checked(&path)?;
    let opened = app.artifacts.open(launch.task_id, &path).await;
    let OpenArtifact {
        bytes,
        content_type,
        content,
    } = opened.map_err(|error| answer(&error))?;
    let mut response = Body::from_stream(content).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(HeaderName::from_static("x-content-type-options"), nosniff);
    Ok(response)
}

async fn remove(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Path(given): Path<String>,
) -> Result<Json<Value>, MlflowError> {
    let launch = app.launch(&headers)?;
    let path = path_of(&launch, &given);
    checked(&path)?;
    let removed = app.artifacts.remove(launch.task_id, &path).await;
    match removed {
        Ok(true) => Ok(Json(json!({}))),
        Ok(false) => Err(answer(&ArtifactError::Missing(path))),
        Err(error) => Err(answer(&error)),
    }
}

/// Lists a folder of the repository. Paths of the answer are relative to it.
async fn list_repository(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, MlflowError> {
    let launch = app.launch(&headers)?;
    let given = query.get("path").map_or("", String::as_str);
    let folder = path_of(&launch, given);
    let all = listed(&app, &launch, &folder).await?;
    Ok(Json(json!({ "files": entries(&all, &folder, "") })))
}

/// Lists a folder of the run. Paths of the answer are relative to the run.
async fn list_run(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, MlflowError> {
    let launch = app.launch(&headers)?;
    let folder = query.get("path").map_or("", |path| path.trim_matches('/'));
    let all = listed(&app, &launch, folder).await?;
    let shown = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let files = entries(&all, folder, &shown);
    Ok(Json(json!({ "root_uri": uri(&launch), "files": files })))
}

async fn listed(
    app: &TrackingApp,
    launch: &TaskLaunch,
    folder: &str,
) -> Result<Vec<ListedArtifact>, MlflowError> {
    if !folder.is_empty() {
        checked(folder)?;
    }
    let prefix = prefix(folder);
    let listed = app.artifacts.list(launch.task_id, &prefix).await;
    listed.map_err(|error| answer(&error))
}

fn prefix(folder: &str) -> String {
    match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    }
}

/// Returns the entries of one folder in MLflow's format, with `shown` before each name.
fn entries(all: &[ListedArtifact], folder: &str, shown: &str) -> Vec<Value> {
    let prefix = prefix(folder);
    let (mut folders, mut files) = (BTreeSet::new(), Vec::new());
    for one in all {
        let Some(name) = one.path.strip_prefix(&prefix) else {
            continue;
        };
        match name.split_once('/') {
            Some((inner, _)) => drop(folders.insert(inner)),
            None => files.push(json!({
                "path": format!("{shown}{name}"), "is_dir": false, "file_size": one.bytes,
            })),
        }
    }
    let folders = folders.into_iter();
    let folders = folders.map(|name| json!({ "path": format!("{shown}{name}"), "is_dir": true }));
    files.extend(folders);
    files
}

fn busy(error: PermitError) -> MlflowError {
    let (most, whose) = match error {
        PermitError::All(most) => (most, "node"),
        PermitError::OfKey(most) => (most, "task"),
    };
    MlflowError::new(
        StatusCode::TOO_MANY_REQUESTS,
        "RESOURCE_EXHAUSTED",
        format!("{most} uploads of this {whose} are under way already"),
    )
}

/// Refuses what is no path of an artifact.
fn checked(path: &str) -> Result<(), MlflowError> {
    if is_artifact_path(path) {
        Ok(())
    } else {
        let shown = path.chars().take(200).collect();
        Err(answer(&ArtifactError::Path(shown)))
    }
}

pub(super) fn answer(error: &ArtifactError) -> MlflowError {
    let (status, code) = match error {
        ArtifactError::Path(_) => (StatusCode::BAD_REQUEST, "INVALID_PARAMETER_VALUE"),
        ArtifactError::Missing(_) => (StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST"),
        ArtifactError::Refused { .. } => (StatusCode::FORBIDDEN, "RESOURCE_EXHAUSTED"),
        ArtifactError::Grown { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "RESOURCE_EXHAUSTED"),
        ArtifactError::StoreFull => (StatusCode::INSUFFICIENT_STORAGE, "RESOURCE_EXHAUSTED"),
        ArtifactError::Read(_) => (StatusCode::BAD_REQUEST, "BAD_REQUEST"),
        error if error.is_over() => return denied(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "TEMPORARILY_UNAVAILABLE"),
    };
    MlflowError::new(status, code, chain(error))
}

impl TrackingApp {
    /// Adds an event about an upload that a limit or a full store has refused.
    fn note_refusal(&self, task: TaskId, path: &str, error: &ArtifactError) {
        let is_noted = matches!(
            error,
            ArtifactError::Refused { .. } | ArtifactError::Grown { .. } | ArtifactError::StoreFull
        );
        if !is_noted {
            return;
        }
        let message = format!("artifact {path:?} is not kept: {}", chain(error));
        self.note_once(task, TaskReport::Note { message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::test_launch;

    #[test]
    fn repository_paths_are_paths_of_the_job() {
        let launch = test_launch();
        let root = root(&launch);
        for (given, path) in [
            (format!("{root}/plots/a.png"), "plots/a.png"),
            (root.clone(), ""),
            (
                "0/models/m-1/artifacts/MLmodel".to_owned(),
                "models/m-1/MLmodel",
            ),
            ("0/models/m-1/artifacts".to_owned(), "models/m-1"),
            ("plain/b".to_owned(), "plain/b"),
        ] {
            assert_eq!(path_of(&launch, &given), path, "{given}");
        }
    }

    #[test]
    fn folder_lists_its_own_names_only() {
        let one = |path: &str| ListedArtifact {
            path: path.to_owned(),
            bytes: 1,
        };
        let all = [one("a/b"), one("a/c/d"), one("a/c/e"), one("f")];
        let names = |folder: &str, shown: &str| {
            let entries = entries(&all, folder, shown).into_iter();
            entries
                .map(|entry| {
                    (
                        entry["path"].as_str().expect("a path").to_owned(),
                        entry["is_dir"] == true,
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("", ""),
            [("f".to_owned(), false), ("a".to_owned(), true)]
        );
        assert_eq!(
            names("a", "a/"),
            [("a/b".to_owned(), false), ("a/c".to_owned(), true)]
        );
        assert_eq!(names("a/b", ""), []);
    }
}
