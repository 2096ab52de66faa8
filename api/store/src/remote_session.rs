//! Open remote sessions. The API server opens a session, and the leading scheduler claims it for
//! the node. The history keeps the beginning and the end of each; the row is deleted at the end.

use crate::error::StoreError;
use crate::event::{self, NewEvent};
use crate::int_convert::{signed32, unsigned, unsigned32};
use crate::limit;
use crate::membership::SecretHash;
use crate::notify::{self, NotifyChannel};
use crate::secret::AskingNode;
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId, RemoteSessionId, TaskId, TenantId};
use muster_model::remote::{MAX_OF_JOB, MAX_OF_TENANT, RemoteAction, RemoteEnd};
use muster_model::task::Role;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// A session to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    pub id: RemoteSessionId,
    pub tenant: TenantId,
    pub job: JobId,
    pub task: TaskId,
    pub node: NodeId,
    pub rank: u32,
    pub action: RemoteAction,
    pub by: Actor,
    pub key: SecretHash,
    pub opened_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
}

/// A session that the scheduler carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSession {
    pub id: RemoteSessionId,
    pub task: TaskId,
    pub node: NodeId,
    pub action: RemoteAction,
    pub expires_at: OffsetDateTime,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    pub end: RemoteEnd,
    pub input_bytes: u64,
    pub output_bytes: u64,
}

/// Stores a session and appends an event.
///
/// # Errors
/// [`StoreError::Exceeded`] if the job or the tenant has the maximum number of open sessions.
pub async fn open(conn: &mut PgConnection, session: &OpenedSession) -> Result<(), StoreError> {
    limit::hold(conn, session.tenant).await?;
    let open = sqlx::query!(
        r#"select count(*) as "all!", count(*) filter (where job_id = $1) as "of_job!"
           from remote_session where tenant_id = $2 and expires_at > $3"#,
        session.job.0,
        session.tenant.0,
        session.opened_at
    )
    .fetch_one(&mut *conn)
    .await?;
    limit::below("remote_sessions_of_job", MAX_OF_JOB, unsigned(open.of_job))?;
    limit::below("remote_sessions", MAX_OF_TENANT, unsigned(open.all))?;
    sqlx::query!(
        "insert into remote_session (id, tenant_id, job_id, task_id, node_id, rank, action, opened_by, key_sha256, opened_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        session.id.0,
        session.tenant.0,
        session.job.0,
        session.task.0,
        session.node.0,
        signed32(session.rank),
        Json(&session.action) as _,
        Json(&session.by) as _,
        session.key.as_slice(),
        session.opened_at,
        session.expires_at
    )
    .execute(&mut *conn)
    .await?;
    if matches!(session.action, RemoteAction::Port { .. }) {
        // Browsers open many connections, so the history has one event for each.
        return Ok(());
    }
    let event = NewEvent {
        at: session.opened_at,
        tenant_id: Some(session.tenant),
        job_id: Some(session.job),
        node_id: None,
        event: Event::RemoteSessionOpened {
            session: session.id,
            role: Role::Worker { rank: session.rank },
            action: session.action.clone(),
            by: session.by.clone(),
        },
    };
    event::append(conn, &[event]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await
}

/// Claims a session for the caller, once. Returns `None` if it does not exist, was claimed before,
/// has another key or has expired, or if its task has been released.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn claim(
    conn: &mut PgConnection,
    id: RemoteSessionId,
    key: &SecretHash,
    now: OffsetDateTime,
) -> Result<Option<ClaimedSession>, StoreError> {
    let row = sqlx::query!(
        r#"update remote_session s set claimed_at = $3
           from task t
           where s.id = $1 and s.key_sha256 = $2 and s.claimed_at is null and s.expires_at > $3
             and t.id = s.task_id and t.released_at is null
           returning s.task_id, s.node_id, s.action as "action: Json<RemoteAction>", s.expires_at"#,
        id.0,
        key.as_slice(),
        now
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| ClaimedSession {
        id,
        task: row.task_id.into(),
        node: row.node_id.into(),
        action: row.action.0,
        expires_at: row.expires_at,
    }))
}

