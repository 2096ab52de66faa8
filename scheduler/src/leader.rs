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
