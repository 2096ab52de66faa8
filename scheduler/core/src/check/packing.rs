//! Check of packed GPUs, over the whole cluster as the plan leaves it.

use super::violation::Violation;
use super::{Checker, holds, is_gone};
use crate::plan::{Action, RoundPlan};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{Intent, JobState};
use muster_model::task::TaskState;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks by GPU: the job, its task and its lane.
type TasksByGpu<'s> = BTreeMap<(NodeId, u32), Vec<(&'s SnapshotJob, &'s SnapshotTask, u32)>>;

impl<'s> Checker<'s> {
    /// Checks that a suspended job resumes as the guest of the one running job on its GPU.
    pub(super) fn go_on_beside(&mut self, job: &'s SnapshotJob, host: JobId) {
        let Some(host) = self.snapshot.jobs.iter().find(|other| other.id == host) else {
            return self.unjust(job, "with a job that the snapshot does not have");
        };
        let (Some((task, gpu)), Some(other)) = (only(job), only(host)) else {
            return self.unjust(job, "and one of the two is more than a task on a GPU");
        };
        let node = task.node;
        if other.0.node != node || other.1 != gpu {
            self.unjust(job, "on a GPU that is not its own and its host's");
        }
        if job.intent != Intent::Run || task.state != TaskState::Suspended {
            self.unjust(job, "and it does not wait for its turn");
        }
        if host.intent != Intent::Run || other.0.state != TaskState::Running || other.0.lane != 0 {
            self.unjust(job, "beside one that is not at work");
        }
        if !is_measured_unharmed(job) || !is_measured_unharmed(host) {
            self.unjust(
                job,
                "and one of the two was never measured alone, or came to harm",
            );
        }
        self.go_on_at(job, task);
        let pays = !self.has(job, node, gpu) && self.seated.insert((job.tenant, node, gpu));
        *self.started.entry(job.tenant).or_default() += u32::from(pays);
    }

    /// Charges the CPU of a resumed task and checks its node.
    fn go_on_at(&mut self, job: &'s SnapshotJob, task: &SnapshotTask) {
        let node = task.node;
        match self.cpu_milli.get_mut(&node) {
            None => {
                let job = job.id;
                self.violations.push(Violation::ClosedNode { job, node });
            }
            Some(left) => {
                *left -= i128::from(job.worker.cpu_milli);
                if *left < 0 && job.worker.cpu_milli > 0 {
                    self.violations.push(Violation::CpuExceeded { node });
                }
            }
        }
    }

    /// Checks every GPU with more than one task, including pairs that the plan leaves as they are.
    /// No lane is held twice. Two jobs that keep running have equal priority and enough memory.
    pub(super) fn pairs(&mut self, plan: &RoundPlan) {
        let guests: BTreeSet<JobId> = plan
            .decisions
            .iter()
            .filter(|one| {
                matches!(
                    &one.action,
                    Action::Continue {
                        beside: Some(_),
                        ..
                    }
                )
            })
            .map(|one| one.job)
            .collect();
        if guests.is_empty() && !self.snapshot.jobs.iter().any(has_guest) {
            return;
        }
        let (mut seats, mut standing) = (TasksByGpu::new(), TasksByGpu::new());
        for job in &self.snapshot.jobs {
            for task in job.tasks.iter().chain(&job.leaving) {
                let goes_on = guests.contains(&job.id);
                let lane = if goes_on { 1 } else { task.lane };
                let there = match (holds(&task.state) || goes_on, is_gone(&task.state)) {
                    (_, true) => continue,
                    (true, false) => &mut seats,
                    (false, false) => &mut standing,
                };
                for &gpu in &task.gpus {
                    let at = there.entry((task.node, gpu)).or_default();
                    at.push((job, task, lane));
                }
            }
        }
        for (at, both) in &seats {
            let keep = standing.get(at).map_or(&[][..], Vec::as_slice);
            match both.as_slice() {
                [_] | [] => {}
                [one, two] => {
                    // The violation names the guest, because the plan may contain no decision on
                    // the host.
                    let (guest, host) = if one.2 > two.2 {
                        (one, two)
                    } else {
                        (two, one)
                    };
                    if one.2 == two.2 {
                        self.unjust(guest.0, "in the lane that another has");
                    }
                    self.pair(*at, (guest.0, host.0), keep);
                }
                all => {
                    let guest = all.iter().max_by_key(|(.., lane)| *lane);
                    guest
                        .into_iter()
                        .for_each(|one| self.unjust(one.0, "with more than one other"));
                }
            }
        }
    }

