//! The pods that stand for nodes: what is there of them, and how one is made. Pure.

use super::settings::{Pool, Settings};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodAffinityTerm, PodAntiAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt as _;
use std::collections::BTreeSet;

/// The settings' group, on all of them.
pub const GROUP: &str = "muster.dev/placeholder";
/// Which pool; the executors' pods have it too, so that no placeholder is taken for somebody else's pod.
pub const POOL: &str = "muster-pool";
const HOST: &str = "kubernetes.io/hostname";

/// A placeholder as it is in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct There {
    pub name: String,
    pub uid: Option<String>,
    pub pool: String,
    /// The node that was found for it.
    pub node: Option<String>,
    /// It is being deleted.
    pub is_going: bool,
    pub has_ended: bool,
    /// The hosts that it keeps away from.
    pub away: BTreeSet<String>,
}

impl There {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        Self {
            name: pod.name_any(),
            uid: pod.uid(),
            pool: pod.labels().get(POOL).cloned().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            has_ended: matches!(phase, Some("Succeeded" | "Failed")),
            away: away(pod),
        }
    }
}

/// Its name; the same number is the same pod, so that one that is made twice is one.
#[must_use]
pub fn name(settings: &Settings, pool: &str, number: u32) -> String {
    format!("{}-placeholder-{pool}-{number}", settings.group)
}

/// A pod of the pool that fits on none of `hosts`: on those Muster has executors already, and what waits finds no room there, or is about to have them.
#[must_use]
pub fn placeholder(
    settings: &Settings,
    (name_of_pool, pool): (&str, &Pool),
    number: u32,
    hosts: &BTreeSet<String>,
    owner: Option<&OwnerReference>,
) -> Pod {
    let mut pod = pool.pod.clone();
    pod.metadata.name = Some(name(settings, name_of_pool, number));
    pod.metadata.namespace = Some(settings.namespace.clone());
    pod.metadata.owner_references = owner.map(|owner| vec![owner.clone()]);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(GROUP.to_owned(), settings.group.clone());
    labels.insert(POOL.to_owned(), name_of_pool.to_owned());
    let spec = pod.spec.get_or_insert_default();
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let apart: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
    apart
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(from_each_other(settings));
    if hosts.is_empty() {
        return pod;
    }
    let elsewhere = NodeSelectorRequirement {
        key: HOST.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(hosts.iter().cloned().collect()),
    };
    let nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required: &mut NodeSelector = nodes
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    // One of the terms is enough for Kubernetes, so it is in each.
    for term in &mut required.node_selector_terms {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.push(elsewhere.clone());
    }
    pod
}

/// Each stands for a node of its own, however little it asks for.
fn from_each_other(settings: &Settings) -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: HOST.to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some([(GROUP.to_owned(), settings.group.clone())].into()),
            ..LabelSelector::default()
        }),
        ..PodAffinityTerm::default()
    }
}

fn away(pod: &Pod) -> BTreeSet<String> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let of_nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = of_nodes.and_then(|nodes| {
        nodes
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    // They are the same in each term.
    let term = required.and_then(|required| required.node_selector_terms.first());
    let expressions = term.and_then(|term| term.match_expressions.as_ref());
    let hosts = expressions
        .into_iter()
        .flatten()
        .filter(|expression| expression.key == HOST && expression.operator == "NotIn")
        .flat_map(|expression| expression.values.iter().flatten());
    hosts.cloned().collect()
}

/// The label is the name on most clusters.
pub fn host(node: &Node) -> String {
    let label = node.labels().get(HOST).cloned();
    label.unwrap_or_else(|| node.name_any())
}
