//! How a round weighs what it knows. There is no `Default`: whoever plans says which policy by name.

use crate::plan::Action;
use crate::policies::name::PolicyName;
use muster_model::job::{AfterStop, Charge, RequeueCause};
use serde::{Deserialize, Serialize};

/// The numbers behind the decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Who gets how many GPUs, and on which nodes.
    pub share: PolicyName,
    /// What stopping a job, placing it anew and starting from its checkpoint costs it.
    pub resize_cost_ms: u64,
    /// What a resize without a restart costs the job that can do it: the pause of its step, and that newcomers have yet to start.
    #[serde(default = "in_place_cost_ms")]
    pub in_place_cost_ms: u64,
    /// A job is not resized for speed before its present revision has run so long.
    pub min_run_ms: u64,
    /// A running job grows only into GPUs that nobody has held for so long, at most a minute: whoever comes next on them, a study's next
    /// trial or a job that starts anew, is often about to be submitted, and would have to wait until the job has shrunk again.
    #[serde(default = "grow_after_ms")]
    pub grow_after_ms: u64,
    /// At most so much of a job's time goes into its being resized: who takes long to restart is resized more seldom. 0: only
    /// `min_run_ms` counts.
    #[serde(default = "resize_share")]
    pub resize_share: f64,
    /// A resize for speed must save this share of the remaining time, its cost already paid.
    pub min_gain: f64,
    /// Pause after the first failure; it doubles with every further one.
    pub backoff_base_ms: u64,
    /// The longest such pause.
    pub backoff_max_ms: u64,
    /// While a waiting job is younger than this, later jobs that fit may start before it; after that they wait behind it, so that
    /// nobody starves.
    pub overtake_ms: u64,
    /// A job measured at some size grows at most to so many times the largest number of workers (or shards) it was measured at.
    pub explore_factor: f64,
    /// Share of a step's time that no further worker shortens, assumed of a job until it is measured (Amdahl).
    pub prior_serial_share: f64,
    /// Share of a step's time that falls with the number of shards, assumed until measured.
    pub prior_exchange_share: f64,
    /// Speed of one worker with one shard, assumed of a job that never ran.
    pub prior_steps_per_s: f64,
    /// Weight of the assumed curve beside one well measured point in the fit of the speed.
    pub prior_weight: f64,
    /// Samples after which a measured speed counts in full.
    pub full_weight_samples: u64,
    /// Epochs that a job is taken to need when nothing tells (the Optimus prototype's value).
    pub unknown_epochs: u64,
    /// So many waiting jobs, in order, are told the smallest change that would let them start: each costs several trial rounds.
    pub explained_jobs: u32,
    /// Who is told to stand still and does not say that it does within this time goes by a checkpoint and a new start instead.
    #[serde(default = "suspend_limit_ms")]
    pub suspend_limit_ms: u64,
    /// How long a node may take to start a task; `None`: without a limit, as in rounds of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_limit: Option<StartLimit>,
    /// When a node takes no new tasks because too many failed there.
    #[serde(default)]
    pub bad_nodes: BadNodes,
    /// Whether jobs that do not fit beside each other take turns; `None`: they wait for each other's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slicing: Option<Slicing>,
    /// Whether jobs that take turns on a GPU may be at work there at once where that is faster; `None`: never. Without turns nobody is
    /// measured alone, and nothing is packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
}

/// From the assignment of a task until its node reports it as up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartLimit {
    /// Where tasks are processes of the machine.
    pub process_ms: u64,
    /// Where tasks are pods, whose images may have to be pulled: beyond the executor's own limit, which knows more.
    pub pod_ms: u64,
}

/// Five minutes, and an hour.
impl Default for StartLimit {
    fn default() -> Self {
        Self {
            process_ms: 300_000,
            pod_ms: 3_600_000,
        }
    }
}

/// When two jobs share a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// They stay together while their rates, each as a part of what it is alone, add up to more than 1, which is what turns give, and this.
    pub margin: f64,
    /// And while neither is slower than this part of what it is alone, of which turns give each a half.
    pub least_part: f64,
    /// This share of the GPU's memory stays free of what both were measured to use at most, and of what others keep who stand still there.
    pub spare_memory: f64,
    /// So long they may be together before their rates must be known.
    pub trial_ms: u64,
    /// A pair that did not stay together is not tried again before.
    pub again_ms: u64,
    /// Samples that make a rate known.
    pub samples: u32,
    /// What was told of memory counts so long.
    pub stale_ms: u64,
}

/// A tenth more than turns give, as rates are noisy; a fifth of the memory, as a peak that was measured is not the last. A trial of a minute is
/// no longer than a slice.
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

/// When a node is closed for new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadNodes {
    /// After faults of so many different jobs that failed nowhere else, those of the machine itself counted one by one,
    pub faults: u32,
    /// within so long.
    pub window_ms: u64,
    /// At most this share of the nodes that are up, rounded down.
    pub most_share: f64,
}

/// Three jobs within an hour, and never more than a third of the cluster. With a default, so that rounds of before can
/// be replayed.
impl Default for BadNodes {
    fn default() -> Self {
        Self {
            faults: 3,
            window_ms: 3_600_000,
            most_share: 0.34,
        }
    }
}

/// How jobs take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slicing {
    /// The longest slice while others wait: the heaviest job's; others have less by their weight.
    pub quantum_ms: u64,
    /// So many jobs may stand still on a GPU, as they keep their host memory.
    pub suspended_per_gpu: u32,
}

/// Half a second: the newcomers' start hardly costs the others anything.
fn in_place_cost_ms() -> u64 {
    500
}

/// Longer than a study takes to think of its next trial, or the first pause after a failure.
fn grow_after_ms() -> u64 {
    5_000
}

/// What a restart costs by default fits into the time that a job runs by default before the next.
fn resize_share() -> f64 {
    0.3
}

/// A minute: the end of a step, and the copy of a device's memory.
fn suspend_limit_ms() -> u64 {
    60_000
}

impl Policy {
    /// A policy with the damping that a cluster of any size needs: a restart takes about five seconds, a job runs half a minute
    /// before it is resized for speed and must then save a tenth of its remaining time. A policy that weighs restarts by itself is
    /// told what one takes on a local cluster, three seconds, and may think again after ten.
    #[must_use]
    pub fn named(share: PolicyName) -> Self {
        let weighs = share.share().promises().restarts_pay;
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
            suspend_limit_ms: suspend_limit_ms(),
            start_limit: None,
            bad_nodes: BadNodes::default(),
            slicing: None,
            packing: None,
        }
    }

    /// Optimus (Peng et al., EuroSys 2018).
    #[must_use]
    pub fn optimus() -> Self {
        Self::named(PolicyName::Optimus)
    }

    /// What becomes of a job that fails once more, and is charged for it: back to the queue after a pause, or the end when its retries
    /// are used up.
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

    /// When a job that has failed `failures` times (this one included) may start again.
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
