//! Service of ended jobs, as the store reports it to the live scheduler.

use std::collections::VecDeque;

/// Number of ended jobs that are kept, the newest ones.
const JOBS: usize = 1_000;
/// Maximum number of values of the history.
const VALUES: usize = 64;

/// GPU-seconds of the newest ended jobs, the newest last.
#[derive(Debug, Default)]
pub(super) struct ServiceHistory(VecDeque<f64>);

impl ServiceHistory {
    /// Adds a job that has ended.
    pub(super) fn add(&mut self, gpu_s: f64) {
        if gpu_s > 0.0 {
            self.0.push_back(gpu_s);
        }
        if self.0.len() > JOBS {
            self.0.pop_front();
        }
    }

    /// Returns the GPU-seconds in ascending order. More than 64 values are replaced by the means of
    /// 64 equal parts.
    pub(super) fn values(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.0.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let parts = VALUES.min(sorted.len());
        // The first parts have one value more, as with `ntile` in SQL.
        let (size, larger) = (sorted.len() / parts.max(1), sorted.len() % parts.max(1));
        let mut left = sorted.as_slice();
        let means = (0..parts).map(|part| {
            let (values, rest) = left.split_at(size + usize::from(part < larger));
            left = rest;
            values.iter().sum::<f64>() / values.len() as f64
        });
        means.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_has_means_of_the_newest_jobs() {
        let mut history = ServiceHistory::default();
        assert_eq!(history.values(), Vec::<f64>::new());
        for gpu_s in [3.0, 0.0, 1.0] {
            history.add(gpu_s);
        }
        assert_eq!(history.values(), [1.0, 3.0]);
        (0..2_000_u32).for_each(|number| history.add(f64::from(number + 1)));
        let values = history.values();
        assert_eq!(values.len(), 64);
        // 1,000 values in 64 parts: 40 of 16, then 24 of 15. The oldest value is 1,001.
        assert_eq!((values[0], values[63]), (1_008.5, 1_993.0));
    }
}
