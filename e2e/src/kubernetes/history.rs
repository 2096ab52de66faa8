//! What kubectl's watch has shown of the objects of a kind, from its start on. A story that looks now and then may miss what stands for
//! less than it sleeps; a watch misses nothing that was written, so what must have been seen is looked for in here.

use super::Kubernetes;
use crate::clock;
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;

const STEP: Duration = Duration::from_millis(100);

/// Ends when it is dropped.
#[derive(Debug)]
pub struct History {
    kind: &'static str,
    watch: Child,
    seen: Arc<Mutex<Vec<Seen>>>,
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
    /// Of all namespaces, from about now on.
    ///
    /// # Panics
    /// When kubectl does not start.
    #[must_use]
    pub fn of(kubernetes: &Kubernetes, kind: &'static str) -> Self {
        let mut watch = kubernetes
            .kubectl(&[
                "get",
                kind,
                "-A",
                "--watch",
                "--output-watch-events",
                "-o",
                "json",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let said = watch.stdout.take().expect("a pipe");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let said = Said::from(said);
        let at = Arc::clone(&said.at);
        std::thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(said);
            // It ends where kubectl is killed, in the middle of a word or not.
            for event in events.into_iter::<Value>().map_while(Result::ok) {
                let object = &event["object"];
                let one = Seen {
                    at: *at.lock().unwrap_or_else(PoisonError::into_inner),
                    name: object["metadata"]["name"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                    status: object["status"].clone(),
                    is_gone: event["type"] == "DELETED",
                };
                into.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(one);
            }
        });
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
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}
