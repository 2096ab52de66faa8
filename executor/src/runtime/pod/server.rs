//! Client of the API server: watches this executor's pods, and repeats calls until each pod request
//! is fulfilled.

use super::answer::{Forbidden, PATIENCE, PodRequestFailure, answered};
use super::claims::select_node;
use super::mirror::{Mirror, PodPresence, PodRequest};
use super::retry::PodRequestRetries;
use super::status::TaskPodStatus;
use super::template::{TASK_LABEL, name};
use crate::clock;
use crate::loop_event::NodeLoopEvent;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

const FORBIDDEN: u16 = 403;
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Returns a client that sends each request once.
///
/// The library's default repeats a request that a busy server refuses (429, 503, 504) 15 times. Its
/// pauses double to minutes, or last as long as the server asks. Then no answer arrives in time,
/// and the server's message is lost. Here [`PodRequestRetries`] repeats pod requests. The watch has
/// a back-off of its own, from 0.8 s to 30 s.
///
/// # Errors
/// If the configuration is invalid.
pub fn client(mut config: kube::Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    kube::Client::try_from(config)
}

/// Task that talks to the API server.
#[derive(Debug)]
pub struct PodApiClient {
    pub api: Api<Pod>,
    /// Label selector of this executor's pods.
    pub selector: String,
    /// Name of the pods' node in Kubernetes.
    pub node: String,
    /// Name of the executor's own pod, whose owner also becomes the owner of the task pods.
    pub own: Option<String>,
    pub mirror: Arc<Mirror>,
    /// Wakes the node loop after each change.
    pub loop_events: Sender<NodeLoopEvent>,
}

impl PodApiClient {
    /// Runs until the process ends.
    pub async fn serve(self) {
        tokio::join!(self.watch(), self.work());
    }

