//! Membership of nodes: credentials of executors, one-time join tokens, and removal by an
//! administrator.

use crate::error::StoreError;
use crate::event::{self, of_node};
use crate::int_convert::unsigned;
use crate::node::{self, NodeRow};
use crate::notify::{self, NotifyChannel};
use muster_model::actor::Actor;
use muster_model::event::{Event, MembershipChange};
use muster_model::id::NodeId;
use muster_model::node::NodeState;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// SHA-256 of a secret.
pub type SecretHash = [u8; 32];

/// Known facts about the executor of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorRecord {
    pub state: NodeState,
    /// SHA-256 of the executor's credential; `None` before it has presented one.
    pub credential: Option<Vec<u8>>,
    /// Identity of the executor's data folder.
    pub identity: Option<String>,
}

/// Returns the member of this name; `None` for an unknown or removed node.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn member(
    conn: &mut PgConnection,
    name: &str,
) -> Result<Option<ExecutorRecord>, StoreError> {
    let row = sqlx::query!(
        "select state, credential_sha256, identity from node where name = $1 and removed_at is null",
        name
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| ExecutorRecord {
        state: match row.state.as_str() {
            "lost" => NodeState::Lost,
            _ => NodeState::Up,
        },
        credential: row.credential_sha256,
        identity: row.identity,
    }))
}

/// Sets the node's credential if the present one is `before`, and returns whether it was set.
/// Appends an event if the executor replaces another one.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn bind(
    conn: &mut PgConnection,
    (id, name): (NodeId, &str),
    credential: &SecretHash,
    before: Option<&[u8]>,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let bound = sqlx::query!(
        "update node set credential_sha256 = $2 where id = $1 and credential_sha256 is not distinct from $3",
        id.0,
        credential.as_slice(),
        before
    )
    .execute(&mut *conn)
    .await?;
    if bound.rows_affected() == 0 {
        return Ok(false);
    }
    if before.is_some() {
        let event = changed(name, MembershipChange::Replaced, None);
        event::append(conn, &[of_node(now, id, event)]).await?;
        notify::send(conn, &[NotifyChannel::Events]).await?;
    }
    Ok(true)
}

/// Whether `token` is an unexpired one-time token for this node.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn is_join_token(
    conn: &mut PgConnection,
    name: &str,
    token: &SecretHash,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select exists (select from node_join where token_sha256 = $1 and name = $2 and expires_at > $3) as "found!""#,
        token.as_slice(),
        name,
        now
    )
    .fetch_one(conn)
    .await?;
    Ok(found)
}

/// Consumes a one-time token and deletes expired ones. Returns `false` if another executor was
/// faster.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn use_join_token(
    conn: &mut PgConnection,
    token: &SecretHash,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let used = sqlx::query!(
        "delete from node_join where token_sha256 = $1",
        token.as_slice()
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("delete from node_join where expires_at <= $1", now)
        .execute(conn)
        .await?;
    Ok(used.rows_affected() > 0)
}

/// Stores a one-time token for the node of this name. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn create_join_token(
    conn: &mut PgConnection,
    name: &str,
    token: &SecretHash,
    (now, expires_at): (OffsetDateTime, OffsetDateTime),
    by: &Actor,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into node_join (token_sha256, name, created_at, expires_at) values ($1, $2, $3, $4)",
        token.as_slice(),
        name,
        now,
        expires_at
    )
    .execute(&mut *conn)
    .await?;
    let event = changed(name, MembershipChange::JoinTokenMade, Some(by));
    event::append(conn, &[event::of_cluster(now, event)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await
}

/// Deletes the node's credential, so that the next executor that joins under its name can bind its
/// own. Returns the node; `None` if there is none. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn reset(
    conn: &mut PgConnection,
    name: &str,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<Option<NodeRow>, StoreError> {
    let id = sqlx::query_scalar!(
        "update node set credential_sha256 = null where name = $1 and removed_at is null returning id",
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(id) = id else {
        return Ok(None);
    };
    let event = changed(name, MembershipChange::CredentialReset, Some(by));
    event::append(conn, &[of_node(now, id.into(), event)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await?;
    node::get(conn, name).await
}

/// Result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRemovalOutcome {
    Done,
    NoSuchNode,
    /// Refused: the node has a session, or its lease has not expired.
    Up,
    /// Refused: tasks of the node have not ended.
    Holds {
        tasks: u64,
    },
}

/// Removes a lost node without tasks. Its row remains for the history of its tasks. An executor
/// that joins under the name later is a new node. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn remove(
    conn: &mut PgConnection,
    name: &str,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<NodeRemovalOutcome, StoreError> {
    // The lock delays the node's next session until the node is removed.
    let found = sqlx::query!(
        r#"select id, state,
                  coalesce((select tasks from muster_tasks_of_nodes() held where held.node_id = node.id), 0) as "tasks!"
           from node where name = $1 and removed_at is null for no key update"#,
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(found) = found else {
        return Ok(NodeRemovalOutcome::NoSuchNode);
    };
    if found.state == NodeState::Up.as_str() {
        return Ok(NodeRemovalOutcome::Up);
    }
    if found.tasks > 0 {
        let tasks = unsigned(found.tasks);
        return Ok(NodeRemovalOutcome::Holds { tasks });
    }
    sqlx::query!(
        "update node set removed_at = $2, credential_sha256 = null, identity = null, drained = false, notice = null,
                         excluded_at = null, excluded_why = null, faults_since = $2
         where id = $1",
        found.id,
        now
    )
    .execute(&mut *conn)
    .await?;
    let event = changed(name, MembershipChange::Removed, Some(by));
    event::append(conn, &[of_node(now, found.id.into(), event)]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    Ok(NodeRemovalOutcome::Done)
}

fn changed(name: &str, change: MembershipChange, by: Option<&Actor>) -> Event {
    Event::NodeMembership {
        name: name.to_owned(),
        change,
        by: by.cloned(),
    }
}
