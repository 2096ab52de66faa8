//! Settings of a node from outside Muster: drains of an administrator, and notices of a cluster
//! manager such as Kubernetes. The next round applies them.

use super::{NodeRow, get};
use crate::error::StoreError;
use crate::event::{self, of_node};
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::node::{Closed, Notice};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// Drains a node or readmits it, and returns it. A readmission also ends an exclusion for faults;
/// an exclusion that the node reported itself remains.
///
/// Returns `None` if the node does not exist, or the transaction may not change it. A transaction
/// of the API server may do so after `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_drained(
    conn: &mut PgConnection,
    name: &str,
    drained: bool,
    now: OffsetDateTime,
) -> Result<Option<NodeRow>, StoreError> {
    let before = sqlx::query!(
        "select id, drained, excluded_at is not null and not excluded_by_itself as \"excluded!\" from node where name = $1 and removed_at is null for no key update",
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(before) = before else {
        return Ok(None);
    };
    let ends_exclusion = !drained && before.excluded;
    let mut events = Vec::new();
    if before.drained != drained {
        let name = name.to_owned();
        events.push(Event::NodeDrained { name, drained });
    }
    if ends_exclusion {
        events.push(Event::NodeExcluded {
            name: name.to_owned(),
            excluded: false,
            why: "an administrator takes it back".to_owned(),
        });
    }
    if !events.is_empty() {
        // Earlier faults are no longer counted after a readmission.
        sqlx::query!(
            "update node
             set drained = $2, excluded_at = case when $3 then null else excluded_at end,
                 excluded_why = case when $3 then null else excluded_why end,
                 faults_since = case when $3 then $4 else faults_since end
             where id = $1",
            before.id,
            drained,
            ends_exclusion,
            now
        )
        .execute(&mut *conn)
        .await?;
        let id = before.id;
        let events = events.into_iter().map(|one| of_node(now, id.into(), one));
        event::append(conn, &events.collect::<Vec<_>>()).await?;
        notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    }
    get(conn, name).await
}

/// Replaces the notice of a cluster manager about a node, and returns the node. Any caller may
/// replace the notice of another sender.
///
/// Returns `None` as [`set_drained`] does.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_notice(
    conn: &mut PgConnection,
    name: &str,
    notice: &Notice,
    now: OffsetDateTime,
) -> Result<Option<NodeRow>, StoreError> {
    let before = sqlx::query!(
        r#"select id, notice as "notice: Json<Notice>" from node where name = $1 and removed_at is null for no key update"#,
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(before) = before else {
        return Ok(None);
    };
    let known = before.notice.map(|notice| notice.0);
    if known.as_ref() != Some(notice) {
        sqlx::query!(
            "update node set notice = $2 where id = $1",
            before.id,
            Json(notice) as _
        )
        .execute(&mut *conn)
        .await?;
        if is_news(known.as_ref(), notice) {
            let event = Event::NodeNoticed {
                name: name.to_owned(),
                notice: notice.clone(),
            };
            event::append(conn, &[of_node(now, before.id.into(), event)]).await?;
        }
        notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    }
    get(conn, name).await
}

/// Whether the notice deserves an event. Only changes of `closed` and `rack` do; the other fields
/// may change with every pod. A first notice that the node is open does not, because every node has
/// one.
fn is_news(before: Option<&Notice>, notice: &Notice) -> bool {
    let Some(before) = before else {
        return notice.closed != Closed::Open;
    };
    before.closed != notice.closed || before.rack != notice.rack
}
