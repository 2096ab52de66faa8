//! The HTTP server and the routes of runs.

use super::app::{MlflowResponse, TrackingApp};
use super::artifacts;
use super::checkpoints;
use super::error::{MlflowError, denied};
use super::message::{self, LogBatch};
use super::model;
use super::secrets;
use super::tensorboard;
use super::tracked::{EXPERIMENT, TrackedRuns};
use crate::artifact::ArtifactStore;
use crate::clock;
use crate::code_cache::CodeCache;
use crate::disk;
use crate::error::ExecutorError;
use crate::secret_client::SecretClient;
use crate::shim::{CheckpointRequest, StopNotice};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;

/// Interval of flushes of buffered points.
const FLUSH_EVERY: Duration = Duration::from_millis(250);
/// Poll interval of the stop notice for waiting requests.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait of a request, below the time-outs of proxies and clients.
const LONGEST_WAIT_S: u64 = 60;
/// Bytes per read of a code archive.
const CODE_PIECE_BYTES: usize = 256 << 10;
/// The listening socket and the state of the server.
#[derive(Debug)]
pub struct Tracking {
    listener: TcpListener,
    tasks: PathBuf,
    code: CodeCache,
    secrets: SecretClient,
    artifacts: ArtifactStore,
    runs: TrackedRuns,
}

impl Tracking {
    /// Listens on the port of the previous daemon, so that programs which outlived it find this
    /// one; on another port if that one is taken.
    ///
    /// # Errors
    /// If no port is available, or if it cannot be stored.
    pub fn open(
        data: &Path,
        host: IpAddr,
        code: CodeCache,
        (secrets, artifacts): (SecretClient, ArtifactStore),
    ) -> Result<Self, ExecutorError> {
        let path = data.join("tracking-port");
        let before: Option<u16> = disk::read(&path).ok().flatten();
        let again = before.and_then(|port| TcpListener::bind((host, port)).ok());
        if let (Some(port), None) = (before, &again) {
            tracing::warn!(
                port,
                "the port for tracking is taken; running programs cannot report any more"
            );
        }
        let listener = match again {
            Some(listener) => listener,
            None => crate::command::listen(host).map_err(ExecutorError::Tracking)?,
        };
        let port = listener
            .local_addr()
            .map_err(ExecutorError::Tracking)?
            .port();
        disk::write_durably(&path, &port).map_err(ExecutorError::write(path))?;
        listener
            .set_nonblocking(true)
            .map_err(ExecutorError::Tracking)?;
        let tasks = data.join("tasks");
        Ok(Self {
            listener,
            tasks,
            code,
            secrets,
            artifacts,
            runs: TrackedRuns::default(),
        })
    }

    /// Returns the runs, for the loop that sees tasks end.
    #[must_use]
    pub fn runs(&self) -> TrackedRuns {
        self.runs.clone()
    }

    /// # Errors
    /// If the socket has no address.
    pub fn address(&self) -> Result<SocketAddr, ExecutorError> {
        self.listener.local_addr().map_err(ExecutorError::Tracking)
    }

    /// Answers requests until the daemon ends.
    ///
    /// # Errors
    /// If the socket cannot be used.
    pub async fn serve(self) -> std::io::Result<()> {
        let app = Arc::new(TrackingApp {
            tasks: self.tasks,
            code: self.code,
            secrets: self.secrets,
            artifacts: self.artifacts,
            uploads: artifacts::permits(),
            runs: self.runs,
            opened: Notify::new(),
        });
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let flushing = flush_for_ever(Arc::clone(&app));
        let reading = tensorboard::follow(app.runs.clone(), app.tasks.clone());
        tokio::select! {
            () = muster_connections::serve(listener, routes(app)) => {}
            () = flushing => {}
            () = reading => {}
        }
        Ok(())
    }
}

fn routes(app: Arc<TrackingApp>) -> Router {
    let mlflow = Router::new()
        .route("/runs/create", post(run_of_this_task))
        .route("/runs/get", get(get_run))
        .route("/runs/update", post(update_run))
        .route("/runs/log-metric", post(log_metric))
        .route("/runs/log-batch", post(log_batch))
        .route("/runs/log-parameter", post(log_parameter))
        .route("/runs/set-tag", post(set_tag))
        .route("/runs/search", post(search_runs))
        .route("/runs/outputs", post(accept))
        .route("/runs/log-inputs", post(accept))
        .route("/runs/log-model", post(accept))
        .route("/experiments/create", post(create_experiment))
        .route(
            "/experiments/search",
            get(search_experiments).post(search_experiments),
        )
        .route("/experiments/get", get(get_experiment))
        .route("/experiments/get-by-name", get(get_experiment))
        .merge(model::routes());
    Router::new()
        .nest("/api/2.0/mlflow", mlflow)
        .merge(artifacts::routes())
        .route("/muster/v1/stopping", get(stopping))
        .merge(checkpoints::routes())
        .route("/muster/v1/code", get(code))
        .route("/muster/v1/secrets", get(secrets::secrets))
        .fallback(async || {
            MlflowError::new(
                StatusCode::NOT_FOUND,
                "ENDPOINT_NOT_FOUND",
                "Muster answers a part of MLflow's tracking interface; docs/commands.md lists it",
            )
        })
        .with_state(app)
}

async fn run_of_this_task(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        open.run.name = text(&body, "run_name").or(open.run.name.take());
        let tags = message::batch(&body)?.tags;
        open.log(LogBatch {
            tags,
            ..LogBatch::default()
        })?;
        Ok(json!({ "run": open.shown() }))
    })
}

async fn get_run(State(app): State<Arc<TrackingApp>>, headers: HeaderMap) -> MlflowResponse {
    app.with(&headers, |open| Ok(json!({ "run": open.shown() })))
}

