//! Measurements by GPU kind and placement that the estimate of one job rests on.

use crate::learn::{CourseNoise, KindRatios, Observation, UpdateTimes};
use std::sync::{Arc, OnceLock};

/// Measurements of a job, its family and its tenant's other families.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Evidence {
    /// GPU kinds of the cluster, in order.
    pub kinds: Arc<[String]>,
    /// Kind on which the job runs; `None` if it does not run.
    pub present: Option<String>,
    /// Measured by the job itself.
    pub own: Arc<[Observation]>,
    /// Measured by the jobs of its family.
    pub family: Arc<FamilyEvidence>,
    /// Relative speeds of the kinds over the tenant's families.
    pub ratios: Arc<KindRatios>,
}

impl Evidence {
    /// Returns the times of updates with chosen batches: those of the family, else the job's own,
    /// which are kept in `own`.
    pub(crate) fn update_times<'e>(&'e self, own: &'e mut UpdateTimes) -> &'e UpdateTimes {
        self.family.update_times().unwrap_or_else(|| {
            *own = UpdateTimes::of(self.own.iter()).unwrap_or_default();
            own
        })
    }
}

/// Measurements of a family.
#[derive(Debug, Default)]
pub(crate) struct FamilyEvidence {
    pub observations: Vec<Observation>,
    /// Gradient noise over the course of its jobs.
    pub noises: Vec<CourseNoise>,
    /// Computed from `observations` on first use.
    times: OnceLock<Option<UpdateTimes>>,
}

impl FamilyEvidence {
    pub(crate) fn of(observations: Vec<Observation>, noises: Vec<CourseNoise>) -> Self {
        Self {
            observations,
            noises,
            times: OnceLock::new(),
        }
    }

    /// Returns the times of updates with chosen batches; `None` if there are none.
    pub(crate) fn update_times(&self) -> Option<&UpdateTimes> {
        let times = || UpdateTimes::of(self.observations.iter());
        self.times.get_or_init(times).as_ref()
    }
}

impl PartialEq for FamilyEvidence {
    fn eq(&self, other: &Self) -> bool {
        (&self.observations, &self.noises) == (&other.observations, &other.noises)
    }
}
