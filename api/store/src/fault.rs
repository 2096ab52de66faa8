//! Faults that are charged to nodes, and exclusion of nodes because of them.

use crate::error::StoreError;
use crate::event::{self, NewEvent, of_node};
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, TaskId};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};

/// A charged fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCharge {
    pub node_id: NodeId,
    /// Job and task of the fault. `None` if the machine itself certainly caused it.
    pub of: Option<(JobId, TaskId)>,
    pub fault: NodeFault,
    pub at: OffsetDateTime,
    /// Time that the node reported for the fault. It identifies a repeated report. `None`: the same
    /// as `at`.
    pub reported_at: Option<OffsetDateTime>,
}

/// Age at which charges are deleted; administrators read them until then.
const KEPT: Duration = Duration::days(30);
/// Age up to which a round considers charges.
const LOADED: Duration = Duration::days(1);

/// Charges a fault once, even if it is reported again. Returns the event to append, or `None` for a
/// repetition.
pub(crate) async fn charge(
    conn: &mut PgConnection,
    charge: &FaultCharge,
) -> Result<Option<NewEvent>, StoreError> {
    let (job, task) = charge
        .of
        .map_or((None, None), |(job, task)| (Some(job.0), Some(task.0)));
    let name = sqlx::query_scalar!(
        "with made as (
             insert into node_fault (node_id, job_id, task_id, at, fault, told_at) values ($1, $2, $3, $4, $5, $6)
             on conflict do nothing returning node_id
         )
         select node.name from made join node on node.id = made.node_id",
        charge.node_id.0,
        job,
        task,
        charge.at,
        Json(charge.fault) as _,
        charge.reported_at
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(name) = name else {
        return Ok(None);
    };
    sqlx::query!(
        "delete from node_fault where node_id = $1 and at < $2",
        charge.node_id.0,
        charge.at - KEPT
    )
    .execute(conn)
    .await?;
    let fault = charge.fault;
    let event = Event::NodeFaulted { name, fault };
    Ok(Some(of_node(charge.at, charge.node_id, event)))
}

/// Charges faults that a node reports of its own GPUs.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn charge_hardware(
    conn: &mut PgConnection,
    node_id: NodeId,
    faults: &[(OffsetDateTime, NodeFault)],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let mut events = Vec::new();
    for (at, fault) in faults {
        let told = FaultCharge {
            node_id,
            of: None,
            fault: *fault,
            // A node whose clock is ahead would otherwise be charged at a future time.
            at: (*at).min(now),
            // A new session reports the fault again. Without this time, each report would count as
            // another fault.
            reported_at: Some(*at),
        };
        events.extend(charge(conn, &told).await?);
    }
    if !events.is_empty() {
        event::append(conn, &events).await?;
        notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    }
    Ok(())
}

/// Returns the faults of each node within the last day and after an administrator last readmitted
/// it.
pub(crate) async fn load(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<BTreeMap<NodeId, Vec<FaultCharge>>, StoreError> {
    let rows = sqlx::query!(
        r#"select f.node_id, f.job_id, f.task_id, f.at, f.told_at, f.fault as "fault: Json<NodeFault>"
           from node_fault f join node n on n.id = f.node_id
           where f.at > $1 and f.at > coalesce(n.faults_since, '-infinity')
           order by f.node_id, f.at"#,
        now - LOADED
    )
    .fetch_all(conn)
    .await?;
    let mut charges: BTreeMap<NodeId, Vec<FaultCharge>> = BTreeMap::new();
    for row in rows {
        let of = row.job_id.zip(row.task_id);
        charges
            .entry(row.node_id.into())
            .or_default()
            .push(FaultCharge {
                node_id: row.node_id.into(),
                of: of.map(|(job, task)| (job.into(), task.into())),
                fault: row.fault.0,
                at: row.at,
                reported_at: row.told_at,
            });
    }
    Ok(charges)
}

/// Excludes a node: it receives no new tasks. Returns `false` if the node was already excluded.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn exclude(
    conn: &mut PgConnection,
    node: NodeId,
    why: &str,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let name = sqlx::query_scalar!(
        "update node set excluded_at = $2, excluded_why = $3, excluded_by_itself = false where id = $1 and excluded_at is null returning name",
        node.0,
        now,
        why
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(name) = name else {
        return Ok(false);
    };
    let event = Event::NodeExcluded {
        name,
        excluded: true,
        why: why.to_owned(),
    };
    event::append(conn, &[of_node(now, node, event)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await?;
    Ok(true)
}

/// Maximum length of the reason why a node takes no new tasks, in characters.
const UNFIT_CHARS: usize = 500;

/// Stores what a node reports about itself: the reason why it takes no new tasks, or `None` if it
/// takes them. A node that was excluded for its faults stays excluded.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_unfit(
    conn: &mut PgConnection,
    id: NodeId,
    why: Option<&str>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let why: Option<String> = why.map(|why| {
        let printable = why.chars().filter(|char| !char.is_control());
        printable.take(UNFIT_CHARS).collect()
    });
    let name = match &why {
        Some(why) => {
            sqlx::query_scalar!(
                "update node set excluded_at = $2, excluded_why = $3, excluded_by_itself = true
                 where id = $1 and (excluded_at is null or (excluded_by_itself and excluded_why is distinct from $3)) returning name",
                id.0,
                now,
                why
            )
            .fetch_optional(&mut *conn)
            .await?
        }
        None => {
            sqlx::query_scalar!(
                "update node set excluded_at = null, excluded_why = null, excluded_by_itself = false
                 where id = $1 and excluded_at is not null and excluded_by_itself returning name",
                id.0
            )
            .fetch_optional(&mut *conn)
            .await?
        }
    };
    let Some(name) = name else {
        return Ok(());
    };
    let event = Event::NodeExcluded {
        name,
        excluded: why.is_some(),
        why: why.unwrap_or_else(|| "it can take them".to_owned()),
    };
    event::append(conn, &[of_node(now, id, event)]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await
}
