//! Stand-in for the kubelets of all nodes. It watches Pods that are bound to a node and runs their
//! commands as real processes, in a process namespace per pod. It reports their status as a kubelet
//! does. It starts one container per pod and mounts what `volumes` supports. It pulls no image: the
//! command runs on this machine. It has one watch for all nodes.

mod devices;
mod volumes;

use self::devices::NodeDevices;
use self::volumes::PodVolumes;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Config, ResourceExt as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot};

const STEP: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Address of every pod: all are on this machine.
const POD_IP: &str = "127.0.0.1";
/// Maximum bytes of a failed container's termination message.
const LAST_WORDS: usize = 2_000;

/// Runs on a separate thread, so that a waiting test does not block it. Ends on drop.
#[derive(Debug)]
pub struct Kubelet {
    state: Arc<KubeletState>,
    quit: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct KubeletState {
    folder: PathBuf,
    has_no_images: AtomicBool,
    is_slow: AtomicBool,
    /// Names of pods to kill as the kernel's OOM killer does.
    greedy: Mutex<BTreeSet<String>>,
    devices: Arc<NodeDevices>,
}

impl Kubelet {
    /// Starts it; `folder` is for its logs.
    ///
    /// # Panics
    /// If it cannot connect to the API server.
    #[must_use]
    pub fn start(kubeconfig: &Path, folder: &Path) -> Self {
        let folder = folder.join("pods");
        std::fs::create_dir_all(&folder).expect("our own folder");
        let state = Arc::new(KubeletState {
            folder,
            ..KubeletState::default()
        });
        let (quit, told) = oneshot::channel();
        let config = Kubeconfig::read_from(kubeconfig).expect("settings of kubectl's kind");
        let of_thread = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
                    .await
                    .expect("settings of kubectl's kind");
                let client = Client::try_from(config).expect("a client");
                tokio::spawn(stand_in(client, of_thread));
                let _ = told.await;
            });
        });
        Self {
            state,
            quit: Some(quit),
            thread: Some(thread),
        }
    }

    /// Sets whether images are available.
    pub fn has_images(&self, has: bool) {
        self.state.has_no_images.store(!has, Ordering::Relaxed);
    }

    /// Sets whether containers are created. Without it pods wait as for a volume that cannot be
    /// mounted.
    pub fn makes_containers(&self, makes: bool) {
        self.state.is_slow.store(!makes, Ordering::Relaxed);
    }

    /// Maximum number of GPUs that pods with living processes held at one time, by node.
    #[must_use]
    pub fn most_gpus_held(&self) -> BTreeMap<String, u64> {
        self.state.devices.most()
    }

    /// Kills all processes of this pod and reports OOMKilled.
    pub fn kill_for_memory(&self, pod: &str) {
        self.state.lock().insert(pod.to_owned());
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.quit.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl KubeletState {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.greedy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn stand_in(client: Client, state: Arc<KubeletState>) {
    use futures::StreamExt as _;
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let events = watcher::watcher(Api::<Pod>::all(client.clone()), config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut known: BTreeMap<String, Arc<Deletion>> = BTreeMap::new();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else {
            // A forced deletion removes the object; a kubelet then ends the processes by itself.
            if let Ok(Event::Delete(pod)) = event
                && let Some(deletion) = known.remove(&pod.uid().unwrap_or_default())
            {
                deletion.ask(0);
            }
            continue;
        };
        let uid = pod.uid().unwrap_or_default();
        let deletion = known.entry(uid).or_insert_with(|| {
            let deletion = Arc::new(Deletion::default());
            let carried = RunningPod {
                api: Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default()),
                pod: pod.clone(),
                deletion: Arc::clone(&deletion),
                state: Arc::clone(&state),
            };
            tokio::spawn(carried.carry());
            deletion
        });
        if pod.metadata.deletion_timestamp.is_some() {
            deletion.ask(pod.metadata.deletion_grace_period_seconds.unwrap_or(30));
        }
    }
}

/// Requested deletion of a pod, with its grace period in seconds.
#[derive(Debug, Default)]
struct Deletion {
    grace_s: Mutex<Option<i64>>,
    bell: Notify,
}

impl Deletion {
    fn ask(&self, grace_s: i64) {
        *self.grace_s.lock().unwrap_or_else(PoisonError::into_inner) = Some(grace_s);
        self.bell.notify_one();
    }

    async fn asked(&self) -> i64 {
        loop {
            let asked = *self.grace_s.lock().unwrap_or_else(PoisonError::into_inner);
            match asked {
                Some(grace_s) => return grace_s,
                None => self.bell.notified().await,
            }
        }
    }
}

/// One pod.
struct RunningPod {
    api: Api<Pod>,
    pod: Pod,
    deletion: Arc<Deletion>,
    state: Arc<KubeletState>,
}

impl RunningPod {
    async fn carry(self) {
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.clone());
        if !matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            self.run().await;
        }
        self.deletion.asked().await;
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: self.pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        while let Err(error) = self.api.delete(&self.pod.name_any(), &parameters).await {
            if matches!(&error, kube::Error::Api(status) if (400..500).contains(&status.code)) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
    }

    async fn run(&self) {
        if self.state.has_no_images.load(Ordering::Relaxed) {
            let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image" } });
            self.say("Pending", &waiting, false).await;
            self.deletion.asked().await;
            return;
        }
        let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
        self.say("Pending", &creating, false).await;
        if self.state.is_slow.load(Ordering::Relaxed) {
            self.deletion.asked().await;
            return;
        }
        let client = self.api.clone().into_client();
        let prepared = match volumes::prepare(&client, &self.pod, &self.state.folder).await {
            Ok(prepared) => prepared,
            Err(words) => {
                let waiting = json!({ "waiting": { "reason": "CreateContainerConfigError", "message": words } });
                self.say("Pending", &waiting, false).await;
                self.deletion.asked().await;
                return;
            }
        };
        let held = self.state.devices.lease(&self.pod);
        let mut child = match self.spawn(&prepared) {
            Ok(child) => child,
            Err(words) => {
                let ended = json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": words } });
                return self.say("Failed", &ended, false).await;
            }
        };
        self.say("Running", &json!({ "running": {} }), true).await;
        let (status, reason) = self.to_the_end(&mut child).await;
        drop(held);
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let reason = reason.unwrap_or(if code == 0 { "Completed" } else { "Error" });
        let message = if code == 0 {
            String::new()
        } else {
            self.last_words()
        };
        let ended =
            json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } });
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.say(phase, &ended, false).await;
    }

    /// Exit status, and the reason if the container was killed.
    async fn to_the_end(&self, child: &mut Child) -> (ExitStatus, Option<&'static str>) {
        let holder = child.id().expect("it was not waited for");
        let mut left: Option<Duration> = None;
        let mut reason = None;
        loop {
            if self.state.lock().remove(&self.pod.name_any()) {
                reason = Some("OOMKilled");
                signal_first(holder, Signal::KILL).await;
            }
            if left == Some(Duration::ZERO) {
                signal_first(holder, Signal::KILL).await;
            }
            tokio::select! {
                status = child.wait() => return (status.expect("it is our child"), reason),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    left = left.map(|left| left.saturating_sub(LOOK_EVERY));
                }
                grace_s = self.deletion.asked(), if left.is_none() => {
                    signal_first(holder, Signal::TERM).await;
                    left = Some(Duration::from_secs(u64::try_from(grace_s).unwrap_or(0)));
                }
            }
        }
    }

    fn spawn(&self, prepared: &PodVolumes) -> Result<Child, String> {
        let spec = self.pod.spec.as_ref().expect("the server checks it");
        let container = &spec.containers[0];
        let environment = environment(container, &prepared.variables);
        let words = container.command.iter().chain(&container.args).flatten();
        let words: Vec<String> = words.map(|word| expanded(word, &environment)).collect();
        let log = std::fs::File::create(self.log()).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"])
            .args(["/bin/sh", "-c", volumes::MOUNTING, "sh"])
            .args(prepared.mounts.iter().flatten())
            .arg("--")
            .args(words)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| error.to_string())
    }

    async fn say(&self, phase: &str, state: &Value, is_ready: bool) {
        let container = &self
            .pod
            .spec
            .as_ref()
            .expect("the server checks it")
            .containers[0];
        let status = json!({ "status": {
            "phase": phase,
            "podIP": POD_IP,
            "podIPs": [{ "ip": POD_IP }],
            "hostIP": POD_IP,
            "containerStatuses": [{
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": is_ready,
                "started": is_ready,
                "restartCount": 0,
                "state": state,
            }],
        }});
        let parameters = PatchParams::default();
        let patch = Patch::Merge(&status);
        let name = self.pod.name_any();
        while let Err(error) = self.api.patch_status(&name, &parameters, &patch).await {
            if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                return;
            }
            eprintln!("kubelet: {name}: {error}");
            tokio::time::sleep(STEP).await;
        }
    }

    fn log(&self) -> PathBuf {
        self.state.folder.join(self.pod.name_any())
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let from = text.len().saturating_sub(LAST_WORDS);
        text.get(from..).unwrap_or_default().trim().to_owned()
    }
}

