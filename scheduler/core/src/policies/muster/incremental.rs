//! State between two whole decisions, and its change by single events. A new job starts if it fits.
//! The GPUs of an ended job go to waiting jobs. The gangs of a lost node wait like others.
//!
//! The time of a change does not depend on the size of the cluster, because no running job is
//! touched. A resize is a restart. Resizes and the tenants' shares are left to the next whole
//! decision. The invariants of every decision hold: no GPU is allocated twice, gangs are whole, and
//! quotas are kept.
//!
//! Sizes are chosen at a price per GPU. It is the price of the last whole decision, or the one that
//! the next waiting job would pay if that is higher.

use super::Muster;
use super::options::{KindTable, options_of};
use super::placement_index::PlacementIndex;
use crate::policies::quota::Quota;
use crate::problem::{NodeAllocation, PolicyDecision, ProblemJob, SchedulingProblem, gpus_of};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of waiting jobs examined after one event, and of jobs for which a place is
/// searched.
const MOST_LOOKS: usize = 256;
const MOST_TRIED: usize = 32;

/// Precedence of a job: priority, then the bits of its value per GPU.
type JobPrecedence = (Reverse<i32>, Reverse<u64>, usize);

/// State after a whole decision and later events.
pub struct IncrementalState<'p> {
    policy: Muster,
    problem: &'p SchedulingProblem,
    kinds: KindTable,
    placement_index: PlacementIndex<'p>,
    quota: Quota<'p>,
    /// Jobs that arrived later or lost their allocation, in their present form.
    changed: BTreeMap<usize, ProblemJob>,
    holds: Vec<Vec<NodeAllocation>>,
    /// Jobs by the nodes on which they were placed. Entries can be stale.
    on_node: Vec<Vec<usize>>,
    /// Waiting jobs, each with the GPUs of its smallest option.
    waiting: BTreeMap<JobPrecedence, u32>,
    turns: Vec<Option<JobPrecedence>>,
    /// Nodes that are lost or were overloaded from the start. GPUs released there are not reused.
    closed: Vec<bool>,
    free: u32,
    /// Largest gain per GPU among the steps that the whole decision did not take.
    price: f64,
}

/// Allocation that one event gives to a job or takes from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationChange {
    pub job: usize,
    /// Empty if the job stops.
    pub parts: Vec<NodeAllocation>,
}

impl<'p> IncrementalState<'p> {
    /// Returns the state after a whole decision.
    #[must_use]
    pub fn after(
        policy: Muster,
        problem: &'p SchedulingProblem,
        decision: &PolicyDecision,
    ) -> Self {
        let mut standing = Self {
            policy,
            problem,
            kinds: KindTable::of(problem),
            placement_index: PlacementIndex::new(problem),
            quota: Quota::whole(problem),
            changed: BTreeMap::new(),
            holds: vec![Vec::new(); problem.jobs.len()],
            on_node: vec![Vec::new(); problem.nodes.len()],
            waiting: BTreeMap::new(),
            turns: vec![None; problem.jobs.len()],
            closed: overloaded(problem, decision),
            free: 0,
            price: 0.0,
        };
        for (index, job) in problem.jobs.iter().enumerate() {
            let parts = decision.holds(problem, index);
            if job.is_movable() {
                standing.placement_index.hold(parts, &job.unit);
            }
            standing.quota.charge(job.tenant, gpus_of(parts));
            standing.put(index, parts.to_vec());
        }
        for node in (0..standing.closed.len()).filter(|&node| standing.closed[node]) {
            standing.placement_index.close(node);
        }
        standing.placement_index.open();
        standing.free = standing.placement_index.all_free();
        if standing.free == 0 {
            let next = decision.worth.iter().map(|worth| worth.next_gain);
            standing.price = next.fold(0.0, f64::max);
        }
        for (index, job) in problem.jobs.iter().enumerate() {
            if standing.holds[index].is_empty() {
                standing.queue(index, job);
            }
        }
        standing
    }

    /// Returns the present allocation of a job. Arrived jobs continue the numbering.
    #[must_use]
    pub fn holds(&self, job: usize) -> &[NodeAllocation] {
        &self.holds[job]
    }

    /// Adds a job.
    pub fn arrived(&mut self, job: ProblemJob) -> Vec<AllocationChange> {
        let index = self.holds.len();
        self.holds.push(Vec::new());
        self.turns.push(None);
        self.queue(index, &job);
        self.changed.insert(index, job);
        self.fill()
    }

    /// Removes a job that ended or was withdrawn.
    pub fn ended(&mut self, job: usize) -> Vec<AllocationChange> {
        self.take_from(job);
        if let Some(turn) = self.turns[job].take() {
            self.waiting.remove(&turn);
        }
        self.fill()
    }

