//! A job during the round.

use super::free::{Holding, HostCapacity, NodeGpuMasks, bits, gpus_of};
use super::gang::{GangPlacement, GangShape};
use super::restart_times::RestartTimes;
use super::scaling_model::JobScaling;
use super::scheduling_state::SchedulingState;
use crate::estimate::Estimate;
use crate::plan::Action;
use crate::snapshot::SnapshotJob;
use muster_model::id::TaskId;
use muster_model::job::JobState;
use muster_model::spec::Range;
use muster_model::task::Role;

/// A job, with the decisions of the round so far and their effects.
#[derive(Debug, Clone)]
pub(crate) struct PlannedJob<'a> {
    pub job: &'a SnapshotJob,
    pub tenant: u32,
    pub priority: i32,
    pub state: JobState,
    pub scheduling_state: SchedulingState,
    pub not_before_ms: Option<i64>,
    /// Decisions so far, in order.
    pub actions: Vec<Action>,
    pub shape: GangShape,
    pub estimate: Estimate,
    /// Stops and starts from which the cost of a restart is estimated: those of the job, else of
    /// its family, else of other jobs.
    pub restart_times: RestartTimes,
    pub sizing: JobScaling,
    pub placed_ms: Option<i64>,
    pub revision: u64,
    /// Holdings of the unreleased tasks that stay.
    pub holdings: Vec<Holding>,
    /// Holdings of tasks that leave by a resize in place.
    pub leaving: Vec<Holding>,
    /// Reserved destination of a moving job, until it has stopped.
    pub destination: Option<GangPlacement>,
    /// Holdings of tasks that join by a resize of this round.
    pub joining: Vec<Holding>,
    /// Tasks that leave by a resize of this round.
    pub leaving_tasks: Vec<TaskId>,
    /// Whether a task has still to leave or to join. Nothing else is decided for the job meanwhile.
    pub is_resizing: bool,
    /// Node index of each task of the job in the snapshot.
    pub places: Vec<u32>,
    /// Workers and shards of the newest revision.
    pub size: (u32, u32),
    /// Index in the problem.
    pub member: Option<usize>,
    /// Host whose GPU the job shares as a guest. A guest holds no GPU, and the policy does not see
    /// it, because the policy knows only whole GPUs.
    pub host: Option<usize>,
    /// Guest that shares the job's GPU.
    pub guest: Option<usize>,
    /// GPUs that count against the tenant's quota in addition to the job's own.
    pub shared: u32,
}

impl PlannedJob<'_> {
    /// GPUs that count against the tenant's quota.
    pub(crate) fn charged(&self) -> u32 {
        gpus_of(&self.holdings) + self.shared
    }

    /// Milliseconds since the job was placed.
    pub(crate) fn ran_ms(&self, now_ms: i64) -> u64 {
        let since_ms = self.placed_ms.unwrap_or(i64::MIN);
        u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0)
    }

    /// Whether the owner's present range allows this size.
    pub(crate) fn allows_size(&self, (workers, ps_shards): (u32, u32)) -> bool {
        is_within(self.job.workers, workers) && is_within(self.job.ps_shards, ps_shards)
    }

    /// Name of the job in texts for a job of `tenant`: names of other tenants' jobs are not shown.
    pub(crate) fn named_to(&self, tenant: u32) -> &str {
        if self.tenant == tenant {
            &self.job.name
        } else {
            "another tenant's job"
        }
    }

    /// Records a decision and applies its transition.
    ///
    /// # Panics
    /// If the state does not allow the transition. The planner is then wrong, and nothing of its
    /// plan may be carried out.
    pub(crate) fn take(&mut self, action: Action, now_ms: i64) {
        if let Some(event) = action.event() {
            let state = std::mem::replace(&mut self.state, JobState::Queued);
            self.state = state
                .apply(event)
                .unwrap_or_else(|refused| panic!("job {}: {refused}", self.job.id));
        }
        self.scheduling_state = SchedulingState::of(&self.state, self.not_before_ms, now_ms);
        self.actions.push(action);
    }

    /// GPUs that the workers were given, whether they hold them now or not.
    pub(crate) fn home(&self) -> NodeGpuMasks {
        let mut home = NodeGpuMasks::new();
        for (task, node) in self.job.tasks.iter().zip(&self.places) {
            if task.is_worker() && !task.state.is_released() {
                *home.entry(*node).or_default() |= bits(&task.gpus);
            }
        }
        home
    }

    /// Node and GPU of a job that has one task on one GPU.
    pub(crate) fn seat(&self) -> Option<(u32, u32)> {
        let [task] = self.job.tasks.as_slice() else {
            return None;
        };
        match (task.gpus.as_slice(), self.places.as_slice()) {
            (&[gpu], &[node]) if self.job.leaving.is_empty() => Some((node, gpu)),
            _ => None,
        }
    }
}

pub(crate) fn room_of(job: &SnapshotJob, role: Role) -> HostCapacity {
    match role {
        Role::Worker { .. } => HostCapacity::worker(&job.worker),
        Role::PsShard { .. } => HostCapacity::shard(&job.ps_shard),
    }
}

fn is_within(range: Range, count: u32) -> bool {
    (range.min..=range.max).contains(&count)
}
