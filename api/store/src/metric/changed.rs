//! The series that a report changes, with their new values by bucket.

use super::merge::{MetricTotals, bucket};
use super::record::MetricOwner;
use crate::error::StoreError;
use crate::int_convert::{unsigned, unsigned32};
use muster_model::metric::{MAX_METRICS, MetricPoint};
use sqlx::PgConnection;
use std::collections::BTreeMap;

/// One series that the report changes.
pub(super) struct ChangedSeries {
    pub number: u32,
    pub width_log2: u32,
    /// Revision that logged the newest stored value.
    pub revision: u64,
    pub buckets: u32,
    /// Totals of the stored buckets; `None` without any.
    pub before: Option<MetricTotals>,
    /// Totals of the new values.
    added: Option<MetricTotals>,
    /// New values by bucket.
    pub new: BTreeMap<u64, MetricTotals>,
}

impl ChangedSeries {
    /// Adds a newer point.
    pub fn add(&mut self, point: &MetricPoint) {
        let totals = MetricTotals::of(point);
        let bucket = self.new.entry(bucket(point.step, self.width_log2));
        bucket.and_modify(|sum| sum.add(&totals)).or_insert(totals);
        self.added = sum(self.added, totals);
    }

    /// Returns the totals of all values; `None` without any.
    pub fn totals(&self) -> Option<MetricTotals> {
        sum(self.before, self.added?)
    }
}

fn sum(before: Option<MetricTotals>, newer: MetricTotals) -> Option<MetricTotals> {
    let Some(mut all) = before else {
        return Some(newer);
    };
    all.add(&newer);
    Some(all)
}

/// Returns the series of the points by name. New names above the maximum are left out.
pub(super) async fn load<'p>(
    conn: &mut PgConnection,
    owner: MetricOwner,
    points: &'p [MetricPoint],
) -> Result<BTreeMap<&'p str, ChangedSeries>, StoreError> {
    let mut names: Vec<&str> = Vec::new();
    let mut series = BTreeMap::new();
    for point in points {
        let name = point.name.as_str();
        if series.insert(name, None).is_none() {
            names.push(name);
        }
    }
    let wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let rows = sqlx::query!(
        "select name, number, revision, width_log2, buckets, points, min_value, max_value, last_step, last_value
         from metric_series where job_id = $1 and name = any($2)",
        owner.job.0,
        &wanted
    )
    .fetch_all(&mut *conn)
    .await?;
    for row in rows {
        let totals = MetricTotals {
            points: unsigned(row.points),
            sum: 0.0,
            min: row.min_value,
            max: row.max_value,
            last_step: unsigned(row.last_step),
            last: row.last_value,
        };
        let known = ChangedSeries {
            number: unsigned32(row.number),
            width_log2: unsigned32(row.width_log2),
            revision: unsigned(row.revision),
            buckets: unsigned32(row.buckets),
            before: (row.buckets > 0).then_some(totals),
            added: None,
            new: BTreeMap::new(),
        };
        if let Some(place) = series.get_mut(row.name.as_str()) {
            *place = Some(known);
        }
    }
    if series.values().any(Option::is_none) {
        let count = sqlx::query_scalar!(
            r#"select count(*)::integer as "count!" from metric_series where job_id = $1"#,
            owner.job.0
        )
        .fetch_one(conn)
        .await?;
        let new = names
            .into_iter()
            .filter(|name| matches!(series.get(name), Some(None)));
        // Numbers have no gaps, because series of a job are only deleted together.
        let numbered: Vec<_> = (unsigned32(count)..MAX_METRICS).zip(new).collect();
        for (number, name) in numbered {
            let fresh = ChangedSeries {
                number,
                width_log2: 0,
                revision: owner.revision,
                buckets: 0,
                before: None,
                added: None,
                new: BTreeMap::new(),
            };
            series.insert(name, Some(fresh));
        }
    }
    let series = series.into_iter();
    Ok(series
        .filter_map(|(name, known)| Some((name, known?)))
        .collect())
}
