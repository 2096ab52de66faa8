//! Wait reasons and the smallest change that would let a job start.
//!
//! A change is named only if a trial round with it starts the job.

use super::assumed_change::{could_start, would_start};
use super::fixpoint::RoundFixpoint;
use super::forbidden_gpus::{GpusCounted, forbidden_gpus};
use super::free::{Availability, HostCapacity, gpus_of};
use super::job_nodes::JobNodes;
use super::observations::{is_refused, refused_starts};
use super::place::fits_empty;
use super::planned_job::PlannedJob;
use super::queue_order::QueueOrder;
use super::round_state::RoundState;
use super::unblocking_changes::{UnblockingChanges, never_could_start, turn, with_turn};
use super::what_if::{IN_FRONT, WhatIfState, are_few, is_affordable};
use crate::plan::{Action, RemainderWait};
use crate::problem::{self, AllowedNodes, ProblemNode};
use crate::snapshot::{ClusterSnapshot, SnapshotNode};
use muster_model::id::JobId;
use muster_model::job::{Charge, JobPhase, JobState};
use muster_model::spec::AFTER_JOBS_UNIX_MS;
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::{Change, ForbiddenGpus, Refused, Short, Wait, Waiting};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of jobs named as owners of reserved GPUs.
const MOST_AHEAD: usize = 8;

/// Wait reason of each job, in the order of the snapshot; `None` for a job that does not wait. The
/// state is that after the plan, because users change something after they have read the reason.
pub(crate) fn waiting(
    round: &mut RoundState<'_>,
    fixpoint: &RoundFixpoint,
) -> Vec<Option<Waiting>> {
    let mut queue: Vec<usize> = (0..round.jobs.len())
        .filter(|&index| round.jobs[index].state.phase() == JobPhase::Queued)
        .collect();
    queue.sort_by_key(|&index| QueueOrder::of(&round.jobs[index]));
    let mut waiting: Vec<Option<Waiting>> = round
        .jobs
        .iter()
        .map(|live| (live.state == JobState::Paused).then(suspended))
        .collect();
    let mut reachable: BTreeMap<AllowedNodes, ReachableGpus> = BTreeMap::new();
    let used = used(round, fixpoint);
    let mut stage = None;
    let explained = explained_jobs(round);
    for (position, index) in (1_u32..).zip(queue) {
        let nodes = &round.jobs[index].shape.nodes;
        let reach = reachable
            .entry(nodes.index)
            .or_insert_with(|| ReachableGpus::of(round, fixpoint, nodes));
        let reach = &*reach;
        let explaining = WaitExplainer {
            round: &*round,
            fixpoint,
            reach,
            used: &used,
        };
        let why = explaining.why(index);
        let smallest_change = if position <= explained {
            let remedies = UnblockingChanges {
                round,
                fixpoint,
                free_gpus: reach.free_gpus,
            };
            let candidates = remedies.of(index, &why);
            smallest(round, &mut stage, index, (position, &why), candidates)
        } else {
            None
        };
        waiting[index] = Some(Waiting {
            why,
            smallest_change,
            position,
        });
    }
    waiting
}

/// Number of jobs at the head of the queue for which changes are tried.
///
/// On a large cluster each trial takes milliseconds, so only the first jobs are explained. The
/// others wait for them anyway.
pub(crate) fn explained_jobs(round: &RoundState<'_>) -> u32 {
    let most = if are_few(round) { u32::MAX } else { IN_FRONT };
    round.policy.explained_jobs.min(most)
}

/// Wait reason of jobs outside of the queue window.
pub(crate) fn behind(snapshot: &ClusterSnapshot) -> Vec<RemainderWait> {
    let untold = snapshot.left_out.iter();
    let untold = untold.filter(|left_out| !left_out.untold.is_empty());
    untold
        .map(|left_out| RemainderWait {
            waiting: Waiting {
                why: Wait::BehindEarlierJobs {
                    considered: left_out.considered,
                },
                smallest_change: None,
                position: 0,
            },
            jobs: left_out.untold.clone(),
        })
        .collect()
}

