//! Stores reported points.

use super::changed::{ChangedSeries, load};
use super::merge::MetricTotals;
use super::widen;
use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned, unsigned32};
use muster_model::id::{JobId, TenantId};
use muster_model::metric::{MAX_BUCKETS, MetricPoint};
use sqlx::PgConnection;
use std::collections::BTreeMap;

/// Job that logs, in its present revision. Its row is locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricOwner {
    pub tenant: TenantId,
    pub job: JobId,
    pub revision: u64,
}

/// Values that were not stored, because the job has the maximum number of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DroppedMetrics {
    pub values: u64,
    /// First of the names.
    pub name: Option<String>,
}

/// Adds points to the series of the job. The caller has locked the job's row and passes each point
/// once, in the order of logging.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn record(
    conn: &mut PgConnection,
    owner: MetricOwner,
    points: &[MetricPoint],
) -> Result<DroppedMetrics, StoreError> {
    let mut series = load(conn, owner, points).await?;
    let mut dropped = DroppedMetrics::default();
    for point in points {
        match series.get_mut(point.name.as_str()) {
            Some(series) => series.add(point),
            None => {
                dropped.values += u64::from(point.summary().count);
                dropped.name.get_or_insert_with(|| point.name.clone());
            }
        }
    }
    rewind(conn, owner, &mut series).await?;
    let grown = write_buckets(conn, owner, &series).await?;
    for series in series.values_mut() {
        series.buckets += grown.get(&series.number).copied().unwrap_or_default();
    }
    write_series(conn, owner, &series).await?;
    for series in series.values() {
        if series.buckets > MAX_BUCKETS {
            widen(conn, owner.job, series.number).await?;
        }
    }
    Ok(dropped)
}

/// Deletes the buckets of earlier revisions from the first new value on, where this revision logs a
/// series for the first time. The remaining buckets give the totals.
async fn rewind(
    conn: &mut PgConnection,
    owner: MetricOwner,
    series: &mut BTreeMap<&str, ChangedSeries>,
) -> Result<(), StoreError> {
    let mut old: BTreeMap<i32, &mut ChangedSeries> = series
        .values_mut()
        .filter(|series| series.revision < owner.revision)
        .map(|series| (signed32(series.number), series))
        .collect();
    if old.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i32> = old.keys().copied().collect();
    let firsts = old.values().filter_map(|series| series.new.keys().next());
    let firsts: Vec<i64> = firsts.copied().map(signed).collect();
    sqlx::query!(
        "delete from metric_bucket b using unnest($2::integer[], $3::bigint[]) as cut (series, first)
         where b.job_id = $1 and b.series = cut.series and b.bucket >= cut.first",
        owner.job.0,
        &numbers,
        &firsts
    )
    .execute(&mut *conn)
    .await?;
    let left = sqlx::query!(
        r#"select series, count(*)::integer as "buckets!", sum(points)::bigint as "points!", min(min_value) as "min!",
                  max(max_value) as "max!"
           from metric_bucket where job_id = $1 and series = any($2) group by series"#,
        owner.job.0,
        &numbers
    )
    .fetch_all(conn)
    .await?;
    for series in old.values_mut() {
        (series.buckets, series.before) = (0, None);
    }
    for row in left {
        let series = old.get_mut(&row.series).expect("it was asked for");
        series.buckets = unsigned32(row.buckets);
        series.before = Some(MetricTotals {
            points: unsigned(row.points),
            sum: 0.0,
            min: row.min,
            max: row.max,
            last_step: 0,
            last: 0.0,
        });
    }
    Ok(())
}

