//! Jobs of the snapshot: the decisive part of the document, the tasks and the measurements.

use super::{PastDuration, Restarts, SnapshotNode, TrainingLength, is_false};
use crate::estimate::Gains;
use crate::learn::Observation;
use muster_model::id::{JobId, NodeId, StudyId, TaskId, TenantId};
use muster_model::idle::Idleness;
use muster_model::job::{Intent, JobState};
use muster_model::node::GpuClass;
use muster_model::pace::{Pace, Watch};
use muster_model::packing::Measured;
use muster_model::service::DEMOTED_GPU_S;
use muster_model::spec::{
    AllowedPreemption, Consistency, Convergence, Ends, NodeConstraints, Preemption,
    PsShardResources, Range, WorkerDemand,
};
use muster_model::task::{Role, TaskState};
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotJob {
    pub id: JobId,
    pub tenant: TenantId,
    pub name: String,
    /// Number from -100 to 100; a higher one precedes a lower one in the whole cluster.
    pub priority: i32,
    /// Name of its priority class in the document; the class may have been deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    pub submitted_ms: i64,
    pub intent: Intent,
    pub state: JobState,
    /// Version of the task set: 0 before the first start, +1 at each start and each resize in
    /// place.
    pub revision: u64,
    /// Restarts that were charged to `retries`.
    pub failures: u32,
    /// Number of consecutive placement rejections: nodes refused the start of the job, or its
    /// growth while it runs. Rejections are not charged to `retries`.
    #[serde(default, skip_serializing_if = "is_never")]
    pub put_off: u32,
    /// Maximum number of charged failures; one more fails the job.
    pub retries: u32,
    pub not_before_ms: Option<i64>,
    /// Jobs after which it starts. While some of them have not ended, `not_before_ms` is
    /// [`AFTER_JOBS_UNIX_MS`](muster_model::spec::AFTER_JOBS_UNIX_MS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<JobId>,
    /// Maximum number of jobs of its array that may run; `None` without an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_limit: Option<u32>,
    pub workers: Range,
    pub ps_shards: Range,
    /// Whether the number of workers must be a power of two.
    #[serde(default, skip_serializing_if = "is_false")]
    pub power_of_two: bool,
    pub worker: WorkerDemand,
    pub ps_shard: PsShardResources,
    /// Whether the tasks must be pods, because they have their own volumes or secrets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pods: bool,
    /// Whether the tasks run in an image of their own, as pods or on nodes that run images.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image: bool,
    /// Constraints on the nodes of the tasks.
    #[serde(default, skip_serializing_if = "NodeConstraints::is_empty")]
    pub constraints: NodeConstraints,
    pub consistency: Consistency,
    /// Examples per step over all workers. If the batch grows with the workers, this is the batch
    /// of the smallest number of workers. If the coordinator chooses it, this is the smallest.
    pub batch: u32,
    /// State of the adaptive batch; `None` if the batch is constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Tasks of the present revision, released tasks included.
    pub tasks: Vec<SnapshotTask>,
    /// Tasks of earlier revisions that a resize in place stops and that still hold their resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<SnapshotTask>,
    /// Whether the tasks can continue while other tasks join or leave.
    #[serde(default)]
    pub in_place: bool,
    /// Whether each shard has a replica, so that the job survives the loss of one shard.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replicated: bool,
    /// Whether the workers can be suspended and resumed while other jobs use their GPUs
    /// ([`super::ClusterSnapshot::leave_pods_out_of_turns`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspends: bool,
    /// Whether the job is kept out of time slicing, packing and defragmentation, and is not stopped
    /// for jobs of equal or lower priority.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclusive: bool,
    /// Whether and when the job makes room for other jobs.
    #[serde(default, skip_serializing_if = "Preemption::is_default")]
    pub preemption: Preemption,
    /// Last checkpoint that a user's program has reported; `None` also for the built-in engine,
    /// which writes a checkpoint when it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportedCheckpoint>,
    /// Milliseconds from the newest request for a checkpoint to its report; `None` if the job was
    /// not asked or its program reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms: Option<u64>,
    /// Seconds of work that the job has lost because it was stopped for other jobs.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub lost_s: f64,
    /// Whether the job runs on GPUs reserved for the time slice of another job. It yields to that
    /// slice before its own has expired.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lent: bool,
    /// For a trial of a study: its expected gain, compared with the study's other trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<StudyMembership>,
    /// Source and time of the present intent; `None` until an intent is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<IntentOrigin>,
    /// Time of the last suspension or resumption in the present revision, or of the return to the
    /// queue. Unix ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_ms: Option<i64>,
    /// For a job that runs a user's program: the workers whose end ends the job. `None` for the
    /// built-in engine, which reports its end itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Ends>,
    /// Maximum training time in seconds of a job that runs a user's program. The built-in engine
    /// enforces its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_s: Option<f64>,
    /// Report of the present revision that the job is done.
    pub finished: Option<Finished>,
    /// Report of the present revision that it cannot continue.
    pub failed: Option<FailedReport>,
    /// Nodes that lack something the program needs; the job is placed on other nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<NodeId>,
    pub progress: Progress,
    /// Mean speed at each size at which the job has run.
    pub speeds: Vec<SpeedPoint>,
    /// Mean speed on each GPU kind and placement on which the job has run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed_speeds: Vec<Observation>,
    /// Key of the job's family, if something is known of it
    /// ([`ClusterSnapshot::families`](super::ClusterSnapshot::families)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Total training time of the job in seconds.
    pub trained_s: f64,
    /// GPU time that the job has held; `None` in rounds of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<SnapshotService>,
    /// Length of the job in seconds, if it is not defined by a number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<TrainingLength>,
    /// Steps and speed of earlier jobs with the same document. Set only in forecasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<PastDuration>,
    /// Start time of the present revision, Unix ms.
    pub placed_ms: Option<i64>,
    /// Time since which all tasks are up or resumed, Unix ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ms: Option<i64>,
    /// Measured costs of stops and starts so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// Wait reason that the owner sees at present.
    pub waiting: Option<Waiting>,
    /// Limits for hangs and stragglers; `None` if the ranks are not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Measured GPU use and speed of a job of one worker, alone and beside another job. Set only if
    /// packing is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Box<Measured>>,
}

