//! Guard around the policy: it enforces the rules of live rounds under every policy.
//!
//! - Running jobs are resized only where that pays, and only while no earlier decision is in
//!   progress.
//! - A job is not stopped for a job of equal priority, unless the policy intends that and the rule
//!   of `preemption` allows it.
//! - Among the jobs that may be stopped, those stop that lose least.
//! - A job of higher priority does not wait for cooldowns.
//! - No job is overtaken for ever.
//!
//! A policy does not know these rules. It is asked again, with more jobs fixed in the problem,
//! until its answer satisfies them.

use super::cost::begins_anew;
use super::hysteresis::{gpus_on, grows_too_soon, in_cooldown, is_settled};
use super::observations::done_workers;
use super::preemption::{self, Displacement, displacements, may_make_room};
use super::queue_order::QueueOrder;
use super::range_enforcement::is_outside;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::policies::prioritise_trials::prioritise_trials;
use crate::problem::{NodeAllocation, PolicyDecision, gpus_of, nodes_of};
use muster_model::id::JobId;
use std::collections::BTreeMap;

/// Maximum number of questions to the policy in one search for an acceptable answer. If none is
/// acceptable, no running job is resized.
const MOST_QUESTIONS: usize = 6;

/// The accepted answer, and the jobs that may not overtake.
pub(crate) struct AcceptedDecision {
    pub decision: PolicyDecision,
    /// Members that wait because they may no longer overtake an older job.
    pub behind: BTreeMap<usize, JobId>,
}

/// Asks the policy. Members in `blocked` receive nothing.
pub(crate) fn guarded_decision(round: &mut RoundState<'_>, blocked: &[bool]) -> AcceptedDecision {
    let mut guard = PolicyGuard::new(round, blocked);
    let first = guard.ask(&[]);
    let paying = guard.drop_unprofitable_resizes(first);
    let urgent = guard.allow_priority_preemption(paying);
    let cheapest = guard.prefer_least_loss(urgent);
    guard.prevent_starvation(cheapest)
}

struct PolicyGuard<'w, 'a> {
    round: &'w mut RoundState<'a>,
    blocked: &'w [bool],
    /// Running members that keep what they have, until `allow_priority_preemption` frees them.
    held: Vec<bool>,
}

impl<'w, 'a> PolicyGuard<'w, 'a> {
    fn new(round: &'w mut RoundState<'a>, blocked: &'w [bool]) -> Self {
        let settled = is_settled(round);
        let held = round
            .members
            .iter()
            .map(|&index| {
                let live = &round.jobs[index];
                // The remaining workers of a command, and the finished ones, would start from the
                // beginning.
                let is_partly_done = done_workers(live.job) > 0;
                // A restart outside of the range needs a place for the whole job, which no policy
                // reserves.
                let is_stuck = !live.job.in_place && is_outside(live);
                // Any change would stop its workers.
                let must_stay = !live.job.trains_on() && !may_make_room(live.job, round.now_ms);
                live.scheduling_state == SchedulingState::Running
                    && (!settled
                        || is_partly_done
                        || is_stuck
                        || must_stay
                        || in_cooldown(round, live)
                        || begins_anew(live))
            })
            .collect();
        Self {
            round,
            blocked,
            held,
        }
    }

    /// The policy's answer with these members fixed in addition to the required ones. No member
    /// grows into GPUs that were released a moment ago.
    fn ask(&mut self, fixed: &[usize]) -> PolicyDecision {
        for _ in 0..MOST_QUESTIONS {
            let decision = self.question(fixed);
            let running = self.running().into_iter();
            let too_soon: Vec<usize> = running
                .filter(|&member| grows_too_soon(self.round, &decision, member))
                .collect();
            if too_soon.is_empty() {
                return decision;
            }
            too_soon.iter().for_each(|&member| self.held[member] = true);
        }
        let running = self.running();
        running.iter().for_each(|&member| self.held[member] = true);
        self.question(fixed)
    }

