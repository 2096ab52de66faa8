//! Recursive doubling: in each round partners exchange the whole range and both add it. Few hops,
//! but many bytes: suited to small ranges.

use super::{AllReduceRun, RankSubset};
use crate::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};

pub(super) fn all_reduce(
    sum: &mut AllReduceRun<'_>,
    subset: RankSubset<'_>,
) -> Result<(), FabricError> {
    let Some((place, places)) = fold(sum, subset)? else {
        return unfold(sum.mesh, subset, sum.output);
    };
    let whole = 0..sum.output.len();
    let mut distance = 1;
    while distance < places.len() {
        let partner = subset.rank(places[place ^ distance]);
        let flow = Flow {
            to: Some(partner),
            sends: vec![SendRange {
                range: whole.clone(),
                from: sum.own,
                after: None,
            }],
            from: Some(partner),
            takes: vec![ReceiveRange {
                range: whole.clone(),
                how: sum.how(),
            }],
            // The range that is sent is also the one that is added to.
            in_step: sum.own == CollectiveBuffer::Output,
            lends: false,
        };
        sum.mesh.run(sum.input, sum.output, &flow)?;
        sum.own = CollectiveBuffer::Output;
        distance *= 2;
    }
    unfold(sum.mesh, subset, sum.output)
}

/// Reduces the subset to a power of two. With a surplus of s places, each even place of the first
/// 2s sends its contribution to the odd place after it. Returns this task's place among the
/// remaining places, and those places; `None` if this task has sent its contribution away.
pub(super) fn fold(
    sum: &mut AllReduceRun<'_>,
    subset: RankSubset<'_>,
) -> Result<Option<(usize, Vec<usize>)>, FabricError> {
    let (me, surplus) = (subset.me(), surplus(subset));
    let whole = 0..sum.output.len();
    if me < 2 * surplus {
        let mut flow = Flow::default();
        if me.is_multiple_of(2) {
            flow.to = Some(subset.rank(me + 1));
            flow.sends.push(SendRange {
                range: whole,
                from: sum.own,
                after: None,
            });
        } else {
            flow.from = Some(subset.rank(me - 1));
            flow.takes.push(ReceiveRange {
                range: whole,
                how: sum.how(),
            });
        }
        sum.mesh.run(sum.input, sum.output, &flow)?;
        sum.own = CollectiveBuffer::Output;
    }
    let places: Vec<usize> = (0..subset.len())
        .filter(|&place| place >= 2 * surplus || place % 2 == 1)
        .collect();
    let place = places.iter().position(|&place| place == me);
    Ok(place.map(|place| (place, places)))
}

/// Sends the result to the places that sent their contribution away in [`fold`].
pub(super) fn unfold(
    mesh: &mut Mesh,
    subset: RankSubset<'_>,
    values: &mut [f32],
) -> Result<(), FabricError> {
    let me = subset.me();
    if me >= 2 * surplus(subset) {
        return Ok(());
    }
    let whole = 0..values.len();
    let mut flow = Flow::default();
    if me.is_multiple_of(2) {
        flow.from = Some(subset.rank(me + 1));
        flow.takes.push(ReceiveRange {
            range: whole,
            how: ReceiveOp::Store,
        });
    } else {
        flow.to = Some(subset.rank(me - 1));
        flow.sends.push(SendRange {
            range: whole,
            from: CollectiveBuffer::Output,
            after: None,
        });
    }
    mesh.run(&[], values, &flow)
}

fn surplus(subset: RankSubset<'_>) -> usize {
    subset.len() - (1 << subset.len().ilog2())
}
