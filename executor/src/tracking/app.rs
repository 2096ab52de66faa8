//! State of the server, and the authentication of its callers by the token of a task.

use super::error::{MlflowError, denied};
use super::models::LoggedModels;
use super::run::MlflowRun;
use super::tracked::{TrackedRuns, TrackedTask, series};
use crate::artifact::ArtifactStore;
use crate::code_cache::CodeCache;
use crate::events;
use crate::folder::NodeTaskFolder;
use crate::log_once::LogOnce;
use crate::secret_client::SecretClient;
use axum::Json;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use muster_connections::KeyedSemaphore;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::id::TaskId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::MutexGuard;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Limit of uploads of artifacts.
pub(super) type UploadPermits = KeyedSemaphore<TaskId>;

pub(super) type MlflowResponse = Result<Json<Value>, MlflowError>;

#[derive(Debug)]
pub(super) struct TrackingApp {
    pub(super) tasks: PathBuf,
    pub(super) code: CodeCache,
    pub(super) secrets: SecretClient,
    pub(super) artifacts: ArtifactStore,
    pub(super) uploads: UploadPermits,
    pub(super) runs: TrackedRuns,
    /// Notified when a task makes its first request.
    pub(super) opened: Notify,
}

impl TrackingApp {
    /// Returns the task to which the token belongs.
    pub(super) fn launch(&self, headers: &HeaderMap) -> Result<TaskLaunch, MlflowError> {
        let id = self.open(headers)?;
        let runs = self.lock();
        Ok(runs.get(&id).ok_or_else(denied)?.launch.clone())
    }

    /// Adds an event of a task, unless it was added before.
    pub(super) fn note_once(&self, task: TaskId, note: TaskReport) {
        let mut runs = self.lock();
        let Some(open) = runs.get_mut(&task) else {
            return;
        };
        let text = serde_json::to_string(&note).unwrap_or_default();
        if open.logged.is_new(&text)
            && let Err(error) = events::append(&open.folder.events(), &[note])
        {
            tracing::warn!(task.id = %task, %error, "an event is lost");
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, TrackedTask>> {
        self.runs.lock()
    }

    pub(super) fn with(
        &self,
        headers: &HeaderMap,
        answer: impl FnOnce(&mut TrackedTask) -> Result<Value, MlflowError>,
    ) -> MlflowResponse {
        let id = self.open(headers)?;
        let mut runs = self.lock();
        // The task may have ended meanwhile.
        answer(runs.get_mut(&id).ok_or_else(denied)?).map(Json)
    }

    /// Returns the task to which the token belongs, and records it.
    pub(super) fn open(&self, headers: &HeaderMap) -> Result<TaskId, MlflowError> {
        let given = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = given
            .and_then(|text| text.strip_prefix("Bearer "))
            .ok_or_else(denied)?;
        let id: TaskId = token
            .split('.')
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(|_| denied())?;
        let folder = NodeTaskFolder::of(&self.tasks, id);
        let right = folder.token().text().map_err(|_| denied())?;
        if !is_same(token, &right) || folder.exit().is_there() {
            return Err(denied());
        }
        if self.lock().contains_key(&id) {
            return Ok(id);
        }
        let launch = self.runs.launch(id).ok_or_else(denied)?;
        // Without the lock: the events of a long task take time to read, and other tasks must not
        // wait.
        let run = MlflowRun::new(aside(|| series(&launch, &folder))?).following(&launch, &folder);
        self.lock().entry(id).or_insert(TrackedTask {
            folder,
            launch,
            run,
            models: LoggedModels::default(),
            logged: LogOnce::default(),
        });
        self.opened.notify_one();
        Ok(id)
    }
}

/// Runs blocking work; a runtime with several threads continues with its other tasks meanwhile.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Compares in constant time for equal lengths, so that the time does not reveal a matching prefix.
fn is_same(given: &str, right: &str) -> bool {
    let differing = given
        .bytes()
        .zip(right.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == right.len() && differing == 0
}