    /// Asks the policy once.
    fn question(&mut self, fixed: &[usize]) -> PolicyDecision {
        for member in 0..self.round.members.len() {
            let scheduling_state = self.scheduling_state(member);
            // A member can end only in a trial; it receives nothing.
            let settled = scheduling_state == SchedulingState::Starting
                || self.round.jobs[self.round.members[member]].is_resizing
                || self.round.jobs[self.round.members[member]]
                    .destination
                    .is_some()
                || !(scheduling_state.stays() || scheduling_state.waits());
            self.round.problem.jobs[member].fixed =
                settled || self.blocked[member] || self.held[member];
        }
        for &member in fixed {
            self.round.problem.jobs[member].fixed = true;
        }
        let problem = &self.round.problem;
        // `prioritise_trials` exchanges GPUs among trials of one study only, so it keeps all
        // properties of the policy's answer.
        prioritise_trials(problem, self.round.scheduling_policy.allocate(problem))
    }

    fn scheduling_state(&self, member: usize) -> SchedulingState {
        self.round.jobs[self.round.members[member]].scheduling_state
    }

    fn running(&self) -> Vec<usize> {
        (0..self.round.members.len())
            .filter(|&member| self.scheduling_state(member) == SchedulingState::Running)
            .collect()
    }

    /// Running members that a decision moves, resizes or stops.
    fn moved(&self, decision: &PolicyDecision) -> Vec<usize> {
        (0..self.round.members.len())
            .filter(|&member| is_moved(self.round, decision, member))
            .collect()
    }

    /// Waiting members that a decision gives GPUs.
    fn given(&self, decision: &PolicyDecision) -> Vec<usize> {
        let problem = &self.round.problem;
        (0..self.round.members.len())
            .filter(|&member| self.scheduling_state(member).waits())
            .filter(|&member| !decision.holds(problem, member).is_empty())
            .collect()
    }

    /// Leaves running jobs unchanged where a change does not pay, unless a waiting job needs it to
    /// start.
    fn drop_unprofitable_resizes(&mut self, first: PolicyDecision) -> PolicyDecision {
        let first = self.prefer_suspension(first);
        if self.round.capabilities.restarts_pay || self.moved(&first).is_empty() {
            return first;
        }
        let running = self.running();
        let base = self.ask(&running);
        let starters = self.given(&base);
        let mut fixed = self.unjustified_preemptions(&first);
        let mut decision = first;
        if !fixed.is_empty() {
            decision = self.ask(&fixed);
        }
        for _ in 0..MOST_QUESTIONS {
            let moved = self.moved(&decision);
            let unjustified = self.unjustified_preemptions(&decision);
            let newly = self.given(&decision).into_iter();
            let newly: Vec<usize> = newly.filter(|one| !starters.contains(one)).collect();
            if moved.is_empty() {
                return decision;
            }
            let doubtful = if !unjustified.is_empty() {
                unjustified
            } else if !newly.is_empty() {
                // A waiting job needs the room: moved jobs that give up nothing for it stay.
                let unaffected = self.unaffected(&decision, &moved);
                let spared = self.spare(&fixed, &unaffected, &newly);
                return spared.unwrap_or(decision);
            } else if self.pays(&decision, &base, &moved) {
                return decision;
            } else {
                let unprofitable: Vec<usize> = moved
                    .iter()
                    .copied()
                    .filter(|&member| {
                        self.shrinks(&decision, member) || !self.pays(&decision, &base, &[member])
                    })
                    .collect();
                if unprofitable.is_empty() {
                    return decision;
                }
                unprofitable
            };
            fixed.extend(doubtful);
            decision = self.ask(&fixed);
        }
        base
    }

    /// Keeps running jobs that can be suspended from being stopped for jobs of their priority. Time
    /// slicing suspends them instead: they keep their processes and lose nothing.
    fn prefer_suspension(&mut self, first: PolicyDecision) -> PolicyDecision {
        let (mut fixed, mut decision) = (Vec::new(), first);
        if !self.round.capabilities.takes_turns {
            return decision;
        }
        for _ in 0..MOST_QUESTIONS {
            let unjustified = self.unjustified_preemptions(&decision);
            if unjustified.is_empty() {
                return decision;
            }
            fixed.extend(unjustified);
            decision = self.ask(&fixed);
        }
        let running = self.running();
        self.ask(&running)
    }

    /// Whether the policy may stop this member for members of its priority.
    fn is_stopped_in_turn(&self, member: usize) -> bool {
        let job = self.round.jobs[self.round.members[member]].job;
        let suspends = self.round.policy.slicing.is_some() && job.takes_turns();
        self.round.capabilities.takes_turns && !suspends && !job.exclusive
    }