/// Whether a wait reason differs enough from the reported one, `previous`, to be written.
///
/// At the head of the queue every difference is written. Behind it positions and holders change
/// with every start. There a reason is written if it is another one, or if the position has moved
/// by a quarter of the reported one. The number of writes per job grows with the logarithm of its
/// position.
pub(crate) fn is_news(previous: &Waiting, new: &Waiting, explained_jobs: u32) -> bool {
    if previous == new {
        return false;
    }
    let moved = previous.position.abs_diff(new.position);
    new.position.min(previous.position) <= explained_jobs
        || previous.why.name() != new.why.name()
        || moved >= previous.position.div_ceil(4)
}

/// The first candidate that lets the job start. Its time slice is one of the candidates, if it has
/// one.
fn smallest(
    round: &mut RoundState<'_>,
    stage: &mut Option<WhatIfState>,
    index: usize,
    (position, why): (u32, &Wait),
    mut candidates: Vec<Change>,
) -> Option<Change> {
    let job = round.jobs[index].job.id;
    if never_could_start(round, &round.jobs[index], why) {
        // On an empty cluster a policy may have other conditions than room.
        let is_rehearsed = are_few(round);
        return candidates.into_iter().find(|change| {
            could_start(round, index, change)
                && (!is_rehearsed
                    || stage
                        .get_or_insert_with(|| WhatIfState::of(round))
                        .starts_alone(job, change))
        });
    }
    if comes_to_its_turn(round, index, why) {
        let stage = stage.get_or_insert_with(|| WhatIfState::of(round));
        if let Some(&turn_ms) = stage.turns().get(&job) {
            let previous = turn(&round.jobs[index], turn_ms);
            candidates = with_turn(candidates, previous, round.now_ms);
        }
    }
    let affordable = is_affordable(round, position);
    candidates.into_iter().find(|change| match change {
        // Whole rounds have confirmed this candidate.
        Change::Wait { ended, .. } if ended.is_empty() => true,
        change => {
            (affordable || !change.makes_others_go())
                && would_start(round, index, change)
                && (!change.makes_others_go()
                    || stage
                        .get_or_insert_with(|| WhatIfState::of(round))
                        .starts(job, change))
        }
    })
}

/// Whether the job waits only for a time slice.
fn comes_to_its_turn(round: &RoundState<'_>, index: usize, why: &Wait) -> bool {
    let job = round.jobs[index].job;
    let waits = matches!(
        why,
        Wait::WaitingForGpus { .. }
            | Wait::WaitingForQuota { .. }
            | Wait::TopologyPlacementFailed { short: None, .. }
    );
    let takes_turns = round.policy.slicing.is_some() && job.takes_turns();
    waits && takes_turns && are_few(round)
}

/// A paused job has no position in the queue.
fn suspended() -> Waiting {
    Waiting {
        why: Wait::Suspended,
        smallest_change: Some(Change::Resume),
        position: 0,
    }
}

/// GPUs of the nodes on which a job may run, and their users.
struct ReachableGpus {
    /// GPUs that are free after the round and not promised.
    free_gpus: u32,
    /// GPUs that no task holds after the round and that are reserved or promised.
    kept_gpus: u32,
    /// Further GPUs that no task holds, on which suspended programs keep memory.
    occupied_gpus: u32,
    /// Jobs for which they are reserved or promised.
    kept_for: Vec<JobId>,
    /// All jobs that hold GPUs there, largest holder first.
    holders: Vec<(Reverse<u32>, JobId)>,
}

impl ReachableGpus {
    fn of(round: &RoundState<'_>, fixpoint: &RoundFixpoint, nodes: &JobNodes) -> Self {
        let free = fixpoint.free.iter();
        let free = free.filter(|node| nodes.contains(node.index));
        let free_gpus: u32 = free.map(|node| node.gpus(Availability::Now)).sum();
        let (unheld_gpus, occupied_gpus) = unheld_gpus(round, nodes);
        let jobs = round.jobs.iter();
        let mut holders: Vec<(Reverse<u32>, JobId)> = jobs
            .map(|live| {
                let there = live
                    .holdings
                    .iter()
                    .filter(|held| nodes.contains(held.node));
                let gpus: u32 = there.map(|held| held.gpus.count_ones()).sum();
                (Reverse(gpus), live.job.id)
            })
            .filter(|(gpus, _)| gpus.0 > 0)
            .collect();
        holders.sort_unstable();
        Self {
            free_gpus,
            kept_gpus: unheld_gpus.saturating_sub(free_gpus),
            occupied_gpus,
            kept_for: kept_for(round, fixpoint),
            holders,
        }
    }
}

