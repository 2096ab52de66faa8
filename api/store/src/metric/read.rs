//! Reads the series of a job.

use super::merge::{MetricTotals, thin};
use crate::error::StoreError;
use crate::int_convert::{unsigned, unsigned32};
use muster_model::id::JobId;
use muster_model::view::{MetricBucketView, MetricSeriesView, MetricView};
use sqlx::PgConnection;
use std::collections::BTreeMap;

/// Returns the metrics of a job in scope, by name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection, job: JobId) -> Result<Vec<MetricView>, StoreError> {
    let rows = sqlx::query!(
        r#"select name, points, min_value, max_value, last_step, last_value
           from metric_series where job_id = $1 order by name collate "C""#,
        job.0
    )
    .fetch_all(conn)
    .await?;
    let metrics = rows.into_iter().map(|row| MetricView {
        name: row.name,
        last_step: unsigned(row.last_step),
        last: row.last_value,
        min: row.min_value,
        max: row.max_value,
        values: unsigned(row.points),
    });
    Ok(metrics.collect())
}

/// Returns the series of some metrics of a job in scope, in the order of `names` and with at most
/// `max_points` points each. Names that the job has not logged are left out.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn points(
    conn: &mut PgConnection,
    job: JobId,
    names: &[String],
    max_points: u32,
) -> Result<Vec<MetricSeriesView>, StoreError> {
    let rows = sqlx::query!(
        "select s.name, s.width_log2, b.bucket, b.points, b.sum, b.min_value, b.max_value, b.last_step, b.last_value
         from metric_series s join metric_bucket b on b.job_id = s.job_id and b.series = s.number
         where s.job_id = $1 and s.name = any($2)
         order by s.number, b.bucket",
        job.0,
        names
    )
    .fetch_all(conn)
    .await?;
    let mut series: BTreeMap<String, (u32, Vec<(u64, MetricTotals)>)> = BTreeMap::new();
    for row in rows {
        let totals = MetricTotals {
            points: unsigned(row.points),
            sum: row.sum,
            min: row.min_value,
            max: row.max_value,
            last_step: unsigned(row.last_step),
            last: row.last_value,
        };
        let (_, buckets) = series
            .entry(row.name)
            .or_insert_with(|| (unsigned32(row.width_log2), Vec::new()));
        buckets.push((unsigned(row.bucket), totals));
    }
    let named = names.iter().filter_map(|name| {
        let (width_log2, mut buckets) = series.remove(name)?;
        let width_log2 = thin(&mut buckets, width_log2, max_points as usize);
        Some(MetricSeriesView {
            name: name.clone(),
            bucket_steps: 1 << width_log2,
            points: buckets.iter().map(|(_, totals)| view(totals)).collect(),
        })
    });
    Ok(named.collect())
}

fn view(totals: &MetricTotals) -> MetricBucketView {
    MetricBucketView {
        step: totals.last_step,
        last: totals.last,
        mean: totals.mean(),
        min: totals.min,
        max: totals.max,
        values: totals.points,
    }
}
