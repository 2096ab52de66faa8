//! External GPU use: GPUs of each of Muster's nodes of a machine that pods outside Muster hold.
//! Pure.
//!
//! If an executor gives out what Kubernetes counts, the kind of GPU in Muster is the name of the
//! resource. GPUs that an executor detects through the driver are whole GPUs. Kubernetes counts
//! them by another name, and MIG profiles are not part of them.

use super::external_pods::NodeExternalUse;
use k8s_openapi::api::core::v1::Node;
use muster_model::node::{Closed, GpuKind, NodeState};
use muster_model::view::NodeView;

/// External use of one of Muster's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExternalGpuUse {
    #[default]
    Nothing,
    /// This number, without identity: Kubernetes assigns the remaining ones.
    Counted { count: u32, why: String },
    /// Some GPUs that plans name by number, and Kubernetes does not say which; the node accepts no
    /// new tasks.
    Unknown { why: String },
}

/// Form in which Kubernetes counts a node's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuResource<'a> {
    As(&'a str),
    /// One of the resources for whole GPUs.
    Whole,
    Not,
}

/// Returns the resource of an executor that only counts its GPUs; labels then describe them. GPUs
/// detected by the executor are not reported, because an API server of an older release would
/// reject a notice with GPUs as a whole.
pub(super) fn counted_resource(view: &NodeView) -> Option<&str> {
    let first = view.capacity.gpus.first()?;
    (first.memory_bytes == 0).then_some(first.model.as_str())
}

/// Returns the external use of each of Muster's nodes of the machine that count ([`counts`]). If
/// Kubernetes has more of a resource than all executors give out, pods outside Muster are assumed
/// to use the surplus first.
pub(super) fn external_use(
    node: &Node,
    views: &[NodeView],
    foreign: &NodeExternalUse,
    seen_as: &[String],
) -> Vec<ExternalGpuUse> {
    let counts = counts(views);
    let kinds: Vec<GpuResource<'_>> = views
        .iter()
        .map(|view| {
            if counts(view) {
                counting(view, seen_as)
            } else {
                GpuResource::Not
            }
        })
        .collect();
    let mut left: Vec<(GpuResource<'_>, u64)> = Vec::new();
    let taken = views.iter().zip(&kinds).map(|(view, kind)| {
        let names: Vec<&str> = match kind {
            GpuResource::As(name) => vec![name],
            GpuResource::Whole => seen_as.iter().map(String::as_str).collect(),
            GpuResource::Not => return ExternalGpuUse::Nothing,
        };
        let place = left.iter().position(|(of, _)| of == kind);
        let place = place.unwrap_or_else(|| {
            let of_kind = views.iter().zip(&kinds).filter(|(_, other)| *other == kind);
            let ours: u64 = of_kind.map(|(view, _)| size(view)).sum();
            let there: u64 = names.iter().map(|name| allocatable(node, name)).sum();
            let held: u64 = names.iter().map(|name| foreign.count(name)).sum();
            left.push((*kind, held.saturating_sub(there.saturating_sub(ours))));
            left.len() - 1
        });
        let count = left[place].1.min(size(view));
        left[place].1 -= count;
        match (count, counted_resource(view)) {
            (0, _) => ExternalGpuUse::Nothing,
            (count, Some(_)) => ExternalGpuUse::Counted {
                count: u32::try_from(count).expect("at most what the node has"),
                why: foreign.in_words(&names),
            },
            (_, None) => ExternalGpuUse::Unknown {
                why: foreign.in_words(&names),
            },
        }
    });
    taken.collect()
}

/// Returns which of Muster's nodes of a machine count: those with a connected executor. The GPUs of
/// a lost node may belong to another node by now. If all are lost, all count, because they are
/// expected to return.
pub(super) fn counts(views: &[NodeView]) -> impl Fn(&NodeView) -> bool + use<> {
    let any_up = views.iter().any(is_up);
    move |view| !any_up || is_up(view)
}

fn is_up(view: &NodeView) -> bool {
    view.state == NodeState::Up
}

impl ExternalGpuUse {
    /// Returns whether the use closes the node, and why.
    pub(super) fn closed(&self) -> (Closed, String) {
        match self {
            Self::Nothing => (Closed::Open, String::new()),
            Self::Counted { why, .. } => (Closed::Open, why.clone()),
            Self::Unknown { why } => (Closed::ToNew, why.clone()),
        }
    }

    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Counted { count, .. } => *count,
            Self::Nothing | Self::Unknown { .. } => 0,
        }
    }
}