    /// Running members that a decision stops without need. No member of higher priority gets GPUs.
    /// Moreover, the policy does not stop jobs of equal priority, or the member could be suspended.
    /// Also those that the rule of `preemption` protects.
    fn unjustified_preemptions(&self, decision: &PolicyDecision) -> Vec<usize> {
        let jobs = &self.round.problem.jobs;
        let given = self.given(decision);
        let highest = given.iter().map(|&member| jobs[member].priority).max();
        let stopped = self.moved(decision).into_iter().filter(|&member| {
            decision.holds(&self.round.problem, member).is_empty()
                && !self.is_stopped_in_turn(member)
                && highest.is_none_or(|highest| highest <= jobs[member].priority)
        });
        let mut unjustified = preemption::unjust(self.round, decision);
        unjustified.extend(stopped);
        unjustified.sort_unstable();
        unjustified.dedup();
        unjustified
    }

    /// Moved members that give up nothing.
    fn unaffected(&self, decision: &PolicyDecision, moved: &[usize]) -> Vec<usize> {
        moved
            .iter()
            .filter(|member| !self.shrinks(decision, **member))
            .copied()
            .collect()
    }

    fn shrinks(&self, decision: &PolicyDecision, member: usize) -> bool {
        let problem = &self.round.problem;
        gpus_of(decision.holds(problem, member)) < problem.jobs[member].held_gpus()
    }

    /// The answer with `unaffected` unchanged, if all members of `newly` still start.
    fn spare(
        &mut self,
        fixed: &[usize],
        unaffected: &[usize],
        newly: &[usize],
    ) -> Option<PolicyDecision> {
        if unaffected.is_empty() {
            return None;
        }
        let fixed: Vec<usize> = fixed.iter().chain(unaffected).copied().collect();
        let spared = self.ask(&fixed);
        let given = self.given(&spared);
        let fits = newly.iter().all(|one| given.contains(one))
            && self.unjustified_preemptions(&spared).is_empty();
        fits.then_some(spared)
    }

    /// Whether the changes of `moved` save enough time, together with the members that start
    /// anyway. The cost of each change is subtracted.
    fn pays(&self, decision: &PolicyDecision, base: &PolicyDecision, moved: &[usize]) -> bool {
        let problem = &self.round.problem;
        let policy = self.round.policy;
        let (mut saved_s, mut before_s) = (0.0, 0.0);
        for &member in moved {
            let job = &problem.jobs[member];
            let now_s = self.time_left_s(member, &job.present);
            before_s += now_s;
            saved_s += now_s - self.time_left_s(member, decision.holds(problem, member));
            saved_s -= job.change_s();
        }
        for member in self.given(base) {
            let base_s = self.time_left_s(member, base.holds(problem, member));
            saved_s += base_s - self.time_left_s(member, decision.holds(problem, member));
        }
        saved_s > 0.0 && saved_s >= policy.min_gain * before_s
    }

    fn time_left_s(&self, member: usize, parts: &[NodeAllocation]) -> f64 {
        let problem = &self.round.problem;
        let kind = parts
            .first()
            .map_or(0, |part| problem.nodes[part.node as usize].kind);
        let outlook = &problem.jobs[member].outlook;
        outlook.time_left_s(kind, gpus_of(parts), nodes_of(parts))
    }

