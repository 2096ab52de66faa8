//! Guard around the policy: it enforces the rules of live rounds under every policy.
//!
//! - Running jobs are resized only where that pays, and only while no earlier decision is in
//!   progress.
//! - A job is not stopped for a job of equal priority, unless the policy intends that.
//! - A job of higher priority does not wait for cooldowns.
//! - No job is overtaken for ever.
//!
//! A policy does not know these rules. It is asked again, with more jobs fixed in the problem,
//! until its answer satisfies them.

use super::calm::{is_hasty, is_quiet, rests};
use super::cost::begins_anew;
use super::out_of_range::is_outside;
use super::settle::done_workers;
use super::standing::{QueueOrder, SchedulingState};
use super::world::RoundState;
use crate::policies::favour::favour;
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
pub(crate) fn choose(world: &mut RoundState<'_>, blocked: &[bool]) -> AcceptedDecision {
    let mut choosing = PolicyGuard::new(world, blocked);
    let calm = choosing.ask(&[]);
    let paying = choosing.only_what_pays(calm);
    let urgent = choosing.let_urgent_in(paying);
    choosing.let_nobody_starve(urgent)
}

struct PolicyGuard<'w, 'a> {
    world: &'w mut RoundState<'a>,
    blocked: &'w [bool],
    /// Running members that keep what they have, until `let_urgent_in` frees them.
    held: Vec<bool>,
}

impl<'w, 'a> PolicyGuard<'w, 'a> {
    fn new(world: &'w mut RoundState<'a>, blocked: &'w [bool]) -> Self {
        let quiet = is_quiet(world);
        let held = world
            .members
            .iter()
            .map(|&index| {
                let live = &world.jobs[index];
                // The remaining workers of a command, and the finished ones, would start from the
                // beginning.
                let is_partly_done = done_workers(live.job) > 0;
                // A restart outside of the range needs a place for the whole job, which no policy
                // reserves.
                let is_stuck = !live.job.in_place && is_outside(live);
                live.standing == SchedulingState::Running
                    && (!quiet
                        || is_partly_done
                        || is_stuck
                        || rests(world, live)
                        || begins_anew(live))
            })
            .collect();
        Self {
            world,
            blocked,
            held,
        }
    }

    /// The policy's answer with these members fixed in addition to the required ones. No member
    /// grows into GPUs that were released a moment ago.
    fn ask(&mut self, fixed: &[usize]) -> PolicyDecision {
        for _ in 0..MOST_QUESTIONS {
            let decision = self.question(fixed);
            let hasty = |&member: &usize| is_hasty(self.world, &decision, member);
            let hasty: Vec<usize> = self.running().into_iter().filter(hasty).collect();
            if hasty.is_empty() {
                return decision;
            }
            hasty.iter().for_each(|&member| self.held[member] = true);
        }
        let running = self.running();
        running.iter().for_each(|&member| self.held[member] = true);
        self.question(fixed)
    }

    /// Asks the policy once.
    fn question(&mut self, fixed: &[usize]) -> PolicyDecision {
        for member in 0..self.world.members.len() {
            let standing = self.standing(member);
            // A member can end only in a trial; it receives nothing.
            let settled = standing == SchedulingState::Starting
                || self.world.jobs[self.world.members[member]].is_resizing
                || self.world.jobs[self.world.members[member]]
                    .destination
                    .is_some()
                || !(standing.stays() || standing.waits());
            self.world.problem.jobs[member].fixed =
                settled || self.blocked[member] || self.held[member];
        }
        for &member in fixed {
            self.world.problem.jobs[member].fixed = true;
        }
        let problem = &self.world.problem;
        // `favour` exchanges GPUs among trials of one study only, so it keeps all properties of the
        // policy's answer.
        favour(problem, self.world.share.share(problem))
    }

    fn standing(&self, member: usize) -> SchedulingState {
        self.world.jobs[self.world.members[member]].standing
    }

    fn running(&self) -> Vec<usize> {
        (0..self.world.members.len())
            .filter(|&member| self.standing(member) == SchedulingState::Running)
            .collect()
    }

