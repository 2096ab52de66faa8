//! The queue window: which jobs a round loads. These are all jobs that hold GPUs or tasks, jobs
//! with orders, the first queued jobs of each tenant, and some blocked jobs.
//!
//! An order is an intent that changes a queued or paused job: pause, cancel or resume. A blocked
//! job cannot start now: it is in back-off, it is paused, or its wait reason does not end with
//! time.
//!
//! Every statement uses a partial index that contains only the wanted rows. So its cost depends
//! neither on the lengths of queue and history nor on the statistics of Postgres.

use crate::error::StoreError;
use crate::int_convert::{unsigned, unsigned32};
use muster_model::id::TenantId;
use muster_model::plan::StaleWait;
use sqlx::{Executor as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Maximum number of jobs with an order per round; the next rounds load the others.
const MAX_ORDERS: i64 = 500;
/// The round loads at most this part of the window, a quarter, of each kind of blocked jobs.
const BLOCKED_DIVISOR: u32 = 4;
/// Maximum number of jobs outside the window to which one round gives that wait reason.
const MAX_UNTOLD: usize = 500;
/// Shortest time between two counts of the queues.
const COUNT_INTERVAL: Duration = Duration::seconds(2);
/// A count reads every queued job. The interval is at least this time for each job, so that counts
/// take a few per cent of the rounds' time at any length of the queues.
const COUNT_INTERVAL_PER_JOB: Duration = Duration::microseconds(300);

/// Queued jobs of one tenant that the round does not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsOutsideWindow {
    pub tenant: TenantId,
    /// Number of the tenant's queued jobs that the round loads.
    pub considered: u32,
    /// Number of the tenant's other queued jobs, as last counted.
    pub jobs: u32,
    /// Some of these jobs whose wait reason does not say yet that they are left out.
    pub untold: Vec<StaleWait>,
}

/// State that is kept between rounds.
#[derive(Debug, Default)]
pub(super) struct Queues {
    counted_at: Option<OffsetDateTime>,
    /// Number of queued jobs of each tenant with any.
    counts: BTreeMap<TenantId, u32>,
    /// Last job that a round has loaded of those whose wait reason does not end with time; nil
    /// before the first one.
    rotation: Uuid,
}

/// The jobs of a round.
pub(super) struct QueueWindow {
    pub ids: Vec<Uuid>,
    pub left_out: Vec<JobsOutsideWindow>,
    /// Whether this round leaves work to the next one: orders, or jobs outside the window whose
    /// wait reason does not say so yet.
    pub has_more: bool,
}

/// Queue of one tenant, divided at the end of its part of the window.
#[derive(Debug, Default, PartialEq, Eq)]
struct TenantQueue {
    considered: BTreeSet<Uuid>,
    /// Number of further jobs, as far as they were read.
    left_out: u32,
}

/// Chooses the jobs of a round: at most `most` queued jobs that may start now, and the other sets
/// of the module comment in addition. Each tenant has an equal part of `most`. A short queue leaves
/// its rest to longer ones.
pub(super) async fn choose(
    conn: &mut PgConnection,
    queues: &mut Queues,
    most: u32,
    now: OffsetDateTime,
) -> Result<QueueWindow, StoreError> {
    // Postgres may expect an empty queue and sort it completely. Each statement below reads an
    // index in its order.
    conn.execute("set local enable_sort = off").await?;
    let mut ids: BTreeSet<Uuid> = holding(conn).await?.into_iter().collect();
    let orders = with_orders(conn).await?;
    let has_more_orders = orders.len() as i64 == MAX_ORDERS;
    ids.extend(orders);
    let queued = startable(conn, most, now).await?;
    ids.extend(queued.values().flat_map(|queue| &queue.considered));
    ids.extend(blocked(conn, queues, (most / BLOCKED_DIVISOR).max(1), now).await?);
    conn.execute("set local enable_sort = on").await?;
    let mut left_out = Vec::new();
    let mut room = MAX_UNTOLD;
    for (tenant, queue) in queued.iter().filter(|(_, queue)| queue.left_out > 0) {
        queues.count(conn, now).await?;
        let considered = queue.considered.len();
        let untold = untold(conn, *tenant, &queue.considered, room, now).await?;
        room -= untold.len();
        let counted = queues.counts.get(tenant).copied().unwrap_or(0);
        let considered = u32::try_from(considered).unwrap_or(u32::MAX);
        left_out.push(JobsOutsideWindow {
            tenant: *tenant,
            considered,
            jobs: counted.saturating_sub(considered).max(queue.left_out),
            untold,
        });
    }
    Ok(QueueWindow {
        ids: ids.into_iter().collect(),
        left_out,
        has_more: has_more_orders || room < MAX_UNTOLD,
    })
}

