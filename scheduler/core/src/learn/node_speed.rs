//! Measured deviations of nodes from their GPU kind.
//!
//! Nodes with the same GPUs differ in speed: heat, power limits, a slow host. Placement by the
//! measured differences is the idea of PAL (Jain et al., SC 2024). PAL profiles each GPU with
//! benchmarks; here the jobs themselves are the measurement.
//!
//! The model is log speed = level of the cell + deviation of the node. A cell is a family at one
//! size on one GPU kind. A node's jobs are compared with the jobs of the same cell on other nodes,
//! less the deviations of these. The deviation of a node is the median of its differences.
//!
//! The fit uses medians in turns, as Tukey's median polish (1977) does. Means would let one job
//! with an unusual speed shift its node and all nodes of its cell. A difference weighs at most as
//! much as the lighter of its two sides, so one job on one side is one job of evidence for the
//! other.

use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::node::NodeSpeed;
use std::collections::BTreeMap;
use std::ops::Range;

/// Weight of a full measurement. Weights are whole numbers: sums do not depend on the order.
const FULL_WEIGHT: u32 = 1_000;
/// Weight of the assumption that a node does not deviate. More than two jobs must agree against it.
const PRIOR_WEIGHT: u32 = 2 * FULL_WEIGHT;
/// Range of the factors. A larger difference is a defect of the node or of the measurement.
const FACTORS: (f64, f64) = (0.5, 2.0);
/// Maximum number of turns of the fit. A turn about halves the error.
const MOST_TURNS: u32 = 20;
/// Change of a deviation that ends the fit.
const PRECISION: f64 = 1e-4;

/// Measured speed of a job at one size on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeObservation {
    pub node: NodeId,
    pub job: JobId,
    /// Model of the node's GPUs. A node has one kind.
    pub gpu_kind: String,
    pub tenant: TenantId,
    /// Key of the job's family.
    pub family: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Updates per second.
    pub steps_per_s: f64,
    /// Weight in samples.
    pub samples: f64,
}

/// Speed of a node relative to the typical node of its GPU kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeFactor {
    /// From 0.5 to 2; below 1 is slower.
    pub factor: f64,
    /// Number of full measurements. A job counts for at most one at each of its sizes.
    pub weight: f64,
    /// Number of jobs.
    pub jobs: u32,
}

/// Jobs of one family at one size on one GPU kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell<'a> {
    gpu_kind: &'a str,
    tenant: TenantId,
    family: &'a str,
    size: (u32, u32),
}

/// Median log speed of the jobs of a cell on one node.
#[derive(Debug, Clone, Copy)]
struct Entry {
    node: usize,
    ln_speed: f64,
    weight: u32,
    /// Weight of the jobs of the cell on other nodes.
    others: u32,
}

/// Value with its weight.
type Weighted = (f64, u32);

/// Returns the speed of each node whose jobs can be compared with jobs on other nodes.
/// `full_samples` is the number of samples from which a measurement is fully trusted.
///
/// The median deviation of the nodes of a kind is 0: the reference is the typical node. A slow node
/// among three therefore does not make the other two fast. The order of the observations has no
/// effect.
#[must_use]
pub fn node_factors(
    observations: &[NodeObservation],
    full_samples: f64,
) -> BTreeMap<NodeId, NodeFactor> {
    let usable = observations.iter().filter(|one| one.is_usable());
    let usable: Vec<&NodeObservation> = usable.collect();
    let mut fit = Fit::of(&usable, full_samples);
    fit.take_turns();
    fit.centre();
    let mut jobs: BTreeMap<NodeId, Vec<JobId>> = BTreeMap::new();
    for one in &usable {
        jobs.entry(one.node).or_default().push(one.job);
    }
    let nodes = fit.nodes.iter().enumerate();
    nodes
        .map(|(index, &node)| {
            let weight: u32 = fit.of_node(index).map(|(entry, _)| entry.weight).sum();
            let of_node = jobs.get_mut(&node).expect("the node was measured");
            of_node.sort_unstable();
            of_node.dedup();
            let factor = NodeFactor {
                factor: fit.deviations[index].exp().clamp(FACTORS.0, FACTORS.1),
                weight: f64::from(weight) / f64::from(FULL_WEIGHT),
                jobs: u32::try_from(of_node.len()).unwrap_or(u32::MAX),
            };
            (node, factor)
        })
        .collect()
}

impl NodeObservation {
    fn is_usable(&self) -> bool {
        let is_measured = self.steps_per_s.is_finite() && self.samples.is_finite();
        is_measured && self.steps_per_s > 0.0 && self.samples > 0.0
    }

