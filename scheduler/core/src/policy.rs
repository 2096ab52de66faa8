//! Policy settings of a round. There is no `Default`: the caller chooses the policy by name.

use crate::plan::Action;
use crate::policies::name::PolicyName;
use muster_model::job::{AfterStop, Charge, RequeueCause};
use serde::{Deserialize, Serialize};

/// Settings that a decision depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Scheduling policy, which decides the GPUs and nodes of each job.
    pub share: PolicyName,
    /// Cost of a restart: the stop, the new placement and the start from the checkpoint.
    pub resize_cost_ms: u64,
    /// Cost of a resize in place: the pause of the step and the start of the joining tasks.
    #[serde(default = "in_place_cost_ms")]
    pub in_place_cost_ms: u64,
    /// Minimum time before a job is resized for speed, from the start of its revision.
    pub min_run_ms: u64,
    /// A running job grows only into GPUs that have been free for this time, at most a minute. The
    /// next job for them, such as a study's next trial, is often submitted at once. It would
    /// otherwise wait until the running job has shrunk again.
    #[serde(default = "grow_after_ms")]
    pub grow_after_ms: u64,
    /// Maximum share of a job's time that resizes may cost. It lengthens the cooldown of jobs with
    /// slow restarts. 0: only `min_run_ms` counts.
    #[serde(default = "resize_share")]
    pub resize_share: f64,
    /// Share of the remaining time that a resize for speed must save, after its cost.
    pub min_gain: f64,
    /// Back-off after the first failure; it doubles with each further failure.
    pub backoff_base_ms: u64,
    /// Maximum back-off.
    pub backoff_max_ms: u64,
    /// Time in which later jobs that fit may overtake a waiting job. After it they wait behind the
    /// job (starvation protection).
    pub overtake_ms: u64,
    /// Growth limit of a measured job: this factor times the largest number of workers (or shards)
    /// that was measured.
    pub explore_factor: f64,
    /// Assumed share of a step's time that more workers do not shorten (Amdahl), until it is
    /// measured.
    pub prior_serial_share: f64,
    /// Assumed share of a step's time that falls with the number of shards, until it is measured.
    pub prior_exchange_share: f64,
    /// Assumed speed of one worker with one shard, for a job that never ran.
    pub prior_steps_per_s: f64,
    /// Weight of the assumed curve in the fit of the speed, relative to one well measured point.
    pub prior_weight: f64,
    /// Number of samples after which a measured speed has its full weight.
    pub full_weight_samples: u64,
    /// Assumed number of epochs of a job with no other estimate (value of the Optimus prototype).
    pub unknown_epochs: u64,
    /// Number of waiting jobs, in queue order, for which the smallest change is searched. Each
    /// costs several trial rounds, so with more than 512 jobs it is at most 4.
    pub explained_jobs: u32,
    /// Whether the loss curve of each job is fitted, for policies that share by quality. `false` in
    /// rounds of earlier releases, which had no curve.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fits_losses: bool,
    /// Maximum time for a job to report its suspension. After it the job stops with a checkpoint
    /// and starts again later.
    #[serde(default = "suspend_limit_ms")]
    pub suspend_limit_ms: u64,
    /// Maximum time for a node to start a task; `None` for no limit, as in older rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_limit: Option<StartLimit>,
    /// Rules for stops of jobs for jobs of equal or lower priority.
    #[serde(default)]
    pub preemption: PreemptionRules,
    /// Rules that exclude a node on which too many tasks failed.
    #[serde(default)]
    pub bad_nodes: BadNodes,
    /// Share of a GPU's memory that must stay free where a job starts beside suspended programs
    /// that keep memory there. `None`, as in rounds of earlier releases: GPU memory is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_gpu_memory: Option<f64>,
    /// Time slicing of jobs that do not fit together; `None`: they wait until a job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slicing: Option<Slicing>,
    /// Packing of time-sliced jobs on one GPU where that is faster; `None` disables it. It needs
    /// time slicing, because only time slices measure a job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
}

/// Maximum time from the assignment of a task until its node reports it as up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartLimit {
    /// Limit for tasks that are processes.
    pub process_ms: u64,
    /// Limit for tasks that are pods or run in images. It exceeds the executor's own limits,
    /// because the executor knows the state of the pod and of the pull.
    pub pod_ms: u64,
}

/// Five minutes for processes, one hour for pods.
impl Default for StartLimit {
    fn default() -> Self {
        Self {
            process_ms: 300_000,
            pod_ms: 3_600_000,
        }
    }
}

/// Rules for stops of jobs for jobs of equal or lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionRules {
    /// Maximum work that a stop may lose, in GPU-seconds, as a share of what the other job gains.
    pub risk_share: f64,
    /// Maximum share of a job's training time that it may lose to other jobs.
    pub lost_share: f64,
}

/// A quarter of the gain, and 5 % of the training time.
impl Default for PreemptionRules {
    fn default() -> Self {
        Self {
            risk_share: 0.25,
            lost_share: 0.05,
        }
    }
}

/// Rules for two jobs on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// Minimum gain of a pair. The sum of both relative rates must exceed 1 plus this margin. Time
    /// slicing gives a sum of 1.
    pub margin: f64,
    /// Minimum relative rate of each job of a pair. Time slicing gives each job one half.
    pub least_part: f64,
    /// Share of the GPU's memory that must stay free of both jobs' peaks and of the memory of jobs
    /// suspended there.
    pub spare_memory: f64,
    /// Time after which the rates of a pair must be known.
    pub trial_ms: u64,
    /// Time before a separated pair is tried again.
    pub again_ms: u64,
    /// Number of samples after which a rate is known.
    pub samples: u32,
    /// Maximum age of a memory measurement.
    pub stale_ms: u64,
}

