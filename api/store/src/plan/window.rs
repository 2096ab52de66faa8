//! The queue window: which jobs a round loads. These are all jobs that hold something, jobs with
//! orders, and the first queued jobs of each tenant.
//!
//! Every statement uses a partial index that contains only the wanted rows. So its cost depends
//! neither on the lengths of queue and history nor on the statistics of Postgres.

use crate::after;
use crate::error::StoreError;
use crate::int_convert::{unsigned, unsigned32};
use muster_model::id::TenantId;
use muster_model::plan::StaleWait;
use sqlx::{Executor as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Maximum number of jobs with an order per round; the next rounds load the others.
const MOST_ORDERS: i64 = 500;
/// Divisor of the window for each kind of queued jobs that cannot start now: a quarter.
const ASIDE_PART: u32 = 4;
/// Maximum number of jobs that one round informs that it leaves them out.
const MOST_UNTOLD: usize = 500;
/// Shortest time between two counts of the queues.
const COUNT_INTERVAL: Duration = Duration::seconds(2);
/// A count reads every queued job. The time between two counts grows by this much with each job, so
/// that counting takes a few per cent of the rounds' time whatever the length of the queues.
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

/// State of the queue that is kept between rounds.
#[derive(Debug, Default)]
pub(super) struct Queues {
    counted_at: Option<OffsetDateTime>,
    /// Number of queued jobs of each tenant with any.
    counts: BTreeMap<TenantId, u32>,
    /// Last job, among those that no time can start, that a round has considered.
    hopeless: Uuid,
}

/// The jobs of a round.
pub(super) struct QueueWindow {
    pub ids: Vec<Uuid>,
    pub left_out: Vec<JobsOutsideWindow>,
    /// Whether this round leaves work to the next one: orders, or jobs that are not informed yet
    /// that they are left out.
    pub has_more: bool,
}

/// Queue of one tenant.
#[derive(Debug, Default, PartialEq, Eq)]
struct TenantQueue {
    considered: BTreeSet<Uuid>,
    /// Number of further jobs, as far as they were read.
    left_out: u32,
}

/// Chooses all jobs that hold something, and at most `most` jobs of the queue. Each tenant has an
/// equal part; short queues leave their rest to longer ones.
pub(super) async fn choose(
    conn: &mut PgConnection,
    queues: &mut Queues,
    most: u32,
    now: OffsetDateTime,
) -> Result<QueueWindow, StoreError> {
    // Postgres may expect an empty queue and sort it completely. Each statement below reads an
    // index in its order.
    conn.execute("set local enable_sort = off").await?;
    let mut ids: BTreeSet<Uuid> = held(conn).await?.into_iter().collect();
    let orders = ordered(conn).await?;
    let has_more_orders = orders.len() as i64 == MOST_ORDERS;
    ids.extend(orders);
    let queued = first(conn, most, now).await?;
    ids.extend(queued.values().flat_map(|queue| &queue.considered));
    ids.extend(aside(conn, queues, (most / ASIDE_PART).max(1), now).await?);
    conn.execute("set local enable_sort = on").await?;
    let mut left_out = Vec::new();
    let mut room = MOST_UNTOLD;
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
        has_more: has_more_orders || room < MOST_UNTOLD,
    })
}

async fn held(conn: &mut PgConnection) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from job where phase in ('starting', 'running', 'stopping', 'suspended')"
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

async fn ordered(conn: &mut PgConnection) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select id from job
         where (phase = 'queued' and intent <> 'run') or (phase = 'paused' and intent in ('run', 'cancel'))
         order by id limit $1",
        MOST_ORDERS
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
}

/// Returns the first queued jobs that may start now: the first of every tenant, then the second, up
/// to `most`.
async fn first(
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
    Ok(fair(queues, most as usize))
}

/// Takes the first job of every queue, then the second of every queue, up to `most`.
fn fair(queues: BTreeMap<TenantId, Vec<Uuid>>, most: usize) -> BTreeMap<TenantId, TenantQueue> {
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

/// Returns queued jobs that cannot start now, at most `most` of each kind: jobs that no time can
/// start (in rotation), jobs in back-off, and paused jobs.
async fn aside(
    conn: &mut PgConnection,
    queues: &mut Queues,
    most: u32,
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, StoreError> {
    let most = i64::from(most);
    let mut ids = hopeless(conn, queues.hopeless, most).await?;
    if (ids.len() as i64) < most && !queues.hopeless.is_nil() {
        let again = hopeless(conn, Uuid::nil(), most).await?;
        ids.extend(again.into_iter().take_while(|id| *id <= queues.hopeless));
        ids.truncate(usize::try_from(most).expect("a small number"));
    }
    queues.hopeless = if (ids.len() as i64) < most {
        // All of them were read: the next round starts with the first again.
        Uuid::nil()
    } else {
        ids.last().copied().unwrap_or_default()
    };
    let later = sqlx::query_scalar!(
        "select id from job where phase = 'queued' and not_before is not null and not_before > $2 and not_before < $3 order by not_before limit $1",
        most,
        now,
        after::after_jobs()
    );
    ids.extend(later.fetch_all(&mut *conn).await?);
    let paused = sqlx::query_scalar!(
        "select id from job where phase = 'paused' order by id limit $1",
        most
    );
    ids.extend(paused.fetch_all(conn).await?);
    Ok(ids)
}

async fn hopeless(
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

/// Returns jobs whose wait reason does not say yet that they are left out. It reads some more rows,
/// because the loaded jobs are among them.
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
    use super::{BTreeMap, TenantId, Uuid, fair};

    /// Returns the numbers of jobs considered and left out, for queues of these lengths.
    fn shares(lengths: &[u128], most: usize) -> Vec<(usize, u32)> {
        let queue = |length: u128| (0..length).map(Uuid::from_u128).collect();
        let tenants = (0_u128..).map(|tenant| TenantId(Uuid::from_u128(tenant)));
        let queues: BTreeMap<TenantId, Vec<Uuid>> = tenants
            .zip(lengths.iter().map(|&length| queue(length)))
            .collect();
        let shares = fair(queues, most);
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