    fn cell(&self) -> Cell<'_> {
        Cell {
            gpu_kind: &self.gpu_kind,
            tenant: self.tenant,
            family: &self.family,
            size: (self.workers, self.ps_shards),
        }
    }
}

impl NodeFactor {
    /// Returns the deviation in whole percent, so that a further sample rarely changes a plan.
    /// `None` if it is too small to count.
    #[must_use]
    pub fn rounded(&self) -> Option<NodeSpeed> {
        // A cast of a float saturates, and the factor is bounded.
        let percent = (self.factor * 100.0).round() as u16;
        let deviation = percent.abs_diff(NodeSpeed::TYPICAL_PERCENT);
        (deviation >= NodeSpeed::LEAST_DEVIATION_PERCENT).then_some(NodeSpeed {
            percent,
            jobs: self.jobs,
        })
    }
}

/// State of the fit, with dense indices of nodes.
#[derive(Debug, Default)]
struct Fit {
    /// Nodes with comparable jobs, in order.
    nodes: Vec<NodeId>,
    /// Index of the GPU kind by node.
    kinds: Vec<usize>,
    /// Entries, ordered by cell.
    entries: Vec<Entry>,
    /// Ranges of `entries` by cell.
    cells: Vec<Range<usize>>,
    /// Difference of each entry from the other nodes of its cell.
    differences: Vec<f64>,
    /// Indices of entries by node.
    by_node: Vec<Vec<usize>>,
    deviations: Vec<f64>,
}

impl Fit {
    fn of(observations: &[&NodeObservation], full_samples: f64) -> Self {
        let mut measured: BTreeMap<Cell<'_>, BTreeMap<NodeId, Vec<Weighted>>> = BTreeMap::new();
        for one in observations {
            let trust = (one.samples / full_samples).min(1.0);
            // The product is between 0 and the full weight.
            let weight = (trust * f64::from(FULL_WEIGHT)).round() as u32;
            let on_nodes = measured.entry(one.cell()).or_default();
            let on_node = on_nodes.entry(one.node).or_default();
            on_node.push((one.steps_per_s.ln(), weight.max(1)));
        }
        // A cell on one node compares nothing.
        measured.retain(|_, on_nodes| on_nodes.len() > 1);
        let mut kinds: BTreeMap<NodeId, &str> = BTreeMap::new();
        for (cell, on_nodes) in &measured {
            kinds.extend(on_nodes.keys().map(|node| (*node, cell.gpu_kind)));
        }
        let mut names: Vec<&str> = kinds.values().copied().collect();
        names.sort_unstable();
        names.dedup();
        let kind_of = |name: &&str| names.binary_search(name).expect("all names are there");
        let mut fit = Self {
            nodes: kinds.keys().copied().collect(),
            kinds: kinds.values().map(kind_of).collect(),
            by_node: vec![Vec::new(); kinds.len()],
            deviations: vec![0.0; kinds.len()],
            ..Self::default()
        };
        for on_nodes in measured.into_values() {
            fit.add_cell(on_nodes);
        }
        fit.differences = vec![0.0; fit.entries.len()];
        fit
    }

    fn add_cell(&mut self, on_nodes: BTreeMap<NodeId, Vec<Weighted>>) {
        let first = self.entries.len();
        for (node, mut speeds) in on_nodes {
            let known = self.nodes.binary_search(&node);
            let node = known.expect("all nodes are there");
            self.by_node[node].push(self.entries.len());
            self.entries.push(Entry {
                node,
                weight: speeds.iter().map(|(_, weight)| weight).sum(),
                others: 0,
                ln_speed: Medians::of(&mut speeds).middle(),
            });
        }
        let of_cell = &mut self.entries[first..];
        let all: u32 = of_cell.iter().map(|entry| entry.weight).sum();
        for entry in of_cell {
            entry.others = all - entry.weight;
        }
        self.cells.push(first..self.entries.len());
    }

    /// Returns the entries of a node with their differences.
    fn of_node(&self, node: usize) -> impl Iterator<Item = (&Entry, f64)> {
        let entries = self.by_node[node].iter();
        entries.map(|&entry| (&self.entries[entry], self.differences[entry]))
    }

    /// Fits the deviations in turns. Each turn goes half of the way: the two sides of a difference
    /// then share it, and the fit does not swing.
    fn take_turns(&mut self) {
        for _ in 0..MOST_TURNS {
            self.compare();
            let mut change = 0.0_f64;
            for node in 0..self.nodes.len() {
                let step = (self.deviation(node, 0.0) - self.deviations[node]) / 2.0;
                self.deviations[node] += step;
                change = change.max(step.abs());
            }
            if change < PRECISION {
                break;
            }
        }
    }

