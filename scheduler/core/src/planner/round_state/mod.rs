//! Dense state of the cluster during a round: free resources, state of each job, and the problem
//! that the policy sees.
//!
//! It is built once from a snapshot. Starts and stops change it in place, so a pass or a trial
//! costs only as much as it changes.

mod build;
mod dense;
mod destinations;
mod hidden_gpus;
mod index;
mod jobs_by_gpu;
mod node_sets;
mod packed_pairs;
mod resumption;

use super::free::{FreeNode, Holding, NodeGpuMasks, gpus_of};
use super::gang::GangPlacement;
use super::learned::Learned;
use super::observations::once_gone;
use super::planned_job::PlannedJob;
use super::scaling_model::{JobScaling, Kinds};
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::policies::{PolicyCapabilities, SchedulingPolicy};
use crate::policy::Policy;
use crate::problem::{self, SchedulingProblem};
use crate::report::MoveReport;
use crate::snapshot::ClusterSnapshot;
pub(crate) use dense::dense_node;
pub(crate) use index::NodeIndex;
use jobs_by_gpu::JobsByGpu;
use muster_model::id::StudyId;
use muster_model::plan::PreemptionCost;
use node_sets::NodeSetTable;
pub(crate) use resumption::cpu_of_workers;
use std::cell::OnceCell;

pub(crate) struct RoundState<'a> {
    pub snapshot: &'a ClusterSnapshot,
    pub policy: &'a Policy,
    pub scheduling_policy: Box<dyn SchedulingPolicy>,
    pub capabilities: PolicyCapabilities,
    pub now_ms: i64,
    pub kinds: Kinds,
    /// Sets of nodes on which jobs may run.
    pub node_sets: NodeSetTable,
    /// Measured speeds by GPU kind and placement.
    pub learned: Learned,
    pub free: Vec<FreeNode>,
    /// Free resources of the empty cluster.
    pub empty: Vec<FreeNode>,
    /// In the order of the snapshot.
    pub jobs: Vec<PlannedJob<'a>>,
    /// Whether any job uses no GPUs. Rounds without such jobs look for none.
    pub has_cpu_only: bool,
    pub problem: SchedulingProblem,
    /// Ids of the studies that jobs are trials of, ascending.
    studies: Vec<StudyId>,
    /// Index in `jobs` of each job of the problem (member).
    pub members: Vec<usize>,
    /// GPUs that the jobs of each tenant hold, including those of stopping tasks.
    pub held: Vec<u32>,
    /// Whether each job would fit the empty cluster; computed at first use.
    pub could_run: OnceCell<Vec<bool>>,
    /// Owner (index in `jobs`) and GPUs by node of the reservation for the next time slice.
    pub reserved: Option<(usize, NodeGpuMasks)>,
    /// Reserved GPUs that may be lent until that time slice begins.
    pub lendable: NodeGpuMasks,
    /// Journal of a trial: previous state of each changed job.
    pub journal: Option<Vec<(usize, PlannedJob<'a>, Option<problem::ProblemJob>)>>,
    /// Migrations that this round has begun, for the report.
    pub moves: Vec<MoveReport>,
    /// GPUs that a guest keeps once its host has left, by node.
    pub inherited: NodeGpuMasks,
    /// GPUs that are reserved as destinations of moving jobs, by node.
    pub kept: NodeGpuMasks,
    /// GPUs that the policy does not see, by node.
    pub hidden: NodeGpuMasks,
    /// Jobs on the GPUs that are shared or may be shared.
    pub seats: JobsByGpu,
}

impl<'a> RoundState<'a> {
    /// Adds a job to the policy's problem, for example after its suspension.
    pub(crate) fn enlist(&mut self, index: usize) {
        assert!(
            self.journal.is_none(),
            "members are told apart by their places in a trial"
        );
        let live = &self.jobs[index];
        if live.member.is_some() || live.job.is_cpu_only() {
            return;
        }
        // Members are in order of submission, as in the next round.
        let at = self.members.partition_point(|&other| other < index);
        self.members.insert(at, index);
        for (member, &other) in self.members.iter().enumerate().skip(at) {
            self.jobs[other].member = Some(member);
        }
        let live = &mut self.jobs[index];
        let step = live.job.progress.step;
        let workers = match &live.destination {
            Some(placed) => placed.size().0,
            None if live.scheduling_state.stays() => live.size.0,
            None => 0,
        };
        live.sizing = JobScaling::of(&live.estimate, &live.shape, step, workers, &self.kinds);
        let dense = self.dense(index);
        self.problem.jobs.insert(at, dense);
    }

