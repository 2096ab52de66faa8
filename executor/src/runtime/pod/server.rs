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
    /// The node that they are bound to, by its name in Kubernetes.
    pub node: String,
    /// The executor's own pod, with whose owner tasks' pods go away.
    pub own: Option<String>,
    pub mirror: Arc<Mirror>,
}

impl Server {
    /// Runs until the process ends.
    pub async fn serve(self) {
        tokio::join!(
            watch(
                self.api.clone(),
                watched(&self.selector, &self.node),
                &self.mirror
            ),
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
                has_failed |= !self.attempt(task, &wish, &mut owner, &mut forbidden).await;
            }
            if has_failed {
                tokio::time::sleep(AGAIN).await;
            } else {
                self.mirror.bell.notified().await;
            }
        }
    }

    /// Whether the wish has come true.
    async fn attempt(
        &self,
        task: TaskId,
        wish: &Wish,
        owner: &mut Option<OwnerReference>,
        forbidden: &mut Forbidden,
    ) -> bool {
        let done = self.carry_out(task, wish, owner).await;
        match forbidden.judge(task, done, clock::boottime_ms()) {
            Ok(known) => {
                let mut state = self.mirror.lock();
                if let Some(known) = known {
                    state.learn_answer(task, known);
                }
                state.fulfil(task, wish);
                true
            }
            Err(failure) => {
                let error = failure.words();
                tracing::warn!(task.id = %task, error, "the API server was asked in vain; asked again");
                self.mirror.lock().fail(task, wish, failure.said());
                false
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

/// Labels would do. But the server knows of a pod's node alone without looking at every watch there is whom to tell: by labels, each change of a
/// pod is held against the watches of all executors.
fn watched(selector: &str, node: &str) -> watcher::Config {
    watcher::Config::default()
        .labels(selector)
        .fields(&format!("spec.nodeName={node}"))
}

async fn watch(api: Api<Pod>, config: watcher::Config, mirror: &Mirror) {
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
    let made = match answered(api.create(&PostParams::default(), pod)).await {
        // The server may be away, or whom it asks before it makes one: it is asked for what it knows by itself.
        Err(Failure::Away(words)) => {
            return match look(api, name).await? {
                Known::Absent => Err(Failure::Again(words)),
                known => Ok(known),
            };
        }
        made => made?,
    };
    match made {
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
async fn owner_of(api: &Api<Pod>, own: &str) -> Result<OwnerReference, Failure> {
    match answered(api.get(own)).await? {
        Ok(pod) => Ok(owner(&pod)),
        Err(refusal) => Err(Failure::Again(format!(
            "the executor's own pod {own} is not read: {}",
            refusal.message
        ))),
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

async fn look(api: &Api<Pod>, name: &str) -> Result<Known, Failure> {
    match answered(api.get_opt(name)).await? {
        Ok(Some(pod)) => Ok(present(&pod)),
        Ok(None) => Ok(Known::Absent),
        Err(refusal) => Err(refusal.message.into()),
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
    /// The server was not heard.
    Away(String),
    /// It says so, and may say otherwise the next time.
    Again(String),
    /// The server will not let us, or not yet.
    Forbidden(String),
}

impl Failure {
    fn words(&self) -> &str {
        match self {
            Self::Away(words) | Self::Again(words) | Self::Forbidden(words) => words,
        }
    }

    /// What the server has said.
    fn said(self) -> Option<String> {
        match self {
            Self::Away(_) => None,
            Self::Again(words) | Self::Forbidden(words) => Some(words),
        }
    }
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
    ) -> Result<Option<Known>, Failure> {
        match done {
            Ok(known) => Ok(known),
            Err(failure @ (Failure::Away(_) | Failure::Again(_))) => Err(failure),
            Err(Failure::Forbidden(words)) => {
                let since_ms = *self.0.entry(task).or_insert(now_ms);
                let is_final = u128::from(now_ms - since_ms) >= FORBIDDEN_FOR.as_millis();
                match is_final {
                    true => Ok(Some(Known::Refused(words))),
                    false => Err(Failure::Forbidden(words)),
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
/// What may be otherwise the next time.
async fn answered<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, Refusal>, Failure> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Err(_) => Err(Failure::Away("no answer came in time".to_owned())),
        Ok(Ok(answer)) => Ok(Ok(answer)),
        Ok(Err(kube::Error::Api(status)))
            if (400..500).contains(&status.code) && !LATER.contains(&status.code) =>
        {
            Ok(Err(Refusal {
                code: status.code,
                message: status.message.clone(),
            }))
        }
        Ok(Err(error @ kube::Error::Api(_))) => Err(crate::shim::describe(&error).into()),
        Ok(Err(error)) => Err(Failure::Away(crate::shim::describe(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn what_is_forbidden_is_refused_once_it_was_so_for_a_while() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let mut forbidden = Forbidden::default();
        let said = |forbidden: &mut Forbidden, now_ms| {
            let done = Err(Failure::Forbidden("no".to_owned()));
            forbidden.judge(task, done, now_ms)
        };
        let later = Err(Failure::Forbidden("no".to_owned()));
        assert_eq!(said(&mut forbidden, 5_000), later);
        assert_eq!(said(&mut forbidden, 34_999), later);
        let refused = Ok(Some(Known::Refused("no".to_owned())));
        assert_eq!(said(&mut forbidden, 35_000), refused);
        forbidden.retain(&[]);
        assert_eq!(said(&mut forbidden, 36_000), later, "another time");
        let away = || Err(Failure::Again("away".to_owned()));
        assert_eq!(forbidden.judge(task, away(), 99_000), away());
    }

    /// What speaks to a server whose every answer is this; to none at all, and nobody listens there.
    async fn speaking_to(answer: Option<&'static str>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        if let Some(body) = answer {
            tokio::spawn(async move {
                while let Ok((mut connection, _)) = listener.accept().await {
                    let _ = connection.read(&mut [0; 65_536]).await;
                    let text = format!(
                        "HTTP/1.1 500 no\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = connection.write_all(text.as_bytes()).await;
                }
            });
        }
        let address = format!("http://127.0.0.1:{port}").parse();
        let config = kube::Config::new(address.expect("an address"));
        let client = kube::Client::try_from(config).expect("a client");
        Server {
            api: Api::namespaced(client, "default"),
            selector: String::new(),
            node: String::new(),
            own: None,
            mirror: Arc::default(),
        }
    }

    /// What counts as said when a pod is asked for.
    async fn said(server: &Server) -> Option<String> {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let wish = Wish::Create(Box::default());
        server.mirror.wish(task, wish.clone());
        let forbidden = &mut Forbidden::default();
        assert!(!server.attempt(task, &wish, &mut None, forbidden).await);
        server.mirror.lock().not_made(task).map(str::to_owned)
    }

    #[tokio::test]
    async fn a_server_that_is_away_says_nothing_of_a_pod() {
        let answer = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a webhook is away","code":500}"#;
        let said_by_one = said(&speaking_to(Some(answer)).await).await;
        assert!(
            said_by_one
                .as_ref()
                .is_some_and(|words| words.contains("a webhook is away")),
            "{said_by_one:?}"
        );
        let server = speaking_to(None).await;
        assert_eq!(said(&server).await, None);
    }
}
