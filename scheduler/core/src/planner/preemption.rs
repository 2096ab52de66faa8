//! Stops of running jobs for other jobs: their cost, and the rule that allows them.
//!
//! A job of equal or lower priority stops another job only if the work at risk is small compared
//! with its gain, and if the stopped job has not lost too much to other jobs before
//! ([`PreemptionRules`](crate::policy::PreemptionRules)). The document of a job may forbid stops
//! altogether.

use super::cost;
use super::hysteresis::gpus_on;
use super::planned_job::PlannedJob;
use super::policy_guard::is_moved;
use super::round_state::RoundState;
use crate::policy::Policy;
use crate::problem::{NodeAllocation, PolicyDecision, gpus_of, nodes_of};
use crate::snapshot::SnapshotJob;
use muster_model::plan::PreemptionCost;
use muster_model::spec::AllowedPreemption;
use std::collections::BTreeMap;

/// A running member that a decision stops, or restarts without more GPUs, for another job. A member
/// that ends earlier by its own move is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Displacement {
    pub member: usize,
    /// Member that gets the GPUs: a waiting one, or a running one that moves there; `None` if none
    /// is known.
    gainer: Option<usize>,
    /// Whether the gainer runs and moves there.
    for_mover: bool,
    /// Whether the member gets no other GPUs.
    is_stop: bool,
    work_ms: u64,
    restart_ms: u64,
    gpus: u32,
    gain_gpu_ms: u64,
}

impl Displacement {
    /// GPU-milliseconds that the stop costs.
    pub(crate) fn gpu_ms(&self) -> u64 {
        self.each_ms().saturating_mul(u64::from(self.gpus))
    }

    /// Milliseconds that the stop costs on each GPU that it wins.
    pub(crate) fn each_ms(&self) -> u64 {
        self.work_ms.saturating_add(self.restart_ms)
    }

    pub(crate) fn loses_work(&self) -> bool {
        self.work_ms > 0
    }

    /// Whether the stop lets a waiting member start. In an exchange it lets a running one move.
    pub(crate) fn serves_waiting(&self) -> bool {
        !self.for_mover
    }

    fn work_gpu_ms(&self) -> u64 {
        self.work_ms.saturating_mul(u64::from(self.gpus))
    }
}

/// Whether the document allows a stop of the job for another job now.
pub(crate) fn may_make_room(job: &SnapshotJob, now_ms: i64) -> bool {
    job.preemption.allowed == AllowedPreemption::Restart && job.has_run_long_enough(now_ms)
}

/// Whether the work that a stop now would lose leaves the job within its budget: the share of its
/// training time that it may lose to other jobs.
pub(crate) fn is_within_budget(live: &PlannedJob<'_>, policy: &Policy, now_ms: i64) -> bool {
    let work_s = cost::work_at_risk_s(live, policy, now_ms);
    let lost_s = live.job.lost_s + work_s;
    work_s <= 0.0 || lost_s <= policy.preemption.lost_share * live.job.trained_s
}

/// Stops of a decision for other jobs, in the order of the members.
pub(crate) fn displacements(
    round: &RoundState<'_>,
    decision: &PolicyDecision,
) -> Vec<Displacement> {
    let members = (0..round.members.len()).filter(|&member| is_moved(round, decision, member));
    let moved: Vec<usize> = members.collect();
    if moved.is_empty() {
        return Vec::new();
    }
    let starters = Starters::of(round, decision);
    let moved = moved.into_iter();
    moved
        .filter_map(|member| displacement(round, decision, &starters, member))
        .collect()
}

/// Waiting members that a decision gives GPUs: the first one of the highest priority, on all nodes
/// and on each.
#[derive(Debug, Default)]
struct Starters {
    first: Option<usize>,
    first_on: BTreeMap<u32, usize>,
}

impl Starters {
    fn of(round: &RoundState<'_>, decision: &PolicyDecision) -> Self {
        let mut given: Vec<usize> = (0..round.members.len())
            .filter(|&member| round.jobs[round.members[member]].scheduling_state.waits())
            .filter(|&member| !decision.holds(&round.problem, member).is_empty())
            .collect();
        given.sort_by_key(|&member| rank(round, member));
        let mut first_on = BTreeMap::new();
        for &member in &given {
            for part in decision.holds(&round.problem, member) {
                first_on.entry(part.node).or_insert(member);
            }
        }
        Self {
            first: given.first().copied(),
            first_on,
        }
    }

    /// The first one of the highest priority that gets GPUs on these nodes.
    fn first_at(&self, round: &RoundState<'_>, parts: &[NodeAllocation]) -> Option<usize> {
        let there = parts
            .iter()
            .filter_map(|part| self.first_on.get(&part.node));
        there.copied().min_by_key(|&member| rank(round, member))
    }
}

