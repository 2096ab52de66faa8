//! Why a job does not run, as a typed reason, and the smallest change that would let it start.
//!
//! A change is named only if a trial round with it really starts the job: what people are told is tried, not guessed.

use crate::admit::Refusal;
use crate::cluster::{Cluster, When};
use crate::place::{Gang, place};
use crate::policy::Policy;
use crate::round::{Decided, decide};
use crate::snapshot::{Job, Node, Snapshot};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{JobPhase, JobState};
use muster_model::wait::{Change, Wait, Waiting};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use uuid::Uuid;

/// For every job in the snapshot's order: what its owner is to be told; `None` for a job that does not wait. The snapshot is that after
/// the plan, because people change something after they have read the reason.
pub(crate) fn waiting(
    snapshot: &Snapshot,
    policy: &Policy,
    decided: &Decided<'_>,
) -> Vec<Option<Waiting>> {
    let mut queue: Vec<usize> = decided
        .settled
        .iter()
        .enumerate()
        .filter(|(_, settled)| settled.state.phase() == JobPhase::Queued)
        .map(|(index, _)| index)
        .collect();
    queue.sort_by_key(|&index| decided.contenders[index].turn());
    let free_gpus = decided.solution.cluster.gpus(When::Now);
    let explaining = Explaining {
        snapshot,
        policy,
        decided,
        free_gpus,
    };
    let mut waiting: Vec<Option<Waiting>> = decided
        .settled
        .iter()
        .map(|settled| (settled.state == JobState::Paused).then(suspended))
        .collect();
    for (position, index) in (1_u32..).zip(queue) {
        let why = explaining.why(index);
        let smallest_change = (position <= policy.explained_jobs)
            .then(|| explaining.smallest_change(index, &why))
            .flatten();
        waiting[index] = Some(Waiting {
            why,
            smallest_change,
            position,
        });
    }
    waiting
}

/// A paused job has no place in the order.
fn suspended() -> Waiting {
    Waiting {
        why: Wait::Suspended,
        smallest_change: Some(Change::Resume),
        position: 0,
    }
}

struct Explaining<'e, 'a> {
    snapshot: &'e Snapshot,
    policy: &'e Policy,
    decided: &'e Decided<'a>,
    /// Free after the round and promised to nobody.
    free_gpus: u32,
}