/// Returns all jobs that hold GPUs or tasks.
async fn holding(conn: &mut PgConnection) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from job where phase in ('starting', 'running', 'stopping', 'suspended')"
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// Returns jobs with an order, at most [`MAX_ORDERS`].
async fn with_orders(conn: &mut PgConnection) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from job
         where (phase = 'queued' and intent <> 'run') or (phase = 'paused' and intent in ('run', 'cancel'))
         order by id limit $1",
        MAX_ORDERS
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// Returns the queued jobs that may start now, divided by [`divide`]. It reads one job of a tenant
/// more than the window holds, to learn whether jobs are left out.
async fn startable(
    conn: &mut PgConnection,
    most: u32,
    now: OffsetDateTime,
) -> Result<BTreeMap<TenantId, TenantQueue>, StoreError> {
    let rows = sqlx::query!(
        r#"select t.id as tenant_id, q.id
           from tenant t
           cross join lateral (
               select id from job
               where tenant_id = t.id and phase = 'queued' and intent = 'run'
                 and not muster_is_for_good(waiting)
                 and (not_before is null or not_before <= $2)
               order by priority desc, (revision = 0), submitted_at, id
               limit $1
           ) q"#,
        i64::from(most) + 1,
        now
    )
    .fetch_all(conn)
    .await?;
    let mut queues: BTreeMap<TenantId, Vec<Uuid>> = BTreeMap::new();
    for row in rows {
        queues.entry(row.tenant_id.into()).or_default().push(row.id);
    }
    Ok(divide(queues, most as usize))
}

/// Considers the first job of every queue, then the second of every queue, up to `most` jobs.
fn divide(queues: BTreeMap<TenantId, Vec<Uuid>>, most: usize) -> BTreeMap<TenantId, TenantQueue> {
    let mut lengths: Vec<usize> = queues.values().map(Vec::len).collect();
    lengths.sort_unstable();
    // Shorter queues are considered completely. Each longer queue has an equal part of the
    // remaining room.
    let (mut room, mut share) = (most, most);
    for (place, &length) in lengths.iter().enumerate() {
        let longer = lengths.len() - place;
        share = room / longer;
        if length > share {
            break;
        }
        room -= length;
    }
    // What remains of the room is less than one job for each longer queue.
    let mut extra = {
        let longer = lengths.iter().filter(|&&length| length > share).count();
        room.saturating_sub(share * longer)
    };
    let queues = queues.into_iter().map(|(tenant, ids)| {
        let mut part = share;
        if ids.len() > share && extra > 0 {
            extra -= 1;
            part += 1;
        }
        let left_out = u32::try_from(ids.len().saturating_sub(part)).unwrap_or(u32::MAX);
        let considered = ids.into_iter().take(part).collect();
        (
            tenant,
            TenantQueue {
                considered,
                left_out,
            },
        )
    });
    queues.collect()
}

