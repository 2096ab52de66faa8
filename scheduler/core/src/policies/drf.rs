//! Dominant resource fairness (Ghodsi et al., NSDI 2011) for whole gangs, weighted and over a
//! hierarchy of tenants.
//!
//! The dominant share of a tenant is the largest of its shares of all GPUs, CPU and memory. The
//! next gang always belongs to the tenant with the smallest dominant share over its weight. Shares
//! are divided from the top: first between the tenants without a parent, by what their subtrees
//! hold, then between the children of the chosen tenant, and so on. A tenant gains nothing by
//! claiming more than it needs. If the gangs fit, each tenant gets at least its part of an equal
//! division.
//!
//! Differences from the papers:
//!
//! - H-DRF's correction for tenants whose siblings are blocked on another resource (Bhattacharya et
//!   al., SoCC 2013) is omitted.
//! - Shares are those of the present moment. The past is not considered.
//! - Gangs keep their requested size, and the jobs of a tenant are in order of submission. A job
//!   that does not fit is skipped, so a large gang can wait without a bound.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::resources::{self, ResourceVector};
use super::{SchedulingPolicy, gang};
use crate::problem::{NodeAllocation, PolicyDecision, SchedulingProblem, gpus_of};
use std::collections::VecDeque;

/// Policy that serves the smallest dominant share first.
#[derive(Debug, Clone, Copy)]
pub struct Drf;

impl SchedulingPolicy for Drf {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let start = AllocationState::beside_fixed(problem);
        gang::run(&start, PlacementStyle::Packed, || {
            let mut filling = Filling::begin(problem);
            move |state: &AllocationState<'_>| filling.next(state)
        })
        .decision()
    }
}

/// Progressive filling.
struct Filling<'a> {
    problem: &'a SchedulingProblem,
    /// Resources of the cluster.
    whole: ResourceVector,
    /// Resources held by the subtree of each tenant.
    used: Vec<ResourceVector>,
    /// Resources held by each tenant's own jobs.
    own: Vec<ResourceVector>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    /// Remaining priorities in ascending order; the highest is taken from the end.
    priorities: Vec<i32>,
    /// Remaining jobs of the present priority, by tenant.
    waiting: Vec<VecDeque<usize>>,
    /// Number of jobs that wait in the subtree of each tenant.
    below: Vec<usize>,
    asked: Option<usize>,
}

impl<'a> Filling<'a> {
    fn begin(problem: &'a SchedulingProblem) -> Self {
        let tenants = tenants(problem);
        let mut children = vec![Vec::new(); tenants];
        let mut roots = Vec::new();
        for tenant in 0..tenants {
            match parent(problem, tenant) {
                Some(parent) => children[parent].push(tenant),
                None => roots.push(tenant),
            }
        }
        let mut priorities: Vec<i32> = problem.jobs.iter().map(|job| job.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let mut filling = Self {
            problem,
            whole: resources::whole(problem),
            used: vec![[0.0; 3]; tenants],
            own: vec![[0.0; 3]; tenants],
            children,
            roots,
            priorities,
            waiting: vec![VecDeque::new(); tenants],
            below: vec![0; tenants],
            asked: None,
        };
        for (job, of) in problem.jobs.iter().enumerate() {
            if !of.is_movable() {
                filling.count(job, &of.present);
            }
        }
        filling
    }

    fn next(&mut self, state: &AllocationState<'_>) -> Option<usize> {
        if let Some((job, parts)) = self.asked.and_then(|job| Some((job, state.given(job)?))) {
            self.count(job, parts);
        }
        while self.below(&self.roots) == 0 {
            let priority = self.priorities.pop()?;
            self.open(priority);
        }
        let mut tenant = self.least(&self.roots)?;
        loop {
            let poorer = self.least(&self.children[tenant]);
            // A tenant's own jobs compete with its children as one child of weight 1.
            let own = dominant(&self.own[tenant], &self.whole);
            match poorer {
                Some(child) if self.waiting[tenant].is_empty() || self.share(child) < own => {
                    tenant = child;
                }
                _ => break,
            }
        }
        let job = self.waiting[tenant].pop_front()?;
        for of in lineage(self.problem, tenant) {
            self.below[of] -= 1;
        }
        self.asked = Some(job);
        Some(job)
    }

    /// Adds the jobs of a priority to the queues.
    fn open(&mut self, priority: i32) {
        for (job, of) in self.problem.jobs.iter().enumerate() {
            if of.priority == priority && of.is_movable() {
                self.waiting[of.tenant as usize].push_back(job);
                for tenant in lineage(self.problem, of.tenant as usize) {
                    self.below[tenant] += 1;
                }
            }
        }
    }

    fn count(&mut self, job: usize, parts: &[NodeAllocation]) {
        let of = &self.problem.jobs[job];
        let taken = resources::demand(of, gpus_of(parts));
        add(&mut self.own[of.tenant as usize], &taken);
        for tenant in lineage(self.problem, of.tenant as usize) {
            add(&mut self.used[tenant], &taken);
        }
    }

    fn below(&self, tenants: &[usize]) -> usize {
        tenants.iter().map(|&tenant| self.below[tenant]).sum()
    }

    /// Returns the tenant of this list with waiting jobs and the smallest share over its weight.
    fn least(&self, tenants: &[usize]) -> Option<usize> {
        let waiting = tenants.iter().filter(|&&tenant| self.below[tenant] > 0);
        waiting
            .copied()
            .min_by(|&a, &b| self.share(a).total_cmp(&self.share(b)))
    }

    fn share(&self, tenant: usize) -> f64 {
        let weight = self.problem.tenants.get(tenant).map_or(1.0, |of| of.weight);
        dominant(&self.used[tenant], &self.whole) / weight.max(f64::MIN_POSITIVE)
    }
}

fn add(held: &mut ResourceVector, more: &ResourceVector) {
    for (held, more) in held.iter_mut().zip(more) {
        *held += more;
    }
}

fn dominant(held: &ResourceVector, whole: &ResourceVector) -> f64 {
    let shares = held.iter().zip(whole).filter(|&(_, &whole)| whole > 0.0);
    shares.map(|(held, whole)| held / whole).fold(0.0, f64::max)
}

/// Returns the number of tenants, including those that only a job refers to.
fn tenants(problem: &SchedulingProblem) -> usize {
    let named = problem.jobs.iter().map(|job| job.tenant as usize + 1).max();
    problem.tenants.len().max(named.unwrap_or(0))
}

/// Returns the parent of a tenant, or `None` if the parents form a cycle. Input should have no
/// cycle.
fn parent(problem: &SchedulingProblem, tenant: usize) -> Option<usize> {
    let mut lineage = std::iter::successors(Some(tenant), |&of| stated_parent(problem, of));
    let ends = lineage.nth(problem.tenants.len()).is_none();
    stated_parent(problem, tenant).filter(|_| ends)
}

fn stated_parent(problem: &SchedulingProblem, tenant: usize) -> Option<usize> {
    Some(problem.tenants.get(tenant)?.parent? as usize)
}

/// Returns the tenant and its ancestors.
fn lineage(problem: &SchedulingProblem, tenant: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(tenant), |&of| parent(problem, of))
}
