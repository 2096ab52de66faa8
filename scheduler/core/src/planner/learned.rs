//! Measured speeds and restarts of families, by job.

use super::restart_times::{KnownRestarts, RestartTimes};
use crate::estimate::{Evidence, FamilyEvidence};
use crate::learn::{KindRatios, Observation};
use crate::policy::Policy;
use crate::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::id::{NodeId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Measurements of families, and the GPU kinds of the nodes.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    /// GPU kinds of the cluster, in order.
    kinds: Arc<[String]>,
    kinds_of_nodes: BTreeMap<NodeId, String>,
    families: BTreeMap<TenantId, BTreeMap<String, Arc<FamilyEvidence>>>,
    ratios: BTreeMap<TenantId, Arc<KindRatios>>,
    restarts: KnownRestarts,
}

impl Learned {
    pub(crate) fn of(snapshot: &ClusterSnapshot, policy: &Policy) -> Self {
        let kinds: BTreeSet<&String> = snapshot.nodes.iter().map(|node| &node.gpu_model).collect();
        let full = policy.full_weight_samples.max(1) as f64;
        let mut families: BTreeMap<TenantId, BTreeMap<String, Arc<FamilyEvidence>>> =
            BTreeMap::new();
        for family in &snapshot.families {
            let of_tenant = families.entry(family.tenant).or_default();
            let speeds = family.speeds.iter().map(|speed| rounded(speed, full));
            let evidence = Arc::new(FamilyEvidence::of(speeds.collect(), family.noises.clone()));
            of_tenant.insert(family.family.clone(), evidence);
        }
        let mut ratios = BTreeMap::new();
        if kinds.len() > 1 {
            for (tenant, families) in &families {
                let families = families.values().map(|family| &*family.observations);
                ratios.insert(*tenant, Arc::new(KindRatios::of(families, full)));
            }
        }
        let nodes = snapshot.nodes.iter();
        Self {
            kinds: kinds.into_iter().cloned().collect(),
            kinds_of_nodes: nodes
                .map(|node| (node.id, node.gpu_model.clone()))
                .collect(),
            families,
            ratios,
            restarts: KnownRestarts::of(snapshot),
        }
    }

    /// Returns the durations of stops and starts that are expected of a job.
    pub(crate) fn restart_times(&self, job: &SnapshotJob) -> RestartTimes {
        self.restarts.expected_of(job)
    }

    /// Returns the measurements by kind and placement that concern a job. `None` if there is none:
    /// its estimate then rests on its speeds by size.
    pub(crate) fn evidence(&self, job: &SnapshotJob) -> Option<Evidence> {
        let families = self.families.get(&job.tenant);
        let family = job.family.as_ref().zip(families);
        let family = family.and_then(|(key, families)| families.get(key).cloned());
        let ratios = self
            .ratios
            .get(&job.tenant)
            .filter(|ratios| !ratios.is_empty());
        if job.placed_speeds.is_empty() && family.is_none() && ratios.is_none() {
            return None;
        }
        let mut workers = job.held_tasks().filter(|task| task.is_worker());
        let node = workers.next().map(|task| task.node);
        let present = node
            .and_then(|node| self.kinds_of_nodes.get(&node))
            .cloned();
        let kind = present.as_ref().or(self.kinds.first());
        Some(Evidence {
            own: own(job, kind.map_or("", String::as_str)),
            kinds: Arc::clone(&self.kinds),
            present,
            family: family.unwrap_or_default(),
            ratios: ratios.cloned().unwrap_or_default(),
        })
    }
}

/// Rounds a measurement of a family to a hundredth, and the samples to a whole number up to full
/// trust. A further sample of one job then rarely changes the estimates of all its siblings.
fn rounded(speed: &Observation, full_samples: f64) -> Observation {
    let hundredths = (speed.steps_per_s.ln() * 100.0).round();
    Observation {
        steps_per_s: (hundredths / 100.0).exp(),
        samples: speed.samples.ceil().min(full_samples),
        ..speed.clone()
    }
}

/// Returns the job's own measurements. Sizes whose placement was not recorded, by an earlier
/// release or in a simulated future, count as measured on one node of `kind`.
fn own(job: &SnapshotJob, kind: &str) -> Arc<[Observation]> {
    let placed: BTreeSet<(u32, u32)> = job.placed_speeds.iter().map(Observation::size).collect();
    let unplaced = job
        .speeds
        .iter()
        .filter(|point| !placed.contains(&(point.workers, point.ps_shards)))
        .map(|point| Observation {
            gpu_kind: kind.to_owned(),
            workers: point.workers,
            ps_shards: point.ps_shards,
            nodes: 1,
            steps_per_s: point.steps_per_s,
            samples: point.samples as f64,
            batch: None,
        });
    job.placed_speeds.iter().cloned().chain(unplaced).collect()
}
