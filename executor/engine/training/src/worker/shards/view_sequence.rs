//! Sequence of views.

use super::ShardAddress;
use muster_comm::assign::{ParameterPiece, assign, reassign};
use muster_comm::wire::view::{ShardAssignment, TaskSetView};
use muster_model::id::TaskId;

/// Returns the first view of a job's task set.
#[must_use]
pub fn first_view(
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[ShardAddress],
    blocks: &[ParameterPiece],
) -> TaskSetView {
    let assignment = assign(blocks, shards.len());
    TaskSetView {
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
    newest: &TaskSetView,
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[ShardAddress],
    parameters: usize,
) -> TaskSetView {
    let mut view = TaskSetView {
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
        let held: Vec<Vec<ParameterPiece>> = shards
            .iter()
            .map(|(shard, _)| newest.pieces(*shard).to_vec())
            .collect();
        view.layout += 1;
        view.before = newest.shards.clone();
        view.shards = holders(shards, reassign(parameters, &held));
    }
    view
}

fn holders(shards: &[ShardAddress], assignment: Vec<Vec<ParameterPiece>>) -> Vec<ShardAssignment> {
    let holder =
        |((task_id, address), pieces): (&ShardAddress, Vec<ParameterPiece>)| ShardAssignment {
            task_id: *task_id,
            address: address.clone(),
            pieces,
        };
    shards.iter().zip(assignment).map(holder).collect()
}
