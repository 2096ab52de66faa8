//! Dominant resource fairness (Ghodsi et al., NSDI 2011) by whole gangs, weighted and over a hierarchy of tenants.
//!
//! A tenant's dominant share is the largest of its shares of all GPUs, CPU and memory; the next gang is always one of the tenant
//! whose dominant share is smallest for its weight. Shares are divided top down: first between the tenants that have no parent,
//! by all that they and those below them hold, then between the children of the one that was chosen, and so on. Nobody can gain by
//! claiming more than it needs, and with gangs that fit, everybody gets at least what an equal division would give.
//!
//! Left out: H-DRF's correction for tenants whose siblings are blocked on another resource (Bhattacharya et al., SoCC 2013), and
//! any memory of the past: shares are those of this moment. Gangs keep the size that was asked for, a tenant's jobs come in order
//! of submission, and one that does not fit is passed over, so that a large gang may wait for ever.

use super::room::{Room, Style};
use super::{Share, gang, resources};
use crate::problem::{Decision, Part, Problem, gpus_of};
use std::collections::VecDeque;

/// The smallest dominant share first.
#[derive(Debug, Clone, Copy)]
pub struct Drf;

impl Share for Drf {
    fn share(&self, problem: &Problem) -> Decision {
        let start = Room::beside_fixed(problem);
        let queue = || {
            let mut filling = Filling::begin(problem);
            move |room: &Room<'_>| filling.next(room)
        };
        gang::run(&start, Style::Packed, queue).decision()
    }
}

/// Progressive filling.
struct Filling<'a> {
    problem: &'a Problem,
    /// Resources of the cluster.
    whole: [f64; 3],
    /// What every tenant and those below it hold.
    used: Vec<[f64; 3]>,
    /// The same without those below it.
    own: Vec<[f64; 3]>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    /// Priorities that are left, the highest first.
    priorities: Vec<i32>,
    /// Jobs of the present priority that are left, tenant by tenant.
    waiting: Vec<VecDeque<usize>>,
    /// How many wait at a tenant and below it.
    below: Vec<usize>,
    asked: Option<usize>,
}

impl<'a> Filling<'a> {
    fn begin(problem: &'a Problem) -> Self {
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

    fn next(&mut self, room: &Room<'_>) -> Option<usize> {
        if let Some((job, parts)) = self.asked.and_then(|job| Some((job, room.given(job)?))) {
            self.count(job, parts);
        }
        while self.below(&self.roots) == 0 {
            let priority = self.priorities.pop()?;
            self.open(priority);
        }
        let mut tenant = self.least(&self.roots)?;
        loop {
            let poorer = self.least(&self.children[tenant]);
            // Its own jobs compete with its children as one child of weight 1.
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

    /// Lets the jobs of a priority in.
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

    fn count(&mut self, job: usize, parts: &[Part]) {
        let of = &self.problem.jobs[job];
        let taken = resources::demand(of, gpus_of(parts));
        let add = |held: &mut [f64; 3]| held.iter_mut().zip(taken).for_each(|(h, t)| *h += t);
        add(&mut self.own[of.tenant as usize]);
        for tenant in lineage(self.problem, of.tenant as usize) {
            add(&mut self.used[tenant]);
        }
    }

    fn below(&self, tenants: &[usize]) -> usize {
        tenants.iter().map(|&tenant| self.below[tenant]).sum()
    }

    /// The one of these that has jobs waiting and the smallest share for its weight.
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

fn dominant(held: &[f64; 3], whole: &[f64; 3]) -> f64 {
    let shares = held.iter().zip(whole).filter(|&(_, &whole)| whole > 0.0);
    shares.map(|(held, whole)| held / whole).fold(0.0, f64::max)
}

/// How many tenants there are, those included that only jobs tell of.
fn tenants(problem: &Problem) -> usize {
    let named = problem.jobs.iter().map(|job| job.tenant as usize + 1).max();
    problem.tenants.len().max(named.unwrap_or(0))
}

/// The tenant above; nobody where the parents run in a circle, which nobody should make.
fn parent(problem: &Problem, tenant: usize) -> Option<usize> {
    let above = |&of: &usize| Some(problem.tenants.get(of)?.parent? as usize);
    let mut lineage = std::iter::successors(Some(tenant), above);
    let ends = lineage.nth(problem.tenants.len()).is_none();
    above(&tenant).filter(|_| ends)
}

/// The tenant and those above it.
fn lineage(problem: &Problem, tenant: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(tenant), |&of| parent(problem, of))
}
