//! Builds the dense state from a snapshot: held and free resources, and the members of the problem.

use super::RoundState;
use super::dense::dense_node;
use super::destinations::destination;
use super::index::{NodeIndex, TenantIndex};
use super::jobs_by_gpu::JobsByGpu;
use super::node_sets::NodeSetTable;
use super::packed_pairs::{PackedJob, PackedPairs};
use crate::plan::Action;
use crate::planner::estimate_cache::EstimateCache;
use crate::planner::free::{FreeNode, Holding, HostCapacity, NodeGpuMasks, bits, gpus_of};
use crate::planner::gang::{GangShape, add};
use crate::planner::learned::Learned;
use crate::planner::observations::{ObservedJob, apply_observations, done_workers};
use crate::planner::planned_job::{PlannedJob, room_of};
use crate::planner::scaling_model::Kinds;
use crate::planner::scheduling_state::SchedulingState;
use crate::planner::time::seconds;
use crate::policy::Policy;
use crate::problem::{self, SchedulingProblem};
use crate::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotNode, SnapshotTask};
use muster_model::id::{StudyId, TaskId, TenantId};
use muster_model::job::JobState;
use muster_model::spec::Range;
use muster_model::task::Role;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

impl<'a> RoundState<'a> {
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        policy: &'a Policy,
        memory: &mut EstimateCache,
    ) -> Self {
        let scheduling_policy = policy.share.policy();
        let kinds = Kinds::of(&snapshot.nodes);
        let racks = racks(&snapshot.nodes);
        let free: Vec<FreeNode> = (0_u32..)
            .zip(&snapshot.nodes)
            .map(|(at, node)| FreeNode::empty(node, at, (kinds.index(node), rack_of(&racks, node))))
            .collect();
        let mut round = Self {
            snapshot,
            policy,
            capabilities: scheduling_policy.capabilities(),
            scheduling_policy,
            now_ms: snapshot.now_ms,
            empty: free.clone(),
            free,
            jobs: Vec::with_capacity(snapshot.jobs.len()),
            problem: SchedulingProblem {
                now_s: seconds(snapshot.now_ms),
                round_s: 1.0,
                kinds: kinds.names(),
                history_gpu_s: snapshot.history_gpu_s.clone(),
                ..SchedulingProblem::default()
            },
            kinds,
            node_sets: NodeSetTable::new(snapshot),
            learned: Learned::of(snapshot, policy),
            studies: studies(snapshot),
            members: Vec::new(),
            held: Vec::new(),
            could_run: OnceCell::new(),
            reserved: None,
            lendable: NodeGpuMasks::new(),
            journal: None,
            has_cpu_only: snapshot.jobs.iter().any(SnapshotJob::is_cpu_only),
            moves: Vec::new(),
            inherited: NodeGpuMasks::new(),
            kept: NodeGpuMasks::new(),
            hidden: NodeGpuMasks::new(),
            seats: JobsByGpu::default(),
        };
        for (free, node) in round.free.iter_mut().zip(&snapshot.nodes) {
            free.fresh = recently_released(node, snapshot.now_ms, policy);
        }
        round.problem.nodes = snapshot
            .nodes
            .iter()
            .zip(&round.free)
            .map(|(node, free)| dense_node(node, (free.kind, free.rack)))
            .collect();
        let tenants = round.tenants();
        let nodes = NodeIndex::of(snapshot);
        memory.begin(policy);
        let settled = apply_observations(snapshot, policy);
        let pairs = PackedPairs::of(&settled, snapshot.now_ms);
        for settled in settled {
            let tenant = tenants.find(&mut round, settled.job.tenant);
            let place = (tenant, pairs.second(settled.job.id));
            round.add(settled, place, &nodes, memory);
        }
        memory.end();
        round.problem.node_sets = round.node_sets.sets.clone().into();
        round.join(&pairs);
        round.seats = JobsByGpu::of(&round, |id| nodes.find(id));
        round.reserve_destinations();
        round.hide_occupied_gpus();
        round.keep_excluded();
        round
    }

    /// Limits excluded and cordoned nodes in the problem to what running jobs hold there.
    pub(crate) fn keep_excluded(&mut self) {
        for (place, node) in self.snapshot.nodes.iter().enumerate() {
            if !(node.excluded || node.cordoned) || !node.up || node.drained {
                continue;
            }
            let stays = self
                .jobs
                .iter()
                .filter(|live| live.scheduling_state.stays());
            let held = stays.flat_map(|live| {
                live.holdings
                    .iter()
                    .filter(|held| held.node as usize == place)
            });
            self.problem.nodes[place].gpus = held.map(|held| held.gpus.count_ones()).sum();
        }
    }

    fn tenants(&mut self) -> TenantIndex {
        let mut index: Vec<(TenantId, u32)> = (0_u32..)
            .zip(&self.snapshot.tenants)
            .map(|(place, tenant)| (tenant.id, place))
            .collect();
        index.sort_unstable();
        for tenant in &self.snapshot.tenants {
            self.problem.tenants.push(problem::ProblemTenant {
                weight: tenant.weight,
                gpu_quota: tenant.gpu_quota,
                parent: None,
            });
            self.held.push(0);
        }
        TenantIndex(index)
    }

    /// Adds one job. `second` is set if a shared GPU counts for the other job of the pair: the job
    /// then holds only CPU and memory there.
    fn add(
        &mut self,
        settled: ObservedJob<'a>,
        (tenant, second): (u32, Option<&PackedJob>),
        nodes: &NodeIndex,
        memory: &mut EstimateCache,
    ) {
        let job = settled.job;
        let scheduling_state = settled.scheduling_state(self.now_ms);
        let left = left_of_a_command(job, scheduling_state);
        let shape = GangShape {
            workers: left.map_or_else(
                || range(job, scheduling_state),
                |left| Range {
                    min: left,
                    max: left,
                },
            ),
            ps_shards: job.ps_shards,
            power_of_two: job.power_of_two,
            worker: job.worker,
            ps_shard: job.ps_shard,
            pods: job.pods,
            nodes: self.node_sets.of(job, self.snapshot, (nodes, &self.kinds)),
        };
        let (leave, resized) = match settled.actions.last() {
            Some(Action::Resize { leave, .. }) => (leave.clone(), true),
            _ => (Vec::new(), false),
        };
        let (stay, leaving_now): (Vec<&SnapshotTask>, Vec<&SnapshotTask>) =
            job.tasks.iter().partition(|task| !leave.contains(&task.id));
        let kept = holdings(job, nodes, second, stay.into_iter());
        let leaving = job.leaving.iter().chain(leaving_now);
        let leaving = holdings(job, nodes, second, leaving);
        self.held[tenant as usize] += gpus_of(&kept) + gpus_of(&leaving);
        self.hold(scheduling_state, &kept, &leaving);
        if scheduling_state == SchedulingState::Suspended {
            let idle = leaves_when_suspended(job, &settled.state);
            self.keep_memory_of(holdings(job, nodes, second, idle));
        }
        let (workers, shards) = job.size();
        let workers = left.unwrap_or(workers);
        let (gone_workers, gone_shards) = count_tasks(job, &leave);
        let size = (workers - gone_workers, shards - gone_shards);
        let places = job.tasks.iter().map(|task| nodes.find(task.node));
        let destination = destination(job, &settled.state, |id| nodes.find(id));
        let present = match &destination {
            Some(placed) => placed.size().0,
            None if scheduling_state.stays() => size.0,
            None => 0,
        };
        let (estimate, sizing) = memory.recall(
            (job, self.learned.evidence(job)),
            self.policy,
            &shape,
            present,
            &self.kinds,
        );
        let index = self.jobs.len();
        let is_seen = (scheduling_state.stays() && second.is_none()) || scheduling_state.waits();
        let is_member = is_seen && !job.is_cpu_only();
        self.jobs.push(PlannedJob {
            job,
            tenant,
            priority: job.priority,
            state: settled.state,
            scheduling_state,
            not_before_ms: settled.not_before_ms,
            actions: settled.actions,
            shape,
            estimate,
            restart_times: self.learned.restart_times(job),
            sizing,
            placed_ms: if resized {
                Some(self.now_ms)
            } else {
                job.placed_ms
            },
            revision: job.revision + u64::from(resized),
            holdings: kept,
            is_resizing: scheduling_state == SchedulingState::Running
                && (!leaving.is_empty() || job.is_resizing()),
            leaving,
            destination,
            joining: Vec::new(),
            leaving_tasks: leave,
            places: places.map(|node| node.unwrap_or(u32::MAX)).collect(),
            size,
            member: is_member.then_some(self.members.len()),
            host: None,
            guest: None,
            shared: 0,
        });
        if scheduling_state.stays() {
            self.hide_cpu_of(index);
        }
        if is_member {
            let dense = self.dense(index);
            self.problem.jobs.push(dense);
            self.members.push(index);
        }
    }

    /// Subtracts what the tasks of a job hold. Resources of leaving tasks are free once these end.
    fn hold(&mut self, scheduling_state: SchedulingState, kept: &[Holding], leaving: &[Holding]) {
        let kept = kept.iter().map(|held| (held, !scheduling_state.stays()));
        for (held, goes) in kept.chain(leaving.iter().map(|held| (held, true))) {
            let node = &mut self.free[held.node as usize];
            node.hold(held);
            if goes && scheduling_state != SchedulingState::Suspended {
                node.release_later(held);
            }
        }
    }

    /// Marks GPUs and CPU of a job that is about to be suspended as free later; its memory stays
    /// held.
    fn keep_memory_of(&mut self, idle: Vec<Holding>) {
        for mut held in idle {
            held.room.memory_bytes = 0;
            self.free[held.node as usize].release_later(&held);
        }
    }
}