fn displacement(
    round: &RoundState<'_>,
    decision: &PolicyDecision,
    starters: &Starters,
    member: usize,
) -> Option<Displacement> {
    let (job, live) = (
        &round.problem.jobs[member],
        &round.jobs[round.members[member]],
    );
    let gets = gpus_of(decision.holds(&round.problem, member));
    let restarts = gets > 0 && !live.job.trains_on();
    // Such a job changes for its own sake, for example from two nodes to one.
    if restarts && gains(round, decision, member) {
        return None;
    }
    // A member that gets GPUs on the same nodes precedes one elsewhere.
    let local = starters.first_at(round, &job.present);
    let gainer = local.or(starters.first);
    let loses = restarts && local.is_none();
    let mover = if loses || gets == 0 && starters.first.is_none() {
        mover(round, decision, member)
    } else {
        None
    };
    let has_local = local.is_some() || mover.is_some();
    let is_displaced =
        gets == 0 || restarts && (gets < job.held_gpus() || gets == job.held_gpus() && has_local);
    if !is_displaced {
        return None;
    }
    let gainer = mover.or(gainer);
    let cost = cost::restart(live, round.policy);
    let gain_s = gainer.map_or(0.0, |gainer| gain_gpu_s(round, decision, gainer, member));
    Some(Displacement {
        member,
        gainer,
        for_mover: mover.is_some(),
        is_stop: gets == 0,
        work_ms: ms(cost::work_at_risk_s(live, round.policy, round.now_ms)),
        restart_ms: ms(cost.stop_s + cost.start_s),
        gpus: job.held_gpus(),
        gain_gpu_ms: ms(gain_s),
    })
}

/// Whether a running member ends earlier by its own move.
pub(crate) fn gains(round: &RoundState<'_>, decision: &PolicyDecision, member: usize) -> bool {
    let job = &round.problem.jobs[member];
    let then_s = full_time_left_s(round, member, decision.holds(&round.problem, member));
    then_s + job.change_s() < full_time_left_s(round, member, &job.present)
}

/// Other running member of the highest priority that restarts on nodes of this member and ends
/// earlier by that.
fn mover(round: &RoundState<'_>, decision: &PolicyDecision, member: usize) -> Option<usize> {
    let jobs = &round.problem.jobs;
    let comes = |other: usize| {
        let mut parts = decision.holds(&round.problem, other).iter();
        parts.any(|part| {
            gpus_on(&jobs[other].present, part.node) < part.gpus
                && gpus_on(&jobs[member].present, part.node) > 0
        })
    };
    let others = (0..jobs.len()).filter(|&other| other != member);
    let comers: Vec<usize> = others
        .filter(|&other| is_moved(round, decision, other) && comes(other))
        .filter(|&other| !round.jobs[round.members[other]].job.in_place)
        .filter(|&other| gains(round, decision, other))
        .collect();
    highest(round, &comers)
}

/// The first member of the highest priority.
fn highest(round: &RoundState<'_>, members: &[usize]) -> Option<usize> {
    let members = members.iter().copied();
    members.min_by_key(|&member| rank(round, member))
}

/// Order of members: the highest priority first, then the first member.
fn rank(round: &RoundState<'_>, member: usize) -> (i32, usize) {
    (-round.problem.jobs[member].priority, member)
}

/// GPU-seconds of the gainer's remaining run that it does not wait for: at most those until the
/// displaced member would have ended. For a running gainer: those by which it ends earlier. 0 if
/// the gainer's length is unknown.
fn gain_gpu_s(
    round: &RoundState<'_>,
    decision: &PolicyDecision,
    gainer: usize,
    member: usize,
) -> f64 {
    let parts = decision.holds(&round.problem, gainer);
    let Some(gainer_s) = time_left_s(round, gainer, parts) else {
        return 0.0;
    };
    if is_moved(round, decision, gainer) {
        let job = &round.problem.jobs[gainer];
        let now_s = full_time_left_s(round, gainer, &job.present);
        let saved_s = (now_s - gainer_s - job.change_s()).max(0.0);
        return saved_s * f64::from(gpus_of(parts));
    }
    let present = &round.problem.jobs[member].present;
    let member_s = time_left_s(round, member, present).unwrap_or(f64::INFINITY);
    gainer_s.min(member_s) * f64::from(gpus_of(parts))
}

/// Remaining seconds of a member; `None` if nothing tells its length.
fn time_left_s(round: &RoundState<'_>, member: usize, parts: &[NodeAllocation]) -> Option<f64> {
    let length = round.jobs[round.members[member]].estimate.length;
    length
        .is_known()
        .then(|| full_time_left_s(round, member, parts))
}

