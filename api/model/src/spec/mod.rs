//! The job document, version `muster/v1`, the same in YAML and JSON.
//!
//! Parsing refuses unknown fields. [`JobSpec::validate`] checks all other rules and reports errors
//! by field.

mod after;
mod array;
mod code;
mod command;
mod compression;
mod edit;
mod engine;
mod exchange;
mod interactive;
mod keep_best;
mod lenient;
mod node_constraints;
mod origin;
mod output_metrics;
mod pod;
mod preemption;
mod secret;
mod target;
mod validate;
mod verdicts;

pub use after::{AFTER_JOBS_UNIX_MS, After, AfterEnd, MAX_AFTER};
pub use array::ArrayMember;
pub use code::{
    CODE_FOLDER, Code, GitSource, LockFile, PythonEnvironment, code_folder, code_object, is_sha256,
};
pub use command::{Command, Elastic, Ends, KeptPath, RESERVED, RESERVED_OF_TORCHRUN};
pub use compression::{
    CodecConfig, Codecs, Compression, HalfFormat, LayerCodec, Norm, Rounding, TernScale,
};
pub use engine::{
    Activation, Augmentation, BatchRule, DataFiles, Dataset, DatasetName, Decay, DenseNetVariant,
    Engine, Goal, Input, KnownDataset, Layer, Learn, Model, Normalisation, Optimizer, Precision,
    Schedule, Sides,
};
pub use exchange::{Algorithm, Averaging, Consistency, Exchange, Rate, Topology};
pub use interactive::Interactive;
pub use keep_best::{KeepBest, Measure};
pub use node_constraints::{
    LabelOperator, NodeConstraints, NodeRequirement, NodeTraits, UnmetConstraint,
};
pub use origin::{Origin, same_place};
pub use output_metrics::{OutputPatternError, OutputPatterns, OutputValues};
pub use pod::{Pod, SecretKey, Volume};
pub use preemption::{
    AllowedPreemption, CheckpointOnRequest, LONGEST_GRACE_S, LONGEST_MIN_RUNTIME_S,
    LONGEST_TIMEOUT_S, Preemption, RequestSignal,
};
pub use secret::{MAX_SECRET_NAME, SECRET_NAME_RULE, SecretRef, is_secret_name, is_variable_name};
pub use target::{Metric, ReachingValue, Target};
pub use validate::{DNS_LABEL_RULE, FieldError, MAX_NODE_LABELS, check_labels, is_dns_label};
pub(crate) use validate::{NO_ID, is_id, is_image, is_object_name};
pub use verdicts::Verdicts;

use crate::compute_capability::ComputeCapability;
use crate::priority::NO_PRIORITY;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A training job: something for the built-in engine to train, or a user's program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSpec {
    pub version: Version,
    /// 1 to 63 characters of `a-z`, `0-9` and `-`. It begins and ends with a letter or digit. Names
    /// need not be unique.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 63))]
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// -100 to 100. It acts over all tenants: jobs of a higher priority are served first. Quotas
    /// still apply. Default: that of `priority_class`, or 0. If the installation has priority
    /// classes, a number other than 0 must lie in the range of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub priority: Option<i32>,
    /// Name of a priority class of the installation. `priority` must lie in its range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 63))]
    pub priority_class: Option<String>,
    /// Training by the built-in engine. Exactly one of `engine` and `command` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// A user's program. Exactly one of `engine` and `command` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// Checkpoint of another job from which training starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Origin>,
    /// Jobs of the tenant that must end before this one starts, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub after: Vec<After>,
    /// Array of the job, of whose jobs a limited number run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayMember>,
    #[serde(default)]
    pub exchange: Exchange,
    #[serde(default)]
    pub scale: Scale,
    #[serde(default)]
    pub resources: Resources,
    /// Image, mounts and secrets of its tasks. With an image the job runs only on nodes that can
    /// run images. With cluster objects it runs only on nodes whose tasks are pods.
    #[serde(default, skip_serializing_if = "Pod::is_empty")]
    pub pod: Pod,
    #[serde(default)]
    pub checkpoint: CheckpointPolicy,
    #[serde(default, skip_serializing_if = "EvaluationPolicy::is_default")]
    pub evaluate: EvaluationPolicy,
    /// When training ends. Required with `engine`; a command ends by itself.
    #[serde(default, skip_serializing_if = "Stop::is_empty")]
    pub stop: Stop,
    /// The job never shares its GPUs and takes no time slices. It starts once GPUs are free: no
    /// other job is suspended for it, and it is neither suspended nor stopped for a job of equal or
    /// lower priority. It can still be stopped, for example for a job of higher priority.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclusive: bool,
    /// Whether and when the job makes room for other jobs.
    #[serde(default, skip_serializing_if = "Preemption::is_default")]
    pub preemption: Preemption,
    /// A program that a user works in, such as a notebook. The job ends after a time without use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<Interactive>,
    /// When a slow or hung rank is replaced.
    #[serde(default, skip_serializing_if = "Verdicts::is_default")]
    pub verdicts: Verdicts,
    /// Task failures after which the job restarts from its newest checkpoint; 0 to 100.
    #[serde(default = "default_retries")]
    #[cfg_attr(feature = "schema", schema(maximum = 100))]
    pub retries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Version {
    #[serde(rename = "muster/v1")]
    V1,
}