    /// Lets waiting jobs disturb jobs in their cooldown: those of lower priority, and those above
    /// their minimum, which continue with less.
    fn allow_priority_preemption(&mut self, decision: PolicyDecision) -> PolicyDecision {
        let members = 0..self.round.members.len();
        let problem = &self.round.problem;
        let urgent: Vec<usize> = members
            .clone()
            .filter(|&member| {
                self.scheduling_state(member).waits()
                    && !self.blocked[member]
                    && decision.holds(problem, member).is_empty()
            })
            .collect();
        let Some(highest) = urgent.iter().map(|&m| problem.jobs[m].priority).max() else {
            return decision;
        };
        let givers: Vec<usize> = members
            .filter(|&member| self.may_give(member, highest))
            .collect();
        if givers.is_empty() {
            return decision;
        }
        let before = self.held.clone();
        givers.iter().for_each(|&member| self.held[member] = false);
        // Both lists are in order.
        let others = self.running().into_iter();
        let others: Vec<usize> = others
            .filter(|member| givers.binary_search(member).is_err())
            .collect();
        let mut disturbed = self.ask(&others);
        // A giver that precedes all waiting jobs may shrink but is not stopped, even by a policy
        // that stops jobs of equal priority. The others make room without the protected ones.
        let unjustified = self.unjustified_preemptions(&disturbed);
        let problem = &self.round.problem;
        let stopped_givers: Vec<usize> = givers
            .iter()
            .copied()
            .filter(|&member| {
                unjustified.contains(&member)
                    || problem.jobs[member].priority >= highest
                        && disturbed.holds(problem, member).is_empty()
            })
            .collect();
        if !stopped_givers.is_empty() {
            stopped_givers
                .iter()
                .for_each(|&member| self.held[member] = true);
            disturbed = self.ask(&others);
        }
        let newly: Vec<usize> = urgent
            .iter()
            .copied()
            .filter(|m| !disturbed.holds(&self.round.problem, *m).is_empty())
            .collect();
        if newly.is_empty() || !self.unjustified_preemptions(&disturbed).is_empty() {
            self.held = before;
            return decision;
        }
        let moved = self.moved(&disturbed);
        let unaffected = self.unaffected(&disturbed, &moved);
        let spared = self.spare(&others, &unaffected, &newly);
        spared.unwrap_or(disturbed)
    }

    /// Whether a member in its cooldown may give GPUs to a waiting job of this priority.
    fn may_give(&self, member: usize, priority: i32) -> bool {
        let job = &self.round.problem.jobs[member];
        let is_larger = job.held_gpus() > job.min_gpus;
        let live = &self.round.jobs[self.round.members[member]];
        let may_stop = may_make_room(live.job, self.round.now_ms);
        // A restart would lose all of its work.
        let may_shrink = is_larger && !begins_anew(live) && (may_stop || live.job.trains_on());
        self.held[member] && (job.priority < priority && may_stop || may_shrink)
    }

    /// Replaces jobs that a decision stops for waiting jobs by jobs that lose less on each GPU, as
    /// long as the same waiting jobs start and all in all less is lost.
    fn prefer_least_loss(&mut self, decision: PolicyDecision) -> PolicyDecision {
        let (mut fixed, mut best) = (Vec::new(), decision);
        for _ in 0..MOST_QUESTIONS {
            let all = displacements(self.round, &best).into_iter();
            let costly = all.filter(|one| one.loses_work() && one.serves_waiting());
            let Some(costliest) = costly.max_by_key(|one| (one.each_ms(), one.member)) else {
                return best;
            };
            fixed.push(costliest.member);
            let other = self.ask(&fixed);
            if !self.loses_less(&other, &best) {
                return best;
            }
            best = other;
        }
        best
    }

    /// Whether `other` starts the same waiting members as `best`, disturbs no further running
    /// members except those it displaces, and loses less, by members of no higher priority.
    fn loses_less(&self, other: &PolicyDecision, best: &PolicyDecision) -> bool {
        let (others, bests) = (
            displacements(self.round, other),
            displacements(self.round, best),
        );
        let (given, moved) = (self.given(other), self.moved(best));
        let serves = self.given(best).iter().all(|one| given.contains(one));
        let is_calm = self
            .moved(other)
            .iter()
            .all(|member| moved.contains(member) || others.iter().any(|one| one.member == *member));
        serves
            && is_calm
            && self.unjustified_preemptions(other).is_empty()
            && gpu_ms(&others) < gpu_ms(&bests)
            && self.highest(&others) <= self.highest(&bests)
    }

    /// Highest priority of the displaced members.
    fn highest(&self, displacements: &[Displacement]) -> Option<i32> {
        let jobs = &self.round.problem.jobs;
        let priorities = displacements.iter().map(|one| jobs[one.member].priority);
        priorities.max()
    }