/// Whether the executor with this name and credential is that of the node.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn is_node(
    conn: &mut PgConnection,
    node: NodeId,
    asking: AskingNode<'_>,
) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select exists (select from node where id = $1 and name = $2 and credential_sha256 = $3 and removed_at is null) as "found!""#,
        node.0,
        asking.name,
        asking.credential.as_slice()
    )
    .fetch_one(conn)
    .await?;
    Ok(found)
}

/// Deletes a session and appends an event. Returns `false` if another process has recorded the end.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn end(
    conn: &mut PgConnection,
    id: RemoteSessionId,
    end: &SessionEnd,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let row = sqlx::query_as!(
        EndedSqlRow,
        r#"delete from remote_session where id = $1
           returning id, tenant_id, job_id, rank, action as "action: Json<RemoteAction>", opened_by as "opened_by: Json<Actor>", opened_at"#,
        id.0
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(false) };
    event::append(conn, &[row.event(end, now)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await?;
    Ok(true)
}

/// Ends all claimed sessions, which an earlier leader carried out, and lost ones as [`end_lost`].
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn end_all(conn: &mut PgConnection, now: OffsetDateTime) -> Result<u64, StoreError> {
    end_where(conn, true, "the leading scheduler changed", now).await
}

/// Ends the sessions that were not claimed within a minute, and those that have expired.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn end_lost(conn: &mut PgConnection, now: OffsetDateTime) -> Result<u64, StoreError> {
    end_where(conn, false, "the API server did not begin or end it", now).await
}

async fn end_where(
    conn: &mut PgConnection,
    is_claimed_lost: bool,
    message: &str,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let rows = sqlx::query_as!(
        EndedSqlRow,
        r#"delete from remote_session
           where case when claimed_at is null then opened_at < $1::timestamptz - interval '1 minute'
                      else $2 or expires_at < $1::timestamptz - interval '1 minute' end
           returning id, tenant_id, job_id, rank, action as "action: Json<RemoteAction>", opened_by as "opened_by: Json<Actor>", opened_at"#,
        now,
        is_claimed_lost
    )
    .fetch_all(&mut *conn)
    .await?;
    let end = SessionEnd {
        end: RemoteEnd::Failed {
            message: message.to_owned(),
        },
        input_bytes: 0,
        output_bytes: 0,
    };
    let events: Vec<NewEvent> = rows.iter().map(|row| row.event(&end, now)).collect();
    event::append(conn, &events).await?;
    if !events.is_empty() {
        notify::send(conn, &[NotifyChannel::Events]).await?;
    }
    Ok(rows.len() as u64)
}

struct EndedSqlRow {
    id: uuid::Uuid,
    tenant_id: uuid::Uuid,
    job_id: uuid::Uuid,
    rank: i32,
    action: Json<RemoteAction>,
    opened_by: Json<Actor>,
    opened_at: OffsetDateTime,
}

impl EndedSqlRow {
    fn event(&self, end: &SessionEnd, now: OffsetDateTime) -> NewEvent {
        let duration_ms = (now - self.opened_at).whole_milliseconds();
        let duration_ms = u64::try_from(duration_ms).unwrap_or(0);
        let role = Role::Worker {
            rank: unsigned32(self.rank),
        };
        let (session, by) = (self.id.into(), self.opened_by.0.clone());
        let SessionEnd {
            end,
            input_bytes,
            output_bytes,
        } = end.clone();
        let event = match self.action.0 {
            RemoteAction::Port { port } => Event::PortConnectionEnded {
                session,
                role,
                port,
                end,
                duration_ms,
                input_bytes,
                output_bytes,
                by,
            },
            _ => Event::RemoteSessionEnded {
                session,
                role,
                end,
                duration_ms,
                input_bytes,
                output_bytes,
                by,
            },
        };
        NewEvent {
            at: now,
            tenant_id: Some(self.tenant_id.into()),
            job_id: Some(self.job_id.into()),
            node_id: None,
            event,
        }
    }
}