    /// Removes a node. All gangs on it lose their allocations on other nodes too.
    pub fn lost(&mut self, node: u32) -> Vec<AllocationChange> {
        let mut changes = Vec::new();
        self.closed[node as usize] = true;
        self.free -= self.placement_index.close(node as usize);
        for job in std::mem::take(&mut self.on_node[node as usize]) {
            if !self.holds[job].iter().any(|part| part.node == node) {
                continue;
            }
            self.take_from(job);
            let mut lost = self.job(job).clone();
            lost.present = Vec::new();
            self.queue(job, &lost);
            self.changed.insert(job, lost);
            let parts = Vec::new();
            changes.push(AllocationChange { job, parts });
        }
        let filled = self.fill();
        changes.retain(|stopped| filled.iter().all(|given| given.job != stopped.job));
        changes.extend(filled);
        changes
    }

    fn job(&self, index: usize) -> &ProblemJob {
        self.changed
            .get(&index)
            .unwrap_or_else(|| &self.problem.jobs[index])
    }

    fn put(&mut self, job: usize, parts: Vec<NodeAllocation>) {
        for part in &parts {
            self.on_node[part.node as usize].push(job);
        }
        self.holds[job] = parts;
    }

    fn take_from(&mut self, job: usize) {
        let mut parts = std::mem::take(&mut self.holds[job]);
        let (tenant, unit) = (self.job(job).tenant, self.job(job).unit);
        self.quota.refund(tenant, gpus_of(&parts));
        parts.retain(|part| !self.closed[part.node as usize]);
        self.placement_index.give(&parts, &unit);
        self.free += gpus_of(&parts);
    }

    /// Queues a job, if it can run at any size.
    fn queue(&mut self, index: usize, job: &ProblemJob) {
        let mut options = Vec::new();
        options_of(
            self.problem,
            &self.policy,
            self.kinds.of_job(job),
            job,
            &mut options,
        );
        let best = options
            .iter()
            .map(|option| option.value / f64::from(option.gpus))
            .fold(0.0, f64::max);
        if let Some(least) = options.iter().map(|option| option.gpus).min() {
            // The bits of positive floats have the same order as the floats.
            let turn = (Reverse(job.priority), Reverse(best.to_bits()), index);
            self.waiting.insert(turn, least);
            self.turns[index] = Some(turn);
        }
    }

    /// Allocates free GPUs to waiting jobs by precedence.
    fn fill(&mut self) -> Vec<AllocationChange> {
        let mut changes = Vec::new();
        if self.free == 0 {
            return changes;
        }
        let free = self.free;
        let looked = self.waiting.iter().take(MOST_LOOKS);
        let fitting = looked.filter(|&(_, &least)| least <= free);
        let turns: Vec<JobPrecedence> = fitting.map(|(&turn, _)| turn).take(MOST_TRIED).collect();
        for (at, &(_, _, index)) in turns.iter().enumerate() {
            // Value per GPU of the next waiting job.
            let next = turns.get(at + 1).map_or(0, |&(_, Reverse(bits), _)| bits);
            if let Some(parts) = self.seat(index, self.price.max(f64::from_bits(next))) {
                self.waiting.remove(&turns[at]);
                self.turns[index] = None;
                self.free -= gpus_of(&parts);
                self.put(index, parts.clone());
                changes.push(AllocationChange { job: index, parts });
            }
            if self.free == 0 {
                break;
            }
        }
        changes
    }

    /// Takes the place of the fitting size with the largest value beyond its price.
    fn seat(&mut self, index: usize, price: f64) -> Option<Vec<NodeAllocation>> {
        let mut options = Vec::new();
        let job = self.job(index);
        let (tenant, unit) = (job.tenant, job.unit);
        options_of(
            self.problem,
            &self.policy,
            self.kinds.of_job(job),
            job,
            &mut options,
        );
        options.retain(|option| option.gpus <= self.free && self.quota.allows(tenant, option.gpus));
        options.sort_by(|a, b| {
            let by_profit = b.profit(price).total_cmp(&a.profit(price));
            by_profit.then(a.gpus.cmp(&b.gpus))
        });
        let found = options.iter().find_map(|option| {
            let found = self
                .placement_index
                .find(option.kind, option.gpus, option.nodes, &unit)?;
            self.placement_index.take(&found, &unit).then_some(found)
        })?;
        self.quota.charge(tenant, gpus_of(&found));
        Some(found)
    }
}

/// Returns the nodes that have less than is held there, because they shrank under immovable jobs.
fn overloaded(problem: &SchedulingProblem, decision: &PolicyDecision) -> Vec<bool> {
    let mut left: Vec<(i64, i128, i128)> = problem
        .nodes
        .iter()
        .map(|node| {
            (
                i64::from(node.gpus),
                i128::from(node.cpu_milli),
                i128::from(node.memory_bytes),
            )
        })
        .collect();
    for (index, job) in problem.jobs.iter().enumerate() {
        for part in decision.holds(problem, index) {
            let units = i128::from(part.gpus / job.unit.gpus.max(1));
            let left = &mut left[part.node as usize];
            left.0 -= i64::from(part.gpus);
            left.1 -= units * i128::from(job.unit.cpu_milli);
            left.2 -= units * i128::from(job.unit.memory_bytes);
        }
    }
    left.iter()
        .map(|&(gpus, cpu, memory)| gpus < 0 || cpu < 0 || memory < 0)
        .collect()
}
