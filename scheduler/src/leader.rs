//! One scheduler of the cluster leads: the one that holds a lock in Postgres for as long as its connection lives.

use crate::session::chain;
use muster_store::leader::Leadership;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

const RETRY: Duration = Duration::from_millis(500);
/// Longest end of a term. A loop is ended at its next wait; one that does not wait holds a thread of the runtime.
pub const TERM_ENDS: Duration = Duration::from_secs(10);

/// Campaigns until the process ends; `leads` follows what came of it.
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

/// The loops of one term, each a task of its own: none delays another, and none outlives the term.
#[derive(Debug, Default)]
pub struct Loops {
    tasks: JoinSet<()>,
    names: BTreeMap<Id, &'static str>,
}

/// Another process must lead: this one should end, and be started anew.
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
    /// Starts a loop; it runs until the term ends.
    pub fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(run);
        self.names.insert(task.id(), name);
    }

    /// Returns when a loop ends although none should.
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

    /// Ends every loop at its next wait.
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

/// One term: `start` starts the loops, which end when this process leads no more. What a loop was doing then is not carried out or
/// fails by itself: every change is one transaction.
///
/// # Errors
/// [`TermError`]; the process must end then.
pub async fn term(
    leader: &mut watch::Receiver<bool>,
    limit: Duration,
    start: impl FnOnce(&mut Loops),
) -> Result<(), TermError> {
    let mut loops = Loops::default();
    start(&mut loops);
    let lost = async {
        // The campaign ends with the process.
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
    async fn a_term_ends_a_loop_that_waits_for_what_never_comes() {
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
    async fn a_term_with_a_loop_that_holds_its_thread_is_an_error() {
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
    async fn a_loop_that_panics_ends_the_term_by_name() {
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
