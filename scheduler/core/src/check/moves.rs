//! Check of moves, and of the places that are reserved for them.

use super::violation::Violation;
use super::{Checker, asked, holds};
use crate::plan::{Action, RoundPlan};
use crate::snapshot::SnapshotJob;
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobState, Seat};
use muster_model::task::Role;
use std::collections::{BTreeMap, BTreeSet};

impl<'s> Checker<'s> {
    /// Reserves the destinations of moving jobs. A destination is not reserved if one of its GPUs
    /// is no longer available or the move ends in this plan.
    pub(super) fn keep_places(&mut self, plan: &RoundPlan) {
        let given_up: BTreeSet<JobId> = plan
            .decisions
            .iter()
            .filter(|decision| match &decision.action {
                Action::Stop { then, .. } => !matches!(then, AfterStop::Move { .. }),
                // A released job starts there in this plan, or lost the place for lack of CPU or
                // quota.
                Action::Release => true,
                _ => false,
            })
            .map(|decision| decision.job)
            .collect();
        for job in &self.snapshot.jobs {
            let JobState::Stopping {
                then: AfterStop::Move { to, .. },
            } = &job.state
            else {
                continue;
            };
            let gpus: BTreeSet<(NodeId, u32)> = gpus(to).collect();
            let own = own_gpus(job);
            let are_gpus_there = gpus.iter().all(|gpu| {
                self.free.contains(gpu) || own.contains(gpu) || self.stopping.contains(gpu)
            });
            let are_nodes_open = to
                .iter()
                .all(|seat| self.cpu_milli.contains_key(&seat.node));
            if are_gpus_there && are_nodes_open && !given_up.contains(&job.id) {
                self.free.retain(|gpu| !gpus.contains(gpu));
                self.kept.extend(gpus);
            }
        }
    }

    /// Notes the GPUs, CPU and memory of all jobs that stop, now or by this plan.
    pub(super) fn stops(&mut self, plan: &RoundPlan) {
        let decisions = plan.decisions.iter();
        let stopped = decisions.filter(|one| matches!(one.action, Action::Stop { .. }));
        let stopped: BTreeSet<JobId> = stopped.map(|one| one.job).collect();
        for job in &self.snapshot.jobs {
            if !matches!(job.state, JobState::Stopping { .. }) && !stopped.contains(&job.id) {
                continue;
            }
            self.stopping.extend(own_gpus(job));
            for (node, (cpu_milli, memory_bytes)) in own_room(job) {
                let room = self.stopping_room.entry(node).or_default();
                room.0 += cpu_milli;
                room.1 += memory_bytes;
            }
        }
    }

    /// Checks that a moved job is complete at its destination, on free GPUs, its own or those of
    /// stopping jobs. Reserves these GPUs.
    pub(super) fn moves(&mut self, job: &'s SnapshotJob, to: &[Seat]) {
        for (is_worker, role, range) in [
            (true, "worker", job.workers),
            (false, "ps shard", job.ps_shards),
        ] {
            let roles = to.iter().map(|seat| seat.role);
            let of_role: Vec<Role> = roles
                .filter(|role| matches!(role, Role::Worker { .. }) == is_worker)
                .collect();
            let different: BTreeSet<Role> = of_role.iter().copied().collect();
            let count = u32::try_from(of_role.len()).unwrap_or(u32::MAX);
            if different.len() != of_role.len() {
                let job = job.id;
                self.violations
                    .push(Violation::BrokenGang { job, role, count });
            }
            if count < range.min || count > range.max || (is_worker && !job.may_have(count)) {
                let job = job.id;
                self.violations
                    .push(Violation::OutsideRange { job, role, count });
            }
        }
        self.fits(job, to);
        let own = own_gpus(job);
        for seat in to {
            let node = seat.node;
            if !self.cpu_milli.contains_key(&node) {
                let job = job.id;
                self.violations.push(Violation::ClosedNode { job, node });
            }
            let needed = match seat.role {
                Role::Worker { .. } => job.worker.gpus,
                Role::PsShard { .. } => 0,
            };
            if seat.gpus.len() != needed as usize {
                self.violations.push(Violation::WrongGpus {
                    job: job.id,
                    role: seat.role,
                    given: seat.gpus.len(),
                    needed,
                });
            }
            for &gpu in &seat.gpus {
                let seat = (node, gpu);
                let is_left = own.contains(&seat) || self.stopping.contains(&seat);
                if !(self.free.remove(&seat) || is_left && self.kept.insert(seat)) {
                    let job = job.id;
                    self.violations
                        .push(Violation::GpuNotFree { job, node, gpu });
                }
            }
        }
    }

    /// Checks that CPU and memory are available at the destination once all stopping jobs have
    /// ended. They are charged only against what these jobs release, because the moving job may
    /// still start elsewhere.
    fn fits(&mut self, job: &SnapshotJob, to: &[Seat]) {
        let mut asks: BTreeMap<NodeId, (i128, i128)> = BTreeMap::new();
        for seat in to {
            let (cpu_milli, memory_bytes) = asked(job, seat.role);
            let asks = asks.entry(seat.node).or_default();
            asks.0 += i128::from(cpu_milli);
            asks.1 += i128::from(memory_bytes);
        }
        for (node, (cpu_milli, memory_bytes)) in asks {
            let released = self.stopping_room.entry(node).or_default();
            released.0 -= cpu_milli;
            released.1 -= memory_bytes;
            let (cpu_milli, memory_bytes) = (-released.0, -released.1);
            if is_short(self.cpu_milli.get(&node), cpu_milli) {
                self.violations.push(Violation::CpuExceeded { node });
            }
            if is_short(self.memory_bytes.get(&node), memory_bytes) {
                self.violations.push(Violation::MemoryExceeded { node });
            }
        }
    }
}

/// CPU in thousandths of a core and memory in bytes that the tasks of the job hold, by node.
fn own_room(job: &SnapshotJob) -> BTreeMap<NodeId, (i128, i128)> {
    let mut room: BTreeMap<NodeId, (i128, i128)> = BTreeMap::new();
    for task in job.held_tasks() {
        let (cpu_milli, memory_bytes) = asked(job, task.role);
        let room = room.entry(task.node).or_default();
        room.0 += if holds(&task.state) {
            i128::from(cpu_milli)
        } else {
            0
        };
        room.1 += i128::from(memory_bytes);
    }
    room
}

fn is_short(left: Option<&i128>, asks: i128) -> bool {
    left.is_some_and(|&left| 0 < asks && left < asks)
}

/// Returns the GPUs that tasks of the job hold.
fn own_gpus(job: &SnapshotJob) -> BTreeSet<(NodeId, u32)> {
    let held = job.held_tasks().filter(|task| holds(&task.state));
    let each = held.flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)));
    each.collect()
}

fn gpus(seats: &[Seat]) -> impl Iterator<Item = (NodeId, u32)> {
    let seats = seats.iter();
    seats.flat_map(|seat| seat.gpus.iter().map(|&gpu| (seat.node, gpu)))
}
