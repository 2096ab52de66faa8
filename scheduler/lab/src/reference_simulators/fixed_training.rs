//! A profiled job with its user's batch size, in the terms of the live planner: steps, and steps
//! per second on every placement.

use super::contestant::{Cluster, ContestError};
use super::profiles::Profiles;
use super::reference_job::training_of;
use super::rules::SimulatorRules;
use super::training::{iteration_s, packed};
use crate::trace::TraceJob;
use muster_core::learn::Batching;
use muster_sim::scenario::SpeedTable;
use std::collections::BTreeMap;

/// True course of a job whose batch size is the user's.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedTraining {
    /// Total batch size in examples.
    pub batch: u32,
    /// Steps until all epochs are done.
    pub steps: u64,
    /// Largest number of GPUs that each get their smallest batch.
    pub most_gpus: u32,
    /// Seconds without progress after a start.
    pub restart_s: f64,
    /// Steps per second on the GPU kinds of the cluster.
    pub speeds: SpeedTable,
}

impl FixedTraining {
    /// Reads a job's course from the profiles.
    ///
    /// # Errors
    /// [`ContestError`] if the profiles do not know the application or a GPU kind, or not both
    /// together: the planner would wait on such GPUs for ever.
    pub fn of(
        profiles: &Profiles,
        rules: SimulatorRules,
        cluster: &Cluster,
        job: &TraceJob,
    ) -> Result<Self, ContestError> {
        let (application, batch) = training_of(profiles, cluster, job)?;
        let scale = f64::from(batch) / f64::from(application.init_batch);
        let steps = (0..application.epochs).map(|epoch| {
            let work = application.progress_until(epoch + 1) - application.progress_until(epoch);
            work / application.noise(f64::from(batch), epoch).gain(scale)
        });
        let mut by_kind = BTreeMap::new();
        let mut most_gpus = 0;
        for (name, kind, nodes, node_gpus) in cluster.kinds(profiles)? {
            let measured = &application.measured[usize::from(kind)];
            if measured.is_empty() {
                return Err(ContestError::NotMeasured {
                    job: job.name.clone(),
                    application: application.name.clone(),
                    kind: name,
                });
            }
            let limits = rules.limits(application, kind);
            let batching = Batching::Fixed { batch };
            let most = rules.most_gpus_of(application, kind, batching);
            let most = most.min(nodes * node_gpus);
            most_gpus = most_gpus.max(most);
            let slowdown = rules.slowdown(&application.name);
            let speed = |nodes: u32, gpus: u32| {
                let placement = over(gpus, nodes, node_gpus);
                let split = limits.split(batch, gpus);
                1.0 / (iteration_s(measured, &placement, split) * slowdown)
            };
            let rows = (1..=nodes.min(most)).map(|nodes| {
                let row = (1..=most).map(|gpus| speed(nodes, gpus));
                row.collect()
            });
            by_kind.insert(name, rows.collect());
        }
        Ok(Self {
            batch,
            // Steps of a training are far inside a u64.
            steps: (steps.sum::<f64>().round() as u64).max(1),
            most_gpus: most_gpus.max(1),
            restart_s: rules.restart_s(&application.name),
            speeds: SpeedTable { by_kind },
        })
    }
}

/// GPUs on each of `nodes` nodes: packed if that needs as many nodes, else divided evenly. Fewer
/// nodes than the GPUs need count as the fewest that they need.
fn over(gpus: u32, nodes: u32, node_gpus: u32) -> Vec<u32> {
    let packed = packed(gpus, node_gpus);
    let nodes = nodes.min(gpus);
    if packed.len() >= nodes as usize {
        return packed;
    }
    (0..nodes)
        .map(|node| gpus / nodes + u32::from(node < gpus % nodes))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::over;

    #[test]
    fn placement_is_packed_or_divided_evenly() {
        assert_eq!(over(6, 1, 4), [4, 2]);
        assert_eq!(over(6, 2, 4), [4, 2]);
        assert_eq!(over(6, 4, 4), [2, 2, 1, 1]);
        assert_eq!(over(2, 3, 4), [1, 1]);
    }
}