    async fn watch(&self) {
        let (mirror, config) = (&self.mirror, watched(&self.selector, &self.node));
        let mut listed = BTreeMap::new();
        let events = watcher::watcher(self.api.clone(), config).default_backoff();
        let mut events = std::pin::pin!(events.inspect_err(|error| {
            tracing::warn!(error = %muster_model::error_chain::chain(error), "cannot watch the pods of tasks");
        }));
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(pod) => {
                    if let Some(task) = task_of(&pod) {
                        listed.insert(task, TaskPodStatus::of(&pod));
                    }
                }
                Event::InitDone => mirror.lock().record_all(std::mem::take(&mut listed)),
                Event::Apply(pod) => {
                    if let Some(task) = task_of(&pod) {
                        let status = Box::new(TaskPodStatus::of(&pod));
                        mirror.lock().record(task, PodPresence::Present(status));
                    }
                }
                Event::Delete(pod) => {
                    if let Some(task) = task_of(&pod) {
                        mirror.lock().record(task, PodPresence::Absent);
                    }
                }
            }
            self.wake();
        }
    }

    fn wake(&self) {
        // The receiver ends only with the daemon.
        let _ = self.loop_events.send(NodeLoopEvent::Look);
    }

    async fn work(&self) {
        let mut owner = None;
        let mut forbidden = Forbidden::default();
        let mut retries = PodRequestRetries::default();
        loop {
            let requests = self.mirror.lock().requests();
            forbidden.retain(&requests);
            retries.retain(&requests);
            for (task, request) in requests {
                if !retries.is_due(task, clock::boottime_ms()) {
                    continue;
                }
                if self
                    .attempt(task, &request, &mut owner, &mut forbidden)
                    .await
                {
                    retries.succeeded(task);
                } else {
                    retries.failed(task, &request, clock::boottime_ms());
                }
                self.wake();
            }
            let changed = self.mirror.requests_changed.notified();
            match retries.rest(clock::boottime_ms()) {
                // A new pod request ends the pause early.
                Some(rest) => {
                    let _ = tokio::time::timeout(rest, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Tries to fulfil a pod request; returns whether it is fulfilled.
    async fn attempt(
        &self,
        task: TaskId,
        request: &PodRequest,
        owner: &mut Option<OwnerReference>,
        forbidden: &mut Forbidden,
    ) -> bool {
        let done = self.carry_out(task, request, owner).await;
        match forbidden.judge(task, done, clock::boottime_ms()) {
            Ok(presence) => {
                let mut state = self.mirror.lock();
                if let Some(presence) = presence {
                    state.record_answer(task, presence);
                }
                state.fulfil(task, request);
                true
            }
            Err(failure) => {
                let error = failure.words();
                tracing::warn!(task.id = %task, error, "a request to the API server failed; it is repeated");
                self.mirror.lock().fail(task, request, failure.said());
                false
            }
        }
    }

    /// Executes a pod request and returns the state of the pod; `None` after a deletion request,
    /// because the pod still exists.
    async fn carry_out(
        &self,
        task: TaskId,
        request: &PodRequest,
        owner: &mut Option<OwnerReference>,
    ) -> Result<Option<PodPresence>, PodRequestFailure> {
        let (api, name) = (&self.api, name(task));
        match request {
            PodRequest::Create(creation) => {
                make_folders(&creation.folders).await?;
                let mut pod = creation.pod.clone();
                if let (Some(own), None) = (&self.own, &owner) {
                    *owner = Some(owner_of(api, own).await?);
                }
                select_node(api, &pod, &self.node).await?;
                pod.metadata.owner_references = owner.clone().map(|owner| vec![owner]);
                create(api, &name, &pod).await.map(Some)
            }
            PodRequest::Delete => {
                let parameters = DeleteParams::default();
                match answered(api.delete(&name, &parameters)).await? {
                    Ok(_) => Ok(None),
                    Err(refusal) if refusal.code == NOT_FOUND => Ok(Some(PodPresence::Absent)),
                    Err(refusal) => Err(refusal.message.into()),
                }
            }
            PodRequest::Look => Ok(Some(look(api, &name).await?)),
        }
    }
}

/// Returns the selection of the watch. Labels alone would suffice. But the server indexes pods by
/// node only. For a watch by labels alone it compares each change of a pod with the watches of all
/// executors.
fn watched(selector: &str, node: &str) -> watcher::Config {
    watcher::Config::default()
        .labels(selector)
        .fields(&format!("spec.nodeName={node}"))
}

/// Creates the checkpoint folders.
///
/// # Errors
/// Names the folder and the reason, which may be a storage that does not answer.
async fn make_folders(folders: &[PathBuf]) -> Result<(), PodRequestFailure> {
    for folder in folders {
        let path = folder.clone();
        let creation = tokio::task::spawn_blocking(move || fs::create_dir_all(path));
        let made = match tokio::time::timeout(PATIENCE, creation).await {
            Ok(Ok(made)) => made.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer came in time".to_owned()),
        };
        made.map_err(|why| {
            PodRequestFailure::Again(format!("cannot make {}: {why}", folder.display()))
        })?;
    }
    Ok(())
}

async fn create(api: &Api<Pod>, name: &str, pod: &Pod) -> Result<PodPresence, PodRequestFailure> {
    let made = match answered(api.create(&PostParams::default(), pod)).await {
        // The server may be unreachable, or a webhook that it calls. Ask it for its own state
        // instead.
        Err(PodRequestFailure::Away(words)) => {
            return match look(api, name).await? {
                PodPresence::Absent => Err(PodRequestFailure::Again(words)),
                presence => Ok(presence),
            };
        }
        made => made?,
    };
    match made {
        Ok(pod) => Ok(present(&pod)),
        // An earlier daemon created the pod and ended before it received the answer. Or many pods
        // were created at once, and the quota could not be counted.
        Err(refusal) if refusal.code == CONFLICT => match look(api, name).await? {
            PodPresence::Absent => Err(refusal.message.into()),
            presence => Ok(presence),
        },
        Err(refusal) if refusal.code == FORBIDDEN => {
            Err(PodRequestFailure::Forbidden(refusal.message))
        }
        Err(refusal) => Ok(PodPresence::Refused(refusal.message)),
    }
}

/// Returns the owner of the task pods.
///
/// # Errors
/// If the executor's pod cannot be read. Pods without an owner would outlive the release, so none
/// is created before.
async fn owner_of(api: &Api<Pod>, own: &str) -> Result<OwnerReference, PodRequestFailure> {
    match answered(api.get(own)).await? {
        Ok(pod) => Ok(owner(&pod)),
        Err(refusal) => Err(PodRequestFailure::Again(format!(
            "the executor's own pod {own} is not read: {}",
            refusal.message
        ))),
    }
}

/// Returns the controller of the executor's pod, a DaemonSet, as the owner. Task pods are deleted
/// with it and not with the executor's own pod, because the next executor adopts them.
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
        // A DaemonSet would count pods that it controls as executors.
        controller: None,
        block_owner_deletion: None,
        ..owner
    }
}

async fn look(api: &Api<Pod>, name: &str) -> Result<PodPresence, PodRequestFailure> {
    match answered(api.get_opt(name)).await? {
        Ok(Some(pod)) => Ok(present(&pod)),
        Ok(None) => Ok(PodPresence::Absent),
        Err(refusal) => Err(refusal.message.into()),
    }
}

fn present(pod: &Pod) -> PodPresence {
    PodPresence::Present(Box::new(TaskPodStatus::of(pod)))
}

fn task_of(pod: &Pod) -> Option<TaskId> {
    pod.labels().get(TASK_LABEL)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Answer of a busy server that asks to retry in an hour.
    const BUSY: &str = "HTTP/1.1 429 no\r\nretry-after: 3600\r\n\r\ntoo many requests";

    /// Returns a client of a server that gives these answers in order, and then the last one
    /// repeatedly; without answers nothing listens. The counter is the number of requests.
    async fn speaking_to(answers: &'static [&'static str]) -> (PodApiClient, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        if let Some(last) = answers.len().checked_sub(1) {
            tokio::spawn(async move {
                while let Ok((mut connection, _)) = listener.accept().await {
                    let _ = connection.read(&mut [0; 65_536]).await;
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    let (head, body) = answers[number.min(last)]
                        .split_once("\r\n\r\n")
                        .expect("two");
                    let length = body.len();
                    let text = format!(
                        "{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                    );
                    let _ = connection.write_all(text.as_bytes()).await;
                }
            });
        }
        let address = format!("http://127.0.0.1:{port}").parse();
        let config = kube::Config::new(address.expect("an address"));
        let server = PodApiClient {
            api: Api::namespaced(client(config).expect("a client"), "default"),
            selector: String::new(),
            node: String::new(),
            own: None,
            mirror: Arc::default(),
            loop_events: std::sync::mpsc::channel().0,
        };
        (server, asked)
    }

    fn task() -> TaskId {
        TaskId(uuid::Uuid::from_u128(1))
    }

    /// Returns the message that a creation request leaves behind.
    async fn said(server: &PodApiClient) -> Option<String> {
        let request = PodRequest::Create(Box::default());
        server.mirror.request(task(), request.clone());
        let forbidden = &mut Forbidden::default();
        assert!(!server.attempt(task(), &request, &mut None, forbidden).await);
        server
            .mirror
            .lock()
            .creation_error(task())
            .map(str::to_owned)
    }

    #[tokio::test]
    async fn unreachable_server_leaves_no_message_for_a_pod() {
        let (server, _) = speaking_to(&[
            "HTTP/1.1 500 no\r\ncontent-type: application/json\r\n\r\n{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"a webhook is away\",\"code\":500}",
        ])
        .await;
        let said_by_one = said(&server).await;
        assert!(
            said_by_one
                .as_ref()
                .is_some_and(|words| words.contains("a webhook is away")),
            "{said_by_one:?}"
        );
        let (server, _) = speaking_to(&[]).await;
        assert_eq!(said(&server).await, None);
    }

    #[tokio::test]
    async fn busy_servers_message_is_kept_and_request_is_sent_once() {
        for answer in [
            &[BUSY],
            &["HTTP/1.1 503 no\r\n\r\ntoo many requests"],
            &["HTTP/1.1 504 no\r\n\r\ntoo many requests"],
        ] {
            let (server, asked) = speaking_to(answer).await;
            let words = said(&server).await.expect("it has said so");
            assert!(words.contains("too many requests"), "{words}");
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{answer:?}");
        }
    }

    /// The pauses are one and two seconds.
    #[tokio::test]
    async fn wish_is_fulfilled_after_the_server_recovers() {
        let (server, asked) = speaking_to(&[BUSY, BUSY, "HTTP/1.1 404 no\r\n\r\nnone"]).await;
        server.mirror.request(task(), PodRequest::Delete);
        let mirror = Arc::clone(&server.mirror);
        let begun_ms = clock::boottime_ms();
        tokio::select! {
            () = server.work() => unreachable!("it has no end"),
            () = until(|| mirror.lock().presence(task()) == Some(&PodPresence::Absent)) => {}
        }
        let took_ms = clock::boottime_ms() - begun_ms;
        assert!((3_000..10_000).contains(&took_ms), "{took_ms} ms");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        assert!(!mirror.lock().has_request(task()));
    }

    #[tokio::test]
    async fn pods_are_listed_after_the_server_recovers() {
        let list = "HTTP/1.1 200 yes\r\ncontent-type: application/json\r\n\r\n{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}";
        let (server, _) = speaking_to(Box::leak(Box::new([BUSY, BUSY, list]))).await;
        let mirror = Arc::clone(&server.mirror);
        tokio::select! {
            () = server.watch() => unreachable!("it has no end"),
            () = until(|| mirror.lock().is_complete) => {}
        }
    }

    /// # Panics
    /// If the condition does not hold within ten seconds.
    async fn until(right: impl Fn() -> bool) {
        for _ in 0..1_000 {
            if right() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it has not come about");
    }
}