/// Source and time of a job's intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentOrigin {
    /// Name of the user; `None` if a study stated the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at_ms: i64,
}

/// GPU time of a job over all its revisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotService {
    /// GPU-seconds that the job has held. A GPU that two jobs share counts for both.
    pub gpu_s: f64,
    /// Time at which `gpu_s` reached the threshold of Tiresias, Unix ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_ms: Option<i64>,
}

/// Membership of a job in a study.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyMembership {
    pub study: StudyId,
    /// Expected gain of more GPU time, from 0 (none) to 1.
    pub gain: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotTask {
    pub id: TaskId,
    pub role: Role,
    pub node: NodeId,
    pub gpus: Vec<u32>,
    /// Lane on its GPUs: 0, or 1 for a guest beside a host.
    #[serde(default, skip_serializing_if = "is_first")]
    pub lane: u32,
    pub state: TaskState,
    /// Pace as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Idleness of its program as last reported; `None` while it is active or not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idleness>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    pub step: u64,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedReport {
    pub message: String,
    /// `false` if a restart cannot help.
    pub retryable: bool,
    /// Missing part of the node, for example the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Optimizer steps over the whole life of the job.
    pub step: u64,
    pub steps_per_epoch: u64,
    /// Step at which the job ends at the latest; `None` if only time or convergence ends it.
    pub max_steps: Option<u64>,
    pub convergence: Option<Convergence>,
    /// Mean training loss of each completed epoch: (epoch, loss).
    pub epoch_losses: Vec<(u64, f64)>,
}

/// A checkpoint that a user's program has reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedCheckpoint {
    /// Step from which the program continues.
    pub step: u64,
    /// Time of the report, Unix ms.
    pub at_ms: i64,
}

/// Statistical efficiency of a job whose batch changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    /// Gradient noise scale as last measured, in batches of [`SnapshotJob::batch`] examples; `None`
    /// before the first measurement.
    pub noise: Option<f64>,
    /// Largest batch in examples, where the coordinator chooses the batch. `None`: the batch grows
    /// with the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<u32>,
}

/// A measured speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedPoint {
    pub workers: u32,
    pub ps_shards: u32,
    /// Updates per second if the batch grows with the workers, otherwise steps.
    pub steps_per_s: f64,
    /// Number of progress samples in the mean.
    pub samples: u64,
}

impl SnapshotJob {
    /// Adds the GPU time of the next `elapsed_s` seconds after `now_ms` to the service.
    pub fn serve(&mut self, now_ms: i64, elapsed_s: f64) {
        let gpus = f64::from(self.held_gpus());
        let Some(service) = &mut self.service else {
            return;
        };
        let left_gpu_s = DEMOTED_GPU_S - service.gpu_s;
        service.gpu_s += gpus * elapsed_s;
        if left_gpu_s > 0.0 && service.gpu_s >= DEMOTED_GPU_S {
            // The cast of a float saturates.
            service.demoted_ms = Some(now_ms + (left_gpu_s / gpus * 1_000.0) as i64);
        }
    }