async fn update_run(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        if let Some(status) = text(&body, "status") {
            open.run.status = status;
        }
        open.run.name = text(&body, "run_name").or(open.run.name.take());
        let end_ms = body.get("end_time").and_then(message::integer);
        open.run.end_ms = end_ms.or(open.run.end_ms);
        open.flush(true)?;
        Ok(json!({ "run_info": open.info() }))
    })
}

async fn log_metric(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let metrics = vec![message::metric(&body)?];
        open.log(LogBatch {
            metrics,
            ..LogBatch::default()
        })
    })
}

async fn log_batch(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| open.log(message::batch(&body)?))
}

async fn log_parameter(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let params = vec![message::pair(&body)?];
        open.log(LogBatch {
            params,
            ..LogBatch::default()
        })
    })
}

async fn set_tag(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let tags = vec![message::pair(&body)?];
        open.log(LogBatch {
            tags,
            ..LogBatch::default()
        })
    })
}

async fn create_experiment(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
) -> MlflowResponse {
    app.with(&headers, |_| Ok(json!({ "experiment_id": EXPERIMENT })))
}

async fn get_experiment(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> MlflowResponse {
    app.with(&headers, |open| {
        let name = query.get("experiment_name").map(String::as_str);
        Ok(json!({ "experiment": open.experiment(name) }))
    })
}

async fn search_experiments(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
) -> MlflowResponse {
    app.with(&headers, |open| {
        Ok(json!({ "experiments": [open.experiment(None)] }))
    })
}

/// Answers with the run of the job for each search. Filters are not evaluated.
async fn search_runs(State(app): State<Arc<TrackingApp>>, headers: HeaderMap) -> MlflowResponse {
    app.with(&headers, |open| Ok(json!({ "runs": [open.shown()] })))
}

/// Accepts what a run of Muster has no place for, such as data sets, so that programs continue.
async fn accept(State(app): State<Arc<TrackingApp>>, headers: HeaderMap) -> MlflowResponse {
    app.with(&headers, |_| Ok(json!({})))
}

/// Answers as soon as the task is asked to stop, or after `wait_s` seconds without a stop. With
/// `checkpoint=true` a request for a checkpoint is answered at once too.
async fn stopping(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> MlflowResponse {
    let wait_s = query
        .get("wait_s")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0_u64);
    let awaits_request = query.get("checkpoint").is_some_and(|text| text == "true");
    let (notice, request) = {
        let id = app.open(&headers)?;
        let mut runs = app.lock();
        let folder = &runs.get_mut(&id).ok_or_else(denied)?.folder;
        (folder.stopping(), folder.checkpoint_request())
    };
    let until_ms = clock::boottime_ms() + wait_s.min(LONGEST_WAIT_S) * 1_000;
    loop {
        let asked = request.read::<CheckpointRequest>().ok().flatten();
        let is_asked = asked.is_some();
        if let Ok(Some(told)) = notice.read::<StopNotice>() {
            return Ok(Json(json!({
                "stopping": true, "checkpoint_requested": is_asked,
                "until_unix_ms": told.until_unix_ms, "grace_ms": told.grace_ms,
            })));
        }
        if let Some(asked) = asked.filter(|_| awaits_request) {
            return Ok(Json(json!({
                "stopping": false, "checkpoint_requested": true, "until_unix_ms": asked.until_unix_ms,
            })));
        }
        if clock::boottime_ms() >= until_ms {
            return Ok(Json(
                json!({ "stopping": false, "checkpoint_requested": is_asked }),
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Answers with the code archive that the task's document names.
async fn code(
    State(app): State<Arc<TrackingApp>>,
    headers: HeaderMap,
) -> Result<Response, MlflowError> {
    let id = app.open(&headers)?;
    let (tenant, code) = {
        let runs = app.lock();
        let launch = &runs.get(&id).ok_or_else(denied)?.launch;
        let command = launch.spec.command.as_ref();
        (
            launch.tenant_id,
            command.and_then(|command| command.code.clone()),
        )
    };
    let code = code.ok_or_else(|| {
        let message = "the document of this task names no code archive";
        MlflowError::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
    })?;
    let (file, bytes) = app
        .code
        .open(tenant, &code.archive)
        .await
        .map_err(|error| {
            let message = muster_model::error_chain::chain(&error);
            if error.is_permanent() {
                MlflowError::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
            } else {
                tracing::warn!(task.id = %id, error = message, "a task waits for its code");
                MlflowError::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "TEMPORARILY_UNAVAILABLE",
                    message,
                )
            }
        })?;
    let content = stream::try_unfold(tokio::fs::File::from_std(file), |mut file| async move {
        let mut piece = vec![0; CODE_PIECE_BYTES];
        let length = file.read(&mut piece).await?;
        piece.truncate(length);
        Ok::<_, std::io::Error>((length > 0).then_some((piece, file)))
    });
    Ok(([(CONTENT_LENGTH, bytes)], Body::from_stream(content)).into_response())
}

async fn flush_for_ever(app: Arc<TrackingApp>) {
    loop {
        if app.lock().is_empty() {
            app.opened.notified().await;
        }
        tokio::time::sleep(FLUSH_EVERY).await;
        let mut runs = app.lock();
        for open in runs.values_mut() {
            let has_ended = open.folder.exit().is_there();
            open.flush_or_log(has_ended);
        }
        // A task that has ended reports nothing more.
        runs.retain(|_, open| !open.folder.exit().is_there());
    }
}

fn text(body: &Value, field: &str) -> Option<String> {
    let found = body.get(field).and_then(Value::as_str);
    found.filter(|text| !text.is_empty()).map(str::to_owned)
}