/// Variables of the image, overridden by those of the pod.
fn environment(
    container: &Container,
    secret: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::from([
        ("PATH".to_owned(), std::env::var("PATH").expect("PATH")),
        ("HOME".to_owned(), "/tmp".to_owned()),
    ]);
    for variable in container.env.iter().flatten() {
        let field = variable
            .value_from
            .as_ref()
            .and_then(|from| from.field_ref.as_ref())
            .map(|field| field.field_path.as_str());
        let value = match field {
            Some("status.podIP") => POD_IP.to_owned(),
            Some(other) => panic!("the stand-in knows no {other}"),
            None if secret.contains_key(&variable.name) => secret[&variable.name].clone(),
            None => expanded(variable.value.as_deref().unwrap_or_default(), &environment),
        };
        environment.insert(variable.name.clone(), value);
    }
    environment
}

/// Replaces `$(NAME)` by the value of a known variable and `$$` by `$`.
fn expanded(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        done.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            done.push('$');
            rest = after;
        } else if let Some((name, after)) = rest
            .strip_prefix("$(")
            .and_then(|inner| inner.split_once(')'))
            && let Some(value) = environment.get(name)
        {
            done.push_str(value);
            rest = after;
        } else {
            done.push('$');
            rest = &rest[1..];
        }
    }
    done + rest
}

/// Signals the first process of the namespace that `unshare` holds; all others end with it.
async fn signal_first(holder: u32, signal: Signal) {
    let path = format!("/proc/{holder}/task/{holder}/children");
    loop {
        let Ok(text) = std::fs::read_to_string(&path) else {
            return;
        };
        let first = text.split_ascii_whitespace().next();
        if let Some(pid) = first
            .and_then(|text| text.parse().ok())
            .and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
            return;
        }
        if std::fs::metadata(format!("/proc/{holder}/exe")).is_err() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_arguments_are_expanded_as_by_kubernetes() {
        let environment = BTreeMap::from([("HOST".to_owned(), "10.0.0.7".to_owned())]);
        for (text, expected) in [
            ("$(HOST):80", "10.0.0.7:80"),
            ("$$(HOST)", "$(HOST)"),
            ("$(NOBODY) costs $5", "$(NOBODY) costs $5"),
        ] {
            assert_eq!(expanded(text, &environment), expected);
        }
    }
}
