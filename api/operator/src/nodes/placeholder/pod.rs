//! Placeholder pods: their observed state and their construction. Pure.

use super::settings::{PlaceholderPool, PlaceholderSettings};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodAffinityTerm, PodAntiAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt as _;
use std::collections::BTreeSet;

/// Label with the group of the settings, on all placeholders.
pub const GROUP: &str = "muster.dev/placeholder";
/// Label with the pool. Executor pods have it too, so that neither counts as a pod outside Muster.
pub const POOL: &str = "muster-pool";
const HOST: &str = "kubernetes.io/hostname";

/// Observed state of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceholderPod {
    pub name: String,
    pub uid: Option<String>,
    pub pool: String,
    /// Node that was found for it.
    pub node: Option<String>,
    /// Whether it is being deleted.
    pub is_going: bool,
    pub has_ended: bool,
    /// Hosts that it excludes.
    pub away: BTreeSet<String>,
}

impl PlaceholderPod {
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

/// Returns the name of a placeholder. The number determines the name, so that a repeated creation
/// has no effect.
#[must_use]
pub fn name(settings: &PlaceholderSettings, pool: &str, number: u32) -> String {
    format!("{}-placeholder-{pool}-{number}", settings.group)
}

/// Builds a pod of the pool that excludes `hosts`. These are nodes on which Muster already has an
/// executor and waiting jobs do not fit, or that are about to join.
#[must_use]
pub fn placeholder(
    settings: &PlaceholderSettings,
    (name_of_pool, pool): (&str, &PlaceholderPool),
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
    // Kubernetes requires only one of the terms, so each term needs the exclusion.
    for term in &mut required.node_selector_terms {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.push(elsewhere.clone());
    }
    pod
}

/// Anti-affinity between placeholders: each stands for one node, however small its requests are.
fn from_each_other(settings: &PlaceholderSettings) -> PodAffinityTerm {
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
    // The exclusion is the same in each term.
    let term = required.and_then(|required| required.node_selector_terms.first());
    let expressions = term.and_then(|term| term.match_expressions.as_ref());
    let hosts = expressions
        .into_iter()
        .flatten()
        .filter(|expression| expression.key == HOST && expression.operator == "NotIn")
        .flat_map(|expression| expression.values.iter().flatten());
    hosts.cloned().collect()
}

/// Returns the host label of the node, which equals its name on most clusters.
pub fn host(node: &Node) -> String {
    let label = node.labels().get(HOST).cloned();
    label.unwrap_or_else(|| node.name_any())
}
