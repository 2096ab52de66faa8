//! Follower of a tenant's events that reconnects repeatedly to either API server. It receives each
//! event once, in order.

use crate::record::FaultRecord;
use futures::StreamExt as _;
use muster_client::{Client, StreamItem};
use muster_model::id::TenantId;
use sqlx::PgConnection;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Limit of a connection, in total and without a message.
const CONNECTED: Duration = Duration::from_secs(25);
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct EventFollower {
    seen: Mutex<FollowedEvents>,
}

#[derive(Default)]
struct FollowedEvents {
    /// Cursor of the first event.
    first: Option<(u64, i64)>,
    last: Option<(u64, i64)>,
    tenant: Option<TenantId>,
    /// Events of the tenant itself.
    own: BTreeSet<(u64, i64)>,
    connections: u32,
}

impl EventFollower {
    pub fn begin(clients: &[Client], record: &Arc<FaultRecord>) -> Arc<Self> {
        let follower = Arc::new(Self::default());
        let (ours, clients, record) = (follower.clone(), clients.to_vec(), record.clone());
        tokio::spawn(async move {
            for client in clients.iter().cycle() {
                let after = ours.seen.lock().expect("no panic").last;
                let after = after.map(|(xid, seq)| format!("{xid}-{seq}"));
                let mut messages = client.watch(after);
                let following = async {
                    while let Some(Ok(message)) = messages.next().await {
                        ours.take(message, &record);
                    }
                };
                let _ = tokio::time::timeout(CONNECTED, following).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
        follower
    }

    fn take(&self, message: StreamItem, record: &FaultRecord) {
        let mut seen = self.seen.lock().expect("no panic");
        match message {
            StreamItem::Opened(opened) => {
                seen.connections += 1;
                let cursor = parsed(&opened.cursor);
                seen.first = seen.first.or(cursor);
                seen.last = seen.last.or(cursor);
            }
            StreamItem::Event(event) => {
                let cursor = parsed(&event.cursor);
                if cursor <= seen.last {
                    record.broke(&format!(
                        "a follower saw event {cursor:?} after {:?}: {event:?}",
                        seen.last
                    ));
                }
                seen.last = cursor;
                if event.tenant_id.is_some() {
                    seen.tenant = event.tenant_id;
                    seen.own.extend(cursor);
                }
            }
            StreamItem::Progress(_)
            | StreamItem::Log(_)
            | StreamItem::TaskEnd(_)
            | StreamItem::End(_) => {}
        }
    }

    /// Events and connections so far.
    pub fn counts(&self) -> String {
        let seen = self.seen.lock().expect("no panic");
        format!(
            "{} events by {} connections",
            seen.own.len(),
            seen.connections
        )
    }

    /// Compares with the store, while the cluster is idle. Returns the missing events.
    pub async fn missing(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<(u64, i64)>> {
        let (first, tenant, own) = {
            let seen = self.seen.lock().expect("no panic");
            (seen.first, seen.tenant, seen.own.clone())
        };
        let tenant = tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let stored: Vec<(String, i64)> =
            sqlx::query_as("select xid::text, seq from event where tenant_id::text = $1")
                .bind(tenant)
                .fetch_all(conn)
                .await?;
        let stored = stored
            .into_iter()
            .map(|(xid, seq)| (xid.parse().expect("a number"), seq));
        let missing = stored.filter(|cursor| Some(*cursor) > first && !own.contains(cursor));
        Ok(missing.collect())
    }
}

fn parsed(cursor: &str) -> Option<(u64, i64)> {
    let (xid, seq) = cursor.split_once('-')?;
    Some((xid.parse().ok()?, seq.parse().ok()?))
}
