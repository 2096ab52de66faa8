//! Measurements by GPU kind and placement that the estimate of one job rests on.

use crate::learn::{KindRatios, Observation};
use std::sync::Arc;

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
    pub family: Arc<[Observation]>,
    /// Relative speeds of the kinds over the tenant's families.
    pub ratios: Arc<KindRatios>,
}