    /// Starvation protection: no job starts or grows behind an overdue job that could run on the
    /// empty cluster.
    fn prevent_starvation(&mut self, decision: PolicyDecision) -> AcceptedDecision {
        let mut behind = BTreeMap::new();
        if !self.round.capabilities.bounded_waiting {
            behind = self.barriers(&decision);
        }
        let problem = &self.round.problem;
        let overtakes = behind
            .keys()
            .any(|&member| !decision.holds(problem, member).is_empty());
        let grows = !behind.is_empty() && !self.moved(&decision).is_empty();
        if !overtakes && !grows {
            return AcceptedDecision { decision, behind };
        }
        // Jobs that shrink for a job in front still do. All other running jobs are fixed, and jobs
        // behind receive nothing.
        let running = self.running();
        let stays = running.iter().copied().filter(|&member| {
            !is_moved(self.round, &decision, member) || !self.shrinks(&decision, member)
        });
        let fixed: Vec<usize> = stays.chain(behind.keys().copied()).collect();
        let mut decision = self.ask(&fixed);
        let moved = self.moved(&decision);
        if !self.unaffected(&decision, &moved).is_empty()
            || !self.unjustified_preemptions(&decision).is_empty()
        {
            let fixed: Vec<usize> = running.into_iter().chain(behind.keys().copied()).collect();
            decision = self.ask(&fixed);
        }
        AcceptedDecision { decision, behind }
    }

    /// Jobs that may not overtake, each with the job ahead. They are all jobs behind an overdue
    /// job, or only those of its tenant, if it waits for its quota.
    fn barriers(&self, decision: &PolicyDecision) -> BTreeMap<usize, JobId> {
        let round = &*self.round;
        let mut waiting: Vec<(QueueOrder, usize)> = (0..round.members.len())
            .filter(|&member| self.scheduling_state(member).waits() && !self.blocked[member])
            .map(|member| (QueueOrder::of(&round.jobs[round.members[member]]), member))
            .collect();
        waiting.sort_unstable();
        let mut barrier: Option<JobId> = None;
        let mut of_tenant: BTreeMap<u32, JobId> = BTreeMap::new();
        let mut behind = BTreeMap::new();
        for (_, member) in waiting {
            let live = &round.jobs[round.members[member]];
            let ahead = barrier.or_else(|| of_tenant.get(&live.tenant).copied());
            if let Some(ahead) = ahead {
                behind.insert(member, ahead);
                continue;
            }
            let served = !decision.holds(&round.problem, member).is_empty();
            let patient = waited_ms(round, member) < round.policy.overtake_ms;
            if served || patient || !super::place::could_ever_run(round, live) {
                continue;
            }
            if self.quota_is_short(decision, member) {
                of_tenant.insert(live.tenant, live.job.id);
            } else {
                barrier = Some(live.job.id);
            }
        }
        behind
    }

    /// Whether the tenant's other jobs leave less quota than this job's minimum.
    ///
    /// Jobs that start by this decision count too. Otherwise a barrier that disappears once they
    /// run would preempt the jobs it had blocked, in a loop.
    fn quota_is_short(&self, decision: &PolicyDecision, member: usize) -> bool {
        let round = &*self.round;
        let job = &round.problem.jobs[member];
        let Some(quota) = round.problem.tenants[job.tenant as usize].gpu_quota else {
            return false;
        };
        let stays = (0..round.members.len()).filter(|&other| self.scheduling_state(other).stays());
        let used: u32 = stays
            .chain(self.given(decision))
            .filter(|&other| round.problem.jobs[other].tenant == job.tenant)
            .map(|other| gpus_of(decision.holds(&round.problem, other)))
            .sum();
        used.saturating_add(job.min_gpus) > quota
    }
}

/// GPU-milliseconds that the displacements cost.
fn gpu_ms(displacements: &[Displacement]) -> u64 {
    let each = displacements.iter().map(Displacement::gpu_ms);
    each.fold(0, u64::saturating_add)
}

/// Whether a decision moves, resizes or stops a running job.
pub(crate) fn is_moved(round: &RoundState<'_>, decision: &PolicyDecision, member: usize) -> bool {
    round.jobs[round.members[member]].scheduling_state == SchedulingState::Running
        && decision.parts[member]
            .as_ref()
            .is_some_and(|parts| !same(parts, &round.problem.jobs[member].present))
}

/// Whether both name the same GPUs of the same nodes, in any order.
fn same(a: &[NodeAllocation], b: &[NodeAllocation]) -> bool {
    a.iter()
        .chain(b)
        .all(|part| gpus_on(a, part.node) == gpus_on(b, part.node))
}

/// Milliseconds since the job was last placed, or submitted if it never ran.
fn waited_ms(round: &RoundState<'_>, member: usize) -> u64 {
    let live = &round.jobs[round.members[member]];
    let since_ms = live.placed_ms.unwrap_or(live.job.submitted_ms);
    u64::try_from(round.now_ms.saturating_sub(since_ms)).unwrap_or(0)
}
