//! Everything a round may know: nodes, tenants and jobs at one instant, in a fixed order.
//!
//! A round is replayed from this value alone, so whatever a decision depends on must be here or in the policy.

use crate::estimate::Gains;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, StudyId, TaskId, TenantId};
use muster_model::job::{Intent, JobState};
use muster_model::node::is_part;
use muster_model::pace::{Pace, Watch};
use muster_model::packing::Measured;
use muster_model::spec::{
    Consistency, Convergence, Ends, PsShardResources, Range, WorkerResources,
};
use muster_model::task::{Role, TaskState};
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};

/// One consistent view of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub round: u64,
    /// The instant of the snapshot, Unix time.
    pub now_ms: i64,
    pub nodes: Vec<Node>,
    pub tenants: Vec<Tenant>,
    /// Jobs that have not ended: all that hold anything or have an order to obey, and the first of those that wait.
    pub jobs: Vec<Job>,
    /// Tenants with more queued jobs than those in `jobs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// Queued jobs of one tenant that this round does not consider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub tenant: TenantId,
    /// Queued jobs of the tenant that the round considers.
    pub considered: u32,
    /// Queued jobs of the tenant beside these, as last counted.
    pub jobs: u32,
    /// Some of these whose reason to wait is not [`Wait::BehindEarlierJobs`](muster_model::wait::Wait::BehindEarlierJobs) yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Untold>,
}

/// A job outside of the snapshot whose reason to wait is out of date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untold {
    pub job: JobId,
    /// The job's revision, for compare-and-set.
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    /// Has a session, or its lease has not run out.
    pub up: bool,
    /// Takes no new task, and its tasks move away.
    pub drained: bool,
    /// Nodes with the same name here are nearer to each other than to others; `None`: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Takes no new task, and those that run there stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub excluded: bool,
    /// Takes no new task by the wish of the cluster that it belongs to, or by its own word, as for a full disk: no job's failure, and Muster's
    /// administrators cannot end it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// What was charged to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// GPUs or CPU slots; their indices are `0..gpus`.
    pub gpus: u32,
    /// Those of them that somebody outside of Muster has: nobody who is here holds one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<u32>,
    /// Those that were given back in the last minute by a job that has ended, waits or stands still, each at its last time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<Freed>,
    /// The model of its GPUs, as the driver names it: jobs are not spread over different ones. A model that is a part of a GPU says so.
    pub gpu_model: String,
    /// Memory of the smallest of its GPUs or CPU slots; 0 where nobody keeps that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_memory_bytes: u64,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Whether its tasks are pods, in which a task may have an image and volumes of its own; `None`: its executor is too old to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<bool>,
    /// When it was heard last; `None` where nobody keeps that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_ms: Option<i64>,
}

/// A GPU that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freed {
    pub gpu: u32,
    pub at_ms: i64,
}