    /// Computes the difference of each entry from the other nodes of its cell.
    fn compare(&mut self) {
        let mut others = CellMedians::default();
        for range in &self.cells {
            let of_cell = &self.entries[range.clone()];
            let speeds = of_cell.iter().map(|entry| {
                let speed = entry.ln_speed - self.deviations[entry.node];
                (speed, entry.weight)
            });
            others.set(speeds);
            for (place, entry) in of_cell.iter().enumerate() {
                let reference = others.without(place).middle();
                self.differences[range.start + place] = entry.ln_speed - reference;
            }
        }
    }

    /// Returns the deviation of a node from a reference; 0 with too few measurements.
    fn deviation(&self, node: usize, reference: f64) -> f64 {
        let mut differences = vec![(0.0, PRIOR_WEIGHT)];
        for (entry, difference) in self.of_node(node) {
            let weight = entry.weight.min(entry.others);
            differences.push((difference - reference, weight));
        }
        Medians::of(&mut differences).nearest_to_zero()
    }

    /// Makes the median node of each kind the reference. A node with too few measurements keeps
    /// the deviation 0.
    fn centre(&mut self) {
        let kinds = self.kinds.iter().max().map_or(0, |last| last + 1);
        let mut of_kinds: Vec<Vec<Weighted>> = vec![Vec::new(); kinds];
        for (&kind, &deviation) in self.kinds.iter().zip(&self.deviations) {
            of_kinds[kind].push((deviation, FULL_WEIGHT));
        }
        let references: Vec<f64> = of_kinds
            .iter_mut()
            .map(|deviations| Medians::of(deviations).nearest_to_zero())
            .collect();
        self.compare();
        let nodes = 0..self.nodes.len();
        self.deviations = nodes
            .map(|node| self.deviation(node, references[self.kinds[node]]))
            .collect();
    }
}

/// Lower and upper weighted median.
#[derive(Debug, Clone, Copy)]
struct Medians(f64, f64);

impl Medians {
    /// Returns the medians of values with weights above 0, and sorts the values.
    fn of(values: &mut [Weighted]) -> Self {
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let all: u64 = values.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut sum = 0;
        for (index, (value, weight)) in values.iter().enumerate() {
            sum += 2 * u64::from(*weight);
            if sum > all {
                return Self(*value, *value);
            }
            // Values on both sides have equal weight: each value between them is a median.
            if sum == all {
                let next = values.get(index + 1).map_or(*value, |(next, _)| *next);
                return Self(*value, next);
            }
        }
        Self(0.0, 0.0)
    }

    fn middle(self) -> f64 {
        f64::midpoint(self.0, self.1)
    }

    fn nearest_to_zero(self) -> f64 {
        0.0_f64.clamp(self.0, self.1)
    }
}

/// Medians of a cell without one of its values. Each takes logarithmic time, because a cell may
/// cover all nodes.
#[derive(Debug, Default)]
struct CellMedians {
    /// Values with their places, in order of value.
    sorted: Vec<(f64, usize)>,
    /// Twice the weight up to and including each of `sorted`.
    sums: Vec<u64>,
    /// Index in `sorted`, and weight, by place.
    by_place: Vec<(usize, u32)>,
}

impl CellMedians {
    fn set(&mut self, values: impl Iterator<Item = Weighted>) {
        self.sorted.clear();
        self.by_place.clear();
        for (place, (value, weight)) in values.enumerate() {
            self.sorted.push((value, place));
            self.by_place.push((0, weight));
        }
        let by_value = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        self.sorted.sort_unstable_by(by_value);
        self.sums.clear();
        let mut sum = 0;
        for (index, &(_, place)) in self.sorted.iter().enumerate() {
            let (at, weight) = &mut self.by_place[place];
            *at = index;
            sum += 2 * u64::from(*weight);
            self.sums.push(sum);
        }
    }

    /// Returns the medians of the values without the one at this place.
    fn without(&self, place: usize) -> Medians {
        let (own, weight) = self.by_place[place];
        let weight = u64::from(weight);
        let half = self.sums.last().map_or(0, |all| all / 2) - weight;
        // Up to `own` the sums do not contain the value, from there on they do.
        let before = self.sums[..own].partition_point(|&sum| sum < half);
        let lower = if before < own {
            before
        } else {
            let behind = &self.sums[own + 1..];
            own + 1 + behind.partition_point(|&sum| sum - 2 * weight < half)
        };
        let sum = self.sums[lower] - if lower > own { 2 * weight } else { 0 };
        let mut upper = self.sorted[lower].0;
        if sum == half {
            let mut behind = lower + 1..self.sorted.len();
            let next = behind.find(|&index| index != own);
            upper = next.map_or(upper, |next| self.sorted[next].0);
        }
        Medians(self.sorted[lower].0, upper)
    }
}

#[cfg(test)]
mod tests;
