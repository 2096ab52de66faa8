//! Passes of a round. A pass applies the policy's answer to the dense state as far as the facts
//! allow. Jobs that get other GPUs stop, and jobs that get free GPUs start. Jobs that get GPUs of
//! stopping tasks wait for them.

mod exchange;

use super::defragment;
use super::fixpoint::RoundFixpoint;
use super::free::{Availability, FreeNode};
use super::gang::{self, NodeTaskCounts};
use super::hysteresis;
use super::in_place::{self, InPlace};
use super::migration;
use super::observations::done_workers;
use super::place;
use super::planned_job::PlannedJob;
use super::policy_guard::{AcceptedDecision, guarded_decision, is_moved};
use super::preemption::{self, Displacement, displacements, may_make_room};
use super::range_enforcement;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use super::time_slicing;
use crate::plan::Action;
use crate::problem::{NodeAllocation, PolicyDecision, gpus_of};
use muster_model::job::RequeueCause;
use muster_model::plan::PreemptionCost;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum number of questions to the guard in one pass, each without the members that did not fit
/// before. In the last one the running jobs stay as they are. On 1,000 nodes a few members would
/// otherwise be left out at a time, dozens of times.
const MOST_ATTEMPTS: usize = 6;

/// Repeats passes until one changes nothing.
pub(crate) fn run_to_fixpoint(round: &mut RoundState<'_>) -> RoundFixpoint {
    loop {
        if let Some(fixpoint) = pass(round) {
            return fixpoint;
        }
    }
}

/// Repeats passes until the job starts, or a pass changes nothing. Returns whether it starts.
pub(crate) fn run_until_started(round: &mut RoundState<'_>, index: usize) -> bool {
    while round.jobs[index].scheduling_state != SchedulingState::Starting {
        if pass(round).is_some() {
            return false;
        }
    }
    true
}

fn pass(round: &mut RoundState<'_>) -> Option<RoundFixpoint> {
    let mut blocked = vec![false; round.members.len()];
    for attempt in 1.. {
        if attempt == MOST_ATTEMPTS {
            block_running(round, &mut blocked);
        }
        let chosen = guarded_decision(round, &blocked);
        let mut carrying = PlanApplication::new(round, &chosen.decision);
        carrying.stop();
        carrying.start();
        if carrying.changed {
            return None;
        }
        let (free, promised, misfits) = (carrying.free, carrying.promised, carrying.misfits);
        if misfits.is_empty() {
            let AcceptedDecision { decision, behind } = chosen;
            return Some(RoundFixpoint {
                decision,
                behind,
                promised,
                free,
            });
        }
        // Their GPUs go to other jobs. A running job that cannot restart stays as it is.
        misfits
            .into_iter()
            .for_each(|member| blocked[member] = true);
    }
    unreachable!("each attempt blocks a further member")
}

/// Blocks the members that run: they stay as they are.
fn block_running(round: &RoundState<'_>, blocked: &mut [bool]) {
    for (&index, blocked) in round.members.iter().zip(blocked) {
        *blocked |= round.jobs[index].scheduling_state == SchedulingState::Running;
    }
}

/// Reason for the stop of a running member.
struct StopReason {
    cause: RequeueCause,
    /// Text for the job's owner.
    why: String,
    /// Cost, if the member stops for another job.
    cost: Option<PreemptionCost>,
}

struct PlanApplication<'w, 'a, 'd> {
    round: &'w mut RoundState<'a>,
    decision: &'d PolicyDecision,
    /// Free resources minus those given or promised in this pass.
    free: Vec<FreeNode>,
    promised: BTreeMap<usize, Vec<(u32, u64)>>,
    misfits: Vec<usize>,
    changed: bool,
}

impl<'w, 'a, 'd> PlanApplication<'w, 'a, 'd> {
    fn new(round: &'w mut RoundState<'a>, decision: &'d PolicyDecision) -> Self {
        Self {
            round,
            decision,
            free: Vec::new(),
            promised: BTreeMap::new(),
            misfits: Vec::new(),
            changed: false,
        }
    }