/// Sizes between which the scheduler may choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Scale {
    #[serde(default = "Range::one")]
    pub workers: Range,
    /// Default: 1 to 1; 0 to 0 with `all_reduce`, which has no shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ps_shards: Option<Range>,
    /// The job runs on 1, 2, 4, 8… workers only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub power_of_two: bool,
}

/// Both bounds are included. 1 to 1024; 0 to 0 for shards that the topology does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Range {
    #[cfg_attr(feature = "schema", schema(maximum = 1024))]
    pub min: u32,
    #[cfg_attr(feature = "schema", schema(maximum = 1024))]
    pub max: u32,
}

/// Resources of one task of each role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Resources {
    #[serde(default = "WorkerResources::default")]
    pub worker: WorkerResources,
    #[serde(default = "PsShardResources::default")]
    pub ps_shard: PsShardResources,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerResources {
    /// GPUs or CPU slots of one node; 0 to 16, at most 1 with `engine`. With 0 the workers hold
    /// only CPU and memory of any node that takes tasks, and see no GPU. `scale.workers` is then a
    /// fixed size.
    #[cfg_attr(feature = "schema", schema(maximum = 16))]
    pub gpus: u32,
    /// Thousandths of a core; 0 to 256,000. Default: the node's cores are divided by its GPUs or
    /// slots; placement counts 100. Without GPUs: 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 256_000))]
    pub cpu_milli: Option<u64>,
    /// Bytes, or a text with a unit such as 16Gi or 500M; 64 MiB to 4 TiB. Default: the node's
    /// memory is divided by its GPUs or slots; placement counts 1 GiB. Without GPUs: 1 GiB.
    #[serde(
        deserialize_with = "lenient::optional_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(
        feature = "schema",
        schema(minimum = 67_108_864, maximum = 4_398_046_511_104_i64, extensions(("x-muster-quantity" = json!(true))))
    )]
    pub memory_bytes: Option<u64>,
    /// GPU models on which the job runs; at most 16. A pattern consists of words that follow one
    /// another in the model's name, regardless of case; `*` stands for any characters of a word.
    /// Example: `H100`. A pattern for a GPU part contains `MIG`. The model of CPU slots is `cpu`.
    /// Empty: all models of the best class that the cluster has (GPUs, else GPU parts, else CPU
    /// slots).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub gpu_kinds: Vec<String>,
    /// Minimum memory of each GPU: bytes, or a text with a unit such as 40Gi; up to 4 TiB.
    #[serde(
        deserialize_with = "lenient::optional_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(
        feature = "schema",
        schema(minimum = 1, maximum = 4_398_046_511_104_i64, extensions(("x-muster-quantity" = json!(true))))
    )]
    pub gpu_memory_bytes: Option<u64>,
    /// Minimum compute capability of each GPU, such as 8.0 for bfloat16 in tensor cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Conditions on the labels of the nodes; all must hold. At most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub node_selector: Vec<NodeRequirement>,
    /// Names of nodes on which the job does not run; at most 64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 64))]
    pub exclude_nodes: Vec<String>,
}

