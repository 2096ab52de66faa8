//! Ring algorithm: each piece is summed in its first round and distributed in its second round.
//!
//! The sum of piece p begins with the rank after p and ends with rank p. A long range is cut into
//! segments that form one continuous stream. Data that has just arrived is sent next, while it is
//! still in the cache, as far as it has arrived.

use super::{AllReduceRun, RankSubset, pieces};
use crate::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};
use std::ops::Range;

/// Floats of one piece of a segment (512 KiB). Received data is still in the cache when it is sent
/// on, also where tasks share cores. With smaller pieces, neighbours wait for each other more
/// often.
const PIECE: usize = 128 << 10;

/// Rounds to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounds {
    Sum,
    HandOn,
    Both,
}

pub(super) fn all_reduce(
    sum: &mut AllReduceRun<'_>,
    subset: RankSubset<'_>,
) -> Result<(), FabricError> {
    let mut flow = Flow {
        // A piece returns complete only from ranks that have received what was sent of it.
        lends: sum.lends,
        ..between_neighbours(subset)
    };
    let segment = PIECE * subset.len();
    let len = sum.output.len();
    let segments: Vec<Vec<Range<usize>>> = (0..len)
        .step_by(segment)
        .map(|start| pieces(start..(start + segment).min(len), subset.len()))
        .collect();
    plan(
        &mut flow,
        subset,
        &segments,
        Rounds::Both,
        (sum.own, sum.how()),
    );
    sum.own = CollectiveBuffer::Output;
    sum.mesh.run(sum.input, sum.output, &flow)
}

/// Sets `output[mine]` to the sum over all ranks of `input[mine]` and returns `mine`, which is the
/// piece of [`pieces`] with this rank's number. The rest of `output` is unspecified afterwards.
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
    let subset = RankSubset::new(&all, mesh.rank());
    let dealt = pieces(0..input.len(), subset.len());
    let mine = dealt[subset.me()].clone();
    if subset.len() == 1 {
        output.copy_from_slice(input);
        return Ok(mine);
    }
    let mut flow = between_neighbours(subset);
    let own = (CollectiveBuffer::Input, ReceiveOp::AddInput);
    plan(&mut flow, subset, &[dealt], Rounds::Sum, own);
    mesh.run(input, output, &flow)?;
    Ok(mine)
}

/// Sends every rank's piece of `values` to all other ranks. The own piece, which is the piece of
/// [`pieces`] with this rank's number, must already be there.
///
/// # Errors
/// As [`super::all_reduce`].
pub fn all_gather(mesh: &mut Mesh, values: &mut [f32]) -> Result<(), FabricError> {
    let all: Vec<usize> = (0..mesh.size()).collect();
    let subset = RankSubset::new(&all, mesh.rank());
    if subset.len() == 1 {
        return Ok(());
    }
    let dealt = pieces(0..values.len(), subset.len());
    let mut flow = between_neighbours(subset);
    let own = (CollectiveBuffer::Output, ReceiveOp::Store);
    plan(&mut flow, subset, &[dealt], Rounds::HandOn, own);
    mesh.run(&[], values, &flow)
}

fn between_neighbours(subset: RankSubset<'_>) -> Flow {
    Flow {
        to: Some(subset.rank(subset.me() + 1)),
        from: Some(subset.rank(subset.me() + subset.len() - 1)),
        ..Flow::default()
    }
}

/// Plans the stream of all segments. Hop k of a segment sends what its hop k-1 has received.
/// Segments are interleaved, each one hop behind the previous one. Between the receive and the send
/// of a piece there are thus as many other transfers as there are hops. A neighbour that is not
/// scheduled for a while therefore does not stop the stream.
fn plan(
    flow: &mut Flow,
    subset: RankSubset<'_>,
    segments: &[Vec<Range<usize>>],
    rounds: Rounds,
    (own, how): (CollectiveBuffer, ReceiveOp),
) {
    let n = subset.len();
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
            // Counted backwards from this place. The second round begins where the first one ended.
            let at = hop + usize::from(rounds != Rounds::HandOn);
            let [sent, received] =
                [at, at + 1].map(|places| dealt[(subset.me() + 2 * n - places) % n].clone());
            flow.sends.push(SendRange {
                range: sent,
                from: if hop == 0 {
                    own
                } else {
                    CollectiveBuffer::Output
                },
                after: made[segment],
            });
            made[segment] = Some(flow.takes.len());
            flow.takes.push(ReceiveRange {
                range: received,
                how: if hop < adding { how } else { ReceiveOp::Store },
            });
        }
    }
}