    fn stop(&mut self) {
        let members = 0..self.round.members.len();
        let moved: Vec<usize> = members
            .filter(|&member| is_moved(self.round, self.decision, member))
            .collect();
        if moved.is_empty() {
            return;
        }
        let newcomers = self.newcomers();
        let displacements = displacements(self.round, self.decision);
        let (mut exchanging, mut costs) = (Vec::new(), Vec::new());
        for member in moved {
            let change = self.in_place(member);
            let restarts = change == InPlace::Never;
            let index = self.round.members[member];
            let StopReason { cause, why, cost } =
                self.stop_reason(member, &newcomers, &displacements, restarts);
            match change {
                InPlace::Now(change) => self.round.resize(index, &change, why),
                // The GPUs that it grows into are not free yet; it trains on until they are.
                InPlace::Later => continue,
                // Outside its owner's range it restarts only with a reserved place;
                // `range_enforcement` does that.
                InPlace::Never if self.is_out_of_range(member) => continue,
                InPlace::Never if self.is_displaced(member) => {
                    self.round.stop(index, Action::requeue(cause, why));
                    costs.push((index, cost));
                }
                // The document forbids the restart, although the job would change in place.
                InPlace::Never if !may_make_room(self.round.jobs[index].job, self.round.now_ms) => {
                    self.misfits.push(member);
                    continue;
                }
                InPlace::Never if !self.may_restart(member) => {
                    self.misfits.push(member);
                    continue;
                }
                // A restart needs a reserved place: without one the job stays as it is.
                InPlace::Never => {
                    let Some(placed) = self.place_anew(member) else {
                        if self.changes_place(member) {
                            exchanging.push(member);
                        } else {
                            self.misfits.push(member);
                        }
                        continue;
                    };
                    let way = defragment::way(self.round, index, &placed);
                    self.round.relocate(index, placed, format!("{way}: {why}"));
                    costs.push((index, cost));
                }
            }
            self.changed = true;
        }
        costs.extend(self.exchange(exchanging, &newcomers, &displacements));
        for (index, cost) in costs {
            // A running job that stays where it is gains nothing after all.
            let cost = cost.filter(|cost| {
                let mut jobs = self.round.jobs.iter();
                jobs.any(|live| live.job.id == cost.gainer && live.scheduling_state.waits())
            });
            self.round.record_cost(index, cost);
        }
    }

    fn stop_reason(
        &self,
        member: usize,
        newcomers: &BTreeMap<u32, Vec<usize>>,
        displacements: &[Displacement],
        restarts: bool,
    ) -> StopReason {
        let (cause, mut why) = self.why_move(member, newcomers, restarts);
        let cost = preemption::cost(self.round, displacements, member);
        if let Some(cost) = &cost {
            let text = preemption::text(self.round, self.round.members[member], cost);
            why = format!("{why}; {text}");
        }
        StopReason { cause, why, cost }
    }

    /// How a moved member takes its new size.
    fn in_place(&self, member: usize) -> InPlace {
        let round = &*self.round;
        let live = &round.jobs[round.members[member]];
        let parts = self.decision.holds(&round.problem, member);
        if parts.is_empty() {
            return InPlace::Never;
        }
        let ps_shards = self.best_shards(member, parts).next().unwrap_or(0);
        let grows = gpus_of(parts) > round.problem.jobs[member].held_gpus();
        let borrows = grows && time_slicing::may_grow_on_loan(round, round.members[member]);
        let free = if borrows {
            Cow::Owned(round.with_lendable(&round.free))
        } else {
            Cow::Borrowed(&round.free)
        };
        match in_place::resize(live, &free, parts, ps_shards) {
            // GPUs of the tenant's stopping and leaving tasks count against the quota until they
            // end.
            InPlace::Now(change) if !self.quota_has_room(live, change.joining_gpus()) => {
                if round.held[live.tenant as usize] > self.kept(live.tenant) {
                    return InPlace::Later;
                }
                let shrinks = change.only_leaving(live);
                shrinks.map_or(InPlace::Never, InPlace::Now)
            }
            resize => resize,
        }
    }