fn counting<'a>(view: &'a NodeView, seen_as: &[String]) -> GpuResource<'a> {
    let first = view.capacity.gpus.first();
    match (first.map(|gpu| gpu.kind), counted_resource(view)) {
        (Some(GpuKind::Cuda), Some(name)) if !seen_as.iter().any(|seen| seen == name) => {
            GpuResource::As(name)
        }
        (Some(GpuKind::Cuda), _) => GpuResource::Whole,
        (Some(GpuKind::CpuSlot) | None, _) => GpuResource::Not,
    }
}

/// Number of GPUs of one of Muster's nodes.
fn size(view: &NodeView) -> u64 {
    view.capacity.gpus.len() as u64
}

/// Returns the amount of the resource that Kubernetes can assign on the machine, to any pod; 0 if
/// it is not reported.
fn allocatable(node: &Node, resource: &str) -> u64 {
    let status = node.status.as_ref();
    let all = status.and_then(|status| status.allocatable.as_ref());
    let much = all.and_then(|all| all.get(resource)?.0.parse().ok());
    much.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    const GPU: &str = "nvidia.com/gpu";
    const SMALL: &str = "nvidia.com/mig-1g.10gb";
    const LARGE: &str = "nvidia.com/mig-3g.40gb";

    /// One of Muster's nodes with `count` GPUs of a model; without memory they were only counted.
    fn view(name: &str, kind: &str, model: &str, memory_bytes: u64, count: u32) -> NodeView {
        let gpus: Vec<Value> = (0..count)
            .map(|index| {
                json!({ "index": index, "kind": kind, "model": model, "memory_bytes": memory_bytes })
            })
            .collect();
        serde_json::from_value(json!({
            "id": "01890000-0000-7000-8000-000000000001", "name": name, "state": "up", "drained": false, "notice": null,
            "generation": 1, "last_seen_at": "2026-01-01T00:00:00Z",
            "capacity": { "gpus": gpus, "cpu_milli": 1, "memory_bytes": 1 }, "gpus": [],
        }))
        .expect("a node")
    }

    fn counted_as(resource: &str, count: u32) -> NodeView {
        view("a--part", "cuda", resource, 0, count)
    }

    fn seen(count: u32) -> NodeView {
        view("a", "cuda", "NVIDIA H100 80GB HBM3", 80 << 30, count)
    }

    fn lost(mut view: NodeView) -> NodeView {
        view.state = NodeState::Lost;
        view
    }

    fn taken(views: &[NodeView], allocatable: &Value, pods: &[Value]) -> Vec<(u32, bool)> {
        let node = json!({ "metadata": { "name": "a" }, "status": { "allocatable": allocatable } });
        let node: Node = serde_json::from_value(node).expect("a node");
        let pods: Vec<Pod> = pods
            .iter()
            .map(|limits| {
                let container = json!({ "name": "c", "resources": { "limits": limits } });
                let spec = json!({ "nodeName": "a", "containers": [container] });
                let pod =
                    json!({ "metadata": { "name": "theirs", "namespace": "web" }, "spec": spec });
                serde_json::from_value(pod).expect("a pod")
            })
            .collect();
        let foreign: BTreeMap<String, NodeExternalUse> = NodeExternalUse::by_node(&pods, None);
        let foreign = foreign.get("a").cloned().unwrap_or_default();
        external_use(&node, views, &foreign, &[GPU.to_owned()])
            .iter()
            .map(|taken| (taken.count(), taken.closed().0 == Closed::ToNew))
            .collect()
    }

    /// Use by one pod of a node that does not report what it can assign.
    fn taken_by(views: &[NodeView], limits: Value) -> Vec<(u32, bool)> {
        taken(views, &json!({}), &[limits])
    }

    /// Use by two pods that hold these numbers of GPUs of a node that can assign `there`.
    fn taken_by_two(views: &[NodeView], there: u32, held: [u32; 2]) -> Vec<(u32, bool)> {
        let pods = held.map(|count| json!({ GPU: count.to_string() }));
        taken(views, &json!({ GPU: there.to_string() }), &pods)
    }

    /// Use by one pod of a node that can assign whole GPUs and parts.
    fn taken_of_both(views: &[NodeView], limits: &Value) -> Vec<(u32, bool)> {
        let there = json!({ SMALL: "7", GPU: "8" });
        taken(views, &there, std::slice::from_ref(limits))
    }

    const FREE: (u32, bool) = (0, false);
    const SHUT: (u32, bool) = (0, true);

    #[test]
    fn external_use_is_charged_to_nodes_of_that_kind() {
        let machine = [
            seen(8),
            counted_as(SMALL, 7),
            counted_as(LARGE, 2),
            view("a--cpu", "cpu_slot", "cpu", 1 << 30, 4),
        ];
        assert_eq!(
            taken_by(&machine, json!({ SMALL: "2" })),
            [FREE, (2, false), FREE, FREE]
        );
        assert_eq!(
            taken_by(&machine, json!({ LARGE: "1" })),
            [FREE, FREE, (1, false), FREE]
        );
        assert_eq!(
            taken_by(&machine, json!({ GPU: "1" })),
            [SHUT, FREE, FREE, FREE]
        );
        assert_eq!(
            taken_by(
                &machine,
                json!({ "nvidia.com/mig-2g.20gb": "1", "amd.com/gpu": "1", "cpu": "4" })
            ),
            [FREE; 4]
        );
        let all = json!({ SMALL: "9", LARGE: "1", GPU: "2" });
        assert_eq!(
            taken_by(&machine, all),
            [SHUT, (7, false), (1, false), FREE],
            "no more than there are"
        );
    }

    #[test]
    fn external_use_takes_surplus_gpus_first() {
        assert_eq!(taken_by_two(&[counted_as(GPU, 4)], 8, [1, 3]), [FREE]);
        assert_eq!(taken_by_two(&[counted_as(GPU, 4)], 8, [2, 4]), [(2, false)]);
        // An executor with process tasks holds its GPUs by its own pod, so other pods cannot have
        // them.
        assert_eq!(taken_by_two(&[seen(6)], 8, [1, 1]), [FREE]);
        assert_eq!(taken_by_two(&[seen(8)], 8, [1, 0]), [SHUT]);
        let parts = [counted_as(SMALL, 2), counted_as(SMALL, 3)];
        let pods = [json!({ SMALL: "4" })];
        let both = taken(&parts, &json!({ SMALL: "6" }), &pods);
        assert_eq!(both, [(2, false), (1, false)], "three of them, once");
    }

    /// After the parts of a pool are renamed, the row of an executor that never returns stays.
    #[test]
    fn external_use_is_not_charged_to_lost_nodes() {
        let three = json!({ SMALL: "3" });
        let parts = [lost(counted_as(SMALL, 7)), counted_as(SMALL, 7)];
        assert_eq!(taken_of_both(&parts, &three), [FREE, (3, false)]);
        let wholes = [counted_as(GPU, 8), lost(seen(8))];
        let one = json!({ GPU: "1" });
        assert_eq!(taken_of_both(&wholes, &one), [(1, false), FREE]);
        // An executor that returns to a machine without others finds the notice from its absence.
        assert_eq!(
            taken_of_both(&[lost(counted_as(SMALL, 7))], &three),
            [(3, false)]
        );
        assert_eq!(taken_of_both(&[lost(seen(8))], &one), [SHUT]);
    }

    #[test]
    fn description_has_amounts_and_no_pod_names() {
        let pods = [
            ("one", json!({ SMALL: "2", GPU: "1" })),
            ("other", json!({ SMALL: "1" })),
        ];
        let pods = pods.map(|(name, limits)| {
            let container = json!({ "name": "c", "resources": { "limits": limits } });
            let spec = json!({ "nodeName": "a", "containers": [container] });
            let pod = json!({ "metadata": { "name": name, "namespace": "web" }, "spec": spec });
            serde_json::from_value::<Pod>(pod).expect("a pod")
        });
        let foreign = NodeExternalUse::by_node(&pods, None)
            .remove("a")
            .expect("held");
        assert_eq!(
            foreign.in_words(&[SMALL]),
            "3 nvidia.com/mig-1g.10gb held by 2 pods that are not Muster's"
        );
        assert_eq!(
            foreign.in_words(&[GPU]),
            "1 nvidia.com/gpu held by a pod that is not Muster's"
        );
    }
}
