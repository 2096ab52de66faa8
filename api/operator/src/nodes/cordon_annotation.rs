//! Cordon annotation, which identifies a cordon of the operator, and the changes of a node that
//! follow from it. Pure.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Annotation of nodes that are drained in Muster: the operator that has handled the drain, and
/// how.
pub const CORDONED: &str = "muster.dev/cordoned";
/// Suffix of the operator's name: the operator does not control the node's cordon.
const YIELDED: &str = ":yielded";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CordonAnnotation {
    None,
    /// This operator has cordoned the node.
    Ours,
    /// This operator has handled the drain and leaves the node alone: it was cordoned before, or it
    /// was uncordoned in Kubernetes since.
    Yielded,
    /// The annotation of another operator.
    Foreign,
}

/// Whether the node is cordoned, by any author.
#[must_use]
pub fn is_cordoned(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.unschedulable) == Some(true)
}

/// Whether the operator with this name has cordoned the node.
#[must_use]
pub fn is_ours(node: &Node, operator: &str) -> bool {
    is_cordoned(node) && annotation(node, operator) == CordonAnnotation::Ours
}

/// Returns the patch for a node whose drain state in Muster is `drained`. Each drain is handled
/// once: an uncordon in Kubernetes is respected, and a cordon of another author, also a later one,
/// is left alone.
#[must_use]
pub fn cordon_patch(node: &Node, operator: &str, drained: bool) -> Option<Value> {
    let yielded = format!("{operator}{YIELDED}");
    let patch = match (drained, annotation(node, operator), is_cordoned(node)) {
        (true, CordonAnnotation::None, false) => {
            json!({ "metadata": { "annotations": { CORDONED: operator } }, "spec": { "unschedulable": true } })
        }
        (true, CordonAnnotation::None, true) | (true, CordonAnnotation::Ours, false) => {
            json!({ "metadata": { "annotations": { CORDONED: yielded } } })
        }
        (false, CordonAnnotation::Ours, true) => {
            json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } })
        }
        (false, CordonAnnotation::Ours, false) | (false, CordonAnnotation::Yielded, _) => {
            json!({ "metadata": { "annotations": { CORDONED: null } } })
        }
        (true, CordonAnnotation::Ours, true)
        | (true, CordonAnnotation::Yielded, _)
        | (false, CordonAnnotation::None, _)
        | (_, CordonAnnotation::Foreign, _) => return None,
    };
    Some(patch)
}

fn annotation(node: &Node, operator: &str) -> CordonAnnotation {
    let Some(value) = node.annotations().get(CORDONED) else {
        return CordonAnnotation::None;
    };
    match value.strip_prefix(operator) {
        Some("") => CordonAnnotation::Ours,
        Some(YIELDED) => CordonAnnotation::Yielded,
        _ => CordonAnnotation::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotation: Option<&str>, cordoned: bool) -> Node {
        let annotations = annotation.map(|annotation| json!({ CORDONED: annotation }));
        let node = json!({
            "metadata": { "name": "a", "annotations": annotations },
            "spec": { "unschedulable": cordoned },
        });
        serde_json::from_value(node).expect("a node")
    }

    /// Returns the annotation and the cordon after this operator's change.
    fn after(annotation: Option<&str>, cordoned: bool, drained: bool) -> (Option<String>, bool) {
        let Some(patch) = cordon_patch(&node(annotation, cordoned), "here", drained) else {
            return (annotation.map(str::to_owned), cordoned);
        };
        let annotation = patch["metadata"]["annotations"][CORDONED].as_str();
        let spec = patch["spec"].as_object();
        let cordoned = spec.map_or(cordoned, |spec| spec["unschedulable"] == true);
        (annotation.map(str::to_owned), cordoned)
    }

    fn outcome(annotation: Option<&str>, cordoned: bool) -> (Option<String>, bool) {
        (annotation.map(str::to_owned), cordoned)
    }

    #[test]
    fn drain_cordons_once_and_ends_only_its_own_cordon() {
        let (ours, yielded) = (Some("here"), Some("here:yielded"));
        assert_eq!(after(None, false, true), outcome(ours, true));
        assert_eq!(after(ours, true, true), outcome(ours, true));
        assert_eq!(after(ours, true, false), outcome(None, false));
        // Uncordoned in Kubernetes, and cordoned there later for a repair.
        assert_eq!(after(ours, false, true), outcome(yielded, false));
        assert_eq!(after(yielded, true, true), outcome(yielded, true));
        assert_eq!(after(yielded, true, false), outcome(None, true));
        // Cordoned in Kubernetes before the drain, then uncordoned.
        assert_eq!(after(None, true, true), outcome(yielded, true));
        assert_eq!(after(yielded, false, true), outcome(yielded, false));
        // Not drained, or handled by another operator.
        assert_eq!(after(None, true, false), outcome(None, true));
        for drained in [true, false] {
            for other in [Some("there"), Some("here-too"), Some("there:yielded")] {
                assert_eq!(after(other, true, drained), outcome(other, true));
            }
        }
        assert!(is_ours(&node(ours, true), "here"));
        for (annotation, cordoned) in [(ours, false), (yielded, true), (None, true)] {
            assert!(
                !is_ours(&node(annotation, cordoned), "here"),
                "{annotation:?}"
            );
        }
        assert!(!is_ours(&node(ours, true), "there"));
    }
}