    /// Whether a member is not displaced and has a size outside of its owner's range.
    fn is_out_of_range(&self, member: usize) -> bool {
        let live = &self.round.jobs[self.round.members[member]];
        !self.is_displaced(member) && range_enforcement::is_outside(live)
    }

    fn is_displaced(&self, member: usize) -> bool {
        self.decision.holds(&self.round.problem, member).is_empty()
    }

    /// Whether a member may restart at the place of the decision, free or not.
    fn may_restart(&self, member: usize) -> bool {
        let (round, index) = (&*self.round, self.round.members[member]);
        let parts = self.decision.holds(&round.problem, member);
        let live = &round.jobs[index];
        let own = live.charged();
        let more = gpus_of(parts).saturating_sub(own);
        // The remaining workers of a command would start from the beginning.
        if done_workers(live.job) > 0 || !self.quota_has_room(live, more) {
            return false;
        }
        let is_smaller = gpus_of(parts) < own;
        is_smaller || !hysteresis::is_too_soon_to_restart(round, live)
    }

    /// Place for the restart of a member, if it is free once the job has stopped.
    fn place_anew(&self, member: usize) -> Option<gang::GangPlacement> {
        let (round, index) = (&*self.round, self.round.members[member]);
        let parts = self.decision.holds(&round.problem, member);
        let live = &round.jobs[index];
        let (mut free, shape) = (migration::once_stopped(round, index), &live.shape);
        let shares = self
            .best_shards(member, parts)
            .find_map(|ps_shards| gang::at(&free, shape, parts, ps_shards, Availability::Now))?;
        Some(gang::take(&mut free, shape, &shares, Availability::Now))
    }

    /// GPUs of the tenant's jobs that stay.
    fn kept(&self, tenant: u32) -> u32 {
        let jobs = self.round.jobs.iter();
        jobs.filter(|live| live.tenant == tenant && live.scheduling_state.stays())
            .map(PlannedJob::charged)
            .sum()
    }

    /// Whether the quota has room for `gpus` more, in addition to all that the tenant's tasks hold.
    fn quota_has_room(&self, live: &PlannedJob<'_>, gpus: u32) -> bool {
        let held = self.round.held[live.tenant as usize];
        let quota = self.round.quota(live);
        gpus == 0 || quota.is_none_or(|quota| held.saturating_add(gpus) <= quota)
    }

    /// Waiting members by the nodes that the decision gives them.
    fn newcomers(&self) -> BTreeMap<u32, Vec<usize>> {
        let mut by_node: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (member, parts) in self.given() {
            for part in parts {
                by_node.entry(part.node).or_default().push(member);
            }
        }
        by_node
    }

    /// Waiting members and their parts in the decision, in order of submission.
    fn given(&self) -> Vec<(usize, &'d [NodeAllocation])> {
        let (round, decision) = (&*self.round, self.decision);
        let parts = (0..round.members.len()).map(|member| (member, &decision.parts[member]));
        parts
            .filter_map(|(member, parts)| Some((member, parts.as_deref()?)))
            .filter(|(_, parts)| !parts.is_empty())
            .filter(|&(member, _)| round.jobs[round.members[member]].scheduling_state.waits())
            .collect()
    }

