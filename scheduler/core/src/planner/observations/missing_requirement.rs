//! A job whose program lacks something on its node: the program itself, a folder, or what
//! `command.check` tests.
//!
//! The node is not at fault, and a restart there would fail again. The job tries other nodes, and
//! each attempt is charged to its retries.

use crate::planner::gang::MAX_UNFIT_NODES;
use crate::snapshot::{SnapshotJob, SnapshotNode};

/// Whether the present revision failed because its node lacks something.
pub(super) fn is_lack(job: &SnapshotJob) -> bool {
    job.failed
        .as_ref()
        .is_some_and(|failed| failed.lacks.is_some())
}

/// Reason why the job fails: too few open nodes that could hold its workers remain untried. `None`
/// if enough remain.
pub(super) fn nowhere(job: &SnapshotJob, nodes: &[SnapshotNode]) -> Option<String> {
    let lacks = job.failed.as_ref()?.lacks.as_ref()?;
    let left = nodes
        .iter()
        .filter(|node| node.is_open() && node.gpus >= job.worker.gpus)
        .filter(|node| node.hosts(job.pods, job.image))
        .filter(|node| !job.unfit.contains(&node.id));
    let per_node = |node: &SnapshotNode| match job.worker.gpus {
        // Any number of workers without GPUs may be on one node.
        0 => job.workers.min,
        gpus => node.gpus / gpus,
    };
    let room: u32 = left.map(per_node).fold(0, u32::saturating_add);
    let looked = job.unfit.len();
    if looked >= MAX_UNFIT_NODES {
        return Some(format!("{looked} nodes do not have {lacks}"));
    }
    if room >= job.workers.min {
        return None;
    }
    Some(match room {
        0 => format!("no node has {lacks} (looked on {looked})"),
        _ => format!(
            "{} not have {lacks}, and the others hold {room} of at least {} workers",
            if looked == 1 {
                "1 node does".to_owned()
            } else {
                format!("{looked} nodes do")
            },
            job.workers.min
        ),
    })
}
