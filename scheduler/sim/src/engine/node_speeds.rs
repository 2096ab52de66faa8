//! True speeds of nodes, and the deviations that the scheduler's model finds from the jobs' speeds,
//! as the store and the scheduler would keep them.

use crate::scenario::{NODE_SPEEDS, Scenario, SimNode};
use muster_core::learn::{NodeObservation, node_factors};
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::id::{JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Interval between two comparisons, as in the scheduler.
const COMPARE_MS: i64 = 60_000;
/// Maximum number of measurements of a node that are compared, those of the newest jobs.
const NEWEST_ROWS_OF_NODE: usize = 32;
/// Largest weight of one measurement, in samples, as in the store.
const MOST_SAMPLES: f64 = 200.0;
/// Node, job, workers and PS shards.
type Place = (NodeId, JobId, u32, u32);

/// Speeds of nodes. Nothing is measured in a scenario whose nodes are equal.
#[derive(Debug, Default)]
pub(super) struct NodeSpeeds {
    /// True speeds of the nodes relative to their kind; empty if all are equal.
    actual: BTreeMap<NodeId, f64>,
    measured: BTreeMap<Place, NodeObservation>,
    compared_ms: Option<i64>,
}

impl NodeSpeeds {
    /// Speeds of a scenario. `id` is the id of the node with this number.
    ///
    /// # Panics
    /// For a speed outside of [`NODE_SPEEDS`].
    pub(super) fn of(scenario: &Scenario, id: impl Fn(u128) -> NodeId) -> Self {
        let is_varied = scenario.nodes.iter().any(|node| node.speed != 1.0);
        let nodes = (0..).zip(&scenario.nodes).filter(|_| is_varied);
        let speed = |node: &SimNode| {
            let (name, speed) = (&node.name, node.speed);
            assert!(
                NODE_SPEEDS.contains(&speed),
                "{name} has speed {speed}; expected {NODE_SPEEDS:?}"
            );
            speed
        };
        Self {
            actual: nodes.map(|(n, node)| (id(n), speed(node))).collect(),
            ..Self::default()
        }
    }

    /// Factor on the true speed of a job: the speed of its slowest node.
    pub(super) fn factor(&self, job: &SnapshotJob) -> f64 {
        if self.actual.is_empty() {
            return 1.0;
        }
        let workers = job.tasks.iter();
        let workers = workers.filter(|task| task.is_up() && task.is_worker());
        let speeds = workers.filter_map(|task| self.actual.get(&task.node));
        speeds.copied().reduce(f64::min).unwrap_or(1.0)
    }

    /// Records a sample of a job whose workers are all on one node. Jobs without a family and jobs
    /// whose coordinator chooses the batch are not compared.
    pub(super) fn observe(&mut self, job: &SnapshotJob, gpu_kind: &str, steps_per_s: f64) {
        let is_chosen = job
            .adaptive
            .is_some_and(|adaptive| adaptive.max_batch.is_some());
        let (Some(family), false) = (&job.family, self.actual.is_empty() || is_chosen) else {
            return;
        };
        let workers = job.tasks.iter();
        let workers = workers.filter(|task| task.is_up() && task.is_worker());
        let nodes: BTreeSet<NodeId> = workers.map(|task| task.node).collect();
        let (Some(&node), 1) = (nodes.first(), nodes.len()) else {
            return;
        };
        let (workers, ps_shards) = job.up_size();
        let place = (node, job.id, workers, ps_shards);
        let measured = self
            .measured
            .entry(place)
            .or_insert_with(|| NodeObservation {
                node,
                job: job.id,
                gpu_kind: gpu_kind.to_owned(),
                tenant: job.tenant,
                family: family.clone(),
                workers,
                ps_shards,
                steps_per_s,
                samples: 0.0,
            });
        // The mean of the newest samples, as in the store.
        let sum = measured.steps_per_s * measured.samples + steps_per_s;
        measured.steps_per_s = sum / (measured.samples + 1.0);
        measured.samples = (measured.samples + 1.0).min(MOST_SAMPLES);
    }

    /// Compares the nodes, once a minute, and writes the deviations into the snapshot.
    /// `full_samples` is the number of samples from which a measurement is fully trusted.
    pub(super) fn compare(&mut self, snapshot: &mut ClusterSnapshot, full_samples: f64) {
        let now_ms = snapshot.now_ms;
        let is_due = self.compared_ms.is_none_or(|at| now_ms - at >= COMPARE_MS);
        if self.actual.is_empty() || !is_due {
            return;
        }
        self.compared_ms = Some(now_ms);
        self.forget();
        let measured: Vec<NodeObservation> = self.measured.values().cloned().collect();
        let factors = node_factors(&measured, full_samples);
        for node in &mut snapshot.nodes {
            node.speed = factors.get(&node.id).and_then(|factor| factor.rounded());
        }
    }

    /// Drops what is not compared any more. Ids of jobs ascend with the time of submission.
    fn forget(&mut self) {
        let mut rows: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut newest = Vec::new();
        for place in self.measured.keys().rev() {
            let of_node = rows.entry(place.0).or_default();
            *of_node += 1;
            if *of_node <= NEWEST_ROWS_OF_NODE {
                newest.push(*place);
            }
        }
        let newest: BTreeSet<Place> = newest.into_iter().collect();
        self.measured.retain(|place, _| newest.contains(place));
    }
}
