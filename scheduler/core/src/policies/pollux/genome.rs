//! Allocation of all jobs, and its repair to a valid one.

use super::speedup::SearchJob;
use crate::policies::allocation_state::AllocationState;
use crate::policies::quota::Quota;
use crate::problem::{FreeResources, NodeAllocation, gpus_of};

/// Maximum number of nodes of one job.
const NODES: usize = 16;

/// Individual of the population.
///
/// Invariants: units are whole, and no node or quota is exceeded. A gang has one kind and a size
/// within the job's bounds. A node has at most one spread job.
#[derive(Debug, Clone, PartialEq)]
pub struct Genome {
    /// Parts of every contender, in the order of the nodes.
    pub rows: Vec<Vec<NodeAllocation>>,
    /// Inverse speedups by contender.
    costs: Vec<f64>,
    /// Sum of the inverse speedups; smaller is better.
    pub cost: f64,
}

/// Remaining capacity while a genome is built.
struct GenomeCapacity<'a> {
    tally: FreeResources,
    quota: Quota<'a>,
    /// Whether the node has a spread job.
    spread: Vec<bool>,
}

/// Environment of the search: capacity, contenders, and nodes with spread jobs.
pub struct SearchEnvironment<'r, 'a> {
    pub state: &'r AllocationState<'a>,
    pub contenders: Vec<SearchJob<'a>>,
    spread: Vec<bool>,
}

impl<'r, 'a> SearchEnvironment<'r, 'a> {
    pub fn new(state: &'r AllocationState<'a>, jobs: &[usize]) -> Self {
        let mut spread = vec![false; state.problem.nodes.len()];
        for (job, of) in state.problem.jobs.iter().enumerate() {
            let fixed = if of.is_movable() {
                &[][..]
            } else {
                &of.present
            };
            let parts = state.given(job).unwrap_or(fixed);
            if parts.iter().any(|part| part.node != parts[0].node) {
                parts
                    .iter()
                    .for_each(|part| spread[part.node as usize] = true);
            }
        }
        Self {
            state,
            contenders: jobs.iter().map(|&job| SearchJob::new(state, job)).collect(),
            spread,
        }
    }

    /// Returns the genome of the present allocations.
    pub fn present(&self) -> Genome {
        let rows = self.contenders.iter().map(|of| of.present.clone());
        self.repaired(rows.collect(), 0)
    }

    /// Returns the valid genome nearest to these rows. Rows take capacity in order, from `first` on
    /// and then from the beginning. Later rows get what is left of theirs.
    pub fn repaired(&self, mut rows: Vec<Vec<NodeAllocation>>, first: usize) -> Genome {
        let mut left = GenomeCapacity {
            tally: self.state.tally.clone(),
            quota: self.state.quota.clone(),
            spread: self.spread.clone(),
        };
        let mut costs = vec![0.0; rows.len()];
        for index in (first..rows.len()).chain(0..first) {
            let contender = &self.contenders[index];
            self.repair(&mut rows[index], contender, &mut left);
            costs[index] = contender.cost(self.state, &rows[index]);
        }
        let cost = costs.iter().sum();
        Genome { rows, costs, cost }
    }

    fn repair(
        &self,
        row: &mut Vec<NodeAllocation>,
        contender: &SearchJob<'a>,
        left: &mut GenomeCapacity<'a>,
    ) {
        let Some(kind) = row.first().map(|part| self.kind(part)) else {
            return;
        };
        let unit = &contender.of.unit;
        let step = unit.gpus.max(1);
        row.retain(|part| self.kind(part) == kind);
        if row.len() > 1 {
            row.retain(|part| !left.spread[part.node as usize]);
            row.truncate(NODES);
        }
        let tenant = contender.of.tenant;
        let mut capacity = contender.most.min(left.quota.remaining(tenant));
        for part in row.iter_mut() {
            let free = left.tally.available(part.node as usize, unit);
            part.gpus = part.gpus.min(free).min(capacity) / step * step;
            capacity -= part.gpus;
        }
        row.retain(|part| part.gpus > 0);
        let gpus = gpus_of(row);
        let nodes = u32::try_from(row.len()).unwrap_or(u32::MAX);
        let runs = contender.of.outlook.speed(kind, gpus, nodes) > 0.0;
        if gpus < contender.least || !runs {
            row.clear();
            return;
        }
        left.tally.take(row, unit);
        left.quota.charge(tenant, gpus);
        if row.len() > 1 {
            row.iter()
                .for_each(|part| left.spread[part.node as usize] = true);
        }
    }

    pub fn kind(&self, part: &NodeAllocation) -> u16 {
        self.state.problem.kind_of(part)
    }
}
