//! What is left to give while a policy decides, and what it has given so far.
//!
//! Every gift goes through here, so that no composition can exceed a node or a quota, split a unit, mix GPU kinds in a gang, run
//! a job where it has no speed or touch one that is fixed.

use super::affinity;
use super::place;
use super::quota::Quota;
use crate::problem::{Decision, Part, Problem, Tally, gpus_of, nodes_of};

/// On which nodes of a kind a gang goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The node with the most free GPUs first, as the peers' simulators do.
    Emptiest,
    /// As few nodes as can be, and the fullest of those.
    Packed,
    /// The node whose jobs are of the same size, if one node holds it (Gandiva).
    Affine,
}

/// The cluster during a decision.
#[derive(Debug, Clone)]
pub struct Room<'a> {
    pub problem: &'a Problem,
    pub tally: Tally,
    /// What every job holds now.
    present: Vec<&'a [Part]>,
    /// What was given; of a fixed job, nothing.
    given: Vec<Option<Vec<Part>>>,
    /// What the tenants may still take.
    pub quota: Quota<'a>,
    /// The kinds that have GPUs, and those of their largest node.
    kinds: Vec<(u16, u32)>,
}

impl<'a> Room<'a> {
    /// Everything but what the jobs hold that may not be touched.
    pub fn beside_fixed(problem: &'a Problem) -> Self {
        let mut kinds: Vec<u16> = problem.nodes.iter().map(|node| node.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut room = Self {
            problem,
            tally: Tally::beside_fixed(problem),
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
            room.charge(job.tenant, job.held_gpus());
        }
        room
    }

    /// The same cluster as if the jobs held that instead. Of a fixed job nothing changes.
    pub fn with_present(mut self, held: &'a [Option<Vec<Part>>]) -> Self {
        for (job, parts) in held.iter().enumerate() {
            if self.problem.jobs[job].is_movable() {
                self.present[job] = parts.as_deref().unwrap_or(&[]);
            }
        }
        self
    }

    /// What a job holds now.
    pub fn present(&self, job: usize) -> &'a [Part] {
        self.present[job]
    }

    /// What a job was given in this decision.
    pub fn given(&self, job: usize) -> Option<&[Part]> {
        self.given[job].as_deref()
    }

    /// The kind of the first of these GPUs.
    pub fn kind_of(&self, parts: &[Part]) -> Option<u16> {
        let first = parts.first()?;
        Some(self.problem.nodes[first.node as usize].kind)
    }

    /// The kinds that have GPUs, and the GPUs of their largest node.
    pub fn kinds(&self) -> &[(u16, u32)] {
        &self.kinds
    }

    /// Whether the quotas of its tenant and of those above allow so many GPUs more.
    pub fn quota_allows(&self, tenant: u32, gpus: u32) -> bool {
        self.quota.allows(tenant, gpus)
    }

    /// Whether a job can keep what it holds: it is all there, of one kind, and it runs on it.
    pub fn can_keep(&self, job: usize) -> bool {
        let parts = self.present[job];
        !parts.is_empty()
            && self.runs_on(job, parts)
            && self.tally.holds(parts, &self.problem.jobs[job].unit)
            && self.quota_allows(self.problem.jobs[job].tenant, gpus_of(parts))
    }

    /// Lets it keep what it holds.
    pub fn keep(&mut self, job: usize) {
        self.give(job, self.present[job].to_vec());
    }

    /// Gives a job what is free.
    pub fn give(&mut self, job: usize, parts: Vec<Part>) {
        let of = &self.problem.jobs[job];
        self.tally.take(&parts, &of.unit);
        self.charge(of.tenant, gpus_of(&parts));
        self.given[job] = Some(parts);
    }

    /// Takes back what a job was given in this decision.
    pub fn take_back(&mut self, job: usize) {
        let Some(parts) = self.given[job].take() else {
            return;
        };
        let of = &self.problem.jobs[job];
        self.tally.give(&parts, &of.unit);
        self.quota.refund(of.tenant, gpus_of(&parts));
    }

