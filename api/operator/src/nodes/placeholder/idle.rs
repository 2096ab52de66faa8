//! Idle nodes: waiting jobs are about to use them, or need more nodes than these. Pure.

use super::pod::{GROUP, POOL};
use super::settings::{PlaceholderPool, PlaceholderSettings};
use crate::nodes::pod_requests::INSTANCE;
use crate::nodes::{BEFORE_PART, in_muster};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use muster_model::node::{Closed, NodeState};
use muster_model::view::NodeView;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the number of idle nodes of each pool. `pods` include the executors, which determine the
/// pool of a node.
#[must_use]
pub fn idle(
    settings: &PlaceholderSettings,
    pods: &[Pod],
    views: &[NodeView],
) -> BTreeMap<String, u32> {
    let idle: BTreeSet<&str> = views
        .iter()
        .filter(|view| is_idle(view))
        .map(|view| view.name.as_str())
        .collect();
    // A machine has two executor pods while one replaces the other.
    let mut nodes: BTreeSet<(&str, String)> = BTreeSet::new();
    for pod in pods {
        let Some((name, pool)) = pool_of(settings, pod) else {
            continue;
        };
        let Some(machine) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
            continue;
        };
        let node = pool.in_muster(machine);
        if idle.contains(node.as_str()) {
            nodes.insert((name, node));
        }
    }
    let mut counted = BTreeMap::new();
    for (pool, _) in nodes {
        *counted.entry(pool.to_owned()).or_default() += 1;
    }
    counted
}

/// Whether the node accepts new tasks and none of it is in use.
fn is_idle(view: &NodeView) -> bool {
    let notice = view.notice.as_ref();
    let is_open = notice.is_none_or(|notice| notice.closed == Closed::Open && notice.taken == 0);
    view.state == NodeState::Up
        && !view.drained
        && view.excluded.is_none()
        && is_open
        && view.gpus.iter().all(|gpu| gpu.job.is_none())
        // PS shards use CPU and memory but no GPU. An API server of an older release does not
        // report tasks.
        && view.tasks.is_none_or(|tasks| tasks == 0)
}

/// Returns the pool of an executor pod of this release.
fn pool_of<'a>(
    settings: &'a PlaceholderSettings,
    pod: &Pod,
) -> Option<(&'a str, &'a PlaceholderPool)> {
    let labels = pod.labels();
    let (name, pool) = settings.pools.get_key_value(labels.get(POOL)?)?;
    let is_own = labels.get(INSTANCE) == pool.pod.labels().get(INSTANCE);
    (is_own && !labels.contains_key(GROUP)).then_some((name.as_str(), pool))
}

impl PlaceholderPool {
    /// Returns the name of the pool's executor on the machine.
    fn in_muster(&self, machine: &str) -> String {
        let whole = in_muster(machine);
        if self.part.is_empty() {
            return whole;
        }
        format!("{whole}{BEFORE_PART}{}", self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(part: &str) -> Value {
        let pod = json!({ "metadata": { "labels": { "app.kubernetes.io/instance": "muster" } }, "spec": { "containers": [] } });
        json!({ "gpus": 2, "parts": false, "pods": false, "part": part, "cpuMilli": 1, "memoryBytes": 1, "pod": pod })
    }

    fn settings() -> PlaceholderSettings {
        serde_json::from_value(json!({
            "namespace": "muster", "group": "muster", "afterSeconds": 60, "most": 4, "pools": { "gpu": pool(""), "slices": pool("1g") },
        }))
        .expect("settings")
    }

    fn executor(pool: &str, machine: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "labels": { "app.kubernetes.io/instance": "muster", "muster-pool": pool } },
            "spec": { "containers": [], "nodeName": machine },
        }))
        .expect("a pod")
    }

    fn gpu(index: u32) -> Value {
        json!({ "index": index, "kind": "cuda", "model": "x", "memory_bytes": 1, "job": null, "task_id": null })
    }

    fn view(name: &str, changed: &Value) -> NodeView {
        let mut view = json!({
            "id": "01890000-0000-7000-8000-000000000001", "name": name, "state": "up", "drained": false, "notice": null,
            "generation": 1, "last_seen_at": "2026-01-01T00:00:00Z",
            "capacity": { "gpus": [], "cpu_milli": 1, "memory_bytes": 1 }, "gpus": [gpu(0), gpu(1)],
        });
        for (field, value) in changed.as_object().expect("fields") {
            view[field] = value.clone();
        }
        serde_json::from_value(view).expect("a node")
    }

    fn of(pods: &[Pod], views: &[NodeView]) -> Vec<(String, u32)> {
        idle(&settings(), pods, views).into_iter().collect()
    }

    #[test]
    fn executor_pod_determines_the_pool_of_a_node() {
        let nothing = json!({});
        let views = [
            view("gpu-1-example", &nothing),
            view("gpu-2", &nothing),
            view("gpu-3--1g", &nothing),
            view("elsewhere", &nothing),
        ];
        let mut of_another_release = executor("gpu", "elsewhere");
        let labels = of_another_release.labels_mut();
        labels.insert(INSTANCE.to_owned(), "other".to_owned());
        let mut placeholder = executor("gpu", "elsewhere");
        let labels = placeholder.labels_mut();
        labels.insert(GROUP.to_owned(), "muster".to_owned());
        let pods = [
            executor("gpu", "gpu-1.example"),
            executor("gpu", "gpu-2"),
            executor("gpu", "gpu-2"),
            executor("gpu", "gpu-3"),
            executor("slices", "gpu-3"),
            executor("gone", "elsewhere"),
            of_another_release,
            placeholder,
        ];
        let counted = [("gpu".to_owned(), 2), ("slices".to_owned(), 1)];
        assert_eq!(of(&pods, &views), counted);
        assert_eq!(of(&pods, &[]), []);
    }

    #[test]
    fn closed_or_used_node_is_not_idle() {
        let is_idle =
            |changed: Value| !of(&[executor("gpu", "a")], &[view("a", &changed)]).is_empty();
        assert!(is_idle(json!({})));
        assert!(is_idle(
            json!({ "notice": { "closed": "open", "rack": "r" } })
        ));
        assert!(!is_idle(json!({ "state": "lost" })));
        assert!(!is_idle(json!({ "drained": true })));
        assert!(!is_idle(json!({ "notice": { "closed": "to_new" } })));
        assert!(!is_idle(
            json!({ "notice": { "closed": "open", "taken": 1 } })
        ));
        let excluded = json!({ "excluded": { "at": "2026-01-01T00:00:00Z", "why": "x" } });
        assert!(!is_idle(excluded));
        let mut held = json!(view("a", &json!({})).gpus);
        held[1]["job"] =
            json!({ "id": "01890000-0000-7000-8000-000000000002", "name": null, "tenant": null });
        assert!(!is_idle(json!({ "gpus": held })));
        assert!(is_idle(json!({ "tasks": 0 })));
        assert!(!is_idle(json!({ "tasks": 1 })), "a PS shard, on no GPU");
    }
}
