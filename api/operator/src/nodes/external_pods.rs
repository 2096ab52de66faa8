//! Resources that pods outside Muster hold: one list for all nodes, a few seconds old at most.

use super::pod_requests::{held, is_external};
use super::release::Release;
use crate::clock;
use crate::context::OperatorContext;
use crate::error::Error;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const FRESH: Duration = Duration::from_secs(4);

/// Resources that pods outside Muster hold on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeExternalUse {
    /// Use by resource.
    held: BTreeMap<String, ExternalResourceUse>,
}

/// Use of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ExternalResourceUse {
    count: u64,
    /// Only for the operator's log; tenants do not learn the names of other pods.
    pods: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct ExternalPodCache {
    list: Mutex<ExternalPodList>,
}

#[derive(Debug, Default)]
struct ExternalPodList {
    /// Time until which the list is used.
    until: Option<Instant>,
    /// Use by node.
    there: BTreeMap<String, NodeExternalUse>,
}

impl ExternalPodCache {
    /// # Errors
    /// If Kubernetes' API does not answer.
    pub(super) async fn on(
        &self,
        context: &OperatorContext,
        node: &str,
        own: Option<&Release>,
    ) -> Result<NodeExternalUse, Error> {
        let mut list = self.list.lock().await;
        let now = clock::monotonic();
        if list.until.is_none_or(|until| now >= until) {
            // Served from the API server's cache, which is cheap in clusters of any size.
            let all = ListParams::default().match_any();
            let pods = Api::<Pod>::all(context.kubernetes.clone()).list(&all).await;
            let pods = pods.map_err(Error::kubernetes("the pods of all nodes were not listed"))?;
            list.there = NodeExternalUse::by_node(&pods.items, own);
            context
                .metrics
                .foreign(NodeExternalUse::together(&list.there));
            list.until = Some(clock::monotonic() + FRESH);
        }
        Ok(list.there.get(node).cloned().unwrap_or_default())
    }
}

impl NodeExternalUse {
    /// Returns the use of every node that has any.
    pub(super) fn by_node(pods: &[Pod], own: Option<&Release>) -> BTreeMap<String, Self> {
        let mut there: BTreeMap<String, Self> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_external(pod, own)) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let Some(node) = node else { continue };
            let namespace = pod.namespace().unwrap_or_default();
            let name = format!("{namespace}/{}", pod.name_any());
            for (resource, count) in held(pod) {
                let of_node = there.entry(node.clone()).or_default();
                let held = of_node.held.entry(resource).or_default();
                held.count += count;
                held.pods.insert(name.clone());
            }
        }
        there
    }

    /// Returns the use on all nodes, by resource.
    fn together(there: &BTreeMap<String, Self>) -> BTreeMap<String, u64> {
        let mut together = BTreeMap::new();
        for (resource, held) in there.values().flat_map(|of_node| &of_node.held) {
            *together.entry(resource.clone()).or_default() += held.count;
        }
        together
    }

    /// Returns the amount of this resource that is held.
    pub(super) fn count(&self, resource: &str) -> u64 {
        self.held.get(resource).map_or(0, |held| held.count)
    }

    /// Describes the use without the names of pods, because every tenant can read it.
    pub(super) fn in_words(&self, resources: &[&str]) -> String {
        let there: Vec<(String, &ExternalResourceUse)> = resources
            .iter()
            .filter_map(|name: &&str| Some((name.to_string(), self.held.get(*name)?)))
            .collect();
        let much: Vec<String> = there
            .iter()
            .map(|(name, held)| format!("{} {name}", held.count))
            .collect();
        let pods: BTreeSet<&String> = there.iter().flat_map(|(_, held)| &held.pods).collect();
        let pods = match pods.len() {
            1 => "a pod that is not Muster's".to_owned(),
            many => format!("{many} pods that are not Muster's"),
        };
        format!("{} held by {pods}", much.join(" and "))
    }
}