    /// As if a job had ended, be it fixed or one that was given something.
    pub fn end(&mut self, job: usize) {
        let of = &self.problem.jobs[job];
        if of.is_movable() {
            return self.take_back(job);
        }
        // A node that was lost or drained under it stays empty.
        let there = |part: &&Part| self.problem.nodes[part.node as usize].gpus > 0;
        let parts: Vec<Part> = of.present.iter().filter(there).copied().collect();
        self.tally.give(&parts, &of.unit);
        self.quota.refund(of.tenant, of.held_gpus());
        for part in parts {
            let node = part.node as usize;
            self.tally.free[node] = self.tally.free[node].min(self.problem.nodes[node].gpus);
        }
    }

    /// Gives a job so many GPUs of one kind, the one on which it is fastest if it has a choice. Whether they were there.
    pub fn place(&mut self, job: usize, gpus: u32, style: Style) -> bool {
        let Some(parts) = self.seek(job, gpus, style) else {
            return false;
        };
        self.give(job, parts);
        true
    }

    /// Where [`Self::place`] would put it.
    pub fn seek(&self, job: usize, gpus: u32, style: Style) -> Option<Vec<Part>> {
        let mut kinds = self.kinds_for(job, gpus).into_iter();
        kinds.find_map(|kind| self.find(job, kind, gpus, style))
    }

    /// The same on a given kind.
    pub fn place_on(&mut self, job: usize, kind: u16, gpus: u32, style: Style) -> bool {
        let Some(parts) = self.find(job, kind, gpus, style) else {
            return false;
        };
        self.give(job, parts);
        true
    }

    /// Where it would go.
    pub fn find(&self, job: usize, kind: u16, gpus: u32, style: Style) -> Option<Vec<Part>> {
        let of = &self.problem.jobs[job];
        if gpus == 0 || !self.quota_allows(of.tenant, gpus) {
            return None;
        }
        let packed = || place::pack(&self.tally, self.problem, kind, &of.unit, gpus);
        let parts = match style {
            Style::Emptiest => place::emptiest(&self.tally, self.problem, kind, &of.unit, gpus)?,
            Style::Packed => packed()?,
            Style::Affine => affinity::find(self, job, kind, gpus).or_else(packed)?,
        };
        if self.runs_on(job, &parts) {
            return Some(parts);
        }
        // It may be that it runs only while it stays on one node.
        packed().filter(|parts| self.runs_on(job, parts))
    }

    /// The kinds on which a job of that size runs, the fastest first.
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

    /// Work per second of a job on so many GPUs of a kind, packed on nodes as they are when empty; 0 when it cannot run so.
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

    /// The same on the kind on which it is fastest.
    pub fn best_speed(&self, job: usize, gpus: u32) -> f64 {
        let speeds = self
            .kinds
            .iter()
            .map(|&(kind, _)| self.speed(job, kind, gpus));
        speeds.fold(0.0, f64::max)
    }

    /// Work per second on those GPUs of one kind.
    pub fn speed_on(&self, job: usize, parts: &[Part]) -> f64 {
        let outlook = &self.problem.jobs[job].outlook;
        self.kind_of(parts).map_or(0.0, |kind| {
            outlook.speed(kind, gpus_of(parts), nodes_of(parts))
        })
    }

    /// What was decided: whoever may be moved and was given nothing stops.
    pub fn decision(self) -> Decision {
        let problem = self.problem;
        let parts = self.given.into_iter().zip(&problem.jobs);
        Decision {
            parts: parts
                .map(|(given, job)| {
                    let given = given.unwrap_or_default();
                    (job.is_movable() && given != job.present).then_some(given)
                })
                .collect(),
            worth: Vec::new(),
        }
    }

    /// All that was given, job by job.
    pub fn into_given(self) -> Vec<Option<Vec<Part>>> {
        self.given
    }

    fn runs_on(&self, job: usize, parts: &[Part]) -> bool {
        let kind = self.kind_of(parts);
        let same = |part: &Part| Some(self.problem.nodes[part.node as usize].kind) == kind;
        parts.iter().all(same) && self.speed_on(job, parts) > 0.0
    }

    /// Counts GPUs against the quotas of a tenant and of those above.
    pub fn charge(&mut self, tenant: u32, gpus: u32) {
        self.quota.charge(tenant, gpus);
    }
}
