//! The append-only history and the cursor of its readers.
//!
//! Postgres draws sequence numbers when it writes a row and not when it commits. A reader that
//! remembered only the highest sequence number would skip events of a transaction that commits
//! late. So the cursor is (transaction, sequence), and readers receive only events of transactions
//! below the oldest running one.

use crate::error::StoreError;
use crate::notify::{self, NotifyChannel};
use crate::page::{self, RowPage};
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId, TenantId};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::fmt;
use std::str::FromStr;
use time::OffsetDateTime;
use uuid::Uuid;

/// An event to append.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub at: OffsetDateTime,
    /// Tenant of the event. `None` for events of nodes and of the cluster, which every tenant sees.
    pub tenant_id: Option<TenantId>,
    pub job_id: Option<JobId>,
    pub node_id: Option<NodeId>,
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    pub cursor: EventCursor,
    pub at: OffsetDateTime,
    pub tenant_id: Option<TenantId>,
    pub job_id: Option<JobId>,
    pub node_id: Option<NodeId>,
    pub event: Event,
}

/// Position of a reader in the history; its text form is `xid-seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCursor {
    pub xid: u64,
    pub seq: i64,
}

/// A text that is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a cursor; expected two numbers joined by '-'")]
pub struct CursorError {
    pub text: String,
}

/// Filter of events. The tenant is the one of the transaction's scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventFilter {
    pub job_id: Option<JobId>,
    pub node_id: Option<NodeId>,
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xid, self.seq)
    }
}

impl FromStr for EventCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('-');
        let cursor = parts.and_then(|(xid, seq)| {
            Some(Self {
                xid: xid.parse().ok()?,
                seq: seq.parse().ok().filter(|seq| *seq >= 0)?,
            })
        });
        cursor.ok_or_else(|| CursorError {
            text: text.to_owned(),
        })
    }
}

/// Appends events in order, in one statement. Sends no notification.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn append(conn: &mut PgConnection, events: &[NewEvent]) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let at: Vec<OffsetDateTime> = events.iter().map(|event| event.at).collect();
    let tenants: Vec<Option<Uuid>> = events
        .iter()
        .map(|event| event.tenant_id.map(Uuid::from))
        .collect();
    let jobs: Vec<Option<Uuid>> = events
        .iter()
        .map(|event| event.job_id.map(Uuid::from))
        .collect();
    let nodes: Vec<Option<Uuid>> = events
        .iter()
        .map(|event| event.node_id.map(Uuid::from))
        .collect();
    let kinds: Vec<String> = events
        .iter()
        .map(|event| event.event.kind().to_owned())
        .collect();
    let bodies: Vec<Json<&Event>> = events.iter().map(|event| Json(&event.event)).collect();
    sqlx::query!(
        "insert into event (at, tenant_id, job_id, node_id, kind, body)
         select at, tenant_id, job_id, node_id, kind, body
         from unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::jsonb[])
              with ordinality as given (at, tenant_id, job_id, node_id, kind, body, place)
         order by place",
        &at,
        &tenants as _,
        &jobs as _,
        &nodes as _,
        &kinds,
        &bodies as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

struct EventSqlRow {
    xid: String,
    seq: i64,
    at: OffsetDateTime,
    tenant_id: Option<Uuid>,
    job_id: Option<Uuid>,
    node_id: Option<Uuid>,
    body: Json<Event>,
}

impl EventCursor {
    /// Parses the text of an `xid8`.
    pub(crate) fn read(xid: &str, seq: i64) -> Self {
        let xid = xid.parse().expect("Postgres writes an xid8 as a number");
        Self { xid, seq }
    }
}

impl From<EventSqlRow> for StoredEvent {
    fn from(row: EventSqlRow) -> Self {
        Self {
            cursor: EventCursor::read(&row.xid, row.seq),
            at: row.at,
            tenant_id: row.tenant_id.map(Into::into),
            job_id: row.job_id.map(Into::into),
            node_id: row.node_id.map(Into::into),
            event: row.body.0,
        }
    }
}

fn event_bytes(event: &StoredEvent) -> usize {
    page::json_bytes(&event.event)
}

