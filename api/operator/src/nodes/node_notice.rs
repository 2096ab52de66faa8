//! Node notice: what a `Node` object, and the pods outside Muster on it, mean for Muster. Pure.

use super::cordon_annotation::{is_cordoned, is_ours};
use super::external_use::ExternalGpuUse;
use super::release::Release;
use super::tolerated::ToleratedTaint;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use muster_model::compute_capability::ComputeCapability;
use muster_model::node::{Closed, Labelled, Notice};
use muster_model::spec::MAX_NODE_LABELS;

/// Prefix of Kubernetes' own taints, which report what Muster detects itself: a node that is not
/// ready loses its lease.
const OF_KUBERNETES: &str = "node.kubernetes.io/";
/// Taints that announce the removal of the machine, with any effect.
const LEAVING: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",
];

/// Settings of the node reconciler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name of the operator: author of notices and of cordons.
    pub speaker: String,
    /// Labels that state the location of a node, the widest first.
    pub rack_labels: Vec<String>,
    /// Names of the parts of machines with several executors, each of which gives out one part of
    /// the GPUs.
    pub parts: Vec<String>,
    /// Taints that executor pods tolerate.
    pub tolerated: Vec<ToleratedTaint>,
    /// Whether a cordon also moves tasks away.
    pub cordon_drains: bool,
    /// Whether nodes drained in Muster are cordoned in Kubernetes.
    pub cordons: bool,
    /// Whether resources held by pods outside Muster are subtracted from Muster's capacity.
    pub foreign_pods: bool,
    /// Extended resources for GPUs that executors detect through the driver.
    pub seen_as: Vec<String>,
    /// Release whose pods belong to Muster; `None` for all releases.
    pub release: Option<Release>,
}

/// Builds the notice of the node, with the labels of GPUs that Kubernetes counts as `resource`. A
/// reason that moves tasks away precedes one that lets them stay.
#[must_use]
pub fn node_notice(
    node: &Node,
    settings: &NodeSettings,
    taken: &ExternalGpuUse,
    resource: Option<&str>,
) -> Notice {
    let (closed, why) = leaving(node, settings)
        .or_else(|| cordoned(node, settings))
        .or_else(|| tainted(node, settings, "NoSchedule").map(|why| (Closed::ToNew, why)))
        .unwrap_or_else(|| taken.closed());
    Notice {
        closed,
        // The value of a taint may have any length.
        why: why.chars().take(Notice::WHY_MAX).collect(),
        rack: rack(node, &settings.rack_labels),
        labels: node
            .labels()
            .clone()
            .into_iter()
            .take(MAX_NODE_LABELS)
            .collect(),
        gpus: resource.and_then(|resource| labelled(node, resource)),
        taken: taken.count(),
        by: Some(settings.speaker.clone()),
    }
}

fn leaving(node: &Node, settings: &NodeSettings) -> Option<(Closed, String)> {
    let why = if node.metadata.deletion_timestamp.is_some() {
        Some("its node is being deleted in Kubernetes".to_owned())
    } else {
        let mut taints = taints(node);
        let going = taints.find(|taint| LEAVING.contains(&taint.key.as_str()));
        going
            .map(in_words)
            .or_else(|| tainted(node, settings, "NoExecute"))
    };
    Some((Closed::ToAll, why?))
}

/// A cordon of this operator is ignored, because it follows from a drain in Muster.
fn cordoned(node: &Node, settings: &NodeSettings) -> Option<(Closed, String)> {
    let is_ours = settings.cordons && is_ours(node, &settings.speaker);
    if !is_cordoned(node) || is_ours {
        return None;
    }
    let closed = if settings.cordon_drains {
        Closed::ToAll
    } else {
        Closed::ToNew
    };
    Some((closed, "cordoned in Kubernetes".to_owned()))
}

/// Returns the taint with this effect that executor pods do not tolerate, as text.
fn tainted(node: &Node, settings: &NodeSettings, effect: &str) -> Option<String> {
    let mut taints = taints(node).filter(|taint| taint.effect == effect);
    taints
        .find(|taint| {
            let is_tolerated = settings.tolerated.iter().any(|one| one.covers(taint));
            !taint.key.starts_with(OF_KUBERNETES) && !is_tolerated
        })
        .map(in_words)
}

fn rack(node: &Node, labels: &[String]) -> Option<String> {
    let values: Vec<&str> = labels
        .iter()
        .filter_map(|label| node.labels().get(label).map(String::as_str))
        .filter(|value| !value.is_empty())
        .collect();
    let rack: String = values.join("/").chars().take(Notice::RACK_MAX).collect();
    (!rack.is_empty()).then_some(rack)
}

/// Reads the labels of NVIDIA's feature discovery: `nvidia.com/gpu.product`, `.memory` in MiB, and
/// the compute capability from `.compute.major` and `.compute.minor`. A MIG profile with a resource
/// of its own has labels of its own, such as `nvidia.com/mig-1g.10gb.product`.
fn labelled(node: &Node, resource: &str) -> Option<Labelled> {
    let model: String = label(node, resource, "product")?
        .chars()
        .take(Notice::MODEL_MAX)
        .collect();
    let mib = label(node, resource, "memory").and_then(|text| text.parse::<u64>().ok());
    (!model.is_empty()).then(|| Labelled {
        model,
        memory_bytes: mib.unwrap_or(0).saturating_mul(1 << 20),
        compute_capability: capability(node, resource),
    })
}

fn capability(node: &Node, resource: &str) -> Option<ComputeCapability> {
    let number = |what| label(node, resource, what)?.parse().ok();
    ComputeCapability::new(number("compute.major")?, number("compute.minor")?)
}

fn label<'a>(node: &'a Node, resource: &str, what: &str) -> Option<&'a String> {
    node.labels().get(&format!("{resource}.{what}"))
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_ref())
        .into_iter()
        .flatten()
}

fn in_words(taint: &Taint) -> String {
    let value = taint.value.as_deref().unwrap_or_default();
    let equals = if value.is_empty() { "" } else { "=" };
    format!("tainted {}{equals}{value}:{}", taint.key, taint.effect)
}

#[cfg(test)]
mod tests;
