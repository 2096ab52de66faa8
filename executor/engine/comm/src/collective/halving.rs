//! Recursive halving and doubling (Rabenseifner): in each round half of the remaining range is sent
//! to a partner, and its sum comes back in the doubling rounds.
//!
//! If n is not a power of two, the surplus ranks first send their contribution to a neighbour and
//! receive the result from it at the end.

use super::butterfly::{fold, unfold};
use super::{AllReduceRun, RankSubset, pieces};
use crate::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};
use std::ops::Range;

pub(super) fn all_reduce(
    sum: &mut AllReduceRun<'_>,
    subset: RankSubset<'_>,
) -> Result<(), FabricError> {
    let Some((place, places)) = fold(sum, subset)? else {
        return unfold(sum.mesh, subset, sum.output);
    };
    let dealt = pieces(0..sum.output.len(), places.len());
    let (mut low, mut high) = (0, places.len());
    let mut rounds = Vec::new();
    while high - low > 1 {
        let half = (high - low) / 2;
        let middle = low + half;
        let (partner, keep, give) = if place < middle {
            (place + half, low..middle, middle..high)
        } else {
            (place - half, middle..high, low..middle)
        };
        let partner = subset.rank(places[partner]);
        let [kept, given] =
            [&keep, &give].map(|part| dealt[part.start].start..dealt[part.end - 1].end);
        let (own, how) = (sum.own, sum.how());
        exchange(sum, partner, (given.clone(), own), (kept.clone(), how))?;
        sum.own = CollectiveBuffer::Output;
        rounds.push((partner, kept, given));
        (low, high) = (keep.start, keep.end);
    }
    for (partner, kept, given) in rounds.into_iter().rev() {
        exchange(
            sum,
            partner,
            (kept, CollectiveBuffer::Output),
            (given, ReceiveOp::Store),
        )?;
    }
    unfold(sum.mesh, subset, sum.output)
}

fn exchange(
    sum: &mut AllReduceRun<'_>,
    partner: usize,
    (send, side): (Range<usize>, CollectiveBuffer),
    (take, how): (Range<usize>, ReceiveOp),
) -> Result<(), FabricError> {
    let flow = Flow {
        to: Some(partner),
        sends: vec![SendRange {
            range: send,
            from: side,
            after: None,
        }],
        from: Some(partner),
        takes: vec![ReceiveRange { range: take, how }],
        in_step: false,
        lends: sum.lends,
    };
    let mesh: &mut Mesh = sum.mesh;
    mesh.run(sum.input, sum.output, &flow)
}
