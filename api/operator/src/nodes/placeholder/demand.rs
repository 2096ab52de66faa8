//! Demand for nodes: the smallest gangs of jobs that have waited long enough because the cluster
//! has no capacity for them.

use super::packing::{Gang, ResourceAmounts};
use crate::error::Error;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::JobView;
use muster_model::wait::Wait;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of pages per tenant; 5,000 jobs demand more nodes than any cluster adds. They are
/// the newest jobs, because the interface has no other order.
const PAGES: u32 = 10;
const PAGE: u32 = 500;

/// Jobs that wait for nodes, with the time of the first observation.
#[derive(Debug, Default)]
pub struct NodeDemand {
    since: BTreeMap<JobId, Instant>,
}

impl NodeDemand {
    /// Returns the gangs of jobs that have waited for `after`, oldest first.
    pub fn gangs(&mut self, waiting: &[JobView], after: Duration, now: Instant) -> Vec<Gang> {
        let waiting: BTreeMap<JobId, Gang> = waiting
            .iter()
            .filter(|job| needs_nodes(job))
            .map(|job| (job.id, gang(job)))
            .collect();
        self.since.retain(|id, _| waiting.contains_key(id));
        let mut gangs = Vec::new();
        for (id, gang) in waiting {
            let since = *self.since.entry(id).or_insert(now);
            if now.saturating_duration_since(since) >= after {
                gangs.push(gang);
            }
        }
        gangs
    }
}

/// Whether more nodes would let the job start, according to the newest round. This excludes jobs
/// that wait for quota, for a time slice or in back-off.
fn needs_nodes(job: &JobView) -> bool {
    let why = job.waiting.as_ref().map(|waiting| &waiting.detail.why);
    job.intent == Intent::Run
        && job.phase == JobPhase::Queued
        && matches!(
            why,
            Some(
                Wait::WaitingForGpus { .. }
                    | Wait::NoMatchingNodes { .. }
                    | Wait::ExceedsCluster { .. }
                    | Wait::WaitingForCpuAndMemory { .. }
                    | Wait::TopologyPlacementFailed { .. }
            )
        )
}

fn gang(job: &JobView) -> Gang {
    let resources = &job.spec.resources;
    let worker = resources.worker.demand();
    Gang {
        workers: job.spec.scale.workers.min,
        worker: ResourceAmounts {
            gpus: resources.worker.gpus,
            cpu_milli: worker.cpu_milli,
            memory_bytes: worker.memory_bytes,
        },
        ps_shards: job.spec.ps_shards().min,
        ps_shard: ResourceAmounts {
            gpus: 0,
            cpu_milli: resources.ps_shard.cpu_milli,
            memory_bytes: resources.ps_shard.memory_bytes,
        },
        pods: !job.spec.pod.is_empty(),
    }
}

/// Lists the queued jobs of all tenants.
///
/// # Errors
/// If the REST interface does not answer, or rejects the administrator's token.
pub async fn queued(admin: &Client) -> Result<Vec<JobView>, Error> {
    let listed = all_queued(admin).await;
    listed.map_err(Error::muster("the jobs that wait were not listed"))
}

async fn all_queued(admin: &Client) -> Result<Vec<JobView>, ClientError> {
    let mut queued = Vec::new();
    for tenant in admin.tenants().await? {
        let client = admin.for_tenant(&tenant.name)?;
        let mut query = JobQuery {
            phases: vec![JobPhase::Queued],
            limit: Some(PAGE),
            ..JobQuery::default()
        };
        for _ in 0..PAGES {
            let page = client.jobs(&query).await?;
            queued.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
    }
    Ok(queued)
}