/// A fault on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Whose task it was; `None` of what is the machine's for certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub what: NodeFault,
    pub at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    /// GPUs that its jobs may hold at once; `None` is no limit.
    pub gpu_quota: Option<u32>,
    /// Its share of the cluster is its weight over the sum of all.
    pub weight: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub id: JobId,
    pub tenant: TenantId,
    pub name: String,
    /// Higher comes first.
    pub priority: i32,
    pub submitted_ms: i64,
    pub intent: Intent,
    pub state: JobState,
    /// 0 before the first start, +1 at every start and every resize in place.
    pub revision: u64,
    /// Restarts charged so far.
    pub failures: u32,
    /// How often in a row nodes have refused its start or, while it runs, its growth, which is not charged.
    #[serde(default, skip_serializing_if = "is_never")]
    pub put_off: u32,
    /// The job fails when `failures` exceeds this.
    pub retries: u32,
    pub not_before_ms: Option<i64>,
    pub workers: Range,
    pub ps_shards: Range,
    /// It runs on 1, 2, 4, 8… workers only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub power_of_two: bool,
    pub worker: WorkerResources,
    pub ps_shard: PsShardResources,
    /// Its tasks must be pods, as they have an image, volumes or secrets of their own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pods: bool,
    pub consistency: Consistency,
    /// Examples per step over all workers together; of a job whose batch grows with them, with the fewest workers.
    pub batch: u32,
    /// Of a job whose batch grows with its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// Tasks of the present revision, released ones included.
    pub tasks: Vec<Task>,
    /// Tasks of earlier revisions that a resize in place has told to stop and that still hold what they were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Task>,
    /// Whether its tasks can go on while others join or leave.
    #[serde(default)]
    pub in_place: bool,
    /// Whether each shard has a copy with another one, so that the job goes on without any one of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replicated: bool,
    /// Whether its workers can stand still and go on from there, and others have what they hold meanwhile
    /// ([`Snapshot::leave_pods_out_of_turns`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspends: bool,
    /// Takes no turns with others on its GPUs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclusive: bool,
    /// At work on GPUs that were free but kept for another job's turn: it yields to that turn before its slice is over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lent: bool,
    /// Of a study's trial: what it promises beside the study's others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// Who stated its intent, and when; `None` until somebody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// When it was last suspended or continued in its present revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_ms: Option<i64>,
    /// Of a job that runs a program of its user's own: with whose end it is done. The built-in engine says itself when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Ends>,
    /// Of such a job: how long it may train in all. The built-in engine keeps to its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_s: Option<f64>,
    /// The present revision reported that the job is done.
    pub finished: Option<Finished>,
    /// The present revision reported that it cannot go on.
    pub failed: Option<FailedReport>,
    /// Nodes that lack something its program needs; it is placed on others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<NodeId>,
    pub progress: Progress,
    /// Mean speed at every size at which the job has run.
    pub speeds: Vec<SpeedPoint>,
    /// Seconds in which it trained, over its whole life.
    pub trained_s: f64,
    /// How long it is, where something else than a number of steps tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Lasts>,
    /// What earlier jobs of the same document took; only in forecasts, no decision reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Ran>,
    /// When the present revision was started.
    pub placed_ms: Option<i64>,
    /// Since when all its tasks have been up, or at work again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ms: Option<i64>,
    /// What stops and starts have cost it so far, as far as that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// What the job's owner is told now.
    pub waiting: Option<Waiting>,
    /// How its ranks are watched, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Of a job of one worker: what it uses of its GPU, and how fast it is there, alone and beside others. Only where packing is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Box<Measured>>,
}

/// That somebody stated a job's intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// A user, in words; `None` where a study did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at_ms: i64,
}

/// A job that a study has made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    pub study: StudyId,
    /// What more time on GPUs is expected to bring; 0 (nothing) to 1.
    pub gain: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub id: TaskId,
    pub role: Role,
    pub node: NodeId,
    pub gpus: Vec<u32>,
    /// Its place on its GPUs: 0, and 1 of a guest beside a job that was there before.
    #[serde(default, skip_serializing_if = "is_first")]
    pub lane: u32,
    pub state: TaskState,
    /// What it told of its pace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
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
    /// `false` when a restart cannot help.
    pub retryable: bool,
    /// What its node does not have, such as the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Optimizer steps done, over the job's whole life.
    pub step: u64,
    pub steps_per_epoch: u64,
    /// The job ends at this step at the latest; `None` when it ends by time or convergence only.
    pub max_steps: Option<u64>,
    pub convergence: Option<Convergence>,
    /// Mean training loss of every epoch done: (epoch, loss).
    pub epoch_losses: Vec<(u64, f64)>,
}

/// What is known of the statistical efficiency of a job whose batch grows with its workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    /// The gradient noise scale as last measured, in batches of the fewest workers; `None` before.
    pub noise: Option<f64>,
}

/// Seconds that a job trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasts {
    /// In the middle.
    pub middle_s: f64,
    /// Standard deviation of the logarithm; 0 where it is a limit that its owner has set.
    pub spread: f64,
    /// Of that, what it has done and what is kept.
    pub done_s: f64,
}

impl Lasts {
    /// Of a job that its owner lets train for so many seconds and no more.
    #[must_use]
    pub fn at_most(longest_s: f64, done_s: f64) -> Self {
        Self {
            middle_s: longest_s,
            spread: 0.0,
            done_s,
        }
    }
}

