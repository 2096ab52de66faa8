//! Jobs of Pollux' and Sia's workloads under the live planner.
//!
//! A job keeps its user's batch size, or its coordinator chooses the batch. Its speed on every
//! placement is that of the profiles, and its start takes as long as in the published simulator.
//! Jobs with the same application and batch size are one family, as programs with equal image and
//! arguments are.

use super::{LiveError, LiveRunSettings, STOP_MS, ms};
use crate::reference_simulators::{Cluster, ProfiledTraining, Profiles, SimulatorRules};
use crate::trace::TraceJob;
use muster_model::spec::{Consistency, Range};
use muster_sim::scenario::SimJob;

pub(super) fn sim_job(
    profiles: Option<&Profiles>,
    cluster: &Cluster,
    job: &TraceJob,
    tenant: usize,
    settings: &LiveRunSettings,
) -> Result<SimJob, LiveError> {
    let profiles = profiles.ok_or_else(|| LiveError::NoProfiles {
        job: job.name.clone(),
    })?;
    let of = if settings.chooses_batch {
        ProfiledTraining::chosen
    } else {
        ProfiledTraining::fixed
    };
    let training = of(profiles, rules(profiles), cluster, job)?;
    let workers = if settings.is_elastic {
        Range {
            min: 1,
            max: training.most_gpus,
        }
    } else {
        let gpus = job.gpus.min(training.most_gpus);
        Range {
            min: gpus,
            max: gpus,
        }
    };
    Ok(SimJob {
        name: job.name.clone(),
        tenant,
        priority: 0,
        submitted_ms: ms(job.submitted_s),
        workers,
        ps_shards: Range::NONE,
        gpus_per_worker: 1,
        retries: 0,
        in_place: false,
        consistency: Consistency::default(),
        batch: training.batch,
        steps: training.steps,
        checkpoint_steps: 1,
        launch_ms: Some(ms(training.restart_s) - STOP_MS),
        family: Some(format!("{}/{}", job.kind, training.batch)),
        speed: training.speed,
    })
}

/// Returns the rules whose restart costs and limits apply to profiled jobs. Only Sia's profiles
/// have several GPU kinds.
#[must_use]
pub fn rules(profiles: &Profiles) -> SimulatorRules {
    if profiles.kinds.len() > 1 {
        SimulatorRules::Sia
    } else {
        SimulatorRules::Pollux
    }
}
