//! Check of starts and resizes: whole gangs on free GPUs.

use super::violation::Violation;
use super::{Checker, asked, is_gone};
use crate::plan::PlannedTask;
use crate::snapshot::{SnapshotJob, SnapshotNode, SnapshotTask};
use muster_model::id::TaskId;
use muster_model::job::{AfterStop, JobState};
use muster_model::node::is_part;
use muster_model::spec::UnmetConstraint;
use muster_model::task::{Role, TaskState};
use std::collections::{BTreeMap, BTreeSet};

impl<'s> Checker<'s> {
    pub(super) fn start(&mut self, job: &'s SnapshotJob, tasks: &[PlannedTask]) {
        let mut counts: BTreeMap<(bool, u32), u32> = BTreeMap::new();
        for task in tasks {
            let key = match task.role {
                Role::Worker { rank } => (true, rank),
                Role::PsShard { index } => (false, index),
            };
            *counts.entry(key).or_default() += 1;
            self.place(job, task);
        }
        for (is_worker, role, range) in [
            (true, "worker", job.workers),
            (false, "ps shard", job.ps_shards),
        ] {
            let indices: Vec<(u32, u32)> = counts
                .iter()
                .filter(|((kind, _), _)| *kind == is_worker)
                .map(|((_, index), count)| (*index, *count))
                .collect();
            for (expected, &(index, count)) in (0_u32..).zip(&indices) {
                if index != expected || count != 1 {
                    self.violations.push(Violation::BrokenGang {
                        job: job.id,
                        role,
                        count,
                    });
                }
            }
            let count = u32::try_from(indices.len()).unwrap_or(u32::MAX);
            if count < range.min || count > range.max || (is_worker && !job.may_have(count)) {
                self.violations.push(Violation::OutsideRange {
                    job: job.id,
                    role,
                    count,
                });
            }
        }
    }

    /// Surviving tasks must be running and include rank 0. With the joining tasks they must form a
    /// complete gang.
    pub(super) fn resize(&mut self, job: &'s SnapshotJob, leave: &[TaskId], join: &[PlannedTask]) {
        let leaving_tasks: BTreeSet<TaskId> = leave.iter().copied().collect();
        let known = leave
            .iter()
            .all(|id| job.tasks.iter().any(|task| task.id == *id));
        let stays: Vec<&SnapshotTask> = job
            .tasks
            .iter()
            .filter(|task| !leaving_tasks.contains(&task.id))
            .collect();
        let chief = Role::Worker { rank: 0 };
        let is_lost = self
            .lost_shards(job, leave)
            .any(|task| !job.replicated && !was_refused(task));

        if !job.in_place {
            self.impossible_resize(job, "which it cannot be");
        }
        if leave.is_empty() && join.is_empty() {
            self.impossible_resize(job, "and nothing changes");
        }
        if !known || leaving_tasks.len() != leave.len() {
            self.impossible_resize(job, "and a task leaves that is not there");
        }
        if stays.iter().any(|task| is_gone(&task.state)) {
            self.impossible_resize(job, "and counts on a task that is gone");
        }
        if !stays.iter().any(|task| task.role == chief) {
            self.impossible_resize(job, "and its chief does not stay");
        }
        if is_lost {
            self.impossible_resize(job, "and continues without the content of a lost shard");
        }
        let roles: Vec<Role> = stays
            .iter()
            .map(|task| task.role)
            .chain(join.iter().map(|task| task.role))
            .collect();
        if roles.iter().collect::<BTreeSet<_>>().len() != roles.len() {
            self.impossible_resize(job, "and two tasks have one role");
        }
        for (is_worker, role, range) in [
            (true, "worker", job.workers),
            (false, "ps shard", job.ps_shards),
        ] {
            let of_role = roles
                .iter()
                .filter(|role| matches!(role, Role::Worker { .. }) == is_worker);
            let count = u32::try_from(of_role.count()).unwrap_or(u32::MAX);
            // The owner may have changed the range of a running job. The job need not be within it
            // at once, but must not move further out.
            let (workers, ps_shards) = job.size();
            let (least, most) = if is_worker {
                (range.min.min(workers), range.max.max(workers))
            } else {
                (self.fewest_shards(job, leave), range.max.max(ps_shards))
            };
            if count < least || count > most || (is_worker && !job.may_have(count)) {
                self.violations.push(Violation::OutsideRange {
                    job: job.id,
                    role,
                    count,
                });
            }
        }
        for task in join {
            self.place(job, task);
        }
        self.leaving_tasks.insert(job.id, leaving_tasks);
    }

    fn impossible_resize(&mut self, job: &SnapshotJob, what: &'static str) {
        let violation = Violation::ImpossibleResize { job: job.id, what };
        self.violations.push(violation);
    }

