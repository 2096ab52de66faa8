use super::super::cordon_annotation::CORDONED;
use super::*;
use serde_json::{Value, json};

fn settings() -> NodeSettings {
    NodeSettings {
        speaker: "here".to_owned(),
        rack_labels: ["topology.kubernetes.io/zone", "example.com/rack"]
            .map(str::to_owned)
            .to_vec(),
        tolerated: vec!["nvidia.com/gpu".parse().expect("a key")],
        cordon_drains: false,
        cordons: false,
        foreign_pods: true,
        seen_as: vec!["nvidia.com/gpu".to_owned()],
        release: None,
        parts: Vec::new(),
    }
}

fn node(metadata: &Value, spec: &Value) -> Node {
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a node")
}

fn closed(spec: &Value) -> (Closed, String) {
    let notice = node_notice(
        &node(&json!({ "name": "a" }), spec),
        &settings(),
        &ExternalGpuUse::Nothing,
        None,
    );
    (notice.closed, notice.why)
}

fn closed_with(node: &Node, settings: &NodeSettings) -> Closed {
    node_notice(node, settings, &ExternalGpuUse::Nothing, None).closed
}

fn taint(key: &str, effect: &str) -> Value {
    json!({ "taints": [{ "key": key, "value": "now", "effect": effect }] })
}

#[test]
fn cordons_and_taints_close_a_node_as_for_pods() {
    assert_eq!(closed(&json!({})), (Closed::Open, String::new()));
    let cordoned = json!({ "unschedulable": true, "taints": [
        { "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" },
    ] });
    assert_eq!(
        closed(&cordoned),
        (Closed::ToNew, "cordoned in Kubernetes".to_owned())
    );
    for (key, effect, expected) in [
        ("maintenance", "NoSchedule", Closed::ToNew),
        ("maintenance", "NoExecute", Closed::ToAll),
        ("maintenance", "PreferNoSchedule", Closed::Open),
        // Executors run there nevertheless.
        ("nvidia.com/gpu", "NoSchedule", Closed::Open),
        // Muster detects this itself.
        ("node.kubernetes.io/not-ready", "NoExecute", Closed::Open),
        (
            "ToBeDeletedByClusterAutoscaler",
            "NoSchedule",
            Closed::ToAll,
        ),
    ] {
        assert_eq!(closed(&taint(key, effect)).0, expected, "{key} {effect}");
    }
    assert_eq!(
        closed(&taint("maintenance", "NoExecute")).1,
        "tainted maintenance=now:NoExecute"
    );
    let drains = NodeSettings {
        cordon_drains: true,
        ..settings()
    };
    let metadata = json!({ "name": "a" });
    assert_eq!(
        closed_with(&node(&metadata, &cordoned), &drains),
        Closed::ToAll
    );
    let everything = NodeSettings {
        tolerated: vec!["*".parse().expect("every key")],
        ..settings()
    };
    let tainted = node(&metadata, &taint("maintenance", "NoExecute"));
    assert_eq!(closed_with(&tainted, &everything), Closed::Open);
}

#[test]
fn own_cordon_does_not_close_the_node() {
    let metadata = json!({ "name": "a", "annotations": { CORDONED: "here" } });
    let ours = node(&metadata, &json!({ "unschedulable": true }));
    let cordons = NodeSettings {
        cordons: true,
        ..settings()
    };
    assert_eq!(closed_with(&ours, &cordons), Closed::Open);
    // The cordon of another operator counts, as does a cordon that remains from earlier settings.
    let another = NodeSettings {
        speaker: "there".to_owned(),
        ..cordons
    };
    assert_eq!(closed_with(&ours, &another), Closed::ToNew);
    assert_eq!(closed_with(&ours, &settings()), Closed::ToNew);
}

fn rack_of(labels: &Value) -> Option<String> {
    let node = node(&json!({ "name": "a", "labels": labels }), &json!({}));
    node_notice(&node, &settings(), &ExternalGpuUse::Nothing, None).rack
}

#[test]
fn labels_determine_the_rack() {
    let both = json!({ "topology.kubernetes.io/zone": "eu-1", "example.com/rack": "r7" });
    assert_eq!(rack_of(&both).as_deref(), Some("eu-1/r7"));
    assert_eq!(
        rack_of(&json!({ "example.com/rack": "r7" })).as_deref(),
        Some("r7")
    );
    assert_eq!(rack_of(&json!({ "other": "x" })), None);
}

