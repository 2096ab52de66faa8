//! Moves whose destinations lie on GPUs of other jobs that move or stop in the same plan: jobs
//! exchange their GPUs. All of them stop, and each starts at its destination once the previous
//! holders have released it.
//!
//! The reservations of such moves end after [`limit_ms`]. A job whose destination is not free by
//! then returns to its own GPUs or to the queue. So a task that does not stop delays the other jobs
//! only for that time.

use super::{PlanApplication, StopReason};
use crate::planner::cost;
use crate::planner::defragment;
use crate::planner::free::Availability;
use crate::planner::gang::{self, GangPlacement};
use crate::planner::planned_job::PlannedJob;
use crate::planner::preemption::Displacement;
use crate::planner::round_state::RoundState;
use crate::problem::{NodeAllocation, gpus_of, nodes_of};
use muster_model::job::JobPhase;
use muster_model::plan::PreemptionCost;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum ratio of gains to losses, because estimates have errors.
const REPAID: f64 = 2.0;
/// Longest time over which gains are counted, in seconds.
const LONGEST_S: f64 = 7.0 * 86_400.0;

/// A member of an exchange, and its destination.
struct Exchanged {
    member: usize,
    placed: GangPlacement,
}

impl PlanApplication<'_, '_, '_> {
    /// Whether a member without a free place may move to GPUs of other members: it changes its
    /// place, not only its size. A resize waits for free GPUs while the job trains on.
    pub(super) fn changes_place(&self, member: usize) -> bool {
        let problem = &self.round.problem;
        let parts = self.decision.holds(problem, member);
        let present = &problem.jobs[member].present;
        let kind = |parts: &[NodeAllocation]| parts.first().map(|part| problem.kind_of(part));
        gpus_of(parts) == gpus_of(present) || kind(parts) != kind(present)
    }

    /// Moves members to GPUs of each other and of stopping jobs, as far as all of them fit and the
    /// exchange repays the restarts. The others stay as they are. Returns the costs of the moves.
    pub(super) fn exchange(
        &mut self,
        mut movers: Vec<usize>,
        newcomers: &BTreeMap<u32, Vec<usize>>,
        displacements: &[Displacement],
    ) -> Vec<(usize, Option<PreemptionCost>)> {
        while !movers.is_empty() {
            let misfit = match self.places_together(&movers) {
                Ok(exchange) => match self.worst(&movers) {
                    None => return self.carry_out(exchange, newcomers, displacements),
                    Some(worst) => worst,
                },
                Err(misfit) => misfit,
            };
            movers.retain(|&member| member != misfit);
            self.misfits.push(misfit);
        }
        Vec::new()
    }

    /// Places of members once all of them and all stopping jobs have released their GPUs, or the
    /// first member without a place.
    fn places_together(&self, movers: &[usize]) -> Result<Vec<Exchanged>, usize> {
        let round = &*self.round;
        let indices: Vec<usize> = movers.iter().map(|&one| round.members[one]).collect();
        let mut free = round.once_all_stopped(&indices);
        let mut exchange = Vec::with_capacity(movers.len());
        for &member in movers {
            let live = &round.jobs[round.members[member]];
            let parts = self.decision.holds(&round.problem, member);
            let shares = self.best_shards(member, parts).find_map(|ps_shards| {
                gang::at(&free, &live.shape, parts, ps_shards, Availability::Now)
            });
            let Some(shares) = shares else {
                return Err(member);
            };
            let placed = gang::take(&mut free, &live.shape, &shares, Availability::Now);
            if !live.allows_size(placed.size()) {
                return Err(member);
            }
            exchange.push(Exchanged { member, placed });
        }
        Ok(exchange)
    }

    /// The member that gains least, if the exchange does not pay. Counted are GPU-seconds of work
    /// until the first member ends, less the restart of each member. The gains of the members that
    /// gain must exceed [`REPAID`] times the losses of the others.
    fn worst(&self, movers: &[usize]) -> Option<usize> {
        let speeds = movers.iter().map(|&member| self.speeds(member));
        let speeds: Vec<(f64, f64)> = speeds.collect();
        let problem = &self.round.problem;
        let ends = movers.iter().zip(&speeds);
        let common_s = ends
            .map(|(&member, (_, then))| problem.jobs[member].outlook.work_left / then)
            .fold(LONGEST_S, f64::min);
        let gains = movers.iter().zip(&speeds).map(|(&member, (now, then))| {
            let job = &problem.jobs[member];
            let gained_s = common_s * (then / now - 1.0) - job.change_s();
            (gained_s * f64::from(job.held_gpus()), member)
        });
        let gains: Vec<(f64, usize)> = gains.collect();
        let sum_of = |sign: f64| {
            gains
                .iter()
                .map(|(gain, _)| (sign * gain).max(0.0))
                .sum::<f64>()
        };
        let pays = sum_of(1.0) > REPAID * sum_of(-1.0);
        let least = gains.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        least.filter(|_| !pays).map(|(_, member)| *member)
    }

    /// Reason for the move of a member to as many other GPUs.
    pub(super) fn why_place(&self, member: usize) -> String {
        let problem = &self.round.problem;
        let kind = |parts: &[NodeAllocation]| {
            let first = parts.first();
            first.map_or("", |part| {
                &problem.kinds[usize::from(problem.kind_of(part))]
            })
        };
        let then = kind(self.decision.holds(problem, member));
        let now = kind(&problem.jobs[member].present);
        let (slow, fast) = self.speeds(member);
        if then == now {
            "another place is worth the restart".to_owned()
        } else if fast > slow {
            format!("{then} makes it {:.1} times as fast as {now}", fast / slow)
        } else {
            format!("its GPUs of kind {now} help another job more")
        }
    }

    /// Work per second of a member now and after the decision.
    fn speeds(&self, member: usize) -> (f64, f64) {
        let problem = &self.round.problem;
        let job = &problem.jobs[member];
        let speed = |parts: &[NodeAllocation]| {
            let kind = parts.first().map_or(0, |part| problem.kind_of(part));
            job.outlook.speed(kind, gpus_of(parts), nodes_of(parts))
        };
        let then = self.decision.holds(problem, member);
        (speed(&job.present), speed(then))
    }

    fn carry_out(
        &mut self,
        exchange: Vec<Exchanged>,
        newcomers: &BTreeMap<u32, Vec<usize>>,
        displacements: &[Displacement],
    ) -> Vec<(usize, Option<PreemptionCost>)> {
        let until_ms = self
            .round
            .now_ms
            .saturating_add(limit_ms(self.round, &exchange));
        let mut moves = Vec::with_capacity(exchange.len());
        let mut costs = Vec::with_capacity(exchange.len());
        for one in exchange {
            let StopReason { why, cost, .. } =
                self.stop_reason(one.member, newcomers, displacements, true);
            let index = self.round.members[one.member];
            let way = defragment::way(self.round, index, &one.placed);
            let holders = self.holders_text(index, &one.placed);
            moves.push((index, one.placed, format!("{way}: {why}{holders}")));
            costs.push((index, cost));
        }
        self.round.relocate_together(moves, until_ms);
        self.changed = true;
        costs
    }

    /// Text: the jobs that hold GPUs of the destination.
    fn holders_text(&self, index: usize, placed: &GangPlacement) -> String {
        let round = &*self.round;
        let live = &round.jobs[index];
        let there = placed.holdings(&live.shape);
        let holders = round.jobs.iter().enumerate().filter(|(other, holder)| {
            let mut held = holder.holdings.iter();
            *other != index
                && held.any(|held| {
                    let mut there = there.iter();
                    there.any(|seat| seat.node == held.node && seat.gpus & held.gpus != 0)
                })
        });
        let names: BTreeSet<&str> = holders
            .map(|(_, holder)| holder.named_to(live.tenant))
            .collect();
        if names.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = names.into_iter().collect();
        let names = names.join(" and ");
        format!("; it starts there once the tasks of {names} have ended")
    }
}

/// Milliseconds for which destinations on GPUs of other jobs are reserved: the limit of a
/// suspension, and twice the longest stop that is expected, with the time-out of a request for a
/// checkpoint.
fn limit_ms(round: &RoundState<'_>, exchange: &[Exchanged]) -> i64 {
    let moving = exchange
        .iter()
        .map(|one| &round.jobs[round.members[one.member]]);
    let mut leaving: Vec<&PlannedJob<'_>> = moving.collect();
    let jobs = round.jobs.iter();
    leaving.extend(jobs.filter(|live| live.state.phase() == JobPhase::Stopping));
    let stop_s = leaving
        .into_iter()
        .map(|live| cost::longest_stop_s(live, round.policy))
        .fold(0.0, f64::max);
    // The cast saturates.
    let limit_ms = round
        .policy
        .suspend_limit_ms
        .saturating_add((2_000.0 * stop_s) as u64);
    i64::try_from(limit_ms).unwrap_or(i64::MAX)
}