impl Explaining<'_, '_> {
    fn why(&self, index: usize) -> Wait {
        let job = &self.snapshot.jobs[index];
        let not_before_ms = self.decided.settled[index].not_before_ms;
        if let Some(until_unix_ms) = not_before_ms.filter(|&at| at > self.snapshot.now_ms) {
            return Wait::BackingOff { until_unix_ms };
        }
        if let Some(placed) = self.decided.solution.placed.get(&index) {
            let wanted = placed
                .tasks
                .iter()
                .flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)))
                .collect();
            return Wait::WaitingForPreemptedWorkloads {
                jobs: self.stopping(&wanted),
            };
        }
        let needed_gpus = job.min_gpus();
        let quota_gpus = self.quota(job).filter(|&quota| needed_gpus > quota);
        if let Some(quota_gpus) = quota_gpus {
            return Wait::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            };
        }
        if let Some(never) = self.never_fits(job) {
            return never;
        }
        match self.decided.admission.refused.get(&index) {
            Some(&Refusal::Quota { used_gpus }) => Wait::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus: self.quota(job).unwrap_or(u32::MAX),
            },
            Some(&Refusal::Behind { job }) => Wait::WaitingForGpus {
                needed_gpus,
                free_gpus: 0,
                held_by: vec![job],
            },
            Some(Refusal::Room) if self.free_gpus >= needed_gpus => Wait::TopologyPlacementFailed {
                needed_gpus,
                free_gpus: self.free_gpus,
            },
            Some(Refusal::Room) => Wait::WaitingForGpus {
                needed_gpus,
                free_gpus: self.free_gpus,
                held_by: self.holders(index, needed_gpus - self.free_gpus),
            },
            // Only a job that is displaced and gone in one round was not considered: the next round does it.
            None => Wait::NotConsidered,
        }
    }

    fn quota(&self, job: &Job) -> Option<u32> {
        self.snapshot
            .tenants
            .iter()
            .find(|tenant| tenant.id == job.tenant)?
            .gpu_quota
    }

    /// Why the job could not start even if nobody else were there.
    fn never_fits(&self, job: &Job) -> Option<Wait> {
        let mut empty = Cluster::empty(self.snapshot);
        let cluster_gpus = empty.gpus(When::Now);
        let largest_node_gpus = empty
            .nodes
            .iter()
            .map(|node| node.gpus(When::Now))
            .max()
            .unwrap_or(0);
        let needed_gpus = job.min_gpus();
        if place(&mut empty, Gang::min(job), When::Now).is_some() {
            return None;
        }
        Some(if largest_node_gpus < job.worker.gpus {
            Wait::NoMatchingNodes {
                needed_gpus_per_worker: job.worker.gpus,
                largest_node_gpus,
            }
        } else if cluster_gpus < needed_gpus {
            Wait::ExceedsCluster {
                needed_gpus,
                cluster_gpus,
            }
        } else {
            Wait::TopologyPlacementFailed {
                needed_gpus,
                free_gpus: self.free_gpus,
            }
        })
    }

    /// Stopping jobs that hold what is wanted; all of them, when it is CPU, memory or quota that they must give up.
    fn stopping(&self, wanted: &BTreeSet<(NodeId, u32)>) -> Vec<JobId> {
        let stopping = || {
            self.decided
                .settled
                .iter()
                .filter(|settled| matches!(settled.state, JobState::Stopping { .. }))
                .map(|settled| settled.job)
        };
        let holds = |job: &Job| {
            job.held_tasks().any(|task| {
                task.gpus
                    .iter()
                    .any(|&gpu| wanted.contains(&(task.node, gpu)))
            })
        };
        let jobs: Vec<JobId> = stopping()
            .filter(|job| holds(job))
            .map(|job| job.id)
            .collect();
        if !jobs.is_empty() {
            return jobs;
        }
        stopping()
            .filter(|job| job.held_tasks().next().is_some())
            .map(|job| job.id)
            .collect()
    }

    /// The largest holders that together hold what is missing, so that the list stays short on a large cluster.
    fn holders(&self, index: usize, missing_gpus: u32) -> Vec<JobId> {
        let mut holders: Vec<(Reverse<u32>, JobId)> = self
            .decided
            .settled
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, settled)| (Reverse(settled.job.held_gpus()), settled.job.id))
            .filter(|(held, _)| held.0 > 0)
            .collect();
        holders.sort_unstable();
        let mut sum = 0;
        let enough = holders.iter().position(|(held, _)| {
            sum += held.0;
            sum >= missing_gpus
        });
        holders.truncate(enough.map_or(usize::MAX, |last| last + 1));
        holders.into_iter().map(|(_, job)| job).collect()
    }

    fn smallest_change(&self, index: usize, why: &Wait) -> Option<Change> {
        let job = &self.snapshot.jobs[index];
        self.candidates(job, why).into_iter().find(|change| {
            let changed = apply_change(self.snapshot, job.id, change);
            changed.is_some_and(|changed| decide(&changed, self.policy).starts(job.id))
        })
    }

    /// Changes worth a trial, the one that asks least of people first.
    fn candidates(&self, job: &Job, why: &Wait) -> Vec<Change> {
        match *why {
            Wait::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus,
            } => {
                let by_gpus = (needed_gpus + used_gpus).saturating_sub(quota_gpus);
                let mut candidates = vec![Change::RaiseQuota { by_gpus }];
                candidates.extend(lower_min_workers(job, quota_gpus.saturating_sub(used_gpus)));
                candidates
            }
            Wait::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            } => {
                let mut candidates = lower_min_workers(job, quota_gpus);
                candidates.extend(lower_gpus_per_worker(
                    job,
                    quota_gpus / job.workers.min.max(1),
                ));
                candidates.push(Change::RaiseQuota {
                    by_gpus: needed_gpus - quota_gpus,
                });
                candidates
            }
            Wait::WaitingForGpus { needed_gpus, .. }
            | Wait::NoMatchingNodes {
                needed_gpus_per_worker: needed_gpus,
                ..
            }
            | Wait::ExceedsCluster { needed_gpus, .. }
            | Wait::TopologyPlacementFailed { needed_gpus, .. } => self.for_room(job, needed_gpus),
            Wait::NotConsidered
            | Wait::Suspended
            | Wait::WaitingForPreemptedWorkloads { .. }
            | Wait::BackingOff { .. } => Vec::new(),
        }
    }

    fn for_room(&self, job: &Job, needed_gpus: u32) -> Vec<Change> {
        const NODES_TRIED: usize = 4;
        let largest_gap = self
            .decided
            .solution
            .cluster
            .nodes
            .iter()
            .map(|node| node.gpus(When::Now))
            .max();
        let mut candidates: Vec<Change> = self
            .snapshot
            .nodes
            .iter()
            .filter(|node| node.up && node.drained && node.gpus > 0)
            .take(NODES_TRIED)
            .map(|node| Change::UncordonNode {
                name: node.name.clone(),
            })
            .collect();
        candidates.extend(lower_min_workers(job, self.free_gpus));
        candidates.extend(lower_gpus_per_worker(job, largest_gap.unwrap_or(0)));
        let missing = needed_gpus.saturating_sub(self.free_gpus).max(1);
        let all = job.min_gpus();
        candidates.extend(
            BTreeSet::from([missing, all])
                .into_iter()
                .map(|gpus| Change::AddGpus { gpus }),
        );
        candidates
    }
}

