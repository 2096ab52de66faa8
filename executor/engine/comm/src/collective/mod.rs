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
mod circle;
mod cost;
mod direct;
mod group;
mod halving;
mod hierarchical;
mod ring;
mod tree;

pub use circle::{Circle, pieces};
pub use cost::{Link, Model};
pub use direct::{all_reduce_arena, sums};
pub use group::{Group, Reduced};
pub use ring::{all_gather, reduce_scatter};
pub use tree::{barrier, broadcast};

use crate::fabric::{FabricError, Mesh, Side};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Algorithm of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    Ring,
    Tree,
    HalvingDoubling,
    Butterfly,
    Hierarchical,
}

impl Algorithm {
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
pub enum Choice {
    Fastest,
    Named(Algorithm),
}

impl fmt::Display for Algorithm {
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
    algorithm: Algorithm,
    groups: &[Vec<usize>],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), FabricError> {
    assert_eq!(input.len(), output.len(), "both sides of a sum");
    let all: Vec<usize> = (0..mesh.size()).collect();
    let circle = Circle::new(&all, mesh.rank());
    let mut sum = Sum {
        mesh,
        input,
        output,
        own: Side::Input,
        lends: false,
    };
    match algorithm {
        Algorithm::Hierarchical => hierarchical::all_reduce(&mut sum, groups),
        flat => sum.over(flat, circle),
    }
}

/// An all-reduce in progress.
pub(crate) struct Sum<'a> {
    pub mesh: &'a mut Mesh,
    pub input: &'a [f32],
    pub output: &'a mut [f32],
    /// Location of this rank's contribution: its input, or the output after an earlier stage.
    pub own: Side,
    /// Whether the pages of both sides may be lent to peers ([`Flow::lends`](crate::fabric::Flow)).
    pub lends: bool,
}

impl Sum<'_> {
    /// Sums over one circle of ranks.
    pub fn over(&mut self, algorithm: Algorithm, circle: Circle<'_>) -> Result<(), FabricError> {
        if circle.len() == 1 {
            self.keep_own();
            return Ok(());
        }
        match algorithm {
            Algorithm::Tree => {
                tree::reduce(self, circle)?;
                broadcast_over(self.mesh, circle, 0, self.output)
            }
            Algorithm::HalvingDoubling => halving::all_reduce(self, circle),
            Algorithm::Butterfly => butterfly::all_reduce(self, circle),
            Algorithm::Ring | Algorithm::Hierarchical => ring::all_reduce(self, circle),
        }
    }

    /// Takes this rank's contribution unchanged as the result so far.
    pub fn keep_own(&mut self) {
        if self.own == Side::Input {
            self.output.copy_from_slice(self.input);
            self.own = Side::Output;
        }
    }

    /// How received floats are combined with this rank's contribution.
    pub fn how(&self) -> crate::fabric::How {
        match self.own {
            Side::Input => crate::fabric::How::AddInput,
            Side::Output => crate::fabric::How::AddOutput,
        }
    }
}

pub(crate) use tree::broadcast_over;