/// Remaining seconds of a member, by an expected length if nothing tells it.
fn full_time_left_s(round: &RoundState<'_>, member: usize, parts: &[NodeAllocation]) -> f64 {
    let kind = parts.first().map_or(0, |part| round.problem.kind_of(part));
    let outlook = &round.problem.jobs[member].outlook;
    outlook.time_left_s(kind, gpus_of(parts), nodes_of(parts))
}

/// Members that a decision displaces against the rule.
pub(crate) fn unjust(round: &RoundState<'_>, decision: &PolicyDecision) -> Vec<usize> {
    let all = displacements(round, decision);
    let mut work_gpu_ms: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    for one in &all {
        let sum = work_gpu_ms.entry(one.gainer).or_default();
        *sum = sum.saturating_add(one.work_gpu_ms());
    }
    let unjust = all
        .iter()
        .filter(|one| !is_just(round, one, work_gpu_ms[&one.gainer]));
    unjust.map(|one| one.member).collect()
}

/// Whether the rule allows a displacement. `work_gpu_ms` is the work that all displacements for the
/// same gainer lose.
fn is_just(round: &RoundState<'_>, one: &Displacement, work_gpu_ms: u64) -> bool {
    let (live, rules) = (
        &round.jobs[round.members[one.member]],
        round.policy.preemption,
    );
    if !may_make_room(live.job, round.now_ms) {
        return false;
    }
    let jobs = &round.problem.jobs;
    let precedes = one
        .gainer
        .is_some_and(|gainer| jobs[gainer].priority > live.priority);
    if precedes {
        return true;
    }
    // A job that runs already waits for no GPUs, so no other job returns to the queue for it.
    let is_passed_over = one.for_mover
        && (one.is_stop
            || one
                .gainer
                .is_some_and(|gainer| jobs[gainer].priority < live.priority));
    if live.job.exclusive || is_passed_over {
        return false;
    }
    let gains_enough = work_gpu_ms as f64 <= rules.risk_share * one.gain_gpu_ms as f64;
    !one.loses_work() || gains_enough && is_within_budget(live, round.policy, round.now_ms)
}

/// Cost of the stop of a member for another job; `None` if no known job gets its GPUs.
pub(crate) fn cost(
    round: &RoundState<'_>,
    displacements: &[Displacement],
    member: usize,
) -> Option<PreemptionCost> {
    let one = displacements.iter().find(|one| one.member == member)?;
    let gainer = round.jobs[round.members[one.gainer?]].job;
    let live = &round.jobs[round.members[member]];
    Some(PreemptionCost {
        borne_by: live.job.tenant,
        gainer: gainer.id,
        gained_by: gainer.tenant,
        gpus: placed_gpus(live.job),
        work_ms: one.work_ms,
        restart_ms: one.restart_ms,
        gain_gpu_ms: one.gain_gpu_ms,
    })
}

/// GPUs of the job's tasks before this round.
fn placed_gpus(job: &SnapshotJob) -> u32 {
    let tasks = job.tasks.iter().filter(|task| !task.state.is_released());
    let gpus: usize = tasks.map(|task| task.gpus.len()).sum();
    u32::try_from(gpus).unwrap_or(u32::MAX)
}

/// The cost as a text for the owner of the stopped job.
pub(crate) fn text(round: &RoundState<'_>, index: usize, cost: &PreemptionCost) -> String {
    let live = &round.jobs[index];
    let mut jobs = round.jobs.iter();
    let gainer = jobs.find(|other| other.job.id == cost.gainer);
    let gainer = gainer.map_or("another job", |gainer| gainer.named_to(live.tenant));
    let mut tenants = round.snapshot.tenants.iter();
    let tenant = tenants.find(|tenant| tenant.id == cost.borne_by);
    let tenant = tenant.map_or("its tenant", |tenant| &tenant.name);
    let gain = match cost.gain_gpu_ms {
        0 => format!("the length of {gainer} is unknown"),
        gain_gpu_ms => format!(
            "{gainer} gains {:.0} GPU-seconds",
            gain_gpu_ms as f64 / 1_000.0
        ),
    };
    let gpus = match cost.gpus {
        1 => "1 GPU".to_owned(),
        gpus => format!("{gpus} GPUs"),
    };
    format!(
        "it loses {:.1} s of work and {:.1} s to restart on {gpus}, {:.1} GPU-seconds that {tenant} bears; {gain}",
        cost.work_ms as f64 / 1_000.0,
        cost.restart_ms as f64 / 1_000.0,
        cost.gpu_ms() as f64 / 1_000.0,
    )
}

/// Milliseconds, rounded. The cast saturates, so an infinite time gives the longest one.
fn ms(seconds: f64) -> u64 {
    (seconds * 1_000.0).round() as u64
}