/// Steps and speed of earlier jobs of the same document that have succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    /// Steps of a job, in the middle.
    pub steps: f64,
    /// Standard deviation of the logarithm of `steps`.
    pub steps_spread: f64,
    /// Steps per second of training, start-up and evaluations included, in the middle.
    pub steps_per_s: f64,
    /// Standard deviation of the logarithm of `steps_per_s`.
    pub speed_spread: f64,
    /// The size at which these jobs trained most.
    pub workers: u32,
    pub ps_shards: u32,
}

/// Sums over a job's stops and starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restarts {
    /// Times that a running job was told to stop and had stopped.
    pub stops: u32,
    /// Seconds from the order until its last task was gone: the last checkpoint is written in them.
    pub stop_s: f64,
    /// Times that it was started and all of its tasks came up.
    pub starts: u32,
    /// Seconds from the order until then.
    pub start_s: f64,
    /// Times that it went on from a checkpoint.
    pub resumed: u32,
    /// Steps that it had done by then and did once more.
    pub lost_steps: f64,
}

/// A measured speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedPoint {
    pub workers: u32,
    pub ps_shards: u32,
    /// Updates per second: steps, unless the job's batch grows with its workers.
    pub steps_per_s: f64,
    /// Progress samples behind the mean.
    pub samples: u64,
}

impl Snapshot {
    /// Brings everything into the one order in which it is kept and compared: nodes by name, tenants by id, jobs by submission,
    /// tasks by role. Two snapshots of the same facts are then equal byte for byte.
    pub fn sort(&mut self) {
        self.nodes
            .sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        for node in &mut self.nodes {
            node.faults.sort_by_key(|fault| (fault.at_ms, fault.job));
            node.freed.sort_by_key(|freed| freed.gpu);
            node.taken.sort_unstable();
        }
        self.tenants.sort_by_key(|tenant| tenant.id);
        self.left_out.sort_by_key(|left_out| left_out.tenant);
        for left_out in &mut self.left_out {
            left_out.untold.sort_by_key(|untold| untold.job);
        }
        self.jobs.sort_by_key(|job| (job.submitted_ms, job.id));
        for job in &mut self.jobs {
            job.tasks.sort_by_key(|task| (task.role, task.id));
            job.leaving.sort_by_key(|task| (task.role, task.id));
            job.tasks
                .iter_mut()
                .chain(&mut job.leaving)
                .for_each(|task| task.gpus.sort_unstable());
            job.speeds
                .sort_by_key(|point| (point.workers, point.ps_shards));
            job.progress.epoch_losses.sort_by_key(|&(epoch, _)| epoch);
        }
    }
}

impl Node {
    /// Whether new tasks may go there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.up && !self.drained && !self.excluded && !self.cordoned
    }

    /// Whether its tasks are known to be pods.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        self.pods == Some(true)
    }

    /// How many of its GPUs are Muster's to give.
    #[must_use]
    pub fn own_gpus(&self) -> u32 {
        let others = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        self.gpus.saturating_sub(others)
    }

    /// How many of its GPUs one task may have.
    #[must_use]
    pub fn gpus_of_a_task(&self) -> u32 {
        match is_part(&self.gpu_model) {
            true => self.own_gpus().min(1),
            false => self.own_gpus(),
        }
    }
}

impl Job {
    /// Steps that an update with so many workers is worth: more than one only where the batch grows with them.
    #[must_use]
    pub fn gain(&self, workers: u32) -> f64 {
        Gains::of(self).at(workers)
    }

    /// Who stated its intent, for reasons in words.
    #[must_use]
    pub fn asker(&self) -> &str {
        let by = self.asked.as_ref().and_then(|asked| asked.by.as_deref());
        by.unwrap_or(match self.trial {
            Some(_) => "its study",
            None => "its owner",
        })
    }

    /// Whether somebody has let it go on since it was told to stand still.
    #[must_use]
    pub fn was_continued(&self) -> bool {
        let asked = self.asked.as_ref().map(|asked| asked.at_ms);
        self.intent == Intent::Run && self.turned_ms.is_some() && asked >= self.turned_ms
    }

    /// GPUs of the smallest gang that may run.
    #[must_use]
    pub fn min_gpus(&self) -> u32 {
        self.workers.min.saturating_mul(self.worker.gpus)
    }

