//! Who goes on elsewhere, and the place that is kept for it meanwhile.

use super::Checker;
use super::violation::Violation;
use crate::plan::{Action, Plan};
use crate::snapshot::Job;
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobState, Seat};
use muster_model::task::Role;
use std::collections::BTreeSet;

impl<'s> Checker<'s> {
    /// GPUs to which jobs are on their way are for nobody else, unless one of them is not to be had any more or the job goes no further.
    pub(super) fn keep_places(&mut self, plan: &Plan) {
        let given_up: BTreeSet<JobId> = plan
            .decisions
            .iter()
            .filter(|decision| match &decision.action {
                Action::Stop { then, .. } => !matches!(then, AfterStop::Move { .. }),
                // Who has stopped starts there, or has lost the place to a lack of CPU or quota.
                Action::Release => true,
                _ => false,
            })
            .map(|decision| decision.job)
            .collect();
        for job in &self.snapshot.jobs {
            let JobState::Stopping {
                then: AfterStop::Move { to },
            } = &job.state
            else {
                continue;
            };
            let gpus: BTreeSet<(NodeId, u32)> = gpus(to).collect();
            let is_open = |seat: &Seat| self.cpu_milli.contains_key(&seat.node);
            let is_there = gpus.is_subset(&self.free) && to.iter().all(is_open);
            if is_there && !given_up.contains(&job.id) {
                self.free.retain(|gpu| !gpus.contains(gpu));
            }
        }
    }

    /// A job that moves is whole where it goes, on what is free now; it has its place there from now on.
    pub(super) fn moves(&mut self, job: &'s Job, to: &[Seat]) {
        let workers = to
            .iter()
            .filter(|seat| matches!(seat.role, Role::Worker { .. }));
        let count = u32::try_from(workers.count()).unwrap_or(u32::MAX);
        if count < job.workers.min || count > job.workers.max || !job.may_have(count) {
            self.violations.push(Violation::OutsideRange {
                job: job.id,
                role: "worker",
                count,
            });
        }
        for seat in to {
            let node = seat.node;
            if !self.cpu_milli.contains_key(&node) {
                let job = job.id;
                self.violations.push(Violation::ClosedNode { job, node });
            }
            for &gpu in &seat.gpus {
                if !self.free.remove(&(node, gpu)) {
                    let job = job.id;
                    self.violations
                        .push(Violation::GpuNotFree { job, node, gpu });
                }
            }
        }
    }
}

fn gpus(seats: &[Seat]) -> impl Iterator<Item = (NodeId, u32)> {
    let of = |seat: &Seat| (seat.node, seat.gpus.clone());
    let each = seats.iter().map(of);
    each.flat_map(|(node, gpus)| gpus.into_iter().map(move |gpu| (node, gpu)))
}
