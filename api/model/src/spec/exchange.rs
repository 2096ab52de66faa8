//! The `exchange` part of the job document: topology, consistency and averaging. `compression` is a
//! module of its own.
//!
//! These are settings only. `validate` checks which of them can be combined; the engine carries
//! them out.

use super::compression::Compression;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How workers exchange gradients or parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Exchange {
    #[serde(default)]
    pub topology: Topology,
    /// Algorithm of the sum over all workers; only with `all_reduce`.
    #[serde(default, skip_serializing_if = "Algorithm::is_auto")]
    pub algorithm: Algorithm,
    #[serde(default)]
    pub consistency: Consistency,
    /// Workers average parameters every few steps instead of summing gradients every step; only
    /// with `all_reduce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaging: Option<Averaging>,
    #[serde(default)]
    pub compression: Compression,
    /// Number of replicas of each PS shard, 0 or 1. With 1, the next shard keeps a replica and
    /// continues as the lost shard, so that no step is lost and no task restarts. A single shard
    /// has no replica. Only with `parameter_server`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 1))]
    pub shard_replicas: u32,
    /// Workers of one node sum their gradients in shared memory. One of them pushes the sum and
    /// distributes the answer, so a node with 8 workers sends and receives an eighth of the data.
    /// Only with `parameter_server`, `bsp` without backup workers, and no compression.
    #[serde(default, skip_serializing_if = "is_false")]
    pub local_aggregation: bool,
    /// Seconds without a sign of life after which a worker is declared lost while others wait for
    /// it; the others continue without it. A long step does not count, because the process still
    /// gives signs of life. 2 to 3,600; only with `all_reduce`.
    #[serde(default = "hung_after_s", skip_serializing_if = "is_hung_after_s")]
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 3600))]
    pub hung_after_s: u32,
}

/// Where the parameters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Topology {
    /// On PS shards, which sum the workers' gradients and update the parameters.
    #[default]
    ParameterServer,
    /// On every worker. The workers sum gradients or average parameters among themselves; there are
    /// no PS shards.
    AllReduce,
}

/// Algorithm of the sum over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Algorithm {
    /// The fastest by the measured links of the present membership.
    #[default]
    Auto,
    /// Ring (Patarasuk and Yuan, 2009).
    Ring,
    /// Binomial reduce and broadcast.
    Tree,
    /// Recursive halving and doubling (Rabenseifner, 2004).
    HalvingDoubling,
    /// Recursive doubling of whole vectors, for small ones.
    Butterfly,
    /// Within each node first, then between nodes.
    Hierarchical,
    /// NVIDIA's NCCL on the workers' GPUs if all of them can use it, otherwise as `auto`; the
    /// workers' logs say which. Not with `averaging`, `compression`, `engine.hogwild_threads` or
    /// `batch_rule: adascale`.
    Nccl,
}

/// When a worker may begin its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Consistency {
    /// Bulk synchronous: a step ends when the gradients of all workers have arrived. The result
    /// does not depend on timing.
    Bsp {
        /// Number of workers without which a step may end (Chen et al., 2016). Their late gradients
        /// are dropped, so the result depends on timing. The mean covers the gradients that
        /// counted. The coordinator (rank 0 worker) is always waited for. 0 to one less than
        /// `scale.workers.min`; only with `parameter_server`.
        #[serde(default, skip_serializing_if = "is_zero")]
        backup: u32,
    },
    /// Stale synchronous: no worker is more than `staleness` steps ahead of the slowest one (Ho et
    /// al., 2013). Only with `parameter_server`.
    Ssp {
        /// 1 to 64 steps.
        #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 64))]
        staleness: u32,
        /// Where the bound allows it, a step begins on the present parameters while the gradients
        /// of the last step still travel. Newer parameters replace them on arrival (ESSP, Dai et
        /// al., 2015).
        #[serde(default, skip_serializing_if = "is_false")]
        eager: bool,
        #[serde(default, skip_serializing_if = "Rate::is_constant")]
        rate: Rate,
    },
    /// Asynchronous: no worker waits (Downpour, Dean et al., 2012). Only with `parameter_server`.
    Asp {
        #[serde(default, skip_serializing_if = "Rate::is_constant")]
        rate: Rate,
    },
}

/// Learning rate for gradients that were computed on old parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Rate {
    /// The rate of the schedule.
    #[default]
    Constant,
    /// The rate divided by the number of updates since those parameters, if there were any (Zhang
    /// et al., 2016).
    ByStaleness,
}