/// Writes the new values. Returns the number of added buckets by series.
async fn write_buckets(
    conn: &mut PgConnection,
    owner: MetricOwner,
    series: &BTreeMap<&str, ChangedSeries>,
) -> Result<BTreeMap<u32, u32>, StoreError> {
    let rows: Vec<(u32, u64, &MetricTotals)> = series
        .values()
        .flat_map(|series| {
            let new = series.new.iter();
            new.map(|(bucket, totals)| (series.number, *bucket, totals))
        })
        .collect();
    let numbers: Vec<i32> = rows.iter().map(|row| signed32(row.0)).collect();
    let buckets: Vec<i64> = rows.iter().map(|row| signed(row.1)).collect();
    let totals: Vec<&MetricTotals> = rows.iter().map(|row| row.2).collect();
    // `xmax` is 0 in a row that the statement has inserted and not updated.
    let written = sqlx::query!(
        r#"insert into metric_bucket as old (job_id, series, bucket, tenant_id, revision, points, sum, min_value, max_value,
                                             last_step, last_value)
           select $1, series, bucket, $2, $3, points, sum, min_value, max_value, last_step, last_value
           from unnest($4::integer[], $5::bigint[], $6::bigint[], $7::float8[], $8::float8[], $9::float8[], $10::bigint[],
                       $11::float8[]) as new (series, bucket, points, sum, min_value, max_value, last_step, last_value)
           on conflict (job_id, series, bucket) do update
              set points = excluded.points + case when old.revision < excluded.revision then 0 else old.points end,
                  sum = excluded.sum + case when old.revision < excluded.revision then 0 else old.sum end,
                  min_value = case when old.revision < excluded.revision then excluded.min_value
                                   else least(old.min_value, excluded.min_value) end,
                  max_value = case when old.revision < excluded.revision then excluded.max_value
                                   else greatest(old.max_value, excluded.max_value) end,
                  last_step = excluded.last_step, last_value = excluded.last_value, revision = excluded.revision
           returning series, (xmax = 0) as "is_new!""#,
        owner.job.0,
        owner.tenant.0,
        signed(owner.revision),
        &numbers,
        &buckets,
        &column(&totals, |totals| signed(totals.points)),
        &column(&totals, |totals| totals.sum),
        &column(&totals, |totals| totals.min),
        &column(&totals, |totals| totals.max),
        &column(&totals, |totals| signed(totals.last_step)),
        &column(&totals, |totals| totals.last)
    )
    .fetch_all(conn)
    .await?;
    let mut grown = BTreeMap::new();
    for row in written.iter().filter(|row| row.is_new) {
        *grown.entry(unsigned32(row.series)).or_insert(0) += 1;
    }
    Ok(grown)
}

async fn write_series(
    conn: &mut PgConnection,
    owner: MetricOwner,
    series: &BTreeMap<&str, ChangedSeries>,
) -> Result<(), StoreError> {
    let rows: Vec<(&str, &ChangedSeries, MetricTotals)> = series
        .iter()
        .filter_map(|(name, series)| Some((*name, series, series.totals()?)))
        .collect();
    let names: Vec<String> = rows.iter().map(|row| row.0.to_owned()).collect();
    let numbers: Vec<i32> = rows.iter().map(|row| signed32(row.1.number)).collect();
    let buckets: Vec<i32> = rows.iter().map(|row| signed32(row.1.buckets)).collect();
    let totals: Vec<&MetricTotals> = rows.iter().map(|row| &row.2).collect();
    sqlx::query!(
        "insert into metric_series (job_id, name, number, tenant_id, revision, width_log2, buckets, points, min_value, max_value,
                                    last_step, last_value)
         select $1, name, number, $2, $3, 0, buckets, points, min_value, max_value, last_step, last_value
         from unnest($4::text[], $5::integer[], $6::integer[], $7::bigint[], $8::float8[], $9::float8[], $10::bigint[],
                     $11::float8[]) as new (name, number, buckets, points, min_value, max_value, last_step, last_value)
         on conflict (job_id, name) do update
            set revision = excluded.revision, buckets = excluded.buckets, points = excluded.points,
                min_value = excluded.min_value, max_value = excluded.max_value, last_step = excluded.last_step,
                last_value = excluded.last_value",
        owner.job.0,
        owner.tenant.0,
        signed(owner.revision),
        &names,
        &numbers,
        &buckets,
        &column(&totals, |totals| signed(totals.points)),
        &column(&totals, |totals| totals.min),
        &column(&totals, |totals| totals.max),
        &column(&totals, |totals| signed(totals.last_step)),
        &column(&totals, |totals| totals.last)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns one value of each row.
fn column<T>(rows: &[&MetricTotals], value: fn(&MetricTotals) -> T) -> Vec<T> {
    rows.iter().map(|row| value(row)).collect()
}