    fn pair(
        &mut self,
        at: (NodeId, u32),
        (guest, host): (&'s SnapshotJob, &'s SnapshotJob),
        keep: &[(&SnapshotJob, &SnapshotTask, u32)],
    ) {
        if !self.keeps_running(guest) || !self.keeps_running(host) {
            return;
        }
        if [guest, host]
            .iter()
            .any(|one| only(one).is_none() || self.grows(one))
        {
            self.unjust(
                guest,
                "and one of the two is, or becomes, more than a task on a GPU",
            );
        }
        if guest.exclusive || host.exclusive {
            self.unjust(guest, "and one of the two is exclusive");
        }
        if guest.priority != host.priority {
            self.unjust(guest, "with one of another priority");
        }
        let peaks = peak_bytes(guest).zip(peak_bytes(host));
        let mut sum = peaks.map(|(one, two)| one + two);
        for (job, ..) in keep {
            sum = sum.zip(kept_bytes(job)).map(|(sum, more)| sum + more);
        }
        let mut nodes = self.snapshot.nodes.iter();
        let has = nodes.find(|node| node.id == at.0);
        let has = has.map_or(0, |node| u128::from(node.gpu_memory_bytes));
        if sum.is_none_or(|sum| sum > has) {
            self.unjust(guest, "without enough known memory for all jobs on the GPU");
        }
    }

    fn keeps_running(&self, job: &SnapshotJob) -> bool {
        let state = self.states.get(&job.id).map(|(_, state, _)| state);
        state == Some(&JobState::Running)
    }

    fn grows(&self, job: &SnapshotJob) -> bool {
        self.leaving_tasks.contains_key(&job.id)
    }

    /// Whether the tenant already holds this GPU by another job.
    fn has(&self, job: &SnapshotJob, node: NodeId, gpu: u32) -> bool {
        let jobs = self.snapshot.jobs.iter();
        let own = jobs.filter(|other| other.tenant == job.tenant);
        let mut tasks = own.flat_map(SnapshotJob::held_tasks);
        tasks.any(|task| holds(&task.state) && task.node == node && task.gpus.contains(&gpu))
    }

    fn unjust(&mut self, job: &SnapshotJob, what: &'static str) {
        let job = job.id;
        self.violations.push(Violation::UnjustPacking { job, what });
    }
}

/// Whether the job was measured alone and never came to harm beside another.
fn is_measured_unharmed(job: &SnapshotJob) -> bool {
    let known = job.measured.as_ref();
    known.is_some_and(|it| it.alone.samples > 0 && it.alone_ms > 0 && it.hurt.is_none())
}

/// Returns the GPU memory that a running job takes at most, if it is known.
fn peak_bytes(job: &SnapshotJob) -> Option<u128> {
    Some(u128::from(job.measured.as_ref()?.peak_bytes?))
}

/// Returns the GPU memory that a job keeps while it does not run, if it is known.
fn kept_bytes(job: &SnapshotJob) -> Option<u128> {
    let known = job.measured.as_ref()?;
    let bytes = if known.stands {
        known.memory_bytes
    } else {
        known.peak_bytes
    };
    bytes.map(u128::from)
}

fn has_guest(job: &SnapshotJob) -> bool {
    let mut tasks = job.tasks.iter().chain(&job.leaving);
    tasks.any(|task| task.lane > 0 && holds(&task.state))
}

/// Returns the only task of a job and its only GPU.
fn only(job: &SnapshotJob) -> Option<(&SnapshotTask, u32)> {
    match (job.tasks.as_slice(), job.leaving.as_slice()) {
        ([task], []) => match task.gpus.as_slice() {
            &[gpu] => Some((task, gpu)),
            _ => None,
        },
        _ => None,
    }
}
