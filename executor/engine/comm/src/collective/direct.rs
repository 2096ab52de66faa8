//! All-reduce on an arena: within a node from the mapped gradients of all tasks, between nodes
//! through their leaders.

use super::{AllReduceAlgorithm, AllReduceRun, RankSubset, add};
use crate::fabric::{Arena, CollectiveBuffer, Fabric, FabricError};
use std::ops::Range;

/// Floats of a chunk that a task claims at once (256 KiB).
const CHUNK: usize = 64 << 10;

/// Sums `range` of the gradients of all ranks; [`sums`] returns the location of the result.
/// `between` is the algorithm between nodes, or between all tasks if none share memory; it must be
/// the same on all ranks.
///
/// # Errors
/// [`FabricError`]: this view has ended; the gradients are unchanged.
pub fn all_reduce_arena(
    fabric: &mut Fabric,
    arena: &mut Arena,
    range: Range<usize>,
    between: AllReduceAlgorithm,
) -> Result<(), FabricError> {
    let rank = fabric.rank();
    let (mesh, groups, node, options) = fabric.parts();
    let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let Some(node) = node else {
        let (input, output) = arena.sides();
        let mut sum = AllReduceRun {
            mesh,
            input: &input[range.clone()],
            output: &mut output[range],
            own: CollectiveBuffer::Input,
            lends: true,
        };
        // A task alone on its node is its own leader.
        let summed = sum.over(between, RankSubset::new(&leaders, rank));
        if mesh.has_lent() {
            // The gradients stay unchanged until a later view has their sum, and no member of that
            // view reads the aborted one. A peer that has nearly completed the sum may still read
            // this task's sums.
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
        let mut sum = AllReduceRun {
            mesh,
            input: &input[range.clone()],
            output: &mut output[range],
            own: CollectiveBuffer::Input,
            // Planes of a node end with their view: no task writes to them after a sum is aborted.
            lends: true,
        };
        sum.over(between, RankSubset::new(&leaders, rank))?;
    }
    node.release(mesh, options)
}

/// Sums of [`all_reduce_arena`] in this view.
#[must_use]
pub fn sums<'a>(fabric: &'a Fabric, arena: &'a Arena) -> &'a [f32] {
    match fabric.node() {
        None => arena.sums(),
        Some(node) if fabric.groups().len() == 1 => node.sums(),
        Some(node) => node.totals(),
    }
}
