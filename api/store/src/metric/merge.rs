//! Sums of points by series and bucket. Pure.

use muster_model::metric::{MergedValues, MetricPoint};

/// Values of a bucket or of a whole series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MetricTotals {
    pub points: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    /// Step of the newest value.
    pub last_step: u64,
    /// The newest value.
    pub last: f64,
}

impl MetricTotals {
    /// Returns the totals of one reported point.
    pub fn of(point: &MetricPoint) -> Self {
        let MergedValues {
            count,
            mean,
            min,
            max,
        } = point.summary();
        Self {
            points: count.into(),
            sum: mean * f64::from(count),
            min,
            max,
            last_step: point.step,
            last: point.value,
        }
    }

    /// Adds newer values.
    pub fn add(&mut self, newer: &Self) {
        self.points += newer.points;
        self.sum += newer.sum;
        self.min = self.min.min(newer.min);
        self.max = self.max.max(newer.max);
        self.last_step = newer.last_step;
        self.last = newer.last;
    }

    /// Returns the mean of the values.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the count of a mean need not be exact"
    )]
    pub fn mean(&self) -> f64 {
        self.sum / self.points as f64
    }
}

/// Returns the bucket of a step at a width of 2^`width_log2` steps.
pub(super) fn bucket(step: u64, width_log2: u32) -> u64 {
    step.checked_shr(width_log2).unwrap_or(0)
}

/// Returns how often the width of ascending buckets doubles until there are at most `most`.
pub(super) fn doublings(buckets: &[i64], most: usize) -> u32 {
    let count = |doublings: u32| {
        let wide = buckets.chunk_by(|one, next| one >> doublings == next >> doublings);
        wide.count()
    };
    (0..i64::BITS - 1)
        .find(|&doublings| count(doublings) <= most)
        .unwrap_or(i64::BITS - 1)
}

/// Merges neighbouring buckets, in ascending order, until there are at most `most`. Returns the
/// width after that.
pub(super) fn thin(
    buckets: &mut Vec<(u64, MetricTotals)>,
    mut width_log2: u32,
    most: usize,
) -> u32 {
    while buckets.len() > most.max(1) {
        width_log2 += 1;
        let mut wide: Vec<(u64, MetricTotals)> = Vec::with_capacity(buckets.len() / 2 + 1);
        for (at, totals) in buckets.drain(..) {
            match wide.last_mut() {
                Some((same, sum)) if *same == at >> 1 => sum.add(&totals),
                _ => wide.push((at >> 1, totals)),
            }
        }
        *buckets = wide;
    }
    width_log2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(step: u64, value: f64) -> MetricTotals {
        MetricTotals::of(&MetricPoint {
            name: "f1".to_owned(),
            step,
            value,
            merged: None,
        })
    }

    #[test]
    fn thinned_buckets_keep_extremes_and_the_newest_value() {
        let mut buckets: Vec<_> = (0..7_u32)
            .map(|step| (u64::from(step), one(step.into(), f64::from(step))))
            .collect();
        assert_eq!(thin(&mut buckets, 0, 2), 2);
        let [(0, first), (1, second)] = buckets[..] else {
            panic!("{buckets:?}");
        };
        assert_eq!((first.points, first.mean(), first.last_step), (4, 1.5, 3));
        assert_eq!((second.min, second.max, second.last), (4.0, 6.0, 6.0));
        assert_eq!(thin(&mut buckets, 2, 2), 2, "they are few enough");
    }

    #[test]
    fn doublings_are_the_fewest() {
        let near: Vec<i64> = (0..9).collect();
        assert_eq!((doublings(&near, 9), doublings(&near, 8)), (0, 1));
        assert_eq!((doublings(&near, 2), doublings(&near, 1)), (3, 4));
        let far: Vec<i64> = near.iter().map(|step| step << 40).collect();
        assert_eq!(doublings(&far, 8), 41);
        assert_eq!(doublings(&[0, i64::MAX], 1), 63);
    }

    #[test]
    fn thinning_ends_for_steps_far_apart() {
        let far = u64::MAX >> 1;
        let mut buckets = vec![(0, one(0, 1.0)), (far, one(far, 2.0))];
        assert_eq!(thin(&mut buckets, 0, 1), 63);
        assert_eq!(buckets.len(), 1);
    }
}