/// Workers and shards of the present revision among the tasks in `ids`.
fn count_tasks(job: &SnapshotJob, ids: &[TaskId]) -> (u32, u32) {
    let (mut workers, mut shards) = (0, 0);
    for task in job.tasks.iter().filter(|task| ids.contains(&task.id)) {
        match task.role {
            Role::Worker { .. } => workers += 1,
            Role::PsShard { .. } => shards += 1,
        }
    }
    (workers, shards)
}

/// Tasks of a job about to be suspended that still hold GPUs. These are free after the suspension.
fn leaves_when_suspended<'j>(
    job: &'j SnapshotJob,
    settled: &JobState,
) -> impl Iterator<Item = &'j SnapshotTask> {
    let tasks = match settled {
        JobState::Suspended => job.tasks.as_slice(),
        _ => &[],
    };
    tasks
        .iter()
        .filter(|task| task.is_worker() && task.state.holds_gpus())
}

/// Range of workers. A job outside of a changed range may keep its size; the stage
/// `range_enforcement` does the rest.
fn range(job: &SnapshotJob, scheduling_state: SchedulingState) -> Range {
    let (has, _) = job.size();
    if scheduling_state.stays() && has > 0 {
        Range {
            min: job.workers.min.min(has),
            max: job.workers.max.max(has),
        }
    } else {
        job.workers
    }
}

