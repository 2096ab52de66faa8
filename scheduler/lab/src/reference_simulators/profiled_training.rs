//! A profiled job in the terms of the live planner: steps, and the speed on every placement, with
//! its user's batch size or with a chosen one.

use super::application::Application;
use super::contestant::{Cluster, ContestError};
use super::profiles::Profiles;
use super::reference_job::training_of;
use super::rules::SimulatorRules;
use super::training::{iteration_s, packed};
use crate::trace::TraceJob;
use muster_core::learn::{BatchSplit, Batching};
use muster_sim::scenario::{CourseStretch, GoodputTable, SpeedTable, TimedBatch, TrueSpeed};
use std::collections::BTreeMap;

/// True course of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfiledTraining {
    /// Total batch size in examples; the first one if the batch is chosen.
    pub batch: u32,
    /// Steps of this batch until all epochs are done.
    pub steps: u64,
    /// Largest number of GPUs that each get their smallest batch.
    pub most_gpus: u32,
    /// Seconds without progress after a start.
    pub restart_s: f64,
    /// Speed on the GPU kinds of the cluster.
    pub speed: TrueSpeed,
}

/// Value on every placement of a kind, by nodes and GPUs.
type ByPlacement<T> = BTreeMap<String, Vec<Vec<T>>>;

impl ProfiledTraining {
    /// Reads the course of a job with its user's batch size.
    ///
    /// # Errors
    /// [`ContestError`] if the profiles do not know the application or a GPU kind, or not both
    /// together: the planner would wait on such GPUs for ever.
    pub fn fixed(
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
        let steps: f64 = steps.sum();
        let profiled = Profiled {
            profiles,
            rules,
            cluster,
            job,
            application,
        };
        let (by_kind, most_gpus) =
            profiled.by_placement(Batching::Fixed { batch }, |on, placement| {
                let gpus = placement.iter().sum();
                let split = rules.limits(application, on).split(batch, gpus);
                1.0 / profiled.time(on, placement, split).0
            })?;
        Ok(Self {
            batch,
            steps: whole(steps),
            most_gpus,
            restart_s: rules.restart_s(&application.name),
            speed: TrueSpeed::Table(SpeedTable { by_kind }),
        })
    }

    /// Same for a job whose coordinator chooses the batch, from the application's initial batch
    /// size up to its largest.
    ///
    /// # Errors
    /// As [`Self::fixed`].
    pub fn chosen(
        profiles: &Profiles,
        rules: SimulatorRules,
        cluster: &Cluster,
        job: &TraceJob,
    ) -> Result<Self, ContestError> {
        let (application, _) = training_of(profiles, cluster, job)?;
        let profiled = Profiled {
            profiles,
            rules,
            cluster,
            job,
            application,
        };
        let (by_kind, most_gpus) = profiled.by_placement(Batching::Adaptive, |on, placement| {
            let gpus = placement.iter().sum();
            let splits = rules.limits_on(application, on, placement).candidates(gpus);
            let mut batches: Vec<TimedBatch> = splits
                .map(|split| {
                    let (update_s, exchange_s) = profiled.time(on, placement, split);
                    TimedBatch {
                        examples: split.total(gpus),
                        update_s,
                        exchange_s,
                    }
                })
                .collect();
            batches.dedup();
            batches
        })?;
        let course = (0..application.epochs).map(|epoch| CourseStretch {
            until_step: application.progress_until(epoch + 1),
            noise: application
                .validation
                .keys()
                .map(|&batch| (batch, application.noise(f64::from(batch), epoch)))
                .collect(),
        });
        Ok(Self {
            batch: application.init_batch,
            steps: whole(application.progress_until(application.epochs)),
            most_gpus,
            restart_s: rules.restart_s(&application.name),
            speed: TrueSpeed::Goodput(GoodputTable {
                init: application.init_batch,
                max: application.max_batch,
                by_kind,
                course: course.collect(),
            }),
        })
    }
}

/// A job with the sources of its times.
#[derive(Clone, Copy)]
struct Profiled<'a> {
    profiles: &'a Profiles,
    rules: SimulatorRules,
    cluster: &'a Cluster,
    job: &'a TraceJob,
    application: &'a Application,
}

impl Profiled<'_> {
    /// Computes a value for every placement on each GPU kind of the cluster. Returns the largest
    /// number of GPUs too.
    fn by_placement<T>(
        &self,
        batching: Batching,
        value: impl Fn(u16, &[u32]) -> T,
    ) -> Result<(ByPlacement<T>, u32), ContestError> {
        let mut by_kind = BTreeMap::new();
        let mut most_gpus = 1;
        for (name, kind, nodes, node_gpus) in self.cluster.kinds(self.profiles)? {
            if self.application.measured[usize::from(kind)].is_empty() {
                return Err(ContestError::NotMeasured {
                    job: self.job.name.clone(),
                    application: self.application.name.clone(),
                    kind: name,
                });
            }
            let most = self.rules.most_gpus_of(self.application, kind, batching);
            let most = most.min(nodes * node_gpus);
            most_gpus = most_gpus.max(most);
            let rows = (1..=nodes.min(most)).map(|nodes| {
                let row = (1..=most).map(|gpus| value(kind, &over(gpus, nodes, node_gpus)));
                row.collect()
            });
            by_kind.insert(name, rows.collect());
        }
        Ok((by_kind, most_gpus))
    }

    /// Seconds of an update, and the part of them that waits for the exchange.
    fn time(&self, kind: u16, placement: &[u32], split: BatchSplit) -> (f64, f64) {
        let measured = &self.application.measured[usize::from(kind)];
        let slowdown = self.rules.slowdown(&self.application.name);
        let update_s = iteration_s(measured, placement, split) * slowdown;
        let exchange_s = measured
            .step_time(placement, split.local)
            .map_or(0.0, |time| time.sync_s * slowdown);
        (update_s, exchange_s)
    }
}

/// Steps of a training are far inside a u64.
fn whole(steps: f64) -> u64 {
    (steps.round() as u64).max(1)
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