/// Returns events after `after`, oldest first. Events of transactions that are not below the oldest
/// running one are not shown yet. So a stream that reached the end polls after a second at most,
/// even without a notification.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn page(
    conn: &mut PgConnection,
    filter: EventFilter,
    after: Option<EventCursor>,
    limit: u32,
) -> Result<RowPage<StoredEvent>, StoreError> {
    let after = after.unwrap_or(EventCursor { xid: 0, seq: 0 });
    let rows = sqlx::query_as!(
        EventSqlRow,
        r#"select xid::text as "xid!", seq, at, tenant_id, job_id, node_id, body as "body: Json<Event>"
           from event
           where (xid, seq) > ($1::text::xid8, $2::bigint)
             and xid < pg_snapshot_xmin(pg_current_snapshot())
             and ($3::uuid is null or job_id = $3)
             and ($4::uuid is null or node_id = $4)
           order by event.xid, seq
           limit $5"#,
        after.xid.to_string(),
        after.seq,
        filter.job_id.map(Uuid::from),
        filter.node_id.map(Uuid::from),
        i64::from(limit) + 1
    )
    .fetch(conn);
    page::read(rows, limit, event_bytes).await
}

/// Returns events of the tenant in scope and of no tenant that are older than `before`, newest
/// first. Events of the kinds in `without` are omitted, and those that [`page`] does not show yet.
///
/// The query scans the index twice. A single scan would read past the events of all other tenants
/// to find those of a tenant with few.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn recent(
    conn: &mut PgConnection,
    without: &[String],
    before: Option<EventCursor>,
    limit: u32,
) -> Result<RowPage<StoredEvent>, StoreError> {
    let newest = EventCursor {
        xid: u64::MAX,
        seq: i64::MAX,
    };
    let before = before.unwrap_or(newest);
    let rows = sqlx::query_as!(
        EventSqlRow,
        r#"select xid::text as "xid!", seq as "seq!", at as "at!", tenant_id, job_id, node_id, body as "body!: Json<Event>"
           from (
               (select * from event
                where tenant_id = muster_tenant() and (xid, seq) < ($1::text::xid8, $2::bigint)
                  and xid < pg_snapshot_xmin(pg_current_snapshot()) and kind <> all($3::text[])
                order by tenant_id desc, xid desc, seq desc limit $4)
               union all
               (select * from event
                where tenant_id is null and (xid, seq) < ($1::text::xid8, $2::bigint)
                  and xid < pg_snapshot_xmin(pg_current_snapshot()) and kind <> all($3::text[])
                order by tenant_id desc, xid desc, seq desc limit $4)
           ) seen
           order by seen.xid desc, seq desc
           limit $4"#,
        before.xid.to_string(),
        before.seq,
        without,
        i64::from(limit) + 1
    )
    .fetch(conn);
    page::read(rows, limit, event_bytes).await
}

/// Returns the cursor of the newest visible event: the start of a stream that wants only later
/// events.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn newest(conn: &mut PgConnection) -> Result<EventCursor, StoreError> {
    // All transactions below the snapshot's oldest have ended; later events have a higher
    // transaction.
    let horizon =
        sqlx::query_scalar!(r#"select pg_snapshot_xmin(pg_current_snapshot())::text as "xmin!""#)
            .fetch_one(conn)
            .await?;
    let EventCursor { xid, seq } = EventCursor::read(&horizon, i64::MAX);
    Ok(EventCursor {
        xid: xid.saturating_sub(1),
        seq,
    })
}

/// Returns the newest event that retention has removed for its age; `None` before the first.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forgotten(conn: &mut PgConnection) -> Result<Option<EventCursor>, StoreError> {
    let row = sqlx::query!(r#"select xid::text as "xid!", seq from event_forgotten"#)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| EventCursor::read(&row.xid, row.seq)))
}

/// Appends an event of a tenant and wakes the streams of the API server.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn append_of_tenant(
    conn: &mut PgConnection,
    tenant: TenantId,
    event: Event,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    let event = NewEvent {
        at,
        tenant_id: Some(tenant),
        job_id: None,
        node_id: None,
        event,
    };
    append(conn, &[event]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await
}

/// Returns an event of a job and its tenant.
pub(crate) fn of_job(
    at: OffsetDateTime,
    tenant_id: TenantId,
    job_id: JobId,
    event: Event,
) -> NewEvent {
    NewEvent {
        at,
        tenant_id: Some(tenant_id),
        job_id: Some(job_id),
        node_id: None,
        event,
    }
}

/// Returns an event of the whole cluster.
pub(crate) fn of_cluster(at: OffsetDateTime, event: Event) -> NewEvent {
    NewEvent {
        at,
        tenant_id: None,
        job_id: None,
        node_id: None,
        event,
    }
}

/// Returns an event of a node.
pub(crate) fn of_node(at: OffsetDateTime, node_id: NodeId, event: Event) -> NewEvent {
    NewEvent {
        at,
        tenant_id: None,
        job_id: None,
        node_id: Some(node_id),
        event,
    }
}
