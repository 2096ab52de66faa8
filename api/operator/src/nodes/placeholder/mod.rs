//! Placeholder pods, each of which stands for a node that waiting jobs need. Cluster autoscalers
//! add nodes for pods that fit on none, and do not know Muster's queue. A placeholder does nothing
//! and has a lower priority than every other pod. It is deleted when it has a node, or when no job
//! needs it.
//!
//! The scheduler decides which job uses a node, and the autoscaler whether a node is added.

mod demand;
mod idle;
mod joining;
mod packing;
mod pod;
mod settings;
mod steps;
#[cfg(test)]
mod tests;

pub use settings::{PlaceholderSettings, PlaceholderSettingsError};

use self::demand::NodeDemand;
use self::joining::JoiningNodes;
use self::pod::{GROUP, POOL, PlaceholderPod};
use super::{NodeReconciler, all_in_muster};
use crate::clock;
use crate::error::Error;
use crate::metrics;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use muster_model::node::NodeState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Minimum pause between two runs.
const MIN_PAUSE: Duration = Duration::from_secs(3);
/// Minimum ratio of the pause to the duration of a run, because a run lists the queued jobs of all
/// tenants.
const PAUSE_RATIO: u32 = 4;

/// State that is kept between two runs. A new operator rebuilds it; meanwhile one surplus pod may
/// exist.
#[derive(Debug)]
pub struct Placeholders {
    settings: PlaceholderSettings,
    /// The operator's own pod. Kubernetes deletes the placeholders with it.
    owner: Option<OwnerReference>,
    demand: NodeDemand,
    joining: JoiningNodes,
}

impl Placeholders {
    #[must_use]
    pub fn new(settings: PlaceholderSettings, owner: Option<OwnerReference>) -> Self {
        Self {
            settings,
            owner,
            demand: NodeDemand::default(),
            joining: JoiningNodes::default(),
        }
    }

    /// Repeats [`reconcile`](Self::reconcile) until the process ends. Errors are logged.
    pub(super) async fn follow(mut self, reconciler: &NodeReconciler) {
        if reconciler.nodes.wait_until_ready().await.is_err() {
            return;
        }
        loop {
            let start = clock::monotonic();
            let done = self.reconcile(reconciler).await;
            let metrics = &reconciler.context.metrics;
            metrics.reconciled("Placeholder", start, &done);
            crate::error::log_retry("Placeholder", done);
            let took = clock::monotonic().saturating_duration_since(start);
            tokio::time::sleep(pause_after(took)).await;
        }
    }

    /// Creates missing placeholders and deletes surplus ones.
    ///
    /// # Errors
    /// If Kubernetes or Muster does not answer; the next run continues.
    pub async fn reconcile(&mut self, reconciler: &NodeReconciler) -> Result<(), Error> {
        let admin = reconciler.context.tenants.admin()?;
        // Nodes are read before jobs. In the other order a job that starts in between would still
        // count as waiting, while its nodes already count as used.
        let views = reconciler.node_cache.all(&admin).await?;
        let waiting = demand::queued(&admin).await?;
        let known: BTreeSet<&str> = views
            .iter()
            .filter(|node| node.state == NodeState::Up)
            .map(|node| node.name.as_str())
            .collect();
        let parts = &reconciler.settings.parts;
        let is_known =
            |name: &str| all_in_muster(name, parts).any(|name| known.contains(name.as_str()));
        let nodes = reconciler.nodes.state();
        let api = Api::<Pod>::namespaced(
            reconciler.context.kubernetes.clone(),
            &self.settings.namespace,
        );
        // Executor pods are included, because they determine the pool of a node.
        let pods = api.list(&ListParams::default().labels(POOL)).await;
        let pods = pods.map_err(Error::kubernetes("placeholders were not listed"))?;
        let placeholders: Vec<PlaceholderPod> = pods
            .items
            .iter()
            .filter(|pod: &&Pod| pod.labels().get(GROUP) == Some(&self.settings.group))
            .map(PlaceholderPod::of)
            .collect();

        let now = clock::monotonic();
        let after = Duration::from_secs(self.settings.after_seconds.into());
        let gangs = self.demand.gangs(&waiting, after, now);
        let idle = idle::idle(&self.settings, &pods.items, &views);
        let wanted = packing::nodes_needed(&self.settings.pools, &idle, &gangs, self.settings.most);
        reconciler
            .context
            .metrics
            .placeholders(self.counts_of_pools(&wanted, &placeholders));
        let names: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        self.joining.update(
            &placeholders,
            is_known,
            |name: &str| names.contains(name),
            now,
        );
        let joining = self.joining.of_pools();
        let hosts: BTreeSet<String> = nodes
            .iter()
            .filter(|node| is_known(&node.name_any()) || self.joining.is_taken(&node.name_any()))
            .map(|node| pod::host(node))
            .collect();
        let steps = steps::steps(&self.settings, &wanted, &joining, &placeholders, &hosts);
        for pod in steps.end {
            delete(&api, &pod).await?;
        }
        for (pool, number) in steps.make {
            let of = (pool.as_str(), &self.settings.pools[&pool]);
            let pod = pod::placeholder(&self.settings, of, number, &hosts, self.owner.as_ref());
            create(&api, &pod).await?;
        }
        Ok(())
    }
}

impl Placeholders {
    /// Returns the numbers of needed and waiting placeholders of each pool, for the metrics.
    fn counts_of_pools(
        &self,
        wanted: &BTreeMap<String, u32>,
        placeholders: &[PlaceholderPod],
    ) -> BTreeMap<String, metrics::PlaceholderCounts> {
        let pools = self.settings.pools.keys().map(|pool| {
            let waits =
                |pod: &&PlaceholderPod| pod.pool == *pool && pod.node.is_none() && !pod.is_going;
            let waiting = placeholders.iter().filter(waits).count();
            let of_pool = metrics::PlaceholderCounts {
                wanted: wanted.get(pool).copied().unwrap_or_default(),
                there: u32::try_from(waiting).unwrap_or(u32::MAX),
            };
            (pool.clone(), of_pool)
        });
        pools.collect()
    }
}

/// Returns the pause after a run with this duration.
fn pause_after(took: Duration) -> Duration {
    MIN_PAUSE.max(took * PAUSE_RATIO)
}

/// Creates the pod. A pod of the same name is not replaced.
async fn create(api: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    match api.create(&PostParams::default(), pod).await {
        Ok(_) => {
            tracing::info!(pod = pod.name_any(), "a placeholder waits for a node");
            Ok(())
        }
        // A pod that was just deleted may still exist.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Error::kubernetes("a placeholder was not made")(error)),
    }
}

/// Deletes the pod without grace period. The precondition on the uid protects a new pod of the same
/// name.
async fn delete(api: &Api<Pod>, pod: &PlaceholderPod) -> Result<(), Error> {
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name, &parameters).await {
        Ok(_) => {
            tracing::info!(pod = pod.name, node = pod.node, "a placeholder has ended");
            Ok(())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(Error::kubernetes("a placeholder was not ended")(error)),
    }
}