/// GPUs that the jobs of each tenant hold or are promised.
fn used(round: &RoundState<'_>, fixpoint: &RoundFixpoint) -> Vec<u32> {
    let mut used = vec![0; round.held.len()];
    for (member, job) in round.problem.jobs.iter().enumerate() {
        let held = fixpoint.decision.holds(&round.problem, member);
        used[job.tenant as usize] += problem::gpus_of(held);
    }
    used
}

/// GPUs that no task holds, on nodes that take new tasks: those that are not withheld, and those on
/// which suspended programs keep memory.
fn unheld_gpus(round: &RoundState<'_>, allowed: &JobNodes) -> (u32, u32) {
    let mut unheld: Vec<u64> = round.empty.iter().map(|node| node.now).collect();
    for live in &round.jobs {
        for held in live.holdings.iter().chain(&live.leaving) {
            unheld[held.node as usize] &= !held.gpus;
        }
    }
    let nodes = round.free.iter().zip(unheld);
    let there = nodes.filter(|(node, _)| allowed.contains(node.index));
    there.fold((0, 0), |(given, withheld), (node, gpus)| {
        let occupied = (gpus & node.withheld).count_ones();
        (given + gpus.count_ones() - occupied, withheld + occupied)
    })
}

/// Jobs for which GPUs are reserved or promised: for a time slice, a restart or a start.
fn kept_for(round: &RoundState<'_>, fixpoint: &RoundFixpoint) -> Vec<JobId> {
    let owner = round.reserved.as_ref().map(|(owner, _)| *owner);
    let jobs = round.jobs.iter().enumerate().filter(|(index, live)| {
        owner == Some(*index)
            || live.destination.is_some()
            || live
                .member
                .is_some_and(|member| fixpoint.promised.contains_key(&member))
    });
    jobs.map(|(_, live)| live.job.id).collect()
}

struct WaitExplainer<'e, 'a> {
    round: &'e RoundState<'a>,
    fixpoint: &'e RoundFixpoint,
    reach: &'e ReachableGpus,
    /// GPUs that the jobs of each tenant hold or are promised.
    used: &'e [u32],
}

