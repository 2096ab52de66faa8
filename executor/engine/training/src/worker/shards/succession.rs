//! Sequence of views.

use super::Address;
use muster_comm::assign::{Piece, assign, reassign};
use muster_comm::wire::view::{Holder, View};
use muster_model::id::TaskId;

/// Returns the first view of a job's task set.
#[must_use]
pub fn first_view(
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[Address],
    blocks: &[Piece],
) -> View {
    let assignment = assign(blocks, shards.len());
    View {
        number: 1,
        revision,
        layout: 1,
        workers,
        shards: holders(shards, assignment),
        before: Vec::new(),
    }
}

/// Returns the view after `newest`. If the shards stay the same, no piece moves. The layout before
/// is then still the predecessor of the present one, for shards that have not completed that move.
/// A promoted replica keeps its own address.
pub(super) fn succeeding(
    newest: &View,
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[Address],
    parameters: usize,
) -> View {
    let mut view = View {
        number: newest.number + 1,
        revision,
        workers,
        ..newest.clone()
    };
    let same = shards.len() == newest.shards.len()
        && shards.iter().all(|(shard, _)| newest.has_shard(*shard));
    if same {
        for holder in &mut view.shards {
            let known = shards.iter().find(|(shard, _)| *shard == holder.task_id);
            if let Some((_, address)) = known {
                holder.address.clone_from(address);
            }
        }
    } else {
        let held: Vec<Vec<Piece>> = shards
            .iter()
            .map(|(shard, _)| newest.pieces(*shard).to_vec())
            .collect();
        view.layout += 1;
        view.before = newest.shards.clone();
        view.shards = holders(shards, reassign(parameters, &held));
    }
    view
}

fn holders(shards: &[Address], assignment: Vec<Vec<Piece>>) -> Vec<Holder> {
    let holder = |((task_id, address), pieces): (&Address, Vec<Piece>)| Holder {
        task_id: *task_id,
        address: address.clone(),
        pieces,
    };
    shards.iter().zip(assignment).map(holder).collect()
}
