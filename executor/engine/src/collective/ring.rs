//! Round the circle: each piece is summed on its way round and then handed on, complete, once more round.
//!
//! The sum of piece p begins with the rank after p and ends with rank p. A long range goes in segments, all in
//! one unbroken stream: what came a short while ago is sent next, while it is still in the cache, as far as it has come.

use super::{Circle, Sum, pieces};
use crate::fabric::{FabricError, Flow, How, Mesh, Piece, Side, Take};
use std::ops::Range;

/// Floats of one piece of a segment, 512 KiB: what has come goes on while it is in the cache still, also where tasks share cores. Of smaller ones
/// neighbours wait for each other more often.
const PIECE: usize = 128 << 10;

/// Which of the two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounds {
    Sum,
    HandOn,
    Both,
}

pub(super) fn all_reduce(sum: &mut Sum<'_>, circle: Circle<'_>) -> Result<(), FabricError> {
    let mut flow = Flow {
        // A piece comes back, complete, from those who have taken what was sent of it.
        lends: sum.lends,
        ..between_neighbours(circle)
    };
    let segment = PIECE * circle.len();
    let len = sum.output.len();
    let segments: Vec<Vec<Range<usize>>> = (0..len)
        .step_by(segment)
        .map(|start| pieces(start..(start + segment).min(len), circle.len()))
        .collect();
    plan(
        &mut flow,
        circle,
        &segments,
        Rounds::Both,
        (sum.own, sum.how()),
    );
    sum.own = Side::Output;
    sum.mesh.run(sum.input, sum.output, &flow)
}

/// `output[mine]` becomes the sum over all ranks of `input[mine]`, `mine` being the returned range: piece number rank of
/// [`pieces`]; the rest of `output` holds anything afterwards.
///
/// # Errors
/// As [`super::all_reduce`].
pub fn reduce_scatter(
    mesh: &mut Mesh,
    input: &[f32],
    output: &mut [f32],
) -> Result<Range<usize>, FabricError> {
    assert_eq!(input.len(), output.len(), "both sides of a sum");
    let all: Vec<usize> = (0..mesh.size()).collect();
    let circle = Circle::new(&all, mesh.rank());
    let dealt = pieces(0..input.len(), circle.len());
    let mine = dealt[circle.me()].clone();
    if circle.len() == 1 {
        output.copy_from_slice(input);
        return Ok(mine);
    }
    let mut flow = between_neighbours(circle);
    let own = (Side::Input, How::AddInput);
    plan(&mut flow, circle, &[dealt], Rounds::Sum, own);
    mesh.run(input, output, &flow)?;
    Ok(mine)
}

/// Every rank gets every other's piece of `values`; its own, piece number rank of [`pieces`], is there already.
///
/// # Errors
/// As [`super::all_reduce`].
pub fn all_gather(mesh: &mut Mesh, values: &mut [f32]) -> Result<(), FabricError> {
    let all: Vec<usize> = (0..mesh.size()).collect();
    let circle = Circle::new(&all, mesh.rank());
    if circle.len() == 1 {
        return Ok(());
    }
    let dealt = pieces(0..values.len(), circle.len());
    let mut flow = between_neighbours(circle);
    let own = (Side::Output, How::Store);
    plan(&mut flow, circle, &[dealt], Rounds::HandOn, own);
    mesh.run(&[], values, &flow)
}

fn between_neighbours(circle: Circle<'_>) -> Flow {
    Flow {
        to: Some(circle.rank(circle.me() + 1)),
        from: Some(circle.rank(circle.me() + circle.len() - 1)),
        ..Flow::default()
    }
}

/// The stream of all segments. Hop k of a segment sends what its hop k-1 has received. Segments are interleaved, each a hop
/// behind the one before it: between a piece's coming and its going on lie as many others as there are hops, so that a neighbour
/// that the kernel has set aside for a while does not stop the stream.
fn plan(
    flow: &mut Flow,
    circle: Circle<'_>,
    segments: &[Vec<Range<usize>>],
    rounds: Rounds,
    (own, how): (Side, How),
) {
    let n = circle.len();
    let hops = if rounds == Rounds::Both {
        2 * (n - 1)
    } else {
        n - 1
    };
    let adding = if rounds == Rounds::HandOn { 0 } else { n - 1 };
    // Index of each segment's last receive so far.
    let mut made: Vec<Option<usize>> = vec![None; segments.len()];
    for diagonal in 0..segments.len() + hops {
        for hop in 0..hops.min(diagonal + 1) {
            let segment = diagonal - hop;
            let Some(dealt) = segments.get(segment) else {
                continue;
            };
            // Counted backwards round the circle from this place. The second round goes on where the first has ended.
            let at = hop + usize::from(rounds != Rounds::HandOn);
            let back = |places: usize| dealt[(circle.me() + 2 * n - places) % n].clone();
            flow.sends.push(Piece {
                range: back(at),
                from: if hop == 0 { own } else { Side::Output },
                after: made[segment],
            });
            made[segment] = Some(flow.takes.len());
            flow.takes.push(Take {
                range: back(at + 1),
                how: if hop < adding { how } else { How::Store },
            });
        }
    }
}