#[test]
fn external_gpu_use_closes_a_node_if_gpus_are_unknown() {
    let free = node(&json!({ "name": "a" }), &json!({}));
    let why = "2 nvidia.com/gpu held by a pod that is not Muster's".to_owned();
    let counted = ExternalGpuUse::Counted {
        count: 2,
        why: why.clone(),
    };
    let notice = node_notice(&free, &settings(), &counted, None);
    assert_eq!((notice.closed, notice.taken), (Closed::Open, 2));
    assert_eq!(notice.why, why);
    let unknown = ExternalGpuUse::Unknown { why: why.clone() };
    let notice = node_notice(&free, &settings(), &unknown, None);
    assert_eq!((notice.closed, notice.taken), (Closed::ToNew, 0));
    assert_eq!(notice.why, why);
    let long = taint(&"k".repeat(600), "NoExecute");
    let metadata = json!({ "name": "a", "labels": { "example.com/rack": "ö".repeat(300) } });
    let notice = node_notice(&node(&metadata, &long), &settings(), &counted, None);
    assert_eq!((notice.closed, notice.taken), (Closed::ToAll, 2));
    assert_eq!(notice.why.chars().count(), Notice::WHY_MAX);
    let rack = notice.rack.expect("a rack");
    assert_eq!(rack.chars().count(), Notice::RACK_MAX);
}

/// Model and memory in MiB of the GPUs that the notice describes.
fn gpus_of(resource: Option<&str>, labels: &Value) -> Option<(String, u64)> {
    let node = json!({ "metadata": { "name": "a", "labels": labels } });
    let node = serde_json::from_value(node).expect("a node");
    let notice = node_notice(&node, &settings(), &ExternalGpuUse::Nothing, resource);
    notice
        .gpus
        .map(|gpus| (gpus.model, gpus.memory_bytes >> 20))
}

fn gpus(model: &str, mib: u64) -> Option<(String, u64)> {
    Some((model.to_owned(), mib))
}

#[test]
fn labels_give_the_compute_capability() {
    let capability = |labels: &Value| {
        let node = json!({ "metadata": { "name": "a", "labels": labels } });
        let node = serde_json::from_value(node).expect("a node");
        let resource = Some("nvidia.com/gpu");
        let notice = node_notice(&node, &settings(), &ExternalGpuUse::Nothing, resource);
        let gpus = notice.gpus.expect("the product is named");
        gpus.compute_capability.map(|found| found.to_string())
    };
    let product = "NVIDIA-H100-80GB-HBM3";
    let labels = json!({
        "nvidia.com/gpu.product": product, "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0",
    });
    assert_eq!(capability(&labels).as_deref(), Some("9.0"));
    let half = json!({ "nvidia.com/gpu.product": product, "nvidia.com/gpu.compute.major": "9" });
    assert_eq!(capability(&half), None);
}

#[test]
fn labels_describe_counted_gpus() {
    // Labels of the device plugin's strategy `mixed`, all on one node.
    let labels = json!({
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "nvidia.com/mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "nvidia.com/mig-1g.10gb.memory": "9856",
        "nvidia.com/mig-3g.40gb.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "nvidia.com/mig-3g.40gb.memory": "40320",
    });
    let whole = gpus_of(Some("nvidia.com/gpu"), &labels);
    assert_eq!(whole, gpus("NVIDIA-H100-80GB-HBM3", 81_559));
    for (profile, mib) in [("1g.10gb", 9_856), ("3g.40gb", 40_320)] {
        let resource = format!("nvidia.com/mig-{profile}");
        let model = format!("NVIDIA-H100-80GB-HBM3-MIG-{profile}");
        assert_eq!(gpus_of(Some(&resource), &labels), gpus(&model, mib));
    }
    let bare = json!({ "nvidia.com/gpu.product": "T4" });
    assert_eq!(gpus_of(Some("nvidia.com/gpu"), &bare), gpus("T4", 0));
    assert_eq!(gpus_of(Some("nvidia.com/gpu"), &json!({})), None);
    assert_eq!(gpus_of(None, &labels), None);
}
