//! The all-reduce on an arena: inside a node straight out of everyone's gradients, between nodes by their leaders.

use super::{Algorithm, Circle, Sum, add};
use crate::fabric::{Arena, Fabric, FabricError, Side};
use std::ops::Range;

/// Floats of a chunk that a task claims at once: 256 KiB.
const CHUNK: usize = 64 << 10;

/// The sum over all ranks of `range` of their gradients; [`sums`] is where it lies. `between` is the algorithm between nodes, or
/// between all tasks when none share memory; it is the same on all ranks.
///
/// # Errors
/// [`FabricError`]: this view is over; the gradients are intact.
pub fn all_reduce_arena(
    fabric: &mut Fabric,
    arena: &mut Arena,
    range: Range<usize>,
    between: Algorithm,
) -> Result<(), FabricError> {
    let rank = fabric.rank();
    let (mesh, groups, node, options) = fabric.parts();
    let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let Some(node) = node else {
        let (input, output) = arena.sides();
        let mut sum = Sum {
            mesh,
            input: &input[range.clone()],
            output: &mut output[range],
            own: Side::Input,
            lends: true,
        };
        // A task alone on its node is its own leader.
        let summed = sum.over(between, Circle::new(&leaders, rank));
        if mesh.has_lent() {
            // Gradients stay until a later view has their sum, and nobody in that one reads the broken one any more. Of the sums
            // somebody may who has nearly completed it.
            arena.move_sums()?;
        }
        return summed;
    };
    node.enter(mesh, options)?;
    let work = (range.clone(), CHUNK);
    node.sum_chunks(mesh, options, arena.gradients(), work, add::sum)?;
    if leaders.len() == 1 {
        return Ok(());
    }
    if node.leads() {
        let (input, output) = node.leader_sides();
        let mut sum = Sum {
            mesh,
            input: &input[range.clone()],
            output: &mut output[range],
            own: Side::Input,
            // Planes of a node go with their view: nobody writes to them once a sum is broken.
            lends: true,
        };
        sum.over(between, Circle::new(&leaders, rank))?;
    }
    node.release(mesh, options)
}

/// Where [`all_reduce_arena`] leaves the sums in this view.
#[must_use]
pub fn sums<'a>(fabric: &'a Fabric, arena: &'a Arena) -> &'a [f32] {
    match fabric.node() {
        None => arena.sums(),
        Some(node) if fabric.groups().len() == 1 => node.sums(),
        Some(node) => node.totals(),
    }
}