    #[must_use]
    pub fn batch_grows_with_workers(&self) -> bool {
        let adaptive = self.adaptive.as_ref();
        adaptive.is_some_and(|adaptive| adaptive.max_batch.is_none())
    }

    /// Steps that one update with this number of workers is worth; above 1 only if the batch grows
    /// with the workers.
    #[must_use]
    pub fn gain(&self, workers: u32) -> f64 {
        Gains::of(self).at(workers)
    }

    /// Source of the present intent, for texts of reasons.
    #[must_use]
    pub fn asker(&self) -> &str {
        let by = self.asked.as_ref().and_then(|asked| asked.by.as_deref());
        by.unwrap_or(match self.trial {
            Some(_) => "its study",
            None => "its owner",
        })
    }

    /// Whether the job was resumed by an order (of its owner or its study) at or after its last
    /// suspension.
    #[must_use]
    pub fn was_continued(&self) -> bool {
        let asked = self.asked.as_ref().map(|asked| asked.at_ms);
        self.intent == Intent::Run && self.turned_ms.is_some() && asked >= self.turned_ms
    }

    /// GPUs of the smallest gang that can run.
    #[must_use]
    pub fn min_gpus(&self) -> u32 {
        self.workers.min.saturating_mul(self.worker.gpus)
    }

    /// Whether the workers use no GPUs. No policy decides on such a job.
    #[must_use]
    pub fn is_cpu_only(&self) -> bool {
        self.worker.gpus == 0
    }