/// Amounts of GPUs, CPU and memory of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerDemand {
    /// GPUs or CPU slots of one node.
    pub gpus: u32,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PsShardResources {
    #[cfg_attr(feature = "schema", schema(maximum = 256_000))]
    pub cpu_milli: u64,
    /// Bytes, or a text with a unit such as 16Gi or 500M; 64 MiB to 4 TiB.
    #[serde(deserialize_with = "lenient::bytes")]
    #[cfg_attr(
        feature = "schema",
        schema(minimum = 67_108_864, maximum = 4_398_046_511_104_i64, extensions(("x-muster-quantity" = json!(true))))
    )]
    pub memory_bytes: u64,
}

/// When checkpoints are written and which ones stay. A job that stops in order always writes one
/// more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckpointPolicy {
    /// Number of steps between checkpoints; 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub every_steps: Option<u64>,
    /// Number of minutes after which a checkpoint is written, in addition to `every_steps`; above
    /// 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(exclusive_minimum = 0, maximum = 525_600))]
    pub every_minutes: Option<f64>,
    /// Number of newest checkpoints that stay; 1 to 1000.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub keep: u32,
    /// The best checkpoints by the test split, which stay too. An evaluation among them causes a
    /// checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<KeepBest>,
    /// One checkpoint every this number of steps stays for ever, and is written in addition to the
    /// other rules. 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub keep_every_steps: Option<u64>,
    /// Only for commands: names of files or folders in the checkpoint folder that are checkpoints,
    /// such as `checkpoint-*`. `*` stands for any characters and `?` for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 255))]
    pub files: Option<String>,
}

/// Evaluations on the test split in addition to the end of every epoch and of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EvaluationPolicy {
    /// Number of steps between evaluations; 1 or more. Useful for long epochs, and for targets that
    /// should end training at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub every_steps: Option<u64>,
}

/// When training ends: at the first of these conditions. At least one of `epochs`, `steps` and
/// `wall_minutes` is required.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stop {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000_000))]
    pub epochs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000_000))]
    pub steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Convergence>,
    /// Minutes of training time, without waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(exclusive_minimum = 0, maximum = 525_600))]
    pub wall_minutes: Option<f64>,
}

/// Stop when the epoch's mean training loss fell by less than `relative_loss_drop` in each of the
/// last `epochs` epochs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Convergence {
    /// Above 0 and below 1.
    #[cfg_attr(
        feature = "schema",
        schema(exclusive_minimum = 0, exclusive_maximum = 1)
    )]
    pub relative_loss_drop: f64,
    /// 1 to 100.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub epochs: u64,
}

