//! Device-plugin resources that a pod holds, computed as Kubernetes' scheduler does, and whether
//! the pod belongs to Muster. Pure.

use super::release::Release;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use std::collections::BTreeMap;

/// Label of all pods of a release.
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// Labels of task pods, and of executors and placeholders, in any release.
const OWN_PODS: [&str; 2] = ["muster.dev/group", "muster-pool"];
/// Restart policy of an init container that runs beside the main containers.
const SIDECAR: &str = "Always";

/// Whether the pod is outside Muster: it does not belong to the release `own`. The pods of another
/// release are outside too, because their resources serve jobs of another cluster of Muster. If
/// `own` is `None`, no pod of any release is outside.
#[must_use]
pub fn is_external(pod: &Pod, own: Option<&Release>) -> bool {
    let labels = pod.labels();
    let is_ours = OWN_PODS.iter().any(|label| labels.contains_key(*label));
    !(is_ours
        && own.is_none_or(|own: &Release| {
            pod.metadata.namespace.as_ref() == Some(&own.namespace)
                && labels.get(INSTANCE) == Some(&own.name)
        }))
}

/// Returns the amount of each device-plugin resource that the pod holds, or will hold when it runs.
/// Only resources with a vendor prefix count. A finished pod holds nothing.
#[must_use]
pub fn held(pod: &Pod) -> BTreeMap<String, u64> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let (Some(spec), false) = (&pod.spec, matches!(phase, Some("Succeeded" | "Failed"))) else {
        return BTreeMap::new();
    };
    let mut sidecars = BTreeMap::new();
    let mut init_peak = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let own = device_limits(container);
        if container.restart_policy.as_deref() == Some(SIDECAR) {
            add(&mut sidecars, own);
        } else {
            // The init container runs beside the sidecars started before it, and releases its
            // resources when it ends.
            let mut beside = own;
            add(&mut beside, sidecars.clone());
            raise_to(&mut init_peak, beside);
        }
    }
    let mut held = sidecars;
    for container in &spec.containers {
        add(&mut held, device_limits(container));
    }
    raise_to(&mut held, init_peak);
    let overhead = spec.overhead.iter().flatten();
    add(
        &mut held,
        overhead
            .filter_map(|(name, quantity)| device_resource(name, &quantity.0))
            .collect(),
    );
    held.retain(|_, count| *count > 0);
    held
}

/// Returns the device-plugin resources of a container. Their requests equal their limits.
fn device_limits(container: &Container) -> BTreeMap<String, u64> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let limits = limits.into_iter().flatten();
    limits
        .filter_map(|(name, quantity)| device_resource(name, &quantity.0))
        .collect()
}

/// Returns the resource if its name has a vendor prefix. Device-plugin resources are whole numbers.
fn device_resource(name: &str, quantity: &str) -> Option<(String, u64)> {
    let count = name.contains('/').then(|| quantity.parse().ok())??;
    Some((name.to_owned(), count))
}

fn add(sum: &mut BTreeMap<String, u64>, further: BTreeMap<String, u64>) {
    for (name, count) in further {
        *sum.entry(name).or_default() += count;
    }
}

/// Raises each amount to that of `other`, if it is smaller.
fn raise_to(amounts: &mut BTreeMap<String, u64>, other: BTreeMap<String, u64>) {
    for (name, count) in other {
        let amount = amounts.entry(name).or_default();
        *amount = count.max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(labels: &Value, phase: &str, spec: &Value) -> Pod {
        let pod = json!({
            "metadata": { "name": "theirs", "namespace": "web", "labels": labels },
            "spec": spec,
            "status": { "phase": phase },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn container(limits: &Value) -> Value {
        json!({ "name": "c", "resources": { "limits": limits } })
    }

    fn held_while_running(spec: &Value) -> Vec<(String, u64)> {
        held(&pod(&json!({}), "Running", spec))
            .into_iter()
            .collect()
    }

    #[test]
    fn each_resource_is_counted_separately() {
        let both = container(
            &json!({ "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "2", "cpu": "4", "memory": "1Gi" }),
        );
        let other = container(
            &json!({ "nvidia.com/mig-3g.40gb": "1", "nvidia.com/mig-1g.10gb": "1", "amd.com/gpu": "0" }),
        );
        let held = held_while_running(&json!({ "containers": [both, other] }));
        let expected = [
            ("nvidia.com/gpu", 1),
            ("nvidia.com/mig-1g.10gb", 3),
            ("nvidia.com/mig-3g.40gb", 1),
        ];
        assert_eq!(held, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    fn with_gpus(count: &str) -> Value {
        container(&json!({ "nvidia.com/gpu": count }))
    }

    fn sidecar(count: &str) -> Value {
        let mut sidecar = with_gpus(count);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    }

    fn gpus_held(init_containers: &[Value], containers: &[Value]) -> u64 {
        let held = held_while_running(
            &json!({ "initContainers": init_containers, "containers": containers }),
        );
        held.first().map_or(0, |(_, count)| *count)
    }

    /// The rules are those of Kubernetes' scheduler.
    #[test]
    fn init_containers_release_resources_and_sidecars_keep_them() {
        assert_eq!(gpus_held(&[], &[with_gpus("1"), with_gpus("2")]), 3);
        assert_eq!(
            gpus_held(&[with_gpus("2"), with_gpus("1")], &[with_gpus("1")]),
            2
        );
        assert_eq!(
            gpus_held(&[with_gpus("1"), with_gpus("1")], &[with_gpus("3")]),
            3
        );
        assert_eq!(gpus_held(&[sidecar("1")], &[with_gpus("2")]), 3);
        assert_eq!(
            gpus_held(&[sidecar("2"), with_gpus("3")], &[with_gpus("1")]),
            5
        );
        assert_eq!(
            gpus_held(&[with_gpus("3"), sidecar("2")], &[with_gpus("2")]),
            4
        );
    }

    #[test]
    fn pod_overhead_counts_as_held() {
        let container = container(&json!({ "nvidia.com/gpu": "2" }));
        let overhead =
            json!({ "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1", "memory": "120Mi" });
        let held = held_while_running(&json!({ "containers": [container], "overhead": overhead }));
        let expected = [("nvidia.com/gpu", 3), ("nvidia.com/mig-1g.10gb", 1)];
        assert_eq!(held, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn finished_pods_hold_nothing_and_pending_pods_do() {
        let spec = json!({ "containers": [container(&json!({ "nvidia.com/gpu": "2" }))] });
        for (phase, is_held) in [
            ("Pending", true),
            ("Running", true),
            ("Unknown", true),
            ("Succeeded", false),
            ("Failed", false),
        ] {
            let held = held(&pod(&json!({}), phase, &spec));
            assert_eq!(!held.is_empty(), is_held, "{phase}");
        }
    }

    #[test]
    fn pods_of_another_release_are_external() {
        let own: Release = "web/muster".parse().expect("a release");
        let spec = json!({ "containers": [] });
        for label in OWN_PODS {
            for (instance, expected) in [("muster", false), ("another", true)] {
                let labels = json!({ label: "g", "app.kubernetes.io/instance": instance });
                let pod = pod(&labels, "Running", &spec);
                assert_eq!(is_external(&pod, Some(&own)), expected, "{label}");
            }
            let ours = pod(&json!({ label: "g" }), "Running", &spec);
            assert!(!is_external(&ours, None), "{label}");
        }
        assert!(is_external(&pod(&json!({}), "Running", &spec), None));
    }
}
