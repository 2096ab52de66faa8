//! Speaks to the API server: watches our pods, and makes and deletes what is wanted, again and again until it is so.

use super::mirror::{Known, Mirror, Wish};
use super::status::Status;
use super::template::{TASK_LABEL, name};
use crate::clock;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// For one answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries at what has failed.
const AGAIN: Duration = Duration::from_secs(1);
/// What a server forbids for so long it will forbid again: one that has just started does not know all its rights yet, and a quota may be
/// raised.
const FORBIDDEN_FOR: Duration = Duration::from_secs(30);
const FORBIDDEN: u16 = 403;
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;
/// Answers of the 400s that mean "later".
const LATER: [u16; 4] = [401, 408, 425, 429];

/// What speaks to the API server.
#[derive(Debug)]
pub struct Server {
    pub api: Api<Pod>,
    /// Of this executor's pods.
    pub selector: String,
    /// The executor's own pod, with whose owner tasks' pods go away.
    pub own: Option<String>,
    pub mirror: Arc<Mirror>,
}

impl Server {
    /// Runs until the process ends.
    pub async fn serve(self) {
        tokio::join!(
            watch(self.api.clone(), &self.selector, &self.mirror),
            self.work()
        );
    }

    async fn work(&self) {
        let mut owner = None;
        let mut forbidden = Forbidden::default();
        loop {
            let mut has_failed = false;
            let wishes = self.mirror.lock().wishes();
            forbidden.retain(&wishes);
            for (task, wish) in wishes {
                let done = self.carry_out(task, &wish, &mut owner).await;
                match forbidden.judge(task, done, clock::boottime_ms()) {
                    Ok(known) => {
                        let mut state = self.mirror.lock();
                        if let Some(known) = known {
                            state.learn_answer(task, known);
                        }
                        state.fulfil(task, &wish);
                    }
                    Err(error) => {
                        tracing::warn!(task.id = %task, error, "the API server was asked in vain; asked again");
                        self.mirror.lock().fail(task, &wish, error);
                        has_failed = true;
                    }
                }
            }
            if has_failed {
                tokio::time::sleep(AGAIN).await;
            } else {
                self.mirror.bell.notified().await;
            }
        }
    }

    /// What is known then; nothing after a pod was told to go, because it is still there.
    async fn carry_out(
        &self,
        task: TaskId,
        wish: &Wish,
        owner: &mut Option<OwnerReference>,
    ) -> Result<Option<Known>, Failure> {
        let (api, name) = (&self.api, name(task));
        match wish {
            Wish::Create(pod) => {
                let mut pod = pod.clone();
                if let (Some(own), None) = (&self.own, &owner) {
                    *owner = Some(owner_of(api, own).await?);
                }
                pod.metadata.owner_references = owner.clone().map(|owner| vec![owner]);
                create(api, &name, &pod).await.map(Some)
            }
            Wish::Delete => {
                let parameters = DeleteParams::default();
                match answered(api.delete(&name, &parameters)).await? {
                    Ok(_) => Ok(None),
                    Err(refusal) if refusal.code == NOT_FOUND => Ok(Some(Known::Absent)),
                    Err(refusal) => Err(refusal.message.into()),
                }
            }
            Wish::Look => Ok(Some(look(api, &name).await?)),
        }
    }
}

async fn watch(api: Api<Pod>, selector: &str, mirror: &Mirror) {
    let config = watcher::Config::default().labels(selector);
    let mut listed = BTreeMap::new();
    let events = watcher::watcher(api, config).default_backoff();
    let mut events = std::pin::pin!(events.inspect_err(|error| {
        tracing::warn!(error = %crate::shim::describe(error), "cannot watch the pods of tasks");
    }));
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                if let Some(task) = task_of(&pod) {
                    listed.insert(task, Status::of(&pod));
                }
            }
            Event::InitDone => mirror.lock().learn_all(std::mem::take(&mut listed)),
            Event::Apply(pod) => {
                if let Some(task) = task_of(&pod) {
                    let status = Box::new(Status::of(&pod));
                    mirror.lock().learn(task, Known::Present(status));
                }
            }
            Event::Delete(pod) => {
                if let Some(task) = task_of(&pod) {
                    mirror.lock().learn(task, Known::Absent);
                }
            }
        }
    }
}