fn lower_min_workers(job: &Job, gpus: u32) -> Vec<Change> {
    let to = (gpus / job.worker.gpus.max(1)).min(job.workers.min - 1);
    if to == 0 {
        Vec::new()
    } else {
        vec![Change::LowerMinWorkers { to }]
    }
}

fn lower_gpus_per_worker(job: &Job, gpus: u32) -> Vec<Change> {
    let to = gpus.min(job.worker.gpus - 1);
    if to == 0 {
        Vec::new()
    } else {
        vec![Change::LowerGpusPerWorker { to }]
    }
}

/// The snapshot after a change; `None` when the change names what is not there.
#[must_use]
pub fn apply_change(snapshot: &Snapshot, job: JobId, change: &Change) -> Option<Snapshot> {
    let mut changed = snapshot.clone();
    let job = changed.jobs.iter_mut().find(|one| one.id == job)?;
    match change {
        Change::LowerMinWorkers { to } => job.workers.min = *to,
        Change::LowerGpusPerWorker { to } => job.worker.gpus = *to,
        Change::Resume => job.intent = muster_model::job::Intent::Run,
        Change::RaiseQuota { by_gpus } => {
            let tenant = job.tenant;
            let tenant = changed.tenants.iter_mut().find(|one| one.id == tenant)?;
            tenant.gpu_quota = tenant.gpu_quota.map(|quota| quota.saturating_add(*by_gpus));
        }
        Change::UncordonNode { name } => {
            changed
                .nodes
                .iter_mut()
                .find(|node| node.name == *name)?
                .drained = false;
        }
        Change::AddGpus { gpus } => {
            // Where GPUs are added, CPU and memory come with them.
            changed.nodes.push(Node {
                id: NodeId(Uuid::max()),
                name: "added".to_owned(),
                up: true,
                drained: false,
                gpus: *gpus,
                cpu_milli: u64::MAX / 4,
                memory_bytes: u64::MAX / 4,
            });
            changed.sort();
        }
    }
    Some(changed)
}