    /// Whether the job takes time slices: its workers use GPUs, can be suspended, and may be
    /// suspended for other jobs.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        let could = self.suspends && !self.is_cpu_only();
        could && !self.exclusive && self.preemption.allowed != AllowedPreemption::Never
    }

    /// Whether the job has run for the `min_runtime` of its document since its last start or
    /// resumption.
    #[must_use]
    pub fn has_run_long_enough(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.slice_began_ms()) >= self.min_runtime_ms()
    }

    /// Milliseconds that the job runs after each start and each resumption before it makes room for
    /// another job.
    #[must_use]
    pub fn min_runtime_ms(&self) -> i64 {
        i64::from(self.preemption.min_runtime) * 1_000
    }

    /// Whether the job can have this number of workers under its power-of-two rule.
    #[must_use]
    pub fn may_have(&self, workers: u32) -> bool {
        !self.power_of_two || workers.is_power_of_two()
    }

    /// Time since which the job is in its present time slice or wait (running, starting, suspended
    /// or queued), Unix ms. A resize in place sets `placed_ms` but starts no new slice.
    #[must_use]
    pub fn slice_began_ms(&self) -> i64 {
        let since_ms = self.running_ms.or(self.placed_ms);
        let since_ms = since_ms.unwrap_or(self.submitted_ms);
        self.turned_ms.map_or(since_ms, |ms| ms.max(since_ms))
    }

    /// Time since which its workers can have reported, Unix ms: the begin of the slice, and for an
    /// elastic launcher the newest resize, at which it restarts its workers.
    #[must_use]
    pub fn workers_began_ms(&self) -> i64 {
        let began_ms = self.slice_began_ms();
        let resized_ms = self.placed_ms.filter(|_| self.restarts_in_place());
        resized_ms.map_or(began_ms, |ms| ms.max(began_ms))
    }

    /// Whether a resize in place leaves the remaining workers training. Only the built-in engine
    /// does that.
    #[must_use]
    pub fn trains_on(&self) -> bool {
        self.in_place && self.command.is_none()
    }

    /// Whether the tasks of a program continue at a resize, while their launcher restarts the
    /// workers from the program's checkpoint.
    #[must_use]
    pub fn restarts_in_place(&self) -> bool {
        self.in_place && self.command.is_some()
    }

    /// GPUs that the tasks hold.
    #[must_use]
    pub fn held_gpus(&self) -> u32 {
        self.held_tasks()
            .filter(|task| task.state.holds_gpus())
            .map(|task| u32::try_from(task.gpus.len()).unwrap_or(u32::MAX))
            .sum()
    }

    /// Tasks that have not been released, leaving tasks included. Suspended tasks hold only host
    /// memory.
    pub fn held_tasks(&self) -> impl Iterator<Item = &SnapshotTask> {
        let tasks = self.tasks.iter().chain(&self.leaving);
        tasks.filter(|task| !task.state.is_released())
    }

    /// Whether all workers that have not ended are suspended.
    #[must_use]
    pub fn are_workers_suspended(&self) -> bool {
        let tasks = self.tasks.iter();
        let mut workers = tasks
            .filter(|task| task.is_worker() && !task.state.is_released())
            .peekable();
        self.state == JobState::Suspended
            && workers.peek().is_some()
            && workers.all(|task| task.state == TaskState::Suspended)
    }

    /// Step from which the job would continue if it were stopped now.
    ///
    /// The built-in engine writes a checkpoint when it stops. A user's program keeps what it has
    /// reported. Without a report it counts as keeping nothing until it has once continued from a
    /// checkpoint. After that it is expected to lose the mean number of steps it lost before.
    #[must_use]
    pub fn resumable_step(&self) -> u64 {
        if self.command.is_none() {
            return self.progress.step;
        }
        let reported = self.reported.map_or(0, |reported| reported.step);
        let known = self.restarts.unwrap_or_default();
        if known.resumed == 0 {
            return reported.min(self.progress.step);
        }
        let lost = known.lost_steps / f64::from(known.resumed);
        // The cast of a float saturates.
        let usual = self.progress.step.saturating_sub(lost.max(0.0) as u64);
        usual.max(reported).min(self.progress.step)
    }

    /// Bytes that the job needs on each of its GPUs: the larger one of what its document states and
    /// what was measured. `None` if neither is known.
    #[must_use]
    pub fn needed_gpu_bytes(&self) -> Option<u64> {
        let measured = self.measured.as_deref().and_then(|known| known.peak_bytes);
        measured.max(self.constraints.gpu_memory_bytes)
    }

    /// Bytes that the job keeps on each of its GPUs of a node while it is suspended; `None` if that
    /// is unknown. The built-in engine keeps none, and CPU slots have no memory of their own.
    #[must_use]
    pub fn kept_gpu_bytes(&self, node: &SnapshotNode) -> Option<u64> {
        let has_own_memory = matches!(node.gpu_class(), Some(GpuClass::Gpu | GpuClass::Part));
        if self.command.is_none() || !has_own_memory {
            return Some(0);
        }
        let measured = self.measured.as_deref().filter(|known| known.stands);
        match measured.and_then(|known| known.memory_bytes) {
            Some(bytes) => Some(bytes),
            None if node.driver_suspend => Some(0),
            None => self.needed_gpu_bytes(),
        }
    }

    /// Marks the last measurements as current at `now_ms`, because a simulated future has no
    /// reports.
    pub fn refresh_measurements(&mut self, now_ms: i64) {
        let Some(known) = &mut self.measured else {
            return;
        };
        if known.told_ms.is_some() {
            known.told_ms = Some(now_ms);
        }
        let beside = known.company.map(|company| company.job);
        let pair = known.together.iter_mut();
        for pair in pair.filter(|pair| Some(pair.job) == beside) {
            pair.last_ms = now_ms;
        }
    }

    /// Whether a resize in place is in progress: a task has still to leave or to join.
    #[must_use]
    pub fn is_resizing(&self) -> bool {
        self.state == JobState::Running && (!self.leaving.is_empty() || self.has_joining_tasks())
    }

    /// Value of [`put_off`](Self::put_off) once the joining tasks are up. It is 0 if a growth is in
    /// progress, because a completed growth ends the series of rejections. The store counts
    /// likewise.
    #[must_use]
    pub fn put_off_when_up(&self) -> u32 {
        if self.state == JobState::Running && self.has_joining_tasks() {
            0
        } else {
            self.put_off
        }
    }

    fn has_joining_tasks(&self) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|task| task.state == TaskState::Assigned)
    }

    /// Workers and shards of the present revision, up or not.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        size(self.tasks.iter())
    }

    /// Workers and shards that are up. The job trains with these while others still join.
    #[must_use]
    pub fn up_size(&self) -> (u32, u32) {
        size(self.tasks.iter().filter(|task| task.is_up()))
    }
}

impl SnapshotTask {
    #[must_use]
    pub fn is_worker(&self) -> bool {
        matches!(self.role, Role::Worker { .. })
    }

    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == TaskState::Running
    }
}

fn size<'t>(tasks: impl Iterator<Item = &'t SnapshotTask>) -> (u32, u32) {
    tasks.fold((0, 0), |(workers, shards), task| match task.role {
        Role::Worker { .. } => (workers + 1, shards),
        Role::PsShard { .. } => (workers, shards + 1),
    })
}

fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

fn is_never(times: &u32) -> bool {
    *times == 0
}

fn is_first(lane: &u32) -> bool {
    *lane == 0
}
