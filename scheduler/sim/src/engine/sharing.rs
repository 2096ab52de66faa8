//! Two jobs on one GPU: their rates beside each other, and the node's measurements as the store
//! would keep them.
//!
//! The core decides on pairs from these measurements. The simulator only contains the true rates.

use super::ids::job_number;
use super::{SimulationEngine, freed};
use crate::scenario::Sharing;
use muster_core::promote_guests;
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotTask};
use muster_model::id::{JobId, NodeId};
use muster_model::packing::{Company, Hurt, UsageReport};
use std::collections::BTreeMap;

/// For each job that shares its GPU: the other job, and the time since which both hold it.
pub(super) type Companies = BTreeMap<JobId, Company>;

/// Searches guests first, because most snapshots contain none.
pub(super) fn companies(snapshot: &ClusterSnapshot) -> Companies {
    let guests: BTreeMap<(NodeId, u32), &SnapshotJob> = on_lane(snapshot, 1).collect();
    let mut companies = Companies::new();
    if guests.is_empty() {
        return companies;
    }
    for (gpu, host) in on_lane(snapshot, 0) {
        let Some(&guest) = guests.get(&gpu) else {
            continue;
        };
        let since_ms = came_ms(host).max(came_ms(guest));
        for (job, other) in [(host, guest), (guest, host)] {
            let company = Company {
                job: other.id,
                since_ms,
            };
            companies.insert(job.id, company);
        }
    }
    companies
}

/// GPUs held on the lane, each with its job.
fn on_lane(
    snapshot: &ClusterSnapshot,
    lane: u32,
) -> impl Iterator<Item = ((NodeId, u32), &SnapshotJob)> {
    snapshot.jobs.iter().flat_map(move |job| {
        let held = job.held_tasks().filter(|task| task.state.holds_gpus());
        let held = held.filter(move |task| task.lane == lane);
        held.flat_map(move |task| task.gpus.iter().map(move |&gpu| ((task.node, gpu), job)))
    })
}

/// Time since which the job holds its GPUs.
fn came_ms(job: &SnapshotJob) -> i64 {
    job.turned_ms.max(job.placed_ms).unwrap_or(job.submitted_ms)
}

/// Relative rate of a job that shares a GPU. `busy` is the share of its time for which it keeps the
/// GPU busy alone.
///
/// A job works on the GPU for that share of a step, and elsewhere (data, host, network) for the
/// rest. On the GPU both jobs get equal parts. This is a closed network of two customers with one
/// processor-sharing queue and one delay. Mean value analysis (Reiser and Lavenberg, J. ACM 1980)
/// solves it exactly. A job that arrives at the GPU finds the other one there with the probability
/// with which that job alone would be there. A step therefore takes `1 + busy * busy_of_other`
/// times as long. Two jobs that only compute get a half each, as with time slicing.
pub(super) fn part(busy: f64, busy_of_other: f64) -> f64 {
    1.0 / (1.0 + busy * busy_of_other)
}