/// Workers train alone between averages of their parameters. `every` is the number of steps between
/// two averages, 1 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Averaging {
    /// All workers take the mean (Stich, 2019).
    LocalSgd { every: u32 },
    /// Elastic averaging with a centre (Zhang, Choromanska and LeCun, 2015): each worker and the
    /// centre move towards each other.
    Easgd {
        every: u32,
        /// Share of their distance, above 0 and at most 1.
        rho: f64,
    },
    /// Synchronous model averaging (CROSSBOW, Koliousis et al., 2019): the centre moves by the mean
    /// correction of the workers, with momentum.
    Sma {
        every: u32,
        /// 0 to below 1.
        momentum: f64,
    },
    /// Blockwise model-update filtering (Chen and Huo, 2016): the change of the mean has a momentum
    /// of its own.
    Bmuf {
        every: u32,
        /// 0 to below 1.
        momentum: f64,
    },
    /// Each worker averages with one other, in rotation (Jin et al., 2016).
    Gossip { every: u32 },
    /// Federated averaging (McMahan et al., 2017): the sampled workers of a round train, and all
    /// workers take their mean.
    Fedavg {
        every: u32,
        /// Share of the workers that take part in a round, above 0 and at most 1; at least one
        /// worker.
        share: f64,
        /// Each worker has its own examples. Its class shares follow a Dirichlet distribution of
        /// this concentration around those of the whole data set (Hsu, Qi and Brown, 2019). 0.001
        /// to 1,000,000; smaller values give a worker fewer classes. If left out, workers divide
        /// every batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alpha: Option<f64>,
    },
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            topology: Topology::default(),
            algorithm: Algorithm::default(),
            consistency: Consistency::default(),
            averaging: None,
            compression: Compression::default(),
            shard_replicas: 0,
            local_aggregation: false,
            hung_after_s: hung_after_s(),
        }
    }
}

impl Consistency {
    /// Whether no worker begins a step before the last one is complete.
    #[must_use]
    pub fn is_bulk_synchronous(self) -> bool {
        match self {
            Self::Bsp { .. } => true,
            Self::Ssp { .. } | Self::Asp { .. } => false,
        }
    }

    /// Returns the number of workers whose gradients a step does not wait for.
    #[must_use]
    pub fn backup(self) -> u32 {
        match self {
            Self::Bsp { backup } => backup,
            Self::Ssp { .. } | Self::Asp { .. } => 0,
        }
    }

    /// Returns the learning rate for old parameters, which do not occur under BSP.
    #[must_use]
    pub fn rate(self) -> Rate {
        match self {
            Self::Bsp { .. } => Rate::Constant,
            Self::Ssp { rate, .. } | Self::Asp { rate } => rate,
        }
    }
}

impl Default for Consistency {
    fn default() -> Self {
        Self::Bsp { backup: 0 }
    }
}

impl Rate {
    fn is_constant(&self) -> bool {
        *self == Self::Constant
    }
}

impl Algorithm {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl Averaging {
    /// Returns the number of steps between two averages.
    #[must_use]
    pub fn every(&self) -> u32 {
        match *self {
            Self::LocalSgd { every }
            | Self::Easgd { every, .. }
            | Self::Sma { every, .. }
            | Self::Bmuf { every, .. }
            | Self::Gossip { every }
            | Self::Fedavg { every, .. } => every,
        }
    }

    /// Returns the kind as written in the document.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::LocalSgd { .. } => "local_sgd",
            Self::Easgd { .. } => "easgd",
            Self::Sma { .. } => "sma",
            Self::Bmuf { .. } => "bmuf",
            Self::Gossip { .. } => "gossip",
            Self::Fedavg { .. } => "fedavg",
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ParameterServer => "parameter_server",
            Self::AllReduce => "all_reduce",
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::HalvingDoubling => "halving_doubling",
            Self::Butterfly => "butterfly",
            Self::Hierarchical => "hierarchical",
            Self::Nccl => "nccl",
        })
    }
}

/// The kind as written in the document.
impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bsp { .. } => "bsp",
            Self::Ssp { .. } => "ssp",
            Self::Asp { .. } => "asp",
        })
    }
}

fn hung_after_s() -> u32 {
    15
}

fn is_hung_after_s(seconds: &u32) -> bool {
    *seconds == hung_after_s()
}

pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}