    /// Running members that a decision moves, resizes or stops.
    fn moved(&self, decision: &PolicyDecision) -> Vec<usize> {
        (0..self.world.members.len())
            .filter(|&member| is_moved(self.world, decision, member))
            .collect()
    }

    /// Waiting members that a decision gives GPUs.
    fn given(&self, decision: &PolicyDecision) -> Vec<usize> {
        let problem = &self.world.problem;
        (0..self.world.members.len())
            .filter(|&member| self.standing(member).waits())
            .filter(|&member| !decision.holds(problem, member).is_empty())
            .collect()
    }

    /// Leaves running jobs unchanged where a change does not pay, unless a waiting job needs it to
    /// start.
    fn only_what_pays(&mut self, first: PolicyDecision) -> PolicyDecision {
        let first = self.let_stand_still(first);
        if self.world.promises.restarts_pay || self.moved(&first).is_empty() {
            return first;
        }
        let running = self.running();
        let base = self.ask(&running);
        let starters = self.given(&base);
        let mut fixed = self.unjust(&first);
        let mut decision = first;
        if !fixed.is_empty() {
            decision = self.ask(&fixed);
        }
        for _ in 0..MOST_QUESTIONS {
            let moved = self.moved(&decision);
            let unjust = self.unjust(&decision);
            let newly = self.given(&decision).into_iter();
            let newly: Vec<usize> = newly.filter(|one| !starters.contains(one)).collect();
            if moved.is_empty() {
                return decision;
            }
            let doubtful = if !unjust.is_empty() {
                unjust
            } else if !newly.is_empty() {
                // A waiting job needs the room: moved jobs that give up nothing for it stay.
                let bystanders = self.bystanders(&decision, &moved);
                let spared = self.spare(&fixed, &bystanders, &newly);
                return spared.unwrap_or(decision);
            } else if self.pays(&decision, &base, &moved) {
                return decision;
            } else {
                let alone = |&member: &usize| {
                    self.shrinks(&decision, member) || !self.pays(&decision, &base, &[member])
                };
                let poor: Vec<usize> = moved.iter().copied().filter(alone).collect();
                if poor.is_empty() {
                    return decision;
                }
                poor
            };
            fixed.extend(doubtful);
            decision = self.ask(&fixed);
        }
        base
    }

    /// Keeps running jobs that can be suspended from being stopped for jobs of their priority. Time
    /// slicing suspends them instead: they keep their processes and lose nothing.
    fn let_stand_still(&mut self, first: PolicyDecision) -> PolicyDecision {
        let (mut fixed, mut decision) = (Vec::new(), first);
        if !self.world.promises.takes_turns {
            return decision;
        }
        for _ in 0..MOST_QUESTIONS {
            let unjust = self.unjust(&decision);
            if unjust.is_empty() {
                return decision;
            }
            fixed.extend(unjust);
            decision = self.ask(&fixed);
        }
        let running = self.running();
        self.ask(&running)
    }

    /// Whether the policy may stop this member for members of its priority.
    fn is_stopped_in_turn(&self, member: usize) -> bool {
        let job = self.world.jobs[self.world.members[member]].job;
        let stands_still = self.world.policy.slicing.is_some() && job.suspends && !job.exclusive;
        self.world.promises.takes_turns && !stands_still
    }

    /// Running members that a decision stops without need. No member of higher priority gets GPUs.
    /// Moreover, the policy does not stop jobs of equal priority, or the member could be suspended.
    fn unjust(&self, decision: &PolicyDecision) -> Vec<usize> {
        let jobs = &self.world.problem.jobs;
        let given = self.given(decision);
        let highest = given.iter().map(|&member| jobs[member].priority).max();
        let stopped = self.moved(decision).into_iter().filter(|&member| {
            decision.holds(&self.world.problem, member).is_empty()
                && !self.is_stopped_in_turn(member)
                && highest.is_none_or(|highest| highest <= jobs[member].priority)
        });
        stopped.collect()
    }

    /// Moved members that give up nothing.
    fn bystanders(&self, decision: &PolicyDecision, moved: &[usize]) -> Vec<usize> {
        let stays = |member: &&usize| !self.shrinks(decision, **member);
        moved.iter().filter(stays).copied().collect()
    }