/// The margin exceeds the noise of the rates. A fifth of the memory stays free because a measured
/// peak may be exceeded. A trial of one minute is no longer than a time slice.
impl Default for Packing {
    fn default() -> Self {
        Self {
            margin: 0.1,
            least_part: 0.4,
            spare_memory: 0.2,
            trial_ms: 60_000,
            again_ms: 900_000,
            samples: 3,
            stale_ms: 30_000,
        }
    }
}

/// Rules that exclude a node from new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadNodes {
    /// Number of faults that exclude a node. Faults of jobs count once per job, and only if the job
    /// failed on no other node. Each fault of the machine itself counts, but errors of one GPU
    /// within a minute count once.
    pub faults: u32,
    /// Period in which the faults are counted.
    pub window_ms: u64,
    /// Maximum share of the nodes that are up; at most this many are excluded, rounded down.
    pub most_share: f64,
}

/// Three jobs within an hour, at most a third of the cluster. There is a default so that older
/// rounds can be replayed.
impl Default for BadNodes {
    fn default() -> Self {
        Self {
            faults: 3,
            window_ms: 3_600_000,
            most_share: 0.34,
        }
    }
}

/// Settings of time slicing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slicing {
    /// Longest time slice while other jobs wait: that of the job with the largest weight. Other
    /// jobs have shorter slices in proportion to their weights.
    pub quantum_ms: u64,
    /// Maximum number of suspended jobs per GPU; each keeps its host memory.
    pub suspended_per_gpu: u32,
}

/// Half a second: the start of joining tasks costs the other tasks almost nothing.
fn in_place_cost_ms() -> u64 {
    500
}

/// Longer than a study needs for its next trial, and than the first back-off after a failure.
fn grow_after_ms() -> u64 {
    5_000
}

/// With the default costs, the cooldown does not exceed the default `min_run_ms`.
fn resize_share() -> f64 {
    0.3
}

/// One minute: the end of a step and the copy of a device's memory.
fn suspend_limit_ms() -> u64 {
    60_000
}

impl Policy {
    /// Returns the defaults for one policy.
    ///
    /// They assume that a restart takes 5 s. A job runs for 30 s before it is resized for speed,
    /// and a resize must save a tenth of the remaining time. A policy that weighs restarts by
    /// itself gets 3 s, the cost on a local cluster, and may resize after 10 s.
    #[must_use]
    pub fn named(share: PolicyName) -> Self {
        let weighs = share.policy().capabilities().restarts_pay;
        Self {
            share,
            resize_cost_ms: if weighs { 3_000 } else { 5_000 },
            in_place_cost_ms: in_place_cost_ms(),
            min_run_ms: if weighs { 10_000 } else { 30_000 },
            grow_after_ms: grow_after_ms(),
            resize_share: resize_share(),
            min_gain: 0.1,
            backoff_base_ms: 1_000,
            backoff_max_ms: 300_000,
            overtake_ms: 600_000,
            explore_factor: 2.0,
            prior_serial_share: 0.05,
            prior_exchange_share: 0.02,
            prior_steps_per_s: 10.0,
            prior_weight: 0.1,
            full_weight_samples: 10,
            unknown_epochs: 20,
            explained_jobs: 16,
            fits_losses: share == PolicyName::Slaq,
            suspend_limit_ms: suspend_limit_ms(),
            start_limit: None,
            preemption: PreemptionRules::default(),
            bad_nodes: BadNodes::default(),
            spare_gpu_memory: Some(0.1),
            slicing: None,
            packing: None,
        }
    }

    /// Optimus (Peng et al., EuroSys 2018).
    #[must_use]
    pub fn optimus() -> Self {
        Self::named(PolicyName::Optimus)
    }

    /// Returns the action after a failure that is charged to the job: a requeue after a back-off,
    /// or its end after the last retry.
    #[must_use]
    pub fn after_failure(&self, now_ms: i64, failures: u32, retries: u32, why: String) -> Action {
        let failures = failures.saturating_add(1);
        let (then, not_before_ms) = if failures > retries {
            let reason = match retries {
                0 => format!("{why}; no retry was allowed"),
                1 => format!("{why}; its only retry is used up"),
                _ => format!("{why}; {retries} retries are used up"),
            };
            (AfterStop::Fail { reason }, None)
        } else {
            let cause = RequeueCause::TaskFailed;
            let until_ms = self.backoff_until_ms(now_ms, failures);
            (AfterStop::Requeue { cause }, Some(until_ms))
        };
        Action::Stop {
            then,
            why,
            charge: Charge::Failure,
            not_before_ms,
        }
    }

    /// Time at which a job that has failed `failures` times, this failure included, may start
    /// again. Unix ms.
    #[must_use]
    pub fn backoff_until_ms(&self, now_ms: i64, failures: u32) -> i64 {
        let doublings = failures.saturating_sub(1).min(32);
        let pause_ms = self
            .backoff_base_ms
            .saturating_mul(1 << doublings)
            .min(self.backoff_max_ms);
        now_ms.saturating_add(i64::try_from(pause_ms).unwrap_or(i64::MAX))
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