/// Returns blocked jobs, at most `most` of each kind: jobs whose wait reason does not end with time
/// (in rotation), jobs in back-off, and paused jobs.
async fn blocked(
    conn: &mut PgConnection,
    queues: &mut Queues,
    most: u32,
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, StoreError> {
    let most = i64::from(most);
    let mut ids = waiting_for_change(conn, queues.rotation, most).await?;
    if (ids.len() as i64) < most && !queues.rotation.is_nil() {
        let again = waiting_for_change(conn, Uuid::nil(), most).await?;
        ids.extend(again.into_iter().take_while(|id| *id <= queues.rotation));
        ids.truncate(usize::try_from(most).expect("a small number"));
    }
    queues.rotation = if (ids.len() as i64) < most {
        // All of them were read. The next round starts with the first again.
        Uuid::nil()
    } else {
        ids.last().copied().unwrap_or_default()
    };
    let in_backoff = sqlx::query_scalar!(
        "select id from job where phase = 'queued' and not_before is not null and not_before > $2 order by not_before limit $1",
        most,
        now
    );
    ids.extend(in_backoff.fetch_all(&mut *conn).await?);
    let paused = sqlx::query_scalar!(
        "select id from job where phase = 'paused' order by id limit $1",
        most
    );
    ids.extend(paused.fetch_all(conn).await?);
    Ok(ids)
}

/// Returns jobs whose wait reason ends only if the job, its tenant's quota or the cluster changes,
/// in order of id.
async fn waiting_for_change(
    conn: &mut PgConnection,
    after: Uuid,
    most: i64,
) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from job
         where phase = 'queued' and intent = 'run'
           and muster_is_for_good(waiting)
           and id > $1
         order by id limit $2",
        after,
        most
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// Returns at most `most` jobs outside the window whose wait reason does not say so yet, with their
/// revisions. The statement may also return considered jobs, so it reads as many rows more.
async fn untold(
    conn: &mut PgConnection,
    tenant: TenantId,
    considered: &BTreeSet<Uuid>,
    most: usize,
    now: OffsetDateTime,
) -> Result<Vec<StaleWait>, StoreError> {
    if most == 0 {
        return Ok(Vec::new());
    }
    let read = considered.len() + most;
    let rows = sqlx::query!(
        "select id, revision from job
         where tenant_id = $1 and phase = 'queued' and intent = 'run'
           and not muster_is_for_good(waiting)
           and coalesce(waiting -> 'why' ->> 'reason', '') not in ('behind_earlier_jobs', 'backing_off')
           and (not_before is null or not_before <= $3)
         order by id limit $2",
        tenant.0,
        i64::try_from(read).expect("a small number"),
        now
    )
    .fetch_all(conn)
    .await?;
    let untold = rows.into_iter().filter(|row| !considered.contains(&row.id));
    let untold = untold.map(|row| StaleWait {
        job: row.id.into(),
        revision: unsigned(row.revision),
    });
    Ok(untold.take(most).collect())
}

impl Queues {
    /// Counts the queues again if the last count is too old.
    async fn count(
        &mut self,
        conn: &mut PgConnection,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let jobs: u32 = self.counts.values().sum();
        let interval = COUNT_INTERVAL.max(COUNT_INTERVAL_PER_JOB * jobs);
        if self
            .counted_at
            .is_some_and(|at| at <= now && now - at < interval)
        {
            return Ok(());
        }
        let rows = sqlx::query!(
            r#"select tenant_id, count(*) as "jobs!" from job
               where phase = 'queued' and intent = 'run'
                 and not muster_is_for_good(waiting)
                 and (not_before is null or not_before <= $1)
               group by tenant_id"#,
            now
        )
        .fetch_all(conn)
        .await?;
        self.counted_at = Some(now);
        self.counts = rows
            .into_iter()
            .map(|row| {
                let jobs = i32::try_from(row.jobs).unwrap_or(i32::MAX);
                (row.tenant_id.into(), unsigned32(jobs))
            })
            .collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, TenantId, Uuid, divide};

    /// Returns the numbers of jobs considered and left out, for queues of these lengths.
    fn shares(lengths: &[u128], most: usize) -> Vec<(usize, u32)> {
        let queue = |length: u128| (0..length).map(Uuid::from_u128).collect();
        let tenants = (0_u128..).map(|tenant| TenantId(Uuid::from_u128(tenant)));
        let queues: BTreeMap<TenantId, Vec<Uuid>> = tenants
            .zip(lengths.iter().map(|&length| queue(length)))
            .collect();
        let shares = divide(queues, most);
        shares
            .values()
            .map(|queue| (queue.considered.len(), queue.left_out))
            .collect()
    }

    #[test]
    fn long_queues_share_what_short_ones_leave() {
        assert_eq!(shares(&[], 10), []);
        assert_eq!(shares(&[3], 10), [(3, 0)]);
        assert_eq!(shares(&[11], 10), [(10, 1)]);
        assert_eq!(shares(&[2, 11, 11], 10), [(2, 0), (4, 7), (4, 7)]);
        assert_eq!(shares(&[11, 11, 11], 10), [(4, 7), (3, 8), (3, 8)]);
        assert_eq!(shares(&[11, 1, 4], 10), [(5, 6), (1, 0), (4, 0)]);
        assert_eq!(shares(&[5, 5], 10), [(5, 0), (5, 0)]);
        let total: usize = shares(&[11; 7], 10).iter().map(|share| share.0).sum();
        assert_eq!(total, 10);
    }
}
