//! The annotation by which an operator knows a cordon of its own, and what is to be done about one. Pure.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// On nodes that are drained in Muster: which operator has seen to that, and how.
pub const CORDONED: &str = "muster.dev/cordoned";
/// Behind the operator's name: whether the node is cordoned is somebody else's now.
const YIELDED: &str = ":yielded";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    /// This operator has cordoned it.
    Ours,
    /// This operator has seen the drain and leaves the node as it is: it was cordoned before, or somebody has uncordoned it meanwhile.
    Yielded,
    /// Another operator's.
    Foreign,
}

/// Whether it is cordoned, by whomever.
#[must_use]
pub fn is_cordoned(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.unschedulable) == Some(true)
}

/// Whether the operator of this name has cordoned it.
#[must_use]
pub fn is_ours(node: &Node, operator: &str) -> bool {
    is_cordoned(node) && mark(node, operator) == Mark::Ours
}

/// What to change of a node that is drained in Muster or is not. A drain is followed once: whoever uncordons the node in Kubernetes is not
/// fought with, and a cordon of somebody else's, also one that comes later, is left alone.
#[must_use]
pub fn change(node: &Node, operator: &str, drained: bool) -> Option<Value> {
    let yielded = format!("{operator}{YIELDED}");
    let patch = match (drained, mark(node, operator), is_cordoned(node)) {
        (true, Mark::None, false) => {
            json!({ "metadata": { "annotations": { CORDONED: operator } }, "spec": { "unschedulable": true } })
        }
        (true, Mark::None, true) | (true, Mark::Ours, false) => {
            json!({ "metadata": { "annotations": { CORDONED: yielded } } })
        }
        (false, Mark::Ours, true) => {
            json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } })
        }
        (false, Mark::Ours, false) | (false, Mark::Yielded, _) => {
            json!({ "metadata": { "annotations": { CORDONED: null } } })
        }
        (true, Mark::Ours, true)
        | (true, Mark::Yielded, _)
        | (false, Mark::None, _)
        | (_, Mark::Foreign, _) => return None,
    };
    Some(patch)
}

fn mark(node: &Node, operator: &str) -> Mark {
    let Some(value) = node.annotations().get(CORDONED) else {
        return Mark::None;
    };
    match value.strip_prefix(operator) {
        Some("") => Mark::Ours,
        Some(YIELDED) => Mark::Yielded,
        _ => Mark::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(mark: Option<&str>, cordoned: bool) -> Node {
        let annotations = mark.map(|mark| json!({ CORDONED: mark }));
        let node = json!({
            "metadata": { "name": "a", "annotations": annotations },
            "spec": { "unschedulable": cordoned },
        });
        serde_json::from_value(node).expect("a node")
    }

    /// The mark and whether it is cordoned after what this operator does about it.
    fn after(mark: Option<&str>, cordoned: bool, drained: bool) -> (Option<String>, bool) {
        let Some(patch) = change(&node(mark, cordoned), "here", drained) else {
            return (mark.map(str::to_owned), cordoned);
        };
        let mark = patch["metadata"]["annotations"][CORDONED].as_str();
        let spec = patch["spec"].as_object();
        let cordoned = spec.map_or(cordoned, |spec| spec["unschedulable"] == true);
        (mark.map(str::to_owned), cordoned)
    }

    #[test]
    fn a_drain_is_followed_once_and_only_its_own_cordon_ends_with_it() {
        let (ours, yielded) = (Some("here"), Some("here:yielded"));
        let is = |mark: Option<&str>, cordoned| (mark.map(str::to_owned), cordoned);
        assert_eq!(after(None, false, true), is(ours, true));
        assert_eq!(after(ours, true, true), is(ours, true));
        assert_eq!(after(ours, true, false), is(None, false));
        // Uncordoned in Kubernetes meanwhile, then cordoned there for a repair.
        assert_eq!(after(ours, false, true), is(yielded, false));
        assert_eq!(after(yielded, true, true), is(yielded, true));
        assert_eq!(after(yielded, true, false), is(None, true));
        // Cordoned there before it was drained, then uncordoned.
        assert_eq!(after(None, true, true), is(yielded, true));
        assert_eq!(after(yielded, false, true), is(yielded, false));
        // Nothing was drained, or another has seen to it.
        assert_eq!(after(None, true, false), is(None, true));
        for drained in [true, false] {
            for other in [Some("there"), Some("here-too"), Some("there:yielded")] {
                assert_eq!(after(other, true, drained), is(other, true));
            }
        }
        assert!(is_ours(&node(ours, true), "here"));
        for (mark, cordoned) in [(ours, false), (yielded, true), (None, true)] {
            assert!(!is_ours(&node(mark, cordoned), "here"), "{mark:?}");
        }
        assert!(!is_ours(&node(ours, true), "there"));
    }
}
