//! Record of the objects of a kind from kubectl's watch since its start. A story that polls may
//! miss a short-lived state; a watch misses no written state.

use super::Kubernetes;
use crate::clock;
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;

const STEP: Duration = Duration::from_millis(100);

/// API path of the objects.
const OBJECTS: &str = "/apis/muster.dev/v1alpha1";

/// Ended on drop.
#[derive(Debug)]
pub struct History {
    kind: &'static str,
    watch: Arc<KubectlWatch>,
    seen: Arc<Mutex<Vec<ObjectEvent>>>,
}

/// Watching kubectl, restarted after the server has closed the connection.
#[derive(Debug)]
struct KubectlWatch {
    program: OsString,
    environment: Vec<(OsString, OsString)>,
    kind: &'static str,
    running: Mutex<KubectlProcess>,
}

#[derive(Debug, Default)]
struct KubectlProcess {
    child: Option<Child>,
    is_over: bool,
}

/// One event of the watch.
#[derive(Debug, Clone)]
pub struct ObjectEvent {
    pub at: OffsetDateTime,
    pub name: String,
    pub status: Value,
    pub is_gone: bool,
}

/// Position in a history; earlier events do not count.
#[derive(Debug, Clone, Copy)]
pub struct HistoryPosition(usize);

impl History {
    /// Starts a watch of all namespaces. `kind` is the plural.
    #[must_use]
    pub fn of(kubernetes: &Kubernetes, kind: &'static str) -> Self {
        let kubectl = kubernetes.kubectl(&[]);
        let environment = kubectl.get_envs();
        let environment =
            environment.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let watch = Arc::new(KubectlWatch {
            program: kubectl.get_program().to_owned(),
            environment: environment.collect(),
            kind,
            running: Mutex::default(),
        });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (of, into) = (Arc::clone(&watch), Arc::clone(&seen));
        std::thread::spawn(move || of.follow(&into));
        Self { kind, watch, seen }
    }

    /// All events in order.
    #[must_use]
    pub fn all(&self) -> Vec<ObjectEvent> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Last status of each object, by name.
    #[must_use]
    pub fn newest(&self) -> BTreeMap<String, Value> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = BTreeMap::new();
        for one in seen.iter() {
            newest.insert(&one.name, &one.status);
        }
        let newest = newest.into_iter();
        newest
            .map(|(name, status)| (name.clone(), status.clone()))
            .collect()
    }

    /// Position before the effects of the next change.
    #[must_use]
    pub fn position(&self) -> HistoryPosition {
        HistoryPosition(
            self.seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
        )
    }

    /// Waits until the object has a status for which `right` is true, and returns it.
    ///
    /// # Panics
    /// If it never has one; all its events are printed.
    pub async fn until_seen(
        &self,
        name: &str,
        since: HistoryPosition,
        right: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = self.until(name, since, |seen| !seen.is_gone && right(&seen.status));
        found.await.status
    }

    /// Waits until the object is in a phase.
    ///
    /// # Panics
    /// If it never is; all its events are printed.
    pub async fn until_phase(&self, name: &str, since: HistoryPosition, phase: &str) -> Value {
        self.until_seen(name, since, |status| status["phase"] == phase)
            .await
    }

    /// Waits until the object is deleted.
    ///
    /// # Panics
    /// If it stays.
    pub async fn until_gone(&self, name: &str, since: HistoryPosition) {
        let _ = self.until(name, since, |seen| seen.is_gone).await;
    }

    async fn until(
        &self,
        name: &str,
        since: HistoryPosition,
        right: impl Fn(&ObjectEvent) -> bool,
    ) -> ObjectEvent {
        let mut waited = Duration::ZERO;
        loop {
            {
                let all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let mut own = all[since.0..].iter().filter(|seen| seen.name == name);
                if let Some(found) = own.clone().find(|seen| right(seen)) {
                    return found.clone();
                }
                assert!(
                    waited < PATIENCE,
                    "{} {name} was never as it should be, but {:#?}",
                    self.kind,
                    own.by_ref().collect::<Vec<_>>()
                );
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
}

impl KubectlWatch {
    /// Follows until the end. Resumes an ended watch at its version, because a busy server
    /// disconnects slow clients.
    fn follow(&self, into: &Mutex<Vec<ObjectEvent>>) {
        let mut version = String::new();
        while let Some(output) = self.start(&version) {
            let output = KubectlOutput::from(output);
            let at = Arc::clone(&output.at);
            let events = serde_json::Deserializer::from_reader(output);
            for event in events.into_iter::<Value>().map_while(Result::ok) {
                if event["type"] == "ERROR" {
                    // The server does not keep that version any more: all present objects are sent
                    // again.
                    version.clear();
                    break;
                }
                let object = &event["object"];
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                text("resourceVersion").clone_into(&mut version);
                let one = ObjectEvent {
                    at: *at.lock().unwrap_or_else(PoisonError::into_inner),
                    name: text("name").to_owned(),
                    status: object["status"].clone(),
                    is_gone: event["type"] == "DELETED",
                };
                into.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(one);
            }
            std::thread::sleep(STEP);
        }
    }

    /// Raw output of the server: kubectl would need too much time to parse and format it on a busy
    /// machine.
    fn start(&self, version: &str) -> Option<ChildStdout> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.end();
        if running.is_over {
            return None;
        }
        let kind = self.kind;
        let path = format!("{OBJECTS}/{kind}?watch=1&resourceVersion={version}");
        let mut child = Command::new(&self.program)
            .envs(self.environment.iter().cloned())
            .args(["get", "--raw", &path])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let output = child.stdout.take();
        running.child = Some(child);
        output
    }
}

impl KubectlProcess {
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Output of kubectl, read at once and parsed later. The server disconnects a watch that is not
/// read for a moment. The time of an event is when it was read, not when it was parsed.
struct KubectlOutput {
    pieces: Receiver<(OffsetDateTime, Vec<u8>)>,
    piece: std::io::Cursor<Vec<u8>>,
    /// Time at which the current piece was read.
    at: Arc<Mutex<OffsetDateTime>>,
}

impl From<ChildStdout> for KubectlOutput {
    fn from(mut output: ChildStdout) -> Self {
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = output.read(&mut buffer) {
                let piece = (clock::now(), buffer[..length].to_vec());
                if length == 0 || sender.send(piece).is_err() {
                    return;
                }
            }
        });
        Self {
            pieces,
            piece: std::io::Cursor::default(),
            at: Arc::new(Mutex::new(clock::now())),
        }
    }
}

impl Read for KubectlOutput {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.piece.read(buffer)?;
        if length > 0 || buffer.is_empty() {
            return Ok(length);
        }
        // No further piece: end of the output.
        let Ok((at, piece)) = self.pieces.recv() else {
            return Ok(0);
        };
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
        self.piece = std::io::Cursor::new(piece);
        self.piece.read(buffer)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let running = &self.watch.running;
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.is_over = true;
        running.end();
    }
}