impl SimulationEngine<'_> {
    /// Factor on the job's speed beside the job that shares its GPU; 1 without one.
    pub(super) fn kept_beside(&self, job: &SnapshotJob) -> f64 {
        let Some(company) = self.companies.get(&job.id) else {
            return 1.0;
        };
        let [own, other] = [job.id, company.job].map(|id| self.uses[job_number(id)].busy);
        part(own, other)
    }

    /// Records reports up to `until_ms`, at every multiple of `sample_ms`. Each job of one worker
    /// reports its steps, and its node reports its GPU use. `speeds` are those of the jobs that
    /// train, in the snapshot's order.
    pub(super) fn tell_use(&mut self, sharing: &Sharing, speeds: &[Option<f64>], until_ms: i64) {
        let now_ms = self.snapshot.now_ms;
        let every_ms = sharing.sample_ms.max(1);
        let first_ms = (now_ms.div_euclid(every_ms) + 1) * every_ms;
        let step = usize::try_from(every_ms).unwrap_or(1);
        for (job, speed) in self.snapshot.jobs.iter_mut().zip(speeds) {
            let stands = job.are_workers_suspended();
            if job.size() != (1, 0) || !(stands || speed.is_some()) {
                continue;
            }
            let company = self.companies.get(&job.id).copied();
            let uses = self.uses[job_number(job.id)];
            let known = std::mem::take(job.measured.get_or_insert_default());
            let mut known = known.in_revision(job.revision);
            for at_ms in (first_ms..=until_ms).step_by(step) {
                let report = UsageReport {
                    // A suspended job has released its GPU memory, as the built-in engine does.
                    memory_bytes: Some(if stands { 0 } else { uses.memory_bytes }),
                    busy: uses.busy,
                    over_ms: every_ms.unsigned_abs(),
                    stands,
                    ..UsageReport::default()
                };
                known.take_usage(&report, company, at_ms);
                if let Some(speed) = speed {
                    known.take_rate(*speed, company, at_ms);
                }
            }
            job.measured = Some(Box::new(known));
        }
    }

    /// Marks a resumed job: its next measurement spans the time of the suspension.
    pub(super) fn unsettle(&mut self, number: usize) {
        let now_ms = self.snapshot.now_ms;
        let mut jobs = self.snapshot.jobs.iter_mut();
        let job = jobs.find(|job| job_number(job.id) == number);
        if let Some(known) = job.and_then(|job| job.measured.as_mut()) {
            known.unsettle(now_ms);
        }
    }

    /// Records that a job failed beside another: the cause may be either job.
    pub(super) fn hurt(&mut self, id: JobId) {
        let Some(company) = self.companies.get(&id) else {
            return;
        };
        let beside = company.job;
        let mut jobs = self.snapshot.jobs.iter_mut();
        if let Some(job) = jobs.find(|job| job.id == id) {
            let revision = job.revision;
            let known = job.measured.get_or_insert_default();
            known.hurt = Some(Hurt { revision, beside });
        }
    }

    /// Moves guests whose host has left the GPU to lane 0, as the store's transaction of the
    /// release does.
    pub(super) fn inherit(&mut self) {
        if self.scenario.sharing.is_none() {
            return;
        }
        let jobs = self.snapshot.jobs.iter();
        let guests: Vec<JobId> = jobs
            .filter(|job| job.tasks.iter().any(|task| task.lane > 0))
            .map(|job| job.id)
            .collect();
        if guests.is_empty() {
            return;
        }
        promote_guests(&mut self.snapshot);
        let now_ms = self.snapshot.now_ms;
        for job in &self.snapshot.jobs {
            if guests.contains(&job.id) && job.tasks.iter().any(is_host) {
                self.holds.open(job_number(job.id), now_ms, places(job));
            }
        }
    }

    /// Records the GPUs of a resumed job. The GPUs of a guest count for its host.
    pub(super) fn hold_again(&mut self, number: usize, is_guest: bool) {
        if is_guest {
            return;
        }
        let now_ms = self.snapshot.now_ms;
        let mut jobs = self.snapshot.jobs.iter();
        if let Some(job) = jobs.find(|job| job_number(job.id) == number) {
            self.holds.open(number, now_ms, places(job));
        }
    }
}

/// Whether the task holds GPUs on lane 0.
fn is_host(task: &SnapshotTask) -> bool {
    task.state.holds_gpus() && task.lane == 0
}

fn places(job: &SnapshotJob) -> impl Iterator<Item = (NodeId, usize)> {
    let held = freed::held(job);
    held.into_iter().map(|(node, gpus)| (node, gpus.len()))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn relative_rate_falls_with_gpu_time_of_both_jobs() {
        assert_eq!(part(1.0, 1.0), 0.5);
        assert_eq!(part(0.5, 0.0), 1.0);
        // Each finds the other one at the GPU in a quarter of the cases, and then shares it.
        assert_eq!(part(0.5, 0.5), 0.8);
    }
}
