//! What kubectl's watch has shown of the objects of a kind, from its start on. A story that looks now and then may miss what stands for
//! less than it sleeps; a watch misses nothing that was written, so what must have been seen is looked for in here.

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

/// Where the objects are.
const OBJECTS: &str = "/apis/muster.dev/v1alpha1";

/// Ends when it is dropped.
#[derive(Debug)]
pub struct History {
    kind: &'static str,
    watch: Arc<Watch>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A kubectl that watches, and the next where the server has hung up on it.
#[derive(Debug)]
struct Watch {
    program: OsString,
    environment: Vec<(OsString, OsString)>,
    kind: &'static str,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    child: Option<Child>,
    is_over: bool,
}

/// What the watch has shown once.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: OffsetDateTime,
    pub name: String,
    pub status: Value,
    pub is_gone: bool,
}

/// A place in a history: what was seen before it does not count.
#[derive(Debug, Clone, Copy)]
pub struct Mark(usize);

impl History {
    /// Of all namespaces, from about now on; `kind` is its plural.
    #[must_use]
    pub fn of(kubernetes: &Kubernetes, kind: &'static str) -> Self {
        let kubectl = kubernetes.kubectl(&[]);
        let environment = kubectl.get_envs();
        let environment =
            environment.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let watch = Arc::new(Watch {
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

    /// All that was seen, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// The status that each object was seen with last, by its name.
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

    /// Taken before something is done, it stands before whatever comes of that.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(
            self.seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
        )
    }

    /// Waits until the object was seen with a status that is as `right` says, and returns that.
    ///
    /// # Panics
    /// When it is not seen; what was is printed.
    pub async fn until_seen(
        &self,
        name: &str,
        since: Mark,
        right: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = self.until(name, since, |seen| !seen.is_gone && right(&seen.status));
        found.await.status
    }

    /// # Panics
    /// When it is not seen; what was is printed.
    pub async fn until_phase(&self, name: &str, since: Mark, phase: &str) -> Value {
        self.until_seen(name, since, |status| status["phase"] == phase)
            .await
    }

    /// # Panics
    /// When it stays.
    pub async fn until_gone(&self, name: &str, since: Mark) {
        let _ = self.until(name, since, |seen| seen.is_gone).await;
    }

    async fn until(&self, name: &str, since: Mark, right: impl Fn(&Seen) -> bool) -> Seen {
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

impl Watch {
    /// Until it is over. A watch that has ended goes on where it was: a busy server hangs up on whoever is slow.
    fn follow(&self, into: &Mutex<Vec<Seen>>) {
        let mut version = String::new();
        while let Some(said) = self.start(&version) {
            let said = Said::from(said);
            let at = Arc::clone(&said.at);
            let events = serde_json::Deserializer::from_reader(said);
            for event in events.into_iter::<Value>().map_while(Result::ok) {
                if event["type"] == "ERROR" {
                    // The server does not remember so far back: all that there is comes once more.
                    version.clear();
                    break;
                }
                let object = &event["object"];
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                text("resourceVersion").clone_into(&mut version);
                let one = Seen {
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

    /// As the server writes it: to read it, and to write it anew, takes kubectl more time than a busy machine has.
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
        let said = child.stdout.take();
        running.child = Some(child);
        said
    }
}

impl Running {
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What kubectl has written, taken from it at once and read later: the server hangs up on a watch that is not read for a moment, and how soon
/// something was shown is not how soon this process has understood it.
struct Said {
    pieces: Receiver<(OffsetDateTime, Vec<u8>)>,
    piece: std::io::Cursor<Vec<u8>>,
    /// When the piece that is being read was written.
    at: Arc<Mutex<OffsetDateTime>>,
}

impl From<ChildStdout> for Said {
    fn from(mut said: ChildStdout) -> Self {
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = said.read(&mut buffer) {
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

impl Read for Said {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.piece.read(buffer)?;
        if length > 0 || buffer.is_empty() {
            return Ok(length);
        }
        // Without another it is the end.
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