    fn why_move(
        &self,
        member: usize,
        newcomers: &BTreeMap<u32, Vec<usize>>,
        restarts: bool,
    ) -> (RequeueCause, String) {
        let round = &*self.round;
        let problem = &round.problem;
        let job = &problem.jobs[member];
        let live = &round.jobs[round.members[member]];
        let gets = gpus_of(self.decision.holds(problem, member));
        let per_worker = live.shape.worker.gpus.max(1);
        let had = live.size.0;
        let size = if gets == 0 {
            format!("from {had} workers to the queue")
        } else {
            format!("from {had} to {} workers", gets / per_worker)
        };
        let mut gainers = job
            .present
            .iter()
            .filter_map(|part| newcomers.get(&part.node))
            .flatten();
        let mut higher = gainers
            .clone()
            .filter(|&&other| problem.jobs[other].priority > job.priority);
        if gets == 0
            && let Some(&gainer) = higher.next()
        {
            let whose = self.named_to(gainer, live.tenant);
            let why = format!("{size}: {whose} has a higher priority");
            return (RequeueCause::Preempted, why);
        }
        let smaller = gets < job.held_gpus();
        let gainer = gainers.next();
        let gainer = gainer.map(|&gainer| self.named_to(gainer, live.tenant));
        let why = match gainer.filter(|_| smaller) {
            Some(gainer) => format!("{size}: {gainer} needs room to start"),
            None if smaller && preemption::gains(round, self.decision, member) => {
                format!("{size}: it is faster there")
            }
            None if smaller => format!("{size}: others gain more by its GPUs"),
            None if gets == job.held_gpus() => match gainer {
                Some(gainer) => format!("{gainer} needs the room that it leaves"),
                None => self.why_place(member),
            },
            None if !restarts => format!("{size}: worth the change"),
            None => format!("{size}: worth the restart"),
        };
        (RequeueCause::Resize, why)
    }

    /// Name of a member's job in texts for a job of `tenant`.
    fn named_to(&self, member: usize, tenant: u32) -> &str {
        self.round.jobs[self.round.members[member]].named_to(tenant)
    }

    /// Starts waiting jobs, first those whose GPUs are all free. The others are promised the GPUs
    /// of stopping tasks. They start elsewhere if as many unpromised GPUs are free.
    fn start(&mut self) {
        self.free.clone_from(&self.round.free);
        let mut later = Vec::new();
        for (member, parts) in self.given() {
            if !self.start_at(member, parts) {
                later.push((member, parts));
            }
        }
        let mut promises = Vec::new();
        for (member, parts) in later {
            match self.promise(member, parts) {
                Some(shares) => promises.push((member, shares)),
                None => promises.push((member, Vec::new())),
            }
        }
        for (member, shares) in promises {
            if !self.start_anywhere(member) && shares.is_empty() && !self.start_on_loan(member) {
                self.misfits.push(member);
            }
        }
    }

    /// Starts the job on GPUs that are reserved for another job's time slice. It gets the number in
    /// the decision, or fewer if not all are free.
    fn start_on_loan(&mut self, member: usize) -> bool {
        let index = self.round.members[member];
        let live = &self.round.jobs[index];
        if self.round.lendable.is_empty() || !live.job.takes_turns() {
            return false;
        }
        let (shape, parts) = (
            live.shape.clone(),
            self.decision.holds(&self.round.problem, member),
        );
        let wanted = gpus_of(parts) / shape.worker.gpus.max(1);
        let mut free = self.round.with_lendable(&self.free);
        let sizes = (shape.workers.min.max(1)..=wanted).rev();
        let found = sizes.filter(|&to| shape.takes(to)).find_map(|workers| {
            let size = (workers, shape.ps_shards.min);
            let may_start = self.may_start(member, shape.gpus(workers));
            let found = may_start.then(|| place::find(&free, &shape, size, Availability::Now));
            found.flatten()
        });
        let Some(shares) = found else {
            return false;
        };
        let placed = gang::take(&mut free, &shape, &shares, Availability::Now);
        let why = "on GPUs that are kept for another job's turn, until that comes".to_owned();
        self.round.start(index, &placed, why);
        // The remaining GPUs stay reserved.
        for (&node, gpus) in &self.round.lendable {
            free[node as usize].now &= !gpus;
        }
        self.free = free;
        self.changed = true;
        true
    }

    /// Starts the job at the place of the decision, if all of it is free.
    fn start_at(&mut self, member: usize, parts: &[NodeAllocation]) -> bool {
        if !self.may_start(member, gpus_of(parts)) {
            return false;
        }
        let live = &self.round.jobs[self.round.members[member]];
        let shares = self.best_shards(member, parts).find_map(|ps_shards| {
            gang::at(&self.free, &live.shape, parts, ps_shards, Availability::Now)
        });
        if let Some(shares) = &shares {
            self.commit(member, shares);
        }
        shares.is_some()
    }