    fn shrinks(&self, decision: &PolicyDecision, member: usize) -> bool {
        let problem = &self.world.problem;
        gpus_of(decision.holds(problem, member)) < problem.jobs[member].held_gpus()
    }

    /// The answer with `bystanders` unchanged, if all members of `newly` still start.
    fn spare(
        &mut self,
        fixed: &[usize],
        bystanders: &[usize],
        newly: &[usize],
    ) -> Option<PolicyDecision> {
        if bystanders.is_empty() {
            return None;
        }
        let fixed: Vec<usize> = fixed.iter().chain(bystanders).copied().collect();
        let spared = self.ask(&fixed);
        let given = self.given(&spared);
        let fits = newly.iter().all(|one| given.contains(one)) && self.unjust(&spared).is_empty();
        fits.then_some(spared)
    }

    /// Whether the changes of `moved` save enough time, together with the members that start
    /// anyway. The cost of each change is subtracted.
    fn pays(&self, decision: &PolicyDecision, base: &PolicyDecision, moved: &[usize]) -> bool {
        let problem = &self.world.problem;
        let policy = self.world.policy;
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
        let problem = &self.world.problem;
        let kind = parts
            .first()
            .map_or(0, |part| problem.nodes[part.node as usize].kind);
        let outlook = &problem.jobs[member].outlook;
        outlook.time_left_s(kind, gpus_of(parts), nodes_of(parts))
    }

    /// Lets waiting jobs disturb jobs in their cooldown: those of lower priority, and those above
    /// their minimum, which continue with less.
    fn let_urgent_in(&mut self, decision: PolicyDecision) -> PolicyDecision {
        let members = 0..self.world.members.len();
        let problem = &self.world.problem;
        let waits = |&member: &usize| {
            self.standing(member).waits()
                && !self.blocked[member]
                && decision.holds(problem, member).is_empty()
        };
        let urgent: Vec<usize> = members.clone().filter(waits).collect();
        let Some(highest) = urgent.iter().map(|&m| problem.jobs[m].priority).max() else {
            return decision;
        };
        let gives = |&member: &usize| {
            let job = &problem.jobs[member];
            let is_larger = job.held_gpus() > job.min_gpus;
            let live = &self.world.jobs[self.world.members[member]];
            // A restart would lose all of its work.
            let may_shrink = is_larger && !begins_anew(live);
            self.held[member] && (job.priority < highest || may_shrink)
        };
        let givers: Vec<usize> = members.filter(gives).collect();
        if givers.is_empty() {
            return decision;
        }
        let before = self.held.clone();
        givers.iter().for_each(|&member| self.held[member] = false);
        let others = self.running().into_iter();
        let others: Vec<usize> = others.filter(|member| !givers.contains(member)).collect();
        let mut disturbed = self.ask(&others);
        // A giver that precedes all waiting jobs may shrink but is not stopped, even by a policy
        // that stops jobs of equal priority.
        let problem = &self.world.problem;
        let driven_out = |&&member: &&usize| {
            problem.jobs[member].priority >= highest && disturbed.holds(problem, member).is_empty()
        };
        let driven_out: Vec<usize> = givers.iter().filter(driven_out).copied().collect();
        if !driven_out.is_empty() {
            driven_out
                .iter()
                .for_each(|&member| self.held[member] = true);
            disturbed = self.ask(&others);
        }
        let helped = |given: &PolicyDecision| -> Vec<usize> {
            let is_helped = |m: &usize| !given.holds(&self.world.problem, *m).is_empty();
            urgent.iter().copied().filter(is_helped).collect()
        };
        let newly = helped(&disturbed);
        if newly.is_empty() || !self.unjust(&disturbed).is_empty() {
            self.held = before;
            return decision;
        }
        let moved = self.moved(&disturbed);
        let bystanders = self.bystanders(&disturbed, &moved);
        let spared = self.spare(&others, &bystanders, &newly);
        spared.unwrap_or(disturbed)
    }

