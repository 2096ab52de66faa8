//! Binomial trees for reductions to a root and broadcasts from it, and a barrier.

use super::{AllReduceRun, RankSubset};
use crate::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};

/// Sums over the subset; the result is at its first place, and the output of all other places is
/// unspecified.
pub(super) fn reduce(
    sum: &mut AllReduceRun<'_>,
    subset: RankSubset<'_>,
) -> Result<(), FabricError> {
    let whole = 0..sum.output.len();
    let (me, n) = (subset.me(), subset.len());
    let mut bit = 1;
    while bit < n {
        if me & bit != 0 {
            let flow = Flow {
                to: Some(subset.rank(me - bit)),
                sends: vec![SendRange {
                    range: whole,
                    from: sum.own,
                    after: None,
                }],
                ..Flow::default()
            };
            sum.mesh.run(sum.input, sum.output, &flow)?;
            sum.own = CollectiveBuffer::Output;
            return Ok(());
        }
        if me + bit < n {
            let flow = Flow {
                from: Some(subset.rank(me + bit)),
                takes: vec![ReceiveRange {
                    range: whole.clone(),
                    how: sum.how(),
                }],
                ..Flow::default()
            };
            sum.mesh.run(sum.input, sum.output, &flow)?;
            sum.own = CollectiveBuffer::Output;
        }
        bit *= 2;
    }
    sum.keep_own();
    Ok(())
}

/// Replaces `values` on all ranks by those of rank `root`.
///
/// # Errors
/// As [`super::all_reduce`].
pub fn broadcast(mesh: &mut Mesh, root: usize, values: &mut [f32]) -> Result<(), FabricError> {
    let all: Vec<usize> = (0..mesh.size()).collect();
    let subset = RankSubset::new(&all, mesh.rank());
    broadcast_over(mesh, subset, root, values)
}

/// Like [`broadcast`], over a subset, from one of its places. Received data is passed on to the
/// first child while it arrives.
pub(crate) fn broadcast_over(
    mesh: &mut Mesh,
    subset: RankSubset<'_>,
    root: usize,
    values: &mut [f32],
) -> Result<(), FabricError> {
    let n = subset.len();
    let place = (subset.me() + n - root) % n;
    // The lowest set bit is the distance to the parent; children are at all smaller distances, the
    // largest first.
    let reach = if place == 0 {
        n.next_power_of_two()
    } else {
        1 << place.trailing_zeros()
    };
    let mut parent = (place > 0).then(|| subset.rank(place - reach + root));
    let mut distance = reach / 2;
    loop {
        let child =
            (distance > 0 && place + distance < n).then(|| subset.rank(place + distance + root));
        let mut flow = Flow::default();
        if let Some(parent) = parent
            && (child.is_some() || distance == 0)
        {
            flow.from = Some(parent);
            flow.takes.push(ReceiveRange {
                range: 0..values.len(),
                how: ReceiveOp::Store,
            });
        }
        if let Some(child) = child {
            flow.to = Some(child);
            flow.sends.push(SendRange {
                range: 0..values.len(),
                from: CollectiveBuffer::Output,
                after: (!flow.takes.is_empty()).then_some(0),
            });
        }
        mesh.run(&[], values, &flow)?;
        if !flow.takes.is_empty() {
            parent = None;
        }
        if distance == 0 {
            return Ok(());
        }
        distance /= 2;
    }
}

/// Returns after every rank has called it.
///
/// # Errors
/// As [`super::all_reduce`].
pub fn barrier(mesh: &mut Mesh) -> Result<(), FabricError> {
    let (me, n) = (mesh.rank(), mesh.size());
    let mut distance = 1;
    let mut token = [0.0];
    while distance < n {
        let flow = Flow {
            to: Some((me + distance) % n),
            sends: vec![SendRange {
                range: 0..1,
                from: CollectiveBuffer::Input,
                after: None,
            }],
            from: Some((me + n - distance) % n),
            takes: vec![ReceiveRange {
                range: 0..1,
                how: ReceiveOp::Store,
            }],
            in_step: false,
            lends: false,
        };
        mesh.run(&[1.0], &mut token, &flow)?;
        distance *= 2;
    }
    Ok(())
}
