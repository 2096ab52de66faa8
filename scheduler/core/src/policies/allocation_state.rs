//! Free capacity during a decision, and the allocations of the decision so far.
//!
//! Every allocation of a policy goes through [`AllocationState`]. A composition can therefore not
//! exceed a node or a quota, split a unit or mix GPU kinds in a gang. It cannot run a job where it
//! has no speed, or change a fixed job.

use super::affinity;
use super::place;
use super::quota::Quota;
use crate::problem::{
    FreeResources, NodeAllocation, PolicyDecision, SchedulingProblem, gpus_of, nodes_of,
};

/// Choice of nodes for a gang within a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementStyle {
    /// The node with the most free GPUs first, as in the reference simulators.
    Emptiest,
    /// As few nodes as possible, and the fullest of those.
    Packed,
    /// The node whose jobs have the same size, if one node holds the gang (Gandiva).
    Affine,
}

/// State of the cluster during a decision.
#[derive(Debug, Clone)]
pub struct AllocationState<'a> {
    pub problem: &'a SchedulingProblem,
    pub tally: FreeResources,
    /// Present allocation by job.
    present: Vec<&'a [NodeAllocation]>,
    /// Allocation by this decision, by job. `None` for a fixed job.
    given: Vec<Option<Vec<NodeAllocation>>>,
    /// Remaining quotas.
    pub quota: Quota<'a>,
    /// Kinds that have GPUs, each with the GPUs of its largest node.
    kinds: Vec<(u16, u32)>,
}

impl<'a> AllocationState<'a> {
    /// Returns the capacity that the jobs which may not be changed leave.
    pub fn beside_fixed(problem: &'a SchedulingProblem) -> Self {
        let mut kinds: Vec<u16> = problem.nodes.iter().map(|node| node.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut state = Self {
            problem,
            tally: FreeResources::beside_fixed(problem),
            present: problem.jobs.iter().map(|job| &job.present[..]).collect(),
            given: vec![None; problem.jobs.len()],
            quota: Quota::whole(problem),
            kinds: kinds
                .into_iter()
                .map(|kind| (kind, problem.node_gpus(kind)))
                .filter(|&(_, gpus)| gpus > 0)
                .collect(),
        };
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            state.charge(job.tenant, job.held_gpus());
        }
        state
    }

    /// Returns the same state with other present allocations. Fixed jobs keep theirs.
    pub fn with_present(mut self, held: &'a [Option<Vec<NodeAllocation>>]) -> Self {
        for (job, parts) in held.iter().enumerate() {
            if self.problem.jobs[job].is_movable() {
                self.present[job] = parts.as_deref().unwrap_or(&[]);
            }
        }
        self
    }

