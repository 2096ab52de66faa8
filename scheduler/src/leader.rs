//! Leadership: the scheduler that holds an advisory lock in Postgres leads as long as its
//! connection lives.

use muster_model::error_chain::chain;
use muster_store::leader::Leadership;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

const RETRY: Duration = Duration::from_millis(500);
/// Maximum time to end a term. A loop ends at its next await; a loop without one holds a thread of
/// the runtime.
pub const TERM_ENDS: Duration = Duration::from_secs(10);

/// Tries to become the leader until the process ends. `leads` follows the result.
pub async fn campaign(database_url: String, leads: watch::Sender<bool>) {
    loop {
        match Leadership::acquire(&database_url).await {
            Ok(Some(mut held)) => {
                tracing::info!("leading");
                leads.send_replace(true);
                let error = held.lost().await;
                leads.send_replace(false);
                tracing::warn!(error = %chain(&error), "not leading any more");
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %chain(&error), "could not ask for leadership"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Loops of one term, each a separate task. None delays another, and none outlives the term.
#[derive(Debug, Default)]
pub struct Loops {
    tasks: JoinSet<()>,
    names: BTreeMap<Id, &'static str>,
}

/// Reason why this process must exit, so that another one leads.
#[derive(Debug, thiserror::Error)]
pub enum TermError {
    #[error("the loop of {name} ended while this process leads")]
    Ended { name: &'static str },
    #[error("the loop of {name} broke an invariant")]
    Broken {
        name: &'static str,
        #[source]
        source: JoinError,
    },
    #[error("this process leads no more, and after {limit_s} s still runs the loops of {names}")]
    Endless { limit_s: u64, names: String },
}

impl Loops {
    /// Starts a loop that runs until the term ends.
    pub fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(run);
        self.names.insert(task.id(), name);
    }

    /// Returns if a loop ends during the term.
    async fn broken(&mut self) -> TermError {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => TermError::Ended {
                name: self.take_name(id),
            },
            Some(Err(source)) => TermError::Broken {
                name: self.take_name(source.id()),
                source,
            },
            None => std::future::pending().await,
        }
    }

    /// Ends every loop at its next await.
    async fn end(&mut self, limit: Duration) -> Result<(), TermError> {
        self.tasks.abort_all();
        let ended = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                self.names.remove(&id);
            }
        };
        if tokio::time::timeout(limit, ended).await.is_ok() {
            return Ok(());
        }
        let names: Vec<&str> = self.names.values().copied().collect();
        Err(TermError::Endless {
            limit_s: limit.as_secs(),
            names: names.join(", "),
        })
    }

    fn take_name(&mut self, id: Id) -> &'static str {
        self.names.remove(&id).unwrap_or("an unknown name")
    }
}

/// Runs one term. `start` starts the loops, which end with the leadership. Work in progress is
/// dropped or fails: every change is one transaction.
///
/// # Errors
/// [`TermError`]; the process must then exit.
pub async fn term(
    leader: &mut watch::Receiver<bool>,
    limit: Duration,
    start: impl FnOnce(&mut Loops),
) -> Result<(), TermError> {
    let mut loops = Loops::default();
    start(&mut loops);
    let lost = async {
        // The sender lives as long as the process.
        let _ = leader.wait_for(|leads| !leads).await;
    };
    tokio::select! {
        () = lost => loops.end(limit).await,
        broken = loops.broken() => Err(broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::oneshot;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn end_of_term_ends_loop_that_waits_for_ever() {
        let (leads, mut leader) = watch::channel(true);
        let (began, begins) = oneshot::channel();
        let term = term(&mut leader, PATIENCE, |loops| {
            loops.spawn("rounds", async move {
                began.send(()).expect("the test waits");
                std::future::pending().await
            });
        });
        let lose = async {
            begins.await.expect("it begins");
            leads.send_replace(false);
        };
        let (ended, ()) = tokio::join!(term, lose);
        ended.expect("all loops ended");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn end_of_term_with_blocking_loop_is_an_error() {
        let (leads, mut leader) = watch::channel(true);
        let (release, released) = mpsc::channel::<()>();
        let (began, begins) = oneshot::channel();
        let limit = Duration::from_millis(50);
        let term = term(&mut leader, limit, |loops| {
            loops.spawn("rounds", async move {
                began.send(()).expect("the test waits");
                // Ends when the test has ended.
                let _ = released.recv();
            });
            loops.spawn("leases", std::future::pending());
        });
        let lose = async {
            begins.await.expect("it begins");
            leads.send_replace(false);
        };
        let (ended, ()) = tokio::join!(term, lose);
        drop(release);
        let error = ended.expect_err("a loop goes on");
        assert!(
            matches!(&error, TermError::Endless { names, .. } if names == "rounds"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn panic_of_loop_ends_term_and_names_loop() {
        let (_leads, mut leader) = watch::channel(true);
        let ended = term(&mut leader, PATIENCE, |loops| {
            loops.spawn("studies", async { panic!("an invariant") });
            loops.spawn("leases", std::future::pending());
        });
        let error = ended.await.expect_err("a loop broke");
        assert!(
            matches!(
                error,
                TermError::Broken {
                    name: "studies",
                    ..
                }
            ),
            "{error}"
        );
    }
}
