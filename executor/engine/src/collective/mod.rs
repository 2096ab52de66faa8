//! Sums over all tasks of a view, and what else they do together.
//!
//! Every algorithm adds in an order that depends only on ranks and ranges, never on who came first: all ranks get the same bits,
//! and the same bits in each run. None touches its input, so that a collective that a death has broken off is repeated from it.
//!
//! Ring: bandwidth-optimal, 2(n-1) hops (Patarasuk and Yuan, JPDC 2009). Halving-doubling: bandwidth-optimal in 2 log n hops
//! (Rabenseifner, ICCS 2004). Butterfly: recursive doubling of whole vectors, log n hops, for small ones. Tree: binomial reduce and
//! broadcast. Hierarchical: inside groups first, then between their leaders.
//!
//! This module must never know what the floats mean, nor who decides about views.

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

/// How an all-reduce goes.
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

/// An algorithm, or the one that the measured model says.
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

/// `output` becomes the sum of all ranks' `input`; `input` stays. `groups` are the ranks of each node, for the hierarchical one:
/// disjoint, everyone in one, the same on all ranks.
///
/// # Errors
/// [`FabricError`]: the sum is not complete, `output` holds anything, and this view is over.
///
/// # Panics
/// When both sides differ in length; they must not differ between ranks either.
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

/// An all-reduce under way.
pub(crate) struct Sum<'a> {
    pub mesh: &'a mut Mesh,
    pub input: &'a [f32],
    pub output: &'a mut [f32],
    /// Where this rank's own contribution lies: its input, or the output after an earlier stage.
    pub own: Side,
    /// Whether peers may read both sides where they lie ([`Flow::lends`](crate::fabric::Flow)).
    pub lends: bool,
}

impl Sum<'_> {
    /// The sum over one circle of ranks.
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

    /// The own contribution, unchanged, as the result so far.
    pub fn keep_own(&mut self) {
        if self.own == Side::Input {
            self.output.copy_from_slice(self.input);
            self.own = Side::Output;
        }
    }

    /// How received floats join the own ones.
    pub fn how(&self) -> crate::fabric::How {
        match self.own {
            Side::Input => crate::fabric::How::AddInput,
            Side::Output => crate::fabric::How::AddOutput,
        }
    }
}

pub(crate) use tree::broadcast_over;