async fn create(api: &Api<Pod>, name: &str, pod: &Pod) -> Result<Known, Failure> {
    match answered(api.create(&PostParams::default(), pod)).await? {
        Ok(pod) => Ok(present(&pod)),
        // An earlier daemon has made it, and died before it knew; or many were made at once, and a quota could not be counted.
        Err(refusal) if refusal.code == CONFLICT => match look(api, name).await? {
            Known::Absent => Err(refusal.message.into()),
            known => Ok(known),
        },
        Err(refusal) if refusal.code == FORBIDDEN => Err(Failure::Forbidden(refusal.message)),
        Err(refusal) => Ok(Known::Refused(refusal.message)),
    }
}

/// # Errors
/// Why it cannot be told, in words. A pod that nobody owns would outlive the release, so none is made until it can.
async fn owner_of(api: &Api<Pod>, own: &str) -> Result<OwnerReference, String> {
    match answered(api.get(own)).await? {
        Ok(pod) => Ok(owner(&pod)),
        Err(refusal) => Err(format!(
            "the executor's own pod {own} is not read: {}",
            refusal.message
        )),
    }
}

/// Whoever keeps executors here, a DaemonSet: pods of tasks go with it. They do not go with the executor's own pod, since the next one
/// adopts them.
fn owner(pod: &Pod) -> OwnerReference {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    let owner = owners.next().cloned().unwrap_or_else(|| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    });
    OwnerReference {
        // A DaemonSet would count what it controls as its own executors.
        controller: None,
        block_owner_deletion: None,
        ..owner
    }
}

async fn look(api: &Api<Pod>, name: &str) -> Result<Known, String> {
    match answered(api.get_opt(name)).await? {
        Ok(Some(pod)) => Ok(present(&pod)),
        Ok(None) => Ok(Known::Absent),
        Err(refusal) => Err(refusal.message),
    }
}

fn present(pod: &Pod) -> Known {
    Known::Present(Box::new(Status::of(pod)))
}

fn task_of(pod: &Pod) -> Option<TaskId> {
    pod.labels().get(TASK_LABEL)?.parse().ok()
}

/// Why a wish did not come true, in words.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// It may the next time.
    Again(String),
    /// The server will not let us, or not yet.
    Forbidden(String),
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::Again(words)
    }
}

/// Since when pods are forbidden that are to be made.
#[derive(Debug, Default)]
struct Forbidden(BTreeMap<TaskId, u64>);

impl Forbidden {
    /// Those for which nothing is wished any more are forgotten.
    fn retain(&mut self, wishes: &[(TaskId, Wish)]) {
        self.0
            .retain(|task, _| wishes.iter().any(|(wished, _)| wished == task));
    }

    /// What was forbidden for long enough was refused.
    fn judge(
        &mut self,
        task: TaskId,
        done: Result<Option<Known>, Failure>,
        now_ms: u64,
    ) -> Result<Option<Known>, String> {
        match done {
            Ok(known) => Ok(known),
            Err(Failure::Again(words)) => Err(words),
            Err(Failure::Forbidden(words)) => {
                let since_ms = *self.0.entry(task).or_insert(now_ms);
                let is_final = u128::from(now_ms - since_ms) >= FORBIDDEN_FOR.as_millis();
                match is_final {
                    true => Ok(Some(Known::Refused(words))),
                    false => Err(words),
                }
            }
        }
    }
}

/// An answer that the server will give again.
struct Refusal {
    code: u16,
    message: String,
}

/// # Errors
/// What may be otherwise the next time, in words.
async fn answered<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, Refusal>, String> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Err(_) => Err("no answer came in time".to_owned()),
        Ok(Ok(answer)) => Ok(Ok(answer)),
        Ok(Err(kube::Error::Api(status)))
            if (400..500).contains(&status.code) && !LATER.contains(&status.code) =>
        {
            Ok(Err(Refusal {
                code: status.code,
                message: status.message.clone(),
            }))
        }
        Ok(Err(error)) => Err(crate::shim::describe(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forbidden_is_refused_once_it_was_so_for_a_while() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let mut forbidden = Forbidden::default();
        let said = |forbidden: &mut Forbidden, now_ms| {
            let done = Err(Failure::Forbidden("no".to_owned()));
            forbidden.judge(task, done, now_ms)
        };
        let later = Err("no".to_owned());
        assert_eq!(said(&mut forbidden, 5_000), later);
        assert_eq!(said(&mut forbidden, 34_999), later);
        let refused = Ok(Some(Known::Refused("no".to_owned())));
        assert_eq!(said(&mut forbidden, 35_000), refused);
        forbidden.retain(&[]);
        assert_eq!(said(&mut forbidden, 36_000), later, "another time");
        let away = Err(Failure::Again("away".to_owned()));
        let again = forbidden.judge(task, away, 99_000);
        assert_eq!(again, Err("away".to_owned()));
    }
}
