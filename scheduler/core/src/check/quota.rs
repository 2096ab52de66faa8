//! Check of quotas and preemptions.

use super::violation::Violation;
use super::{Checker, holds, is_gone};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::id::{NodeId, TenantId};
use muster_model::job::JobState;
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    /// A job may be preempted only if a job of strictly higher priority has not ended.
    pub(super) fn preemption(&mut self, job: &SnapshotJob) {
        let somebody = self.snapshot.jobs.iter().any(|other| {
            other.priority > job.priority
                && matches!(
                    other.state,
                    JobState::Queued
                        | JobState::Stopping { .. }
                        | JobState::Paused
                        | JobState::Running
                        | JobState::Suspended
                        | JobState::Starting
                )
        });
        if !somebody {
            self.violations
                .push(Violation::UnjustPreemption { job: job.id });
        }
    }

    /// A tenant within its quota must stay within it. A tenant above it (the quota was lowered)
    /// must start nothing.
    pub(super) fn quotas(&mut self) {
        for (tenant, started) in std::mem::take(&mut self.started) {
            let quota = self
                .snapshot
                .tenants
                .iter()
                .find(|one| one.id == tenant)
                .and_then(|one| one.gpu_quota);
            // Two jobs of one tenant on a GPU count once. Jobs of two tenants count once for each
            // tenant.
            let held: BTreeSet<(NodeId, u32)> = self
                .snapshot
                .jobs
                .iter()
                .filter(|job| job.tenant == tenant)
                .flat_map(|job| job.tasks.iter().chain(&job.leaving))
                .filter(|task| holds(&task.state))
                .flat_map(gpus_of)
                .collect();
            let held = u32::try_from(held.len())
                .unwrap_or(u32::MAX)
                .saturating_add(started);
            if let Some(quota) = quota.filter(|&quota| started > 0 && held > quota) {
                self.violations.push(Violation::QuotaExceeded {
                    tenant,
                    held,
                    quota,
                });
            }
        }
    }

    /// Jobs that keep running must be within the quota, also if it was lowered.
    pub(super) fn lowered_quotas(&mut self) {
        let mut kept: BTreeMap<TenantId, BTreeSet<(NodeId, u32)>> = BTreeMap::new();
        for (job, state, _) in self.states.values() {
            if matches!(state, JobState::Starting | JobState::Running) {
                // Tasks that leave in this plan do not count.
                let leaving_tasks = self.leaving_tasks.get(&job.id);
                let gpus = job
                    .tasks
                    .iter()
                    .filter(|task| {
                        !is_gone(&task.state)
                            && leaving_tasks
                                .is_none_or(|leaving_tasks| !leaving_tasks.contains(&task.id))
                    })
                    .flat_map(gpus_of);
                kept.entry(job.tenant).or_default().extend(gpus);
            }
        }
        for tenant in &self.snapshot.tenants {
            let held = kept.get(&tenant.id).map_or(0, BTreeSet::len);
            let held = u32::try_from(held).unwrap_or(u32::MAX);
            if let Some(quota) = tenant.gpu_quota.filter(|&quota| held > quota) {
                self.violations.push(Violation::QuotaExceeded {
                    tenant: tenant.id,
                    held,
                    quota,
                });
            }
        }
    }
}

fn gpus_of(task: &SnapshotTask) -> impl Iterator<Item = (NodeId, u32)> + use<'_> {
    task.gpus.iter().map(|&gpu| (task.node, gpu))
}
