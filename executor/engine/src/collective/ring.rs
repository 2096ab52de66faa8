//! Round the circle: each piece is summed on its way round and then handed on, complete, once more round.
//!
//! The sum of piece p begins with the rank after p and ends with rank p. A long range goes in segments, one after the other in
//! one unbroken stream: what was received last is sent next, while it is still in the cache, and a piece is handed on as far as
//! it has come.

use super::{Circle, Sum, pieces};
use crate::fabric::{FabricError, Flow, How, Mesh, Piece, Side, Take};
use std::ops::Range;

/// Floats of one piece of a segment, 1 MiB.
const PIECE: usize = 256 << 10;

/// Which of the two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounds {
    Sum,
    HandOn,
    Both,
}

pub(super) fn all_reduce(sum: &mut Sum<'_>, circle: Circle<'_>) -> Result<(), FabricError> {
    let mut flow = between_neighbours(circle);
    let segment = PIECE * circle.len();
    let mut start = 0;
    while start < sum.output.len() {
        let end = (start + segment).min(sum.output.len());
        let dealt = pieces(start..end, circle.len());
        plan(&mut flow, circle, &dealt, Rounds::Both, sum.own, sum.how());
        start = end;
    }
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
    let (own, how) = (Side::Input, How::AddInput);
    plan(&mut flow, circle, &dealt, Rounds::Sum, own, how);
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
    let (own, how) = (Side::Output, How::Store);
    plan(&mut flow, circle, &dealt, Rounds::HandOn, own, how);
    mesh.run(&[], values, &flow)
}

fn between_neighbours(circle: Circle<'_>) -> Flow {
    Flow {
        to: Some(circle.rank(circle.me() + 1)),
        from: Some(circle.rank(circle.me() + circle.len() - 1)),
        ..Flow::default()
    }
}

/// Adds one segment's rounds to the stream. Hop k sends what hop k-1 has received.
fn plan(
    flow: &mut Flow,
    circle: Circle<'_>,
    dealt: &[Range<usize>],
    rounds: Rounds,
    own: Side,
    how: How,
) {
    let n = circle.len();
    // Counted backwards from this place, without going below zero.
    let back = |places: usize| dealt[(circle.me() + 2 * n - places) % n].clone();
    if rounds != Rounds::HandOn {
        for hop in 0..n - 1 {
            let after = (hop > 0).then(|| flow.takes.len() - 1);
            flow.sends.push(Piece {
                range: back(1 + hop),
                from: if hop == 0 { own } else { Side::Output },
                after,
            });
            flow.takes.push(Take {
                range: back(2 + hop),
                how,
            });
        }
    }
    if rounds != Rounds::Sum {
        for hop in 0..n - 1 {
            let after = (hop > 0 || rounds == Rounds::Both).then(|| flow.takes.len() - 1);
            flow.sends.push(Piece {
                range: back(hop),
                from: Side::Output,
                after,
            });
            flow.takes.push(Take {
                range: back(1 + hop),
                how: How::Store,
            });
        }
    }
}