    /// Starvation protection: no job starts or grows behind an overdue job that could run on the
    /// empty cluster.
    fn let_nobody_starve(&mut self, decision: PolicyDecision) -> AcceptedDecision {
        let mut behind = BTreeMap::new();
        if !self.world.promises.bounded_waiting {
            behind = self.barriers(&decision);
        }
        let problem = &self.world.problem;
        let overtakes = behind
            .keys()
            .any(|&member| !decision.holds(problem, member).is_empty());
        let grows = !behind.is_empty() && !self.moved(&decision).is_empty();
        if !overtakes && !grows {
            return AcceptedDecision { decision, behind };
        }
        // Jobs that shrink for a job in front still do. All other running jobs are fixed, and jobs
        // behind receive nothing.
        let makes_way = |member: &usize| {
            is_moved(self.world, &decision, *member) && self.shrinks(&decision, *member)
        };
        let running = self.running();
        let stays = running.iter().copied().filter(|member| !makes_way(member));
        let fixed: Vec<usize> = stays.chain(behind.keys().copied()).collect();
        let mut decision = self.ask(&fixed);
        let moved = self.moved(&decision);
        if !self.bystanders(&decision, &moved).is_empty() || !self.unjust(&decision).is_empty() {
            let fixed: Vec<usize> = running.into_iter().chain(behind.keys().copied()).collect();
            decision = self.ask(&fixed);
        }
        AcceptedDecision { decision, behind }
    }

    /// Jobs that may not overtake, each with the job ahead. They are all jobs behind an overdue
    /// job, or only those of its tenant, if it waits for its quota.
    fn barriers(&self, decision: &PolicyDecision) -> BTreeMap<usize, JobId> {
        let world = &*self.world;
        let mut waiting: Vec<(QueueOrder, usize)> = (0..world.members.len())
            .filter(|&member| self.standing(member).waits() && !self.blocked[member])
            .map(|member| (QueueOrder::of(&world.jobs[world.members[member]]), member))
            .collect();
        waiting.sort_unstable();
        let mut barrier: Option<JobId> = None;
        let mut of_tenant: BTreeMap<u32, JobId> = BTreeMap::new();
        let mut behind = BTreeMap::new();
        for (_, member) in waiting {
            let live = &world.jobs[world.members[member]];
            let ahead = barrier.or_else(|| of_tenant.get(&live.tenant).copied());
            if let Some(ahead) = ahead {
                behind.insert(member, ahead);
                continue;
            }
            let served = !decision.holds(&world.problem, member).is_empty();
            let patient = waited_ms(world, member) < world.policy.overtake_ms;
            if served || patient || !super::place::could_ever_run(world, live) {
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
        let world = &*self.world;
        let job = &world.problem.jobs[member];
        let Some(quota) = world.problem.tenants[job.tenant as usize].gpu_quota else {
            return false;
        };
        let stays = (0..world.members.len()).filter(|&other| self.standing(other).stays());
        let used: u32 = stays
            .chain(self.given(decision))
            .filter(|&other| world.problem.jobs[other].tenant == job.tenant)
            .map(|other| gpus_of(decision.holds(&world.problem, other)))
            .sum();
        used.saturating_add(job.min_gpus) > quota
    }
}

/// Whether a decision moves, resizes or stops a running job.
pub(crate) fn is_moved(world: &RoundState<'_>, decision: &PolicyDecision, member: usize) -> bool {
    world.jobs[world.members[member]].standing == SchedulingState::Running
        && decision.parts[member]
            .as_ref()
            .is_some_and(|parts| !same(parts, &world.problem.jobs[member].present))
}

/// Whether both name the same GPUs of the same nodes, in any order.
fn same(a: &[NodeAllocation], b: &[NodeAllocation]) -> bool {
    let on = |parts: &[NodeAllocation], node: u32| -> u32 {
        let there = parts.iter().filter(|part| part.node == node);
        there.map(|part| part.gpus).sum()
    };
    let covers = |a: &[NodeAllocation], b: &[NodeAllocation]| {
        a.iter().all(|part| on(a, part.node) == on(b, part.node))
    };
    covers(a, b) && covers(b, a)
}

/// Milliseconds since the job was last placed, or submitted if it never ran.
fn waited_ms(world: &RoundState<'_>, member: usize) -> u64 {
    let live = &world.jobs[world.members[member]];
    let since_ms = live.placed_ms.unwrap_or(live.job.submitted_ms);
    u64::try_from(world.now_ms.saturating_sub(since_ms)).unwrap_or(0)
}