impl WaitExplainer<'_, '_> {
    fn why(&self, index: usize) -> Wait {
        let live = &self.round.jobs[index];
        let not_before_ms = live.not_before_ms;
        if not_before_ms.is_some_and(|at| at >= AFTER_JOBS_UNIX_MS) {
            return match live.job.array_limit {
                Some(limit) if live.job.after.is_empty() => Wait::WaitingForArray { limit },
                _ => Wait::WaitingForJobs {
                    jobs: live.job.after.clone(),
                },
            };
        }
        if let Some(until_unix_ms) = not_before_ms.filter(|&at| at > self.round.now_ms) {
            return Wait::BackingOff {
                until_unix_ms,
                refused: self.refused(live),
            };
        }
        if live.job.is_cpu_only() {
            return self.lacks_cpu_or_memory(live);
        }
        let Some(member) = live.member else {
            return Wait::NotConsidered;
        };
        if let Some(promised) = self.fixpoint.promised.get(&member) {
            return Wait::WaitingForPreemptedWorkloads {
                jobs: self.stopping(promised),
            };
        }
        let needed_gpus = live.shape.min_gpus();
        let quota = self.round.quota(live);
        if let Some(quota_gpus) = quota.filter(|&quota| needed_gpus > quota) {
            return Wait::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            };
        }
        if let Some(never) = self.never_fits(live) {
            return never;
        }
        let used_gpus = self.used[live.tenant as usize];
        if let Some(quota_gpus) = quota.filter(|&quota| used_gpus + needed_gpus > quota) {
            return Wait::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus,
            };
        }
        if let Some(&ahead) = self.fixpoint.behind.get(&member) {
            let free_gpus = self.reach.free_gpus + self.reach.kept_gpus;
            return Wait::WaitingForGpus {
                needed_gpus,
                free_gpus,
                kept_gpus: free_gpus,
                occupied_gpus: self.reach.occupied_gpus,
                held_by: vec![ahead],
                forbidden: self.free_elsewhere(live),
            };
        }
        if self.reach.free_gpus >= needed_gpus {
            return Wait::TopologyPlacementFailed {
                needed_gpus,
                free_gpus: self.reach.free_gpus,
                short: None,
            };
        }
        // GPUs reserved for this job are free to it, although they are not enough.
        let kept_gpus = self
            .reach
            .kept_gpus
            .saturating_sub(self.kept_for_itself(index));
        let free_gpus = self.reach.free_gpus + self.reach.kept_gpus;
        Wait::WaitingForGpus {
            needed_gpus,
            free_gpus,
            kept_gpus,
            occupied_gpus: self.reach.occupied_gpus,
            held_by: self.held_by(
                index,
                needed_gpus.saturating_sub(free_gpus - kept_gpus),
                kept_gpus,
            ),
            forbidden: self.free_elsewhere(live),
        }
    }

    /// Reason of a job without GPUs.
    fn lacks_cpu_or_memory(&self, live: &PlannedJob<'_>) -> Wait {
        let shape = &live.shape;
        let short = self.short(live);
        if short.is_some() {
            return Wait::TopologyPlacementFailed {
                needed_gpus: 0,
                free_gpus: self.reach.free_gpus,
                short,
            };
        }
        let nodes = self.fixpoint.free.iter().filter(|node| node.takes(shape));
        let (mut count, mut largest) = (0, HostCapacity::default());
        for node in nodes {
            let room = node.room(Availability::Now);
            largest.cpu_milli = largest.cpu_milli.max(room.cpu_milli);
            largest.memory_bytes = largest.memory_bytes.max(room.memory_bytes);
            count += 1;
        }
        Wait::WaitingForCpuAndMemory {
            workers: shape.workers.min,
            needed_milli: shape.worker.cpu_milli,
            needed_bytes: shape.worker.memory_bytes,
            largest_free_milli: u64::try_from(largest.cpu_milli).unwrap_or(0),
            largest_free_bytes: u64::try_from(largest.memory_bytes).unwrap_or(0),
            nodes: count,
            exceeds_cluster: count > 0 && !fits_empty(self.round, shape),
        }
    }

    /// Free GPUs on nodes that the job's constraints exclude.
    fn free_elsewhere(&self, live: &PlannedJob<'_>) -> Vec<ForbiddenGpus> {
        let counted = GpusCounted::Free(&self.fixpoint.free);
        forbidden_gpus(self.round, live.job, counted)
    }

    fn kept_for_itself(&self, index: usize) -> u32 {
        match &self.round.reserved {
            Some((owner, kept)) if *owner == index => {
                kept.values().map(|gpus| gpus.count_ones()).sum()
            }
            _ => 0,
        }
    }

    /// The latest placement rejection; `None` if the job failed instead.
    fn refused(&self, live: &PlannedJob<'_>) -> Option<Refused> {
        let now = live.actions.iter().find_map(|action| match action {
            Action::Stop { charge, .. } => Some(*charge),
            _ => None,
        });
        let times = match now {
            Some(Charge::Refusal) => refused_starts(live.job) + 1,
            Some(Charge::None | Charge::Failure) => 0,
            None => live.job.put_off,
        };
        let (node, message) = live.job.tasks.iter().find_map(|task| match &task.state {
            TaskState::Released {
                outcome: Outcome::Evicted { message, .. },
            } if is_refused(task) => Some((task.node, message)),
            _ => None,
        })?;
        let nodes = &self.round.snapshot.nodes;
        let name = nodes.iter().find(|one| one.id == node);
        (times > 0).then(|| Refused {
            node: name.map_or_else(|| node.to_string(), |one| one.name.clone()),
            message: message.clone(),
            times,
        })
    }

    /// Reason why the job could not start on the empty cluster.
    fn never_fits(&self, live: &PlannedJob<'_>) -> Option<Wait> {
        if fits_empty(self.round, &live.shape) {
            return None;
        }
        let round = self.round;
        let nodes = round.problem.nodes.iter().zip(&round.snapshot.nodes);
        let nodes: Vec<(&ProblemNode, &SnapshotNode)> = nodes
            .zip(&round.free)
            .filter_map(|(node, free)| free.suits(&live.shape).then_some(node))
            .collect();
        let cluster_gpus: u32 = nodes.iter().map(|(node, _)| node.gpus).sum();
        let of_a_task = nodes
            .iter()
            .map(|(node, of)| node.gpus.min(of.gpus_of_a_task()));
        let largest_node_gpus = of_a_task.max().unwrap_or(0);
        let (needed_gpus, per_worker) = (live.shape.min_gpus(), live.shape.worker.gpus);
        Some(if largest_node_gpus < per_worker {
            Wait::NoMatchingNodes {
                needed_gpus_per_worker: per_worker,
                largest_node_gpus,
                parts: nodes.iter().any(|(node, _)| node.gpus >= per_worker),
                pods: live.shape.pods,
                image: live.job.image && !live.shape.pods,
                forbidden: forbidden_gpus(round, live.job, GpusCounted::All),
            }
        } else if cluster_gpus < needed_gpus {
            Wait::ExceedsCluster {
                needed_gpus,
                cluster_gpus,
                forbidden: forbidden_gpus(round, live.job, GpusCounted::All),
            }
        } else {
            Wait::TopologyPlacementFailed {
                needed_gpus,
                free_gpus: self.reach.free_gpus,
                short: self.short(live),
            }
        })
    }

    /// Resource of which one worker needs more than any open node has.
    fn short(&self, live: &PlannedJob<'_>) -> Option<Short> {
        let nodes = self.round.snapshot.nodes.iter().zip(&self.round.free);
        let nodes: Vec<&SnapshotNode> = nodes
            .filter(|(node, free)| node.is_open() && free.suits(&live.shape))
            .map(|(node, _)| node)
            .collect();
        let largest_node_bytes = nodes.iter().map(|node| node.memory_bytes).max()?;
        let largest_node_milli = nodes.iter().map(|node| node.cpu_milli).max()?;
        let (needed_bytes, needed_milli) =
            (live.shape.worker.memory_bytes, live.shape.worker.cpu_milli);
        if needed_bytes > largest_node_bytes {
            return Some(Short::Memory {
                needed_bytes,
                largest_node_bytes,
            });
        }
        (needed_milli > largest_node_milli).then_some(Short::Cpu {
            needed_milli,
            largest_node_milli,
        })
    }

    /// Jobs that stop or are about to be suspended and hold promised GPUs. If none holds any, all
    /// such jobs with resources: they release CPU, memory or quota.
    fn stopping(&self, promised: &[(u32, u64)]) -> Vec<JobId> {
        let jobs = self.round.jobs.iter();
        let stopping: Vec<&PlannedJob<'_>> = jobs
            .filter(|live| stops(live) || !live.leaving.is_empty())
            .collect();
        let jobs: Vec<JobId> = stopping
            .iter()
            .filter(|live| vacates(live, promised))
            .map(|live| live.job.id)
            .collect();
        if !jobs.is_empty() {
            return jobs;
        }
        stopping
            .iter()
            .filter(|live| !live.holdings.is_empty() || !live.leaving.is_empty())
            .map(|live| live.job.id)
            .collect()
    }

    /// Jobs for which free GPUs are reserved, then the largest holders that cover the missing GPUs.
    /// The list stays short on a large cluster.
    fn held_by(&self, index: usize, missing_gpus: u32, kept_gpus: u32) -> Vec<JobId> {
        let mut sum = kept_gpus;
        let own = self.round.jobs[index].job.id;
        let kept_for = self.reach.kept_for.iter().copied();
        let kept_for = kept_for.filter(|job| kept_gpus > 0 && *job != own);
        let mut held_by: Vec<JobId> = kept_for.take(MOST_AHEAD).collect();
        for &(Reverse(held), job) in &self.reach.holders {
            if sum >= missing_gpus {
                break;
            }
            sum += held;
            if !held_by.contains(&job) {
                held_by.push(job);
            }
        }
        held_by
    }
}

/// Whether the job stops, or is about to be suspended and still holds GPUs.
fn stops(live: &PlannedJob<'_>) -> bool {
    match live.state.phase() {
        JobPhase::Stopping => true,
        JobPhase::Suspended => gpus_of(&live.holdings) > 0,
        _ => false,
    }
}

/// Whether tasks of the job that end hold any of these GPUs, given by node.
fn vacates(live: &PlannedJob<'_>, gpus: &[(u32, u64)]) -> bool {
    let stops = stops(live);
    let holdings = live.holdings.iter().filter(|_| stops);
    holdings.chain(&live.leaving).any(|held| {
        let mut there = gpus.iter().filter(|(node, _)| *node == held.node);
        there.any(|(_, gpus)| gpus & held.gpus != 0)
    })
}