    /// Starts a job on a placement.
    pub(crate) fn start(&mut self, index: usize, placed: &GangPlacement, why: String) {
        self.remember(index);
        let now_ms = self.now_ms;
        // A trial needs only the start itself. Nodes that the trial added are not in the snapshot.
        let tasks = match &self.journal {
            Some(_) => Vec::new(),
            None => placed.tasks(&self.snapshot.nodes),
        };
        let lent = self.lend(placed.workers.iter().copied());
        let live = &mut self.jobs[index];
        live.take(Action::Start { tasks, why, lent }, now_ms);
        live.holdings = placed.holdings(&live.shape);
        live.size = placed.size();
        live.placed_ms = Some(now_ms);
        live.revision += 1;
        self.held[live.tenant as usize] += gpus_of(&live.holdings);
        for held in &live.holdings {
            self.free[held.node as usize].hold(held);
        }
        let gpus = live.holdings.iter().map(|held| (held.node, held.gpus));
        let gpus: NodeGpuMasks = gpus.collect();
        self.reveal(&gpus);
        self.hide_cpu_of(index);
        self.refresh(index);
    }

    /// Records what a stop for another job costs, before the stop that was just decided.
    pub(crate) fn record_cost(&mut self, index: usize, cost: Option<PreemptionCost>) {
        let actions = &mut self.jobs[index].actions;
        if let (Some(cost), Some(Action::Stop { .. })) = (cost, actions.last()) {
            let before = actions.len() - 1;
            actions.insert(before, Action::Displace { cost });
        }
    }

    /// Stops a running job.
    pub(crate) fn stop(&mut self, index: usize, mut action: Action) {
        self.remember(index);
        let was_charged = self.uninvite(index);
        self.undo_resumption(index);
        if let Action::Stop { charge, .. } = &mut action {
            *charge = was_charged.max(*charge);
        }
        self.unpair(index);
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.take(action, now_ms);
        live.is_resizing = false;
        // The next start uses the owner's range, however few tasks the job had last.
        live.shape.workers = live.job.workers;
        for held in &live.holdings {
            self.free[held.node as usize].release_later(held);
        }
        let step = live.job.progress.step;
        live.sizing = JobScaling::of(&live.estimate, &live.shape, step, 0, &self.kinds);
        let gpus = live.holdings.iter().map(|held| (held.node, held.gpus));
        let gpus: NodeGpuMasks = gpus.collect();
        self.hide_again(&gpus);
        self.show_cpu_of(index);
        self.refresh(index);
        self.keep_excluded();
    }

    /// In a trial: the tasks of a stopping job have ended.
    pub(crate) fn release(&mut self, index: usize) {
        self.remember(index);
        let (policy, now_ms) = (self.policy, self.now_ms);
        let live = &mut self.jobs[index];
        (live.state, live.not_before_ms) = once_gone(live, policy, now_ms);
        live.scheduling_state = SchedulingState::of(&live.state, live.not_before_ms, now_ms);
        let holdings = std::mem::take(&mut live.holdings);
        self.held[live.tenant as usize] -= std::mem::take(&mut live.shared);
        self.give_back(index, &holdings);
        self.part_with(index);
        let live = &self.jobs[index];
        let is_seen = live.scheduling_state.waits() && !live.job.is_cpu_only();
        if is_seen && live.member.is_none() {
            self.jobs[index].member = Some(self.members.len());
            let dense = self.dense(index);
            self.problem.jobs.push(dense);
            self.members.push(index);
        }
        self.refresh(index);
    }

    pub(crate) fn give_back(&mut self, index: usize, holdings: &[Holding]) {
        let live = &self.jobs[index];
        self.held[live.tenant as usize] -= gpus_of(holdings);
        for held in holdings {
            let not_free = [&self.inherited, &self.kept].iter().fold(0, |gpus, of| {
                gpus | of.get(&held.node).copied().unwrap_or(0)
            });
            self.free[held.node as usize].give_back_but(held, not_free);
        }
    }

    /// Removes GPUs from the lendable ones. Returns whether any of them was lendable.
    pub(crate) fn lend(&mut self, gpus: impl Iterator<Item = (u32, u64)>) -> bool {
        let mut lent = false;
        for (node, gpus) in gpus {
            let Some(there) = self.lendable.get_mut(&node) else {
                continue;
            };
            lent |= *there & gpus != 0;
            *there &= !gpus;
            let kept = self.reserved.as_mut();
            if let Some(kept) = kept.and_then(|(_, kept)| kept.get_mut(&node)) {
                *kept &= !gpus;
            }
        }
        lent
    }

    /// Free resources for a job that yields to the time slice for which GPUs are reserved.
    pub(crate) fn with_lendable(&self, free: &[FreeNode]) -> Vec<FreeNode> {
        let mut free = free.to_vec();
        for (&node, gpus) in &self.lendable {
            free[node as usize].now |= gpus;
        }
        free
    }

    /// Records the state of a job for the end of a trial.
    pub(crate) fn remember(&mut self, index: usize) {
        if let Some(journal) = &mut self.journal {
            let live = self.jobs[index].clone();
            let dense = live.member.map(|member| self.problem.jobs[member].clone());
            journal.push((index, live, dense));
        }
    }

    /// Updates the job in the policy's problem.
    pub(crate) fn refresh(&mut self, index: usize) {
        if let Some(member) = self.jobs[index].member {
            self.problem.jobs[member] = self.dense(index);
        }
    }

    pub(crate) fn quota(&self, live: &PlannedJob<'_>) -> Option<u32> {
        self.problem.tenants[live.tenant as usize].gpu_quota
    }
}