    /// Numbers of shards to try, best first.
    fn best_shards(
        &self,
        member: usize,
        parts: &[NodeAllocation],
    ) -> impl Iterator<Item = u32> + use<> {
        let live = &self.round.jobs[self.round.members[member]];
        let workers = gpus_of(parts) / live.shape.worker.gpus.max(1);
        let least = live.shape.ps_shards.min;
        (least..=live.sizing.ps_shards(workers).max(least)).rev()
    }

    /// Whether the job holds nothing any more, and the quota has room for `gpus` in addition to all
    /// that the tenant's tasks hold.
    fn may_start(&self, member: usize, gpus: u32) -> bool {
        let live = &self.round.jobs[self.round.members[member]];
        live.scheduling_state == SchedulingState::Queued && self.quota_has_room(live, gpus)
    }

    /// Promises the job the place of the decision until all of it is free.
    fn promise(&mut self, member: usize, parts: &[NodeAllocation]) -> Option<Vec<NodeTaskCounts>> {
        let live = &self.round.jobs[self.round.members[member]];
        let shape = live.shape.clone();
        let shares = self.best_shards(member, parts).find_map(|ps_shards| {
            gang::at(&self.free, &shape, parts, ps_shards, Availability::Later)
        })?;
        let placed = gang::take(&mut self.free, &shape, &shares, Availability::Later);
        self.promised.insert(member, placed.workers);
        Some(shares)
    }

    /// Starts the job on other GPUs than promised, if enough are free and not promised.
    fn start_anywhere(&mut self, member: usize) -> bool {
        let parts = self.decision.holds(&self.round.problem, member);
        if !self.may_start(member, gpus_of(parts)) {
            return false;
        }
        let live = &self.round.jobs[self.round.members[member]];
        let workers = gpus_of(parts) / live.shape.worker.gpus.max(1);
        let found = self.best_shards(member, parts).find_map(|ps_shards| {
            place::find(
                &self.free,
                &live.shape,
                (workers, ps_shards),
                Availability::Now,
            )
        });
        if let Some(shares) = &found {
            self.commit(member, shares);
            self.promised.remove(&member);
        }
        found.is_some()
    }

    fn commit(&mut self, member: usize, shares: &[NodeTaskCounts]) {
        let index = self.round.members[member];
        let shape = self.round.jobs[index].shape.clone();
        let placed = gang::take(&mut self.free, &shape, shares, Availability::Now);
        let why = match &self.round.journal {
            Some(_) => String::new(),
            None => {
                let mut nodes: Vec<u32> = placed.workers.iter().map(|&(node, _)| node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                let first = nodes
                    .first()
                    .map(|&node| &self.round.snapshot.nodes[node as usize]);
                let kind = first.map_or("", |node| node.gpu_model.as_str());
                why_start(&self.round.jobs[index], placed.size(), (kind, nodes.len()))
            }
        };
        self.round.start(index, &placed, why);
        self.changed = true;
    }
}

/// Reason for the start with this size, with the estimates on this kind and number of nodes.
fn why_start(live: &PlannedJob<'_>, size: (u32, u32), (kind, nodes): (&str, usize)) -> String {
    let limit = limit(&live.shape, size.0);
    if live.estimate.speed.points() == 0 {
        return format!("{limit}; its speed is not measured yet");
    }
    let speeds = live.estimate.speeds_on(kind, size);
    let steps_per_s = if nodes > 1 {
        speeds.spread
    } else {
        speeds.local
    };
    let time_s = live.estimate.steps_left / steps_per_s;
    format!("{limit}; about {steps_per_s:.1} steps/s and {time_s:.0} s to its end")
}

/// Reason for this number of workers.
fn limit(shape: &gang::GangShape, workers: u32) -> String {
    let range = shape.workers;
    if workers == range.max {
        "as many workers as it may have".to_owned()
    } else if workers == range.min {
        format!("its minimum of {workers} workers; others gain more by the rest")
    } else {
        format!(
            "{workers} of at most {} workers; others gain more by the rest, or it does not fit",
            range.max
        )
    }
}