    /// Returns the present allocation of a job.
    pub fn present(&self, job: usize) -> &'a [NodeAllocation] {
        self.present[job]
    }

    /// Returns the allocation of a job by this decision.
    pub fn given(&self, job: usize) -> Option<&[NodeAllocation]> {
        self.given[job].as_deref()
    }

    /// Returns the kind of the first of these GPUs.
    pub fn kind_of(&self, parts: &[NodeAllocation]) -> Option<u16> {
        Some(self.problem.kind_of(parts.first()?))
    }

    /// Returns the kinds that have GPUs, each with the GPUs of its largest node.
    pub fn kinds(&self) -> &[(u16, u32)] {
        &self.kinds
    }

    /// Whether the quotas of a tenant and of its ancestors allow `gpus` more GPUs.
    pub fn quota_allows(&self, tenant: u32, gpus: u32) -> bool {
        self.quota.allows(tenant, gpus)
    }

    /// Whether a job can keep its allocation: all of it is free, of one kind, and the job runs on
    /// it.
    pub fn can_keep(&self, job: usize) -> bool {
        let parts = self.present[job];
        !parts.is_empty()
            && self.runs_on(job, parts)
            && self.tally.holds(parts, &self.problem.jobs[job].unit)
            && self.quota_allows(self.problem.jobs[job].tenant, gpus_of(parts))
    }

    /// Allocates to a job what it holds now.
    pub fn keep(&mut self, job: usize) {
        self.give(job, self.present[job].to_vec());
    }

    /// Allocates free parts to a job.
    pub fn give(&mut self, job: usize, parts: Vec<NodeAllocation>) {
        let of = &self.problem.jobs[job];
        self.tally.take(&parts, &of.unit);
        self.charge(of.tenant, gpus_of(&parts));
        self.given[job] = Some(parts);
    }

    /// Reverses the allocation of a job by this decision.
    pub fn take_back(&mut self, job: usize) {
        let Some(parts) = self.given[job].take() else {
            return;
        };
        let of = &self.problem.jobs[job];
        self.tally.give(&parts, &of.unit);
        self.quota.refund(of.tenant, gpus_of(&parts));
    }

    /// Releases the GPUs of a job as if it had ended. The job may be fixed or allocated by this
    /// decision.
    pub fn end(&mut self, job: usize) {
        let of = &self.problem.jobs[job];
        if of.is_movable() {
            return self.take_back(job);
        }
        // A lost or drained node has no capacity to release.
        let parts: Vec<NodeAllocation> = of
            .present
            .iter()
            .filter(|part| self.problem.nodes[part.node as usize].gpus > 0)
            .copied()
            .collect();
        self.tally.give(&parts, &of.unit);
        self.quota.refund(of.tenant, of.held_gpus());
        for part in parts {
            let node = part.node as usize;
            self.tally.free[node] = self.tally.free[node].min(self.problem.nodes[node].gpus);
        }
    }

    /// Allocates `gpus` GPUs of one kind to a job, on the fastest kind that has them. Returns
    /// `false` if none has.
    pub fn place(&mut self, job: usize, gpus: u32, style: PlacementStyle) -> bool {
        let Some(parts) = self.seek(job, gpus, style) else {
            return false;
        };
        self.give(job, parts);
        true
    }

    /// Returns the place that [`Self::place`] would allocate.
    pub fn seek(
        &self,
        job: usize,
        gpus: u32,
        style: PlacementStyle,
    ) -> Option<Vec<NodeAllocation>> {
        let mut kinds = self.kinds_for(job, gpus).into_iter();
        kinds.find_map(|kind| self.find(job, kind, gpus, style))
    }

    /// Like [`Self::place`], on a given kind.
    pub fn place_on(&mut self, job: usize, kind: u16, gpus: u32, style: PlacementStyle) -> bool {
        let Some(parts) = self.find(job, kind, gpus, style) else {
            return false;
        };
        self.give(job, parts);
        true
    }

    /// Returns the place that [`Self::place_on`] would allocate.
    pub fn find(
        &self,
        job: usize,
        kind: u16,
        gpus: u32,
        style: PlacementStyle,
    ) -> Option<Vec<NodeAllocation>> {
        let of = &self.problem.jobs[job];
        if gpus == 0 || !self.quota_allows(of.tenant, gpus) {
            return None;
        }
        let parts = match style {
            PlacementStyle::Emptiest => {
                place::emptiest(&self.tally, self.problem, kind, &of.unit, gpus)?
            }
            PlacementStyle::Packed => self.packed(job, kind, gpus)?,
            PlacementStyle::Affine => {
                affinity::find(self, job, kind, gpus).or_else(|| self.packed(job, kind, gpus))?
            }
        };
        if self.runs_on(job, &parts) {
            return Some(parts);
        }
        // The job may run only on a single node.
        self.packed(job, kind, gpus)
            .filter(|parts| self.runs_on(job, parts))
    }

    /// Returns a place on as few nodes as possible.
    fn packed(&self, job: usize, kind: u16, gpus: u32) -> Option<Vec<NodeAllocation>> {
        let unit = &self.problem.jobs[job].unit;
        place::pack(&self.tally, self.problem, kind, unit, gpus)
    }

    /// Returns the kinds on which a job of that size runs, the fastest first.
    pub fn kinds_for(&self, job: usize, gpus: u32) -> Vec<u16> {
        let mut kinds: Vec<(f64, u16)> = self
            .kinds
            .iter()
            .map(|&(kind, _)| (self.speed(job, kind, gpus), kind))
            .filter(|&(speed, _)| speed > 0.0)
            .collect();
        kinds.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        kinds.into_iter().map(|(_, kind)| kind).collect()
    }

    /// Returns the work per second of a job on `gpus` GPUs of a kind, packed on empty nodes; 0
    /// where the job cannot run.
    pub fn speed(&self, job: usize, kind: u16, gpus: u32) -> f64 {
        let of = &self.problem.jobs[job];
        let unit = of.unit.gpus.max(1);
        let node_gpus = self.kinds.iter().find(|&&(of, _)| of == kind);
        let whole = node_gpus.map_or(0, |&(_, node_gpus)| node_gpus / unit * unit);
        if whole == 0 {
            return 0.0;
        }
        of.outlook.speed(kind, gpus, gpus.div_ceil(whole))
    }

    /// Returns the largest such speed over all kinds.
    pub fn best_speed(&self, job: usize, gpus: u32) -> f64 {
        let speeds = self
            .kinds
            .iter()
            .map(|&(kind, _)| self.speed(job, kind, gpus));
        speeds.fold(0.0, f64::max)
    }

    /// Returns the work per second on those GPUs of one kind.
    pub fn speed_on(&self, job: usize, parts: &[NodeAllocation]) -> f64 {
        let outlook = &self.problem.jobs[job].outlook;
        self.kind_of(parts).map_or(0.0, |kind| {
            outlook.speed(kind, gpus_of(parts), nodes_of(parts))
        })
    }

    /// Returns the decision. A movable job without an allocation stops.
    pub fn decision(self) -> PolicyDecision {
        let problem = self.problem;
        let parts = self.given.into_iter().zip(&problem.jobs);
        PolicyDecision {
            parts: parts
                .map(|(given, job)| {
                    let given = given.unwrap_or_default();
                    (job.is_movable() && given != job.present).then_some(given)
                })
                .collect(),
            worth: Vec::new(),
        }
    }

    /// Returns the allocations by job.
    pub fn into_given(self) -> Vec<Option<Vec<NodeAllocation>>> {
        self.given
    }

    fn runs_on(&self, job: usize, parts: &[NodeAllocation]) -> bool {
        let kind = self.kind_of(parts);
        let mut kinds = parts.iter().map(|part| self.problem.kind_of(part));
        kinds.all(|of| Some(of) == kind) && self.speed_on(job, parts) > 0.0
    }

    /// Charges GPUs to the quotas of a tenant and of its ancestors.
    pub fn charge(&mut self, tenant: u32, gpus: u32) {
        self.quota.charge(tenant, gpus);
    }
}
