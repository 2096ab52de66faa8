//! What kubectl's watch has shown of the objects of a kind, from its start on. A story that looks now and then may miss what stands for
//! less than it sleeps; a watch misses nothing that was written, so what must have been seen is looked for in here.

use super::Kubernetes;
use crate::clock;
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::process::{Child, Stdio};
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
        std::thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(std::io::BufReader::new(said));
            // It ends where kubectl is killed, in the middle of a word or not.
            for event in events.into_iter::<Value>().map_while(Result::ok) {
                let object = &event["object"];
                let one = Seen {
                    at: clock::now(),
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

impl Drop for History {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}