impl JobSpec {
    /// Returns the priority, which a submission resolves. Before that it is 0 without a number.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(NO_PRIORITY)
    }

    /// Returns what the built-in engine trains. Only for jobs that are known to have an engine;
    /// `muster-task` is started for no others.
    ///
    /// # Panics
    /// If the job runs a command.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine
            .as_ref()
            .expect("the job has something for the built-in engine to train")
    }

    /// Returns the range of the number of PS shards.
    #[must_use]
    pub fn ps_shards(&self) -> Range {
        if let Some(command) = &self.command {
            let count = command.parameter_servers;
            return Range {
                min: count,
                max: count,
            };
        }
        self.scale
            .ps_shards
            .unwrap_or(match self.exchange.topology {
                Topology::ParameterServer => Range::one(),
                Topology::AllReduce => Range::NONE,
            })
    }

    /// Whether its tasks, except the coordinator, can continue while others join or leave. This
    /// holds for all jobs of the built-in engine, and for agents of a command with `elastic`. Every
    /// other command restarts at its new size.
    #[must_use]
    pub fn resizes_in_place(&self) -> bool {
        let command = self.command.as_ref();
        command.is_none_or(|command| command.elastic.is_some())
    }

    /// Whether its workers can be suspended. The kernel stops the processes of a command. Engine
    /// workers must all wait for each other in every step; otherwise a worker could be suspended
    /// within a step. Workers without GPUs have no GPUs to lend.
    #[must_use]
    pub fn suspends(&self) -> bool {
        let all_wait = self.exchange.consistency == Consistency::Bsp { backup: 0 }
            && !matches!(self.exchange.averaging, Some(Averaging::Gossip { .. }));
        self.resources.worker.gpus > 0 && (self.command.is_some() || all_wait)
    }

    /// Returns the seconds after which a running command is stopped and has failed. This is not an
    /// estimate of its length: most commands end long before.
    #[must_use]
    pub fn limit_s(&self) -> Option<f64> {
        let minutes = self.command.as_ref().and(self.stop.wall_minutes);
        minutes.map(|minutes| 60.0 * minutes)
    }

    /// Returns the seconds of training after which the built-in engine ends at the latest; `None`
    /// for a command.
    #[must_use]
    pub fn longest_s(&self) -> Option<f64> {
        let minutes = self.engine.as_ref().and(self.stop.wall_minutes);
        minutes.map(|minutes| 60.0 * minutes)
    }

    /// Returns the optimizer steps of one epoch; 1 for a command, whose epochs are unknown.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.engine.as_ref().map_or(1, Engine::steps_per_epoch)
    }

    /// Returns the examples per step over all workers; 1 for a command, whose batch is unknown.
    #[must_use]
    pub fn batch(&self) -> u32 {
        self.engine.as_ref().map_or(1, |engine| engine.batch)
    }

    /// Returns the steps after which training ends at the latest, from `stop.steps` and
    /// `stop.epochs` or from `command.steps`; `None` if the document has none of them.
    #[must_use]
    pub fn max_steps(&self) -> Option<u64> {
        if let Some(command) = &self.command {
            return command.steps;
        }
        let per_epoch = self.steps_per_epoch();
        let by_epochs = self.stop.epochs.map(|n| n.saturating_mul(per_epoch));
        [by_epochs, self.stop.steps].into_iter().flatten().min()
    }
}

impl Stop {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn default_retries() -> u32 {
    3
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            workers: Range::one(),
            ps_shards: None,
            power_of_two: false,
        }
    }
}

impl Range {
    pub const NONE: Self = Self { min: 0, max: 0 };

    #[must_use]
    pub fn one() -> Self {
        Self { min: 1, max: 1 }
    }
}

impl Default for WorkerResources {
    fn default() -> Self {
        Self {
            gpus: WorkerDemand::default().gpus,
            cpu_milli: None,
            memory_bytes: None,
            gpu_kinds: Vec::new(),
            gpu_memory_bytes: None,
            compute_capability: None,
            node_selector: Vec::new(),
            exclude_nodes: Vec::new(),
        }
    }
}

/// Default CPU of a worker without GPUs, in thousandths of a core.
const CPU_MILLI_WITHOUT_GPUS: u64 = 1_000;

impl WorkerResources {
    /// Returns the amounts that placement counts.
    #[must_use]
    pub fn demand(&self) -> WorkerDemand {
        let default = WorkerDemand::default();
        let cpu_milli = if self.gpus == 0 {
            CPU_MILLI_WITHOUT_GPUS
        } else {
            default.cpu_milli
        };
        WorkerDemand {
            gpus: self.gpus,
            cpu_milli: self.cpu_milli.unwrap_or(cpu_milli),
            memory_bytes: self.memory_bytes.unwrap_or(default.memory_bytes),
        }
    }
}

impl Default for WorkerDemand {
    fn default() -> Self {
        Self {
            gpus: 1,
            cpu_milli: 100,
            memory_bytes: 1 << 30,
        }
    }
}

impl Default for PsShardResources {
    fn default() -> Self {
        Self {
            cpu_milli: 100,
            memory_bytes: 256 << 20,
        }
    }
}

impl EvaluationPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an evaluation within an epoch is due at `step`. `before` is the preceding step
    /// boundary.
    #[must_use]
    pub fn due(self, before: u64, step: u64) -> bool {
        self.every_steps
            .is_some_and(|every| step / every > before / every)
    }
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self {
            every_steps: None,
            every_minutes: Some(5.0),
            keep: 3,
            keep_best: None,
            keep_every_steps: None,
            files: None,
        }
    }
}
