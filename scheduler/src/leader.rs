//! One scheduler of the cluster leads: the one that holds a lock in Postgres for as long as its connection lives.

use crate::session::chain;
use muster_store::leader::Leadership;
use std::time::Duration;
use tokio::sync::watch;

const RETRY: Duration = Duration::from_millis(500);

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

/// One term: what `run` makes is carried on until it has noticed, by the receiver that it is given, that this process leads no more. That receiver
/// stays at its end though this process leads again before everybody has looked, as it may when Postgres was away for a moment: else some
/// would have stopped, and the others would never, and without them no new term begins.
pub async fn term<F>(
    leader: &mut watch::Receiver<bool>,
    run: impl FnOnce(watch::Receiver<bool>) -> F,
) where
    F: Future<Output = ()>,
{
    let (term, of_term) = watch::channel(true);
    let end = async {
        // Nobody campaigns any more if this fails: that ends it too.
        let _ = leader.wait_for(|leads| !leads).await;
        term.send_replace(false);
    };
    tokio::join!(end, run(of_term));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_term_ends_for_all_though_this_process_leads_again_before_some_have_looked() {
        let (leads, mut leader) = watch::channel(true);
        let leads = &leads;
        let ended = term(&mut leader, async |of_term| {
            let attentive = async |mut leader: watch::Receiver<bool>| {
                let _ = leader.wait_for(|leads| !leads).await;
            };
            // One that waits for Postgres meanwhile.
            let busy = async |leader| {
                leads.send_replace(false);
                tokio::time::sleep(Duration::from_millis(50)).await;
                leads.send_replace(true);
                attentive(leader).await;
            };
            tokio::join!(attentive(of_term.clone()), busy(of_term));
        });
        let patience = Duration::from_secs(5);
        let ended = tokio::time::timeout(patience, ended).await;
        assert!(ended.is_ok(), "one goes on, and the other has stopped");
    }
}
