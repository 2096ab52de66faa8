//! Pods that hold GPUs and are none of Muster's: one list for all nodes, a few seconds old at most.

use super::said::{Release, held, is_foreign};
use crate::clock;
use crate::error::Error;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const FRESH: Duration = Duration::from_secs(4);

/// What pods of others hold on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Of the resource.
    pub count: u64,
    /// For the operator's log alone: tenants are not told the names of others' pods.
    pub pods: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Pods {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    /// Until then it is fresh.
    until: Option<Instant>,
    /// By node.
    there: BTreeMap<String, Foreign>,
}

impl Pods {
    /// # Errors
    /// When Kubernetes' API does not answer.
    pub(super) async fn on(
        &self,
        kubernetes: &kube::Client,
        node: &str,
        resource: &str,
        own: Option<&Release>,
    ) -> Result<Foreign, Error> {
        let mut list = self.list.lock().await;
        let now = clock::monotonic();
        if list.until.is_none_or(|until| now >= until) {
            // From the server's memory, however large the cluster is.
            let all = ListParams::default().match_any();
            let pods = Api::<Pod>::all(kubernetes.clone()).list(&all).await;
            let pods = pods.map_err(Error::kubernetes("the pods of all nodes were not listed"))?;
            list.there = by_node(&pods.items, resource, own);
            list.until = Some(clock::monotonic() + FRESH);
        }
        Ok(list.there.get(node).cloned().unwrap_or_default())
    }
}

fn by_node(pods: &[Pod], resource: &str, own: Option<&Release>) -> BTreeMap<String, Foreign> {
    let mut there: BTreeMap<String, Foreign> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_foreign(pod, resource, own)) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if let Some(node) = node {
            let foreign = there.entry(node.clone()).or_default();
            foreign.count += held(pod, resource);
            let namespace = pod.namespace().unwrap_or_default();
            foreign.pods.push(format!("{namespace}/{}", pod.name_any()));
        }
    }
    there
}
