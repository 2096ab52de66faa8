//! Check of GPU memory: a job starts beside suspended programs only where it fits.

use super::violation::Violation;
use super::{Checker, holds, is_gone};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::id::NodeId;

impl Checker<'_> {
    /// Checks that the job fits on a GPU beside what suspended programs keep there.
    pub(super) fn fits_beside_programs(&mut self, job: &SnapshotJob, (id, gpu): (NodeId, u32)) {
        let mut nodes = self.snapshot.nodes.iter();
        let (Some(spare), Some(node)) = (self.spare_gpu_memory, nodes.find(|node| node.id == id))
        else {
            return;
        };
        let keeps = |task: &SnapshotTask| {
            let is_there = task.node == id && task.gpus.contains(&gpu);
            is_there && task.is_worker() && !is_gone(&task.state) && !holds(&task.state)
        };
        let others = self.snapshot.jobs.iter().filter(|other| other.id != job.id);
        let programs = others.filter(|other| other.held_tasks().any(keeps));
        // `None` as soon as one amount is unknown.
        let kept = programs
            .map(|other| other.kept_gpu_bytes(node).map(u128::from))
            .sum::<Option<u128>>();
        if kept == Some(0) {
            return;
        }
        let needed = job.needed_gpu_bytes().map(u128::from);
        let room = node.gpu_memory_bytes as f64 * (1.0 - spare);
        if !matches!((kept, needed), (Some(kept), Some(needed)) if (kept + needed) as f64 <= room) {
            let (job, node) = (job.id, id);
            self.violations
                .push(Violation::GpuMemoryExceeded { job, node, gpu });
        }
    }
}