/// Remaining workers of a command of which some have ended. The job is not grown or completed,
/// because the ended workers would start from the beginning.
fn left_of_a_command(job: &SnapshotJob, scheduling_state: SchedulingState) -> Option<u32> {
    let done = done_workers(job);
    let left = job.size().0.saturating_sub(done);
    (scheduling_state.stays() && done > 0 && left > 0).then_some(left)
}

/// Resources of the tasks that have not been released. `second` is set if a shared GPU counts for
/// the other job of the pair.
fn holdings<'t>(
    job: &SnapshotJob,
    nodes: &NodeIndex,
    second: Option<&PackedJob>,
    tasks: impl Iterator<Item = &'t SnapshotTask>,
) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for task in tasks.filter(|task| !task.state.is_released()) {
        let Some(node) = nodes.find(task.node) else {
            continue;
        };
        add(
            &mut holdings,
            Holding {
                node,
                gpus: if task.state.holds_gpus() {
                    bits(&task.gpus)
                } else {
                    0
                },
                room: held_room(job, task),
            },
        );
    }
    if let Some(second) = second {
        second.yields(&mut holdings, |id| nodes.find(id));
    }
    holdings
}

/// CPU and memory of a task; a suspended task keeps memory and uses no CPU.
fn held_room(job: &SnapshotJob, task: &SnapshotTask) -> HostCapacity {
    let room = room_of(job, task.role);
    if task.state.holds_gpus() {
        room
    } else {
        HostCapacity {
            cpu_milli: 0,
            ..room
        }
    }
}

/// GPUs of a node that were released less than `grow_after_ms` ago, as a bit set.
fn recently_released(node: &SnapshotNode, now_ms: i64, policy: &Policy) -> u64 {
    let since_ms = now_ms.saturating_sub_unsigned(policy.grow_after_ms);
    let just_now = node.freed.iter().filter(|freed| freed.at_ms > since_ms);
    bits(&just_now.map(|freed| freed.gpu).collect::<Vec<_>>())
}

/// Rack numbers by name. All nodes without a rack have number 0: they are as near to each other as
/// nodes of one rack.
fn racks(nodes: &[SnapshotNode]) -> BTreeMap<&str, u32> {
    let names: BTreeSet<&str> = nodes
        .iter()
        .filter_map(|node| node.rack.as_deref())
        .collect();
    names.into_iter().zip(1..).collect()
}

fn rack_of(racks: &BTreeMap<&str, u32>, node: &SnapshotNode) -> u32 {
    let rack = node.rack.as_deref();
    rack.and_then(|name| racks.get(name).copied()).unwrap_or(0)
}

fn studies(snapshot: &ClusterSnapshot) -> Vec<StudyId> {
    let trials = snapshot.jobs.iter().filter_map(|job| job.trial);
    let studies: BTreeSet<StudyId> = trials.map(|trial| trial.study).collect();
    studies.into_iter().collect()
}
