//! What administrators and the machine's own cluster say of a node: drains and notices.

use super::{NodeRow, get};
use crate::error::StoreError;
use crate::event::{self, of_node};
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::node::{Closed, Notice};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// Drains a node or readmits it. Readmission also ends an exclusion for faults. Returns the node;
/// `None` if there is none that the caller may change. The next round moves the node's tasks. Needs
/// `tenant_scope::admin` on the side of the API server.
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
    let reopens = !drained && before.excluded;
    let mut events = Vec::new();
    if before.drained != drained {
        let name = name.to_owned();
        events.push(Event::NodeDrained { name, drained });
    }
    if reopens {
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
            reopens,
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

/// Stores the complete notice of the cluster that the machine belongs to. Returns the node; `None`
/// if there is none that the caller may change. The next round applies it. Needs
/// `tenant_scope::admin`.
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

/// Whether the notice deserves an event. A first notice that the node is open does not, because
/// every node has one. Other changes than those of `closed` and `rack` do not either, because they
/// may change with every pod.
fn is_news(before: Option<&Notice>, notice: &Notice) -> bool {
    let Some(before) = before else {
        return notice.closed != Closed::Open;
    };
    before.closed != notice.closed || before.rack != notice.rack
}
