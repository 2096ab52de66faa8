//! Collectives over all tasks of a view: sums, broadcasts and barriers.
//!
//! Every algorithm adds in an order that depends only on ranks and ranges, never on the order of
//! arrival: all ranks get the same bits, and each run gives the same bits. No algorithm changes its
//! input, so that a collective can be repeated after a member was lost.
//!
//! - Ring: bandwidth-optimal, 2(n-1) hops (Patarasuk and Yuan, JPDC 2009).
//! - Halving-doubling: bandwidth-optimal in 2 log n hops (Rabenseifner, ICCS 2004).
//! - Butterfly: recursive doubling of whole vectors in log n hops, for small vectors.
//! - Tree: binomial reduction and broadcast.
//! - Hierarchical: within groups first, then between their leaders.
//!
//! This module must not depend on the meaning of the floats, nor on the decision about views.

pub(crate) mod add;
mod butterfly;
mod cost;
mod direct;
mod group;
mod halving;
mod hierarchical;
mod rank_subset;
mod ring;
mod tree;

pub use cost::{CollectiveCostModel, LinkCost};
pub use direct::{all_reduce_arena, sums};
pub use group::{CollectiveGroup, Reduced};
pub use rank_subset::{RankSubset, pieces};
pub use ring::{all_gather, reduce_scatter};
pub use tree::{barrier, broadcast};

use crate::fabric::{CollectiveBuffer, FabricError, Mesh};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Algorithm of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllReduceAlgorithm {
    Ring,
    Tree,
    HalvingDoubling,
    Butterfly,
    Hierarchical,
}

impl AllReduceAlgorithm {
    pub const ALL: [Self; 5] = [
        Self::Ring,
        Self::Tree,
        Self::HalvingDoubling,
        Self::Butterfly,
        Self::Hierarchical,
    ];
}

/// A named algorithm, or the fastest one according to the measured cost model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmChoice {
    Fastest,
    Named(AllReduceAlgorithm),
}

impl fmt::Display for AllReduceAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::HalvingDoubling => "halving-doubling",
            Self::Butterfly => "butterfly",
            Self::Hierarchical => "hierarchical",
        })
    }
}

/// Sets `output` to the sum of the `input` of all ranks; `input` stays unchanged. `groups` contains
/// the ranks of each node for the hierarchical algorithm: disjoint, complete, and the same on all
/// ranks.
///
/// # Errors
/// [`FabricError`]: the sum is not complete, the content of `output` is unspecified, and this view
/// has ended.
///
/// # Panics
/// If both sides differ in length. The length must also be the same on all ranks.
pub fn all_reduce(
    mesh: &mut Mesh,
    algorithm: AllReduceAlgorithm,
    groups: &[Vec<usize>],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), FabricError> {
    assert_eq!(input.len(), output.len(), "both sides of a sum");
    let all: Vec<usize> = (0..mesh.size()).collect();
    let subset = RankSubset::new(&all, mesh.rank());
    let mut sum = AllReduceRun {
        mesh,
        input,
        output,
        own: CollectiveBuffer::Input,
        lends: false,
    };
    match algorithm {
        AllReduceAlgorithm::Hierarchical => hierarchical::all_reduce(&mut sum, groups),
        flat => sum.over(flat, subset),
    }
}

/// An all-reduce in progress.
pub(crate) struct AllReduceRun<'a> {
    pub mesh: &'a mut Mesh,
    pub input: &'a [f32],
    pub output: &'a mut [f32],
    /// Location of this rank's contribution: its input, or the output after an earlier stage.
    pub own: CollectiveBuffer,
    /// Whether the pages of both sides may be lent to peers ([`Flow::lends`](crate::fabric::Flow)).
    pub lends: bool,
}

impl AllReduceRun<'_> {
    /// Sums over one subset of ranks.
    pub fn over(
        &mut self,
        algorithm: AllReduceAlgorithm,
        subset: RankSubset<'_>,
    ) -> Result<(), FabricError> {
        if subset.len() == 1 {
            self.keep_own();
            return Ok(());
        }
        match algorithm {
            AllReduceAlgorithm::Tree => {
                tree::reduce(self, subset)?;
                broadcast_over(self.mesh, subset, 0, self.output)
            }
            AllReduceAlgorithm::HalvingDoubling => halving::all_reduce(self, subset),
            AllReduceAlgorithm::Butterfly => butterfly::all_reduce(self, subset),
            AllReduceAlgorithm::Ring | AllReduceAlgorithm::Hierarchical => {
                ring::all_reduce(self, subset)
            }
        }
    }

    /// Takes this rank's contribution unchanged as the result so far.
    pub fn keep_own(&mut self) {
        if self.own == CollectiveBuffer::Input {
            self.output.copy_from_slice(self.input);
            self.own = CollectiveBuffer::Output;
        }
    }

    /// How received floats are combined with this rank's contribution.
    pub fn how(&self) -> crate::fabric::ReceiveOp {
        match self.own {
            CollectiveBuffer::Input => crate::fabric::ReceiveOp::AddInput,
            CollectiveBuffer::Output => crate::fabric::ReceiveOp::AddOutput,
        }
    }
}

pub(crate) use tree::broadcast_over;
