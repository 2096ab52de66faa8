//! Measured durations of stops and starts: of a job, of its family, and of all jobs.

use crate::snapshot::{ClusterSnapshot, Restarts, SnapshotJob};
use muster_model::id::TenantId;
use std::collections::BTreeMap;

/// Mean durations in seconds; `None` without a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RestartTimes {
    /// From a stop order until the last task has exited.
    pub stop_s: Option<f64>,
    /// From a start order until all tasks are up.
    pub start_s: Option<f64>,
}

impl RestartTimes {
    fn of(restarts: &Restarts) -> Self {
        Self {
            stop_s: mean(restarts.stop_s, restarts.stops),
            start_s: mean(restarts.start_s, restarts.starts),
        }
    }

    /// Returns these times, each completed by the other ones if it was not measured.
    fn or(self, other: Self) -> Self {
        Self {
            stop_s: self.stop_s.or(other.stop_s),
            start_s: self.start_s.or(other.start_s),
        }
    }
}

/// Durations by family, and over all families and jobs of the snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownRestarts {
    families: BTreeMap<TenantId, BTreeMap<String, RestartTimes>>,
    all: RestartTimes,
}

impl KnownRestarts {
    pub(crate) fn of(snapshot: &ClusterSnapshot) -> Self {
        let mut families: BTreeMap<TenantId, BTreeMap<String, RestartTimes>> = BTreeMap::new();
        let mut all = Restarts::default();
        for family in &snapshot.families {
            if let Some(restarts) = &family.restarts {
                let of_tenant = families.entry(family.tenant).or_default();
                of_tenant.insert(family.family.clone(), RestartTimes::of(restarts));
                all.add(restarts);
            }
        }
        // The sums of a family include those of its jobs.
        let without_family = snapshot.jobs.iter().filter(|job| job.family.is_none());
        for restarts in without_family.filter_map(|job| job.restarts.as_ref()) {
            all.add(restarts);
        }
        Self {
            families,
            all: RestartTimes::of(&all),
        }
    }

    /// Returns the expected durations of a job: its own, else those of its family, else the mean
    /// over all.
    pub(crate) fn expected_of(&self, job: &SnapshotJob) -> RestartTimes {
        let own = job.restarts.as_ref().map(RestartTimes::of);
        let families = self.families.get(&job.tenant);
        let family = job.family.as_ref().zip(families);
        let family = family.and_then(|(key, families)| families.get(key));
        let own = own.unwrap_or_default();
        own.or(family.copied().unwrap_or_default()).or(self.all)
    }
}

/// Mean of measurements, at least 0; `None` without measurements.
pub(super) fn mean(sum: f64, count: u32) -> Option<f64> {
    (count > 0).then(|| (sum / f64::from(count)).max(0.0))
}
