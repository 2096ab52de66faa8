//! Metrics of users' programs. A job has one series per name, in buckets of equal width.
//!
//! Width is a power of two of steps. A series above [`MAX_BUCKETS`] gets buckets of twice the
//! width, so its size is bounded and it always covers the whole training. Values of a later
//! revision of the job replace those of earlier ones from its first step on, because a restart
//! repeats steps.

mod changed;
mod merge;
mod read;
mod record;

pub use read::{list, points};
pub(crate) use record::{DroppedMetrics, MetricOwner, record};

use crate::error::StoreError;
use crate::int_convert::signed32;
use muster_model::id::JobId;
use muster_model::metric::MAX_BUCKETS;
use sqlx::PgConnection;

/// Records that the workers of a job repeat steps within their task. The next values of each series
/// then replace older ones, as in a new revision.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn restart(conn: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    sqlx::query!(
        "update metric_series set revision = 0 where job_id = $1",
        job.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Doubles the width of a series' buckets until there are at most [`MAX_BUCKETS`]. Steps far apart
/// need many doublings, so these are counted first and the rows are written once.
async fn widen(conn: &mut PgConnection, job: JobId, series: u32) -> Result<(), StoreError> {
    let buckets = sqlx::query_scalar!(
        "select bucket from metric_bucket where job_id = $1 and series = $2 order by bucket",
        job.0,
        signed32(series)
    )
    .fetch_all(&mut *conn)
    .await?;
    let doublings = merge::doublings(&buckets, MAX_BUCKETS as usize);
    // The order of the buckets decides which value is the newest.
    sqlx::query!(
        "with gone as (delete from metric_bucket where job_id = $1 and series = $2 returning *),
              wide as (
                  insert into metric_bucket (job_id, series, bucket, tenant_id, revision, points, sum, min_value, max_value,
                                             last_step, last_value)
                  select job_id, series, bucket >> $3, tenant_id, max(revision), sum(points)::bigint, sum(sum), min(min_value),
                         max(max_value), (array_agg(last_step order by bucket desc))[1],
                         (array_agg(last_value order by bucket desc))[1]
                  from gone group by job_id, series, bucket >> $3, tenant_id
                  returning bucket)
         update metric_series set width_log2 = width_log2 + $3, buckets = (select count(*) from wide)
         where job_id = $1 and number = $2",
        job.0,
        signed32(series),
        signed32(doublings)
    )
    .execute(conn)
    .await?;
    Ok(())
}
