//! How a job's workers exchange what they learn: topology, consistency, averaging; what the bytes are is in `compression`.
//!
//! Everything here is data: `validate` says which of it go together, the engine carries it out.

use super::compression::Compression;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How workers exchange what they learn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Exchange {
    #[serde(default)]
    pub topology: Topology,
    /// How a sum over all workers goes; `all_reduce` only.
    #[serde(default, skip_serializing_if = "Algorithm::is_auto")]
    pub algorithm: Algorithm,
    #[serde(default)]
    pub consistency: Consistency,
    /// Parameters are averaged every so often, in place of gradients every step; `all_reduce` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaging: Option<Averaging>,
    #[serde(default)]
    pub compression: Compression,
    /// Followers that each PS shard has, 0 or 1. With one, the next shard keeps a copy of all it holds, and goes on as it when it is
    /// lost: no step is lost, and nobody starts anew. While there is one shard there is no copy. `parameter_server` only.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 1))]
    pub shard_replicas: u32,
    /// Workers on one node add their gradients up in shared memory first, and one of them pushes the sum and shares what comes back: a node
    /// with 8 workers sends and receives an eighth. `bsp` without backup workers, no compression; `parameter_server` only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub local_aggregation: bool,
    /// A worker whose process stands still for so long while the others wait is held for lost, and they go on without it; a step
    /// may take longer, as its process gives signs of life meanwhile. 2 to 3,600 seconds; `all_reduce` only.
    #[serde(default = "hung_after_s", skip_serializing_if = "is_hung_after_s")]
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 3600))]
    pub hung_after_s: u32,
}

/// Where parameters live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Topology {
    /// On PS shards, which add up what the workers push, and update.
    #[default]
    ParameterServer,
    /// On every worker; the workers add up gradients (or average parameters) among themselves, and there are no PS shards.
    AllReduce,
}

/// How a sum over all workers goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Algorithm {
    /// The fastest by what was measured of this view's links.
    #[default]
    Auto,
    /// Patarasuk and Yuan, 2009.
    Ring,
    /// Binomial reduce and broadcast.
    Tree,
    /// Rabenseifner, 2004.
    HalvingDoubling,
    /// Recursive doubling of whole vectors, for small ones.
    Butterfly,
    /// Inside each node first, then between the nodes.
    Hierarchical,
    /// By NVIDIA's NCCL on the workers' GPUs, where all of them can; as `auto` where one cannot, which the workers' logs tell. Not with
    /// `averaging`, `compression`, `engine.hogwild_threads` or `batch_rule: adascale`.
    Nccl,
}

/// When a worker may go on to its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Consistency {
    /// Bulk synchronous: when every worker's gradients of the step are in. The result does not depend on timing.
    Bsp {
        /// A step ends without the slowest so many workers' gradients, which are dropped when they come (Chen et al., 2016); then the
        /// result does depend on timing. The mean is over those that counted; the first worker, which leads the others, is always waited
        /// for. 0 to one less than the fewest workers; `parameter_server` only.
        #[serde(default, skip_serializing_if = "is_zero")]
        backup: u32,
    },
    /// Stale synchronous: when no worker is more than `staleness` steps behind (Ho et al., 2013). `parameter_server` only.
    Ssp {
        /// 1 to 64 steps.
        #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 64))]
        staleness: u32,
        /// A step begins on the parameters that there are, where the bound allows it, while the gradients of the step before still
        /// travel; newer ones take their place as soon as they come (ESSP, Dai et al., 2015).
        #[serde(default, skip_serializing_if = "is_false")]
        eager: bool,
        #[serde(default, skip_serializing_if = "Rate::is_constant")]
        rate: Rate,
    },
    /// Asynchronous (Downpour, Dean et al., 2012): at once. `parameter_server` only.
    Asp {
        #[serde(default, skip_serializing_if = "Rate::is_constant")]
        rate: Rate,
    },
}

/// The learning rate of gradients that were computed on old parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Rate {
    /// That of the schedule.
    #[default]
    Constant,
    /// Divided by the number of updates since those parameters, where there were any (Zhang et al., 2016).
    ByStaleness,
}

/// Workers train on their own between averages of their parameters. `every` is in steps, 1 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Averaging {
    /// All take the mean (Stich, 2019).
    LocalSgd { every: u32 },
    /// Elastic averaging (Zhang, Choromanska and LeCun, 2015): each worker and the centre move towards each other.
    Easgd {
        every: u32,
        /// Share of their distance, above 0 and at most 1.
        rho: f64,
    },
    /// Synchronous model averaging (CROSSBOW, Koliousis et al., 2019): the centre moves by the workers' mean correction, with momentum.
    Sma {
        every: u32,
        /// 0 to below 1.
        momentum: f64,
    },
    /// Blockwise model-update filtering (Chen and Huo, 2016): the mean's change goes through a momentum of its own.
    Bmuf {
        every: u32,
        /// 0 to below 1.
        momentum: f64,
    },
    /// Each worker takes the mean with one other, by turns (Jin et al., 2016).
    Gossip { every: u32 },
    /// Federated averaging (McMahan et al., 2017): a round's sampled workers train, and all take their mean.
    Fedavg {
        every: u32,
        /// Of the workers that take part in a round, above 0 and at most 1; one at least.
        share: f64,
        /// Each worker has examples of its own, whose shares of the classes are drawn from a Dirichlet distribution of this
        /// concentration around the whole set's (Hsu, Qi and Brown, 2019), 0.001 to 1,000,000: the smaller, the fewer classes a
        /// worker has. When left out, workers divide every batch among themselves.
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
    /// Whether nobody's step begins before the last one is complete.
    #[must_use]
    pub fn is_bulk_synchronous(self) -> bool {
        match self {
            Self::Bsp { .. } => true,
            Self::Ssp { .. } | Self::Asp { .. } => false,
        }
    }

    /// So many workers' gradients of a step are not waited for.
    #[must_use]
    pub fn backup(self) -> u32 {
        match self {
            Self::Bsp { backup } => backup,
            Self::Ssp { .. } | Self::Asp { .. } => 0,
        }
    }

    /// What old parameters make of the learning rate; nobody has any under BSP.
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
    /// Steps from one average to the next.
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

    /// As the document writes its kind.
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

/// As the document writes its kind.
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