    /// Returns the smallest allowed number of shards. The replica of a lost shard serves in its
    /// place, and a shard that its node refused never held anything. The job may be below its
    /// minimum by the number of these shards.
    fn fewest_shards(&self, job: &'s SnapshotJob, leave: &[TaskId]) -> u32 {
        let there = shards(job).count();
        let lost = self.lost_shards(job, leave).count();
        let [there, lost] = [there, lost].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let least = job.ps_shards.min.min(there).saturating_sub(lost);
        least.max(u32::from(there > 0))
    }

    /// Returns the shards that a resize removes because they are gone.
    fn lost_shards(
        &self,
        job: &'s SnapshotJob,
        leave: &[TaskId],
    ) -> impl Iterator<Item = &'s SnapshotTask> {
        let nodes = &self.snapshot.nodes;
        let leaving_tasks = shards(job).filter(|task| leave.contains(&task.id));
        leaving_tasks.filter(move |task| {
            let mut nodes = nodes.iter();
            is_gone(&task.state) || !nodes.any(|node| node.id == task.node && node.up)
        })
    }

    fn place(&mut self, job: &'s SnapshotJob, task: &PlannedTask) {
        // Only nodes that take tasks have an entry.
        if !self.cpu_milli.contains_key(&task.node) {
            self.violations.push(Violation::ClosedNode {
                job: job.id,
                node: task.node,
            });
        }
        let needed = match task.role {
            Role::Worker { .. } => job.worker.gpus,
            Role::PsShard { .. } => 0,
        };
        let given = task.gpus.len();
        if given != needed as usize {
            self.violations.push(Violation::WrongGpus {
                job: job.id,
                role: task.role,
                given,
                needed,
            });
        }
        let mut nodes = self.snapshot.nodes.iter();
        let node = nodes.find(|node| node.id == task.node);
        if given > 1 && node.is_some_and(|node| is_part(&node.gpu_model)) {
            self.violations.push(Violation::SeveralParts {
                job: job.id,
                role: task.role,
                node: task.node,
                given,
            });
        }
        let mut nodes = self.snapshot.nodes.iter();
        if job.pods && !nodes.any(|node| node.id == task.node && node.has_pods()) {
            self.violations.push(Violation::NoPods {
                job: job.id,
                role: task.role,
                node: task.node,
            });
        }
        let mut nodes = self.snapshot.nodes.iter();
        if job.image && !nodes.any(|node| node.id == task.node && node.hosts(false, true)) {
            self.violations.push(Violation::NoImages {
                job: job.id,
                role: task.role,
                node: task.node,
            });
        }
        if job.unfit.contains(&task.node) {
            self.violations.push(Violation::UnfitNode {
                job: job.id,
                role: task.role,
                node: task.node,
            });
        }
        if let Some(by) = node.and_then(|node| self.forbids(job, node)) {
            self.violations.push(Violation::ForbiddenNode {
                job: job.id,
                role: task.role,
                node: task.node,
                by,
            });
        }
        for &gpu in &task.gpus {
            if !self.free.remove(&(task.node, gpu)) {
                self.violations.push(Violation::GpuNotFree {
                    job: job.id,
                    node: task.node,
                    gpu,
                });
            }
            self.fits_beside_programs(job, (task.node, gpu));
        }
        *self.started.entry(job.tenant).or_default() += u32::try_from(given).unwrap_or(u32::MAX);
        self.charge(job, task.role, task.node);
        // A node that became smaller may already lack CPU or memory. A task that requests none is
        // allowed there.
        let (cpu_milli, memory_bytes) = asked(job, task.role);

        if cpu_milli > 0 && is_short(self.cpu_milli.get(&task.node)) {
            self.violations
                .push(Violation::CpuExceeded { node: task.node });
        }
        if memory_bytes > 0 && is_short(self.memory_bytes.get(&task.node)) {
            self.violations
                .push(Violation::MemoryExceeded { node: task.node });
        }
    }
}

impl Checker<'_> {
    /// Returns the constraint that excludes the node. A job may get further tasks on a node that it
    /// holds or to which it moves.
    fn forbids(&self, job: &SnapshotJob, node: &SnapshotNode) -> Option<UnmetConstraint> {
        let moves_there = match &job.state {
            JobState::Stopping {
                then: AfterStop::Move { to, .. },
            } => to.iter().any(|seat| seat.node == node.id),
            _ => false,
        };
        if moves_there || job.held_tasks().any(|task| task.node == node.id) {
            return None;
        }
        job.constraints.unmet(&node.traits(), self.best_class)
    }
}

fn is_short(left: Option<&i128>) -> bool {
    left.is_some_and(|&left| left < 0)
}

fn shards(job: &SnapshotJob) -> impl Iterator<Item = &SnapshotTask> {
    let tasks = job.tasks.iter();
    tasks.filter(|task| matches!(task.role, Role::PsShard { .. }))
}

/// Whether the node refused the task, so that it never held parameters.
fn was_refused(task: &SnapshotTask) -> bool {
    matches!(&task.state, TaskState::Released { outcome } if outcome.is_refusal())
}
