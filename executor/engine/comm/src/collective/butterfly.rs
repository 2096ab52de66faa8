//! Recursive doubling: in each round partners exchange the whole range and both add it. Few hops,
//! but many bytes: suited to small ranges.

use super::{Circle, Sum};
use crate::fabric::{FabricError, Flow, How, Mesh, Piece, Side, Take};

pub(super) fn all_reduce(sum: &mut Sum<'_>, circle: Circle<'_>) -> Result<(), FabricError> {
    let Some((place, places)) = fold(sum, circle)? else {
        return unfold(sum.mesh, circle, sum.output);
    };
    let whole = 0..sum.output.len();
    let mut distance = 1;
    while distance < places.len() {
        let partner = circle.rank(places[place ^ distance]);
        let flow = Flow {
            to: Some(partner),
            sends: vec![Piece {
                range: whole.clone(),
                from: sum.own,
                after: None,
            }],
            from: Some(partner),
            takes: vec![Take {
                range: whole.clone(),
                how: sum.how(),
            }],
            // The range that is sent is also the one that is added to.
            in_step: sum.own == Side::Output,
            lends: false,
        };
        sum.mesh.run(sum.input, sum.output, &flow)?;
        sum.own = Side::Output;
        distance *= 2;
    }
    unfold(sum.mesh, circle, sum.output)
}

/// Reduces the circle to a power of two. With a surplus of s places, each even place of the first
/// 2s sends its contribution to the odd place after it. Returns this task's place among the
/// remaining places, and those places; `None` if this task has sent its contribution away.
pub(super) fn fold(
    sum: &mut Sum<'_>,
    circle: Circle<'_>,
) -> Result<Option<(usize, Vec<usize>)>, FabricError> {
    let (me, surplus) = (circle.me(), surplus(circle));
    let whole = 0..sum.output.len();
    if me < 2 * surplus {
        let mut flow = Flow::default();
        if me.is_multiple_of(2) {
            flow.to = Some(circle.rank(me + 1));
            flow.sends.push(Piece {
                range: whole,
                from: sum.own,
                after: None,
            });
        } else {
            flow.from = Some(circle.rank(me - 1));
            flow.takes.push(Take {
                range: whole,
                how: sum.how(),
            });
        }
        sum.mesh.run(sum.input, sum.output, &flow)?;
        sum.own = Side::Output;
    }
    let places: Vec<usize> = (0..circle.len())
        .filter(|&place| place >= 2 * surplus || place % 2 == 1)
        .collect();
    let place = places.iter().position(|&place| place == me);
    Ok(place.map(|place| (place, places)))
}

/// Sends the result to the places that sent their contribution away in [`fold`].
pub(super) fn unfold(
    mesh: &mut Mesh,
    circle: Circle<'_>,
    values: &mut [f32],
) -> Result<(), FabricError> {
    let me = circle.me();
    if me >= 2 * surplus(circle) {
        return Ok(());
    }
    let whole = 0..values.len();
    let mut flow = Flow::default();
    if me.is_multiple_of(2) {
        flow.from = Some(circle.rank(me + 1));
        flow.takes.push(Take {
            range: whole,
            how: How::Store,
        });
    } else {
        flow.to = Some(circle.rank(me - 1));
        flow.sends.push(Piece {
            range: whole,
            from: Side::Output,
            after: None,
        });
    }
    mesh.run(&[], values, &flow)
}

fn surplus(circle: Circle<'_>) -> usize {
    circle.len() - (1 << circle.len().ilog2())
}