    /// Whether it may have so many workers, as far as their number is no power of two.
    #[must_use]
    pub fn may_have(&self, workers: u32) -> bool {
        !self.power_of_two || workers.is_power_of_two()
    }

    /// When its present turn began: since when it is at work, on its way there, standing still or in the queue. A resize in place, which sets
    /// `placed_ms`, begins no new turn.
    #[must_use]
    pub fn turn_began_ms(&self) -> i64 {
        let since_ms = self.running_ms.or(self.placed_ms);
        let since_ms = since_ms.unwrap_or(self.submitted_ms);
        self.turned_ms.map_or(since_ms, |ms| ms.max(since_ms))
    }

    /// GPUs that its tasks hold.
    #[must_use]
    pub fn held_gpus(&self) -> u32 {
        self.held_tasks()
            .filter(|task| task.state.holds_gpus())
            .map(|task| u32::try_from(task.gpus.len()).unwrap_or(u32::MAX))
            .sum()
    }

    /// Tasks whose process is there, those that leave included.
    ///
    /// Those that stand still hold memory only.
    pub fn held_tasks(&self) -> impl Iterator<Item = &Task> {
        let tasks = self.tasks.iter().chain(&self.leaving);
        tasks.filter(|task| !task.state.is_released())
    }

    /// Whether all of its workers stand still that have not ended.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        let there = |task: &&Task| task.is_worker() && !task.state.is_released();
        let mut workers = self.tasks.iter().filter(there).peekable();
        self.state == JobState::Suspended
            && workers.peek().is_some()
            && workers.all(|task| task.state == TaskState::Suspended)
    }

    /// The step from which it would go on if it were stopped now. The built-in engine writes a checkpoint when it is told to stop. Of a
    /// user's program nothing is kept as far as anybody knows, until it has gone on from a checkpoint once: it then loses what it lost before.
    #[must_use]
    pub fn kept_step(&self) -> u64 {
        if self.command.is_none() {
            return self.progress.step;
        }
        let known = self.restarts.unwrap_or_default();
        if known.resumed == 0 {
            return 0;
        }
        let lost = known.lost_steps / f64::from(known.resumed);
        // A cast of a float saturates.
        self.progress.step.saturating_sub(lost.max(0.0) as u64)
    }

    /// Nobody reports in what is foreseen: what was told of it last is taken to be so still.
    pub fn goes_on_as_told(&mut self, now_ms: i64) {
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

    /// Whether a resize in place is under way: somebody has not gone or not come yet.
    #[must_use]
    pub fn is_resizing(&self) -> bool {
        let comes = |task: &Task| task.state == TaskState::Assigned;
        self.state == JobState::Running
            && (!self.leaving.is_empty() || self.tasks.iter().any(comes))
    }

    /// [`put_off`](Self::put_off) once those of its tasks are up that are on their way: with one by which it grows, nodes refuse it no more. The store
    /// counts so too.
    #[must_use]
    pub fn put_off_when_up(&self) -> u32 {
        let comes = |task: &Task| task.state == TaskState::Assigned;
        match self.state == JobState::Running && self.tasks.iter().any(comes) {
            true => 0,
            false => self.put_off,
        }
    }

    /// Workers and shards of the present revision, whether up or not.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        size(self.tasks.iter())
    }

    /// Those of them that are up: a job trains with these while others still come.
    #[must_use]
    pub fn up_size(&self) -> (u32, u32) {
        size(self.tasks.iter().filter(|task| task.is_up()))
    }
}

impl Task {
    #[must_use]
    pub fn is_worker(&self) -> bool {
        matches!(self.role, Role::Worker { .. })
    }

    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == TaskState::Running
    }
}

fn size<'t>(tasks: impl Iterator<Item = &'t Task>) -> (u32, u32) {
    tasks.fold((0, 0), |(workers, shards), task| match task.role {
        Role::Worker { .. } => (workers + 1, shards),
        Role::PsShard { .. } => (workers, shards + 1),
    })
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_never(times: &u32) -> bool {
    *times == 0
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

fn is_first(lane: &u32) -> bool {
    *lane == 0
}
