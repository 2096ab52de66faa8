//! Tests of the demand, and of the creation and deletion of placeholders. Tests of packing are in
//! [`super::wanted`].

use super::demand::NodeDemand;
use super::packing::{Gang, ResourceAmounts};
use super::pod::{PlaceholderPod, host, name, placeholder};
use super::settings::PlaceholderSettings;
use super::steps::{self, PlaceholderSteps};
use crate::clock;
use k8s_openapi::api::core::v1::{Node, Pod};
use muster_model::view::JobView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn settings() -> PlaceholderSettings {
    let pod = json!({
        "metadata": { "labels": { "app.kubernetes.io/instance": "muster" } },
        "spec": { "containers": [{ "name": "placeholder", "image": "pause:1" }] },
    });
    let pool = json!({ "gpus": 8, "parts": false, "pods": false, "part": "", "cpuMilli": 64_000, "memoryBytes": 512_u64 << 30, "pod": pod });
    serde_json::from_value(json!({
        "namespace": "muster", "group": "muster", "afterSeconds": 60, "most": 4, "pools": { "gpu": pool, "more": pool },
    }))
    .expect("settings")
}

fn job(number: u32, phase: &str, intent: &str, why: &Value) -> JobView {
    let waiting = json!({
        "reason": "x", "message": "x", "smallest_change": null, "position": 1,
        "detail": { "why": why, "smallest_change": null, "position": 1 },
    });
    serde_json::from_value(json!({
        "id": format!("01890000-0000-7000-8000-{number:012}"), "tenant": "vision", "name": "a", "labels": {}, "priority": 0,
        "phase": phase, "state": { "phase": phase }, "intent": intent, "revision": 0, "failures": 0, "waiting": waiting,
        "workers": { "running": 0, "min": 1, "max": 1 }, "ps_shards": { "running": 0, "min": 0, "max": 0 }, "progress": null,
        "model_path": null, "failure": null, "resume_step": null, "submitted_by": "ada", "submitted_at": "2026-01-01T00:00:00Z",
        "started_at": null, "finished_at": null,
        "spec": {
            "version": "muster/v1", "name": "a", "command": { "argv": ["true"], "parameter_servers": 2 }, "scale": { "workers": { "min": 3, "max": 9 } },
            "resources": { "worker": { "gpus": 2 }, "ps_shard": { "memory_bytes": 1_u64 << 40 } },
        },
    }))
    .expect("a job")
}

fn for_gpus() -> Value {
    json!({ "reason": "waiting_for_gpus", "needed_gpus": 6, "free_gpus": 0, "held_by": [] })
}

#[test]
fn job_that_waited_long_enough_needs_its_smallest_gang() {
    let start = clock::monotonic();
    let after = Duration::from_secs(60);
    let mut demand = NodeDemand::default();
    let waiting = [job(1, "queued", "run", &for_gpus())];
    assert_eq!(demand.gangs(&waiting, after, start), []);
    let later = start + Duration::from_secs(59);
    assert_eq!(demand.gangs(&waiting, after, later), []);
    let later = start + after;
    let gangs = demand.gangs(&waiting, after, later);
    assert_eq!(
        (gangs.len(), gangs[0].workers, gangs[0].worker.gpus),
        (1, 3, 2)
    );
    let shard = gangs[0].ps_shard;
    assert_eq!(
        (gangs[0].ps_shards, shard.gpus, shard.memory_bytes),
        (2, 0, 1 << 40)
    );
    // The job has run in between.
    assert_eq!(demand.gangs(&[], after, later), []);
    assert_eq!(demand.gangs(&waiting, after, later + after / 2), []);
}

/// Nodes for a job with these pods, if the tasks of the pool `more` may be pods.
fn nodes_for(pod: Value, more_are_pods: bool) -> BTreeMap<String, u32> {
    let mut settings = settings();
    let mut job = job(1, "queued", "run", &for_gpus());
    job.spec.resources.ps_shard.memory_bytes = 1 << 30;
    job.spec.pod = serde_json::from_value(pod).expect("pods");
    let gangs = NodeDemand::default().gangs(&[job], Duration::ZERO, clock::monotonic());
    settings.pools.get_mut("more").expect("a pool").pods = more_are_pods;
    super::packing::nodes_needed(&settings.pools, &of(&[]), &gangs, 4)
}

/// Holds for any reason of waiting: nodes whose tasks are child processes of the executor cannot
/// run such a job.
#[test]
fn job_with_image_or_volume_needs_pools_with_pods() {
    assert_eq!(nodes_for(json!({}), true), of(&[("gpu", 1)]));
    for pod in [
        json!({ "image": "r.io/x:1" }),
        json!({ "volumes": [{ "kind": "scratch", "path": "/s", "bytes": 1 }] }),
    ] {
        assert_eq!(nodes_for(pod.clone(), false), of(&[]), "{pod}");
        assert_eq!(nodes_for(pod, true), of(&[("more", 1)]));
    }
}

fn needs_nodes(phase: &str, intent: &str, why: &Value) -> bool {
    let now = clock::monotonic();
    let job = job(1, phase, intent, why);
    !NodeDemand::default()
        .gangs(&[job], Duration::ZERO, now)
        .is_empty()
}

#[test]
fn job_with_another_wait_reason_needs_no_nodes() {
    assert!(needs_nodes("queued", "run", &for_gpus()));
    let none_fits = json!({ "reason": "no_matching_nodes", "needed_gpus_per_worker": 2, "largest_node_gpus": 1 });
    assert!(needs_nodes("queued", "run", &none_fits));
    let cluster = json!({ "reason": "exceeds_cluster", "needed_gpus": 6, "cluster_gpus": 4 });
    assert!(needs_nodes("queued", "run", &cluster));
    let scattered =
        json!({ "reason": "topology_placement_failed", "needed_gpus": 6, "free_gpus": 7 });
    assert!(needs_nodes("queued", "run", &scattered));
    let for_cpu = json!({
        "reason": "waiting_for_cpu_and_memory", "workers": 3, "needed_milli": 8_000, "needed_bytes": 1_u64 << 30,
        "largest_free_milli": 4_000, "largest_free_bytes": 1_u64 << 40, "nodes": 2,
    });
    assert!(needs_nodes("queued", "run", &for_cpu));
    let quota =
        json!({ "reason": "waiting_for_quota", "needed_gpus": 6, "used_gpus": 1, "quota_gpus": 6 });
    let room_is_made = json!({ "reason": "waiting_for_preempted_workloads", "jobs": [] });
    let not_considered = json!({ "reason": "not_considered" });
    for why in [&quota, &room_is_made, &not_considered] {
        assert!(!needs_nodes("queued", "run", why), "{why}");
    }
    assert!(!needs_nodes("queued", "cancel", &for_gpus()));
    assert!(!needs_nodes("suspended", "run", &for_gpus()));
}

#[test]
fn pause_grows_with_the_duration_of_a_run() {
    let second = Duration::from_secs(1);
    assert_eq!(super::pause_after(second / 2), 3 * second);
    assert_eq!(super::pause_after(2 * second), 8 * second);
}

fn there(pool: &str, number: u32, node: Option<&str>) -> PlaceholderPod {
    PlaceholderPod {
        name: name(&settings(), pool, number),
        uid: None,
        pool: pool.to_owned(),
        node: node.map(str::to_owned),
        is_going: false,
        has_ended: false,
        away: BTreeSet::new(),
    }
}

fn of(counts: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let counts = counts.iter();
    counts
        .map(|(pool, count)| ((*pool).to_owned(), *count))
        .collect()
}

/// Computes the steps without nodes in Muster.
fn steps(
    settings: &PlaceholderSettings,
    wanted: &BTreeMap<String, u32>,
    coming: &BTreeMap<String, u32>,
    there: &[PlaceholderPod],
) -> PlaceholderSteps {
    steps::steps(settings, wanted, coming, there, &BTreeSet::new())
}

fn made(steps: &PlaceholderSteps) -> Vec<(&str, u32)> {
    let made = steps.make.iter();
    made.map(|(pool, number)| (pool.as_str(), *number))
        .collect()
}

fn ended(steps: &PlaceholderSteps) -> Vec<&str> {
    steps.end.iter().map(|pod| pod.name.as_str()).collect()
}

#[test]
fn placeholders_match_demand_and_highest_numbers_end_first() {
    let settings = settings();
    let none = of(&[]);
    let begin = steps(&settings, &of(&[("gpu", 2)]), &none, &[]);
    assert_eq!(made(&begin), [("gpu", 0), ("gpu", 1)]);
    let pods = [
        there("gpu", 10, None),
        there("gpu", 2, None),
        there("gpu", 0, None),
    ];
    let same = steps(&settings, &of(&[("gpu", 3)]), &none, &pods);
    assert_eq!(same, PlaceholderSteps::default());
    let fewer = steps(&settings, &of(&[("gpu", 1)]), &none, &pods);
    assert_eq!(
        ended(&fewer),
        ["muster-placeholder-gpu-2", "muster-placeholder-gpu-10"]
    );
    let more = steps(&settings, &of(&[("gpu", 5), ("more", 1)]), &none, &pods);
    assert_eq!(made(&more), [("gpu", 1), ("gpu", 3), ("more", 0)]);
    let over = steps(&settings, &none, &none, &pods);
    assert_eq!(over.end.len(), 3);
}

#[test]
fn placeholder_with_a_node_ends_without_replacement() {
    let settings = settings();
    let wanted = of(&[("gpu", 2)]);
    let pods = [there("gpu", 0, Some("new")), there("gpu", 1, None)];
    let found = steps(&settings, &wanted, &of(&[("gpu", 1)]), &pods);
    assert_eq!(
        (made(&found), ended(&found)),
        (vec![], vec!["muster-placeholder-gpu-0"])
    );
    // Its node has joined, and the gang still waits for the other one.
    let gang = Gang {
        workers: 2,
        worker: ResourceAmounts {
            gpus: 8,
            cpu_milli: 1_000,
            memory_bytes: 1 << 30,
        },
        ps_shards: 0,
        ps_shard: ResourceAmounts {
            gpus: 0,
            cpu_milli: 0,
            memory_bytes: 0,
        },
        pods: false,
    };
    let beside = |idle: u32| {
        super::packing::nodes_needed(&settings.pools, &of(&[("gpu", idle)]), &[gang], 4)
    };
    let joined = steps(&settings, &beside(1), &of(&[]), &pods[1..]);
    assert_eq!(joined, PlaceholderSteps::default());
    let both = steps(&settings, &beside(2), &of(&[]), &pods[1..]);
    assert_eq!(ended(&both), ["muster-placeholder-gpu-1"]);
    // A removed pool, a failed pod, and a pod that is being deleted, whose name is not free yet.
    let mut pods = [
        there("old", 0, None),
        there("gpu", 0, None),
        there("gpu", 1, None),
    ];
    pods[1].has_ended = true;
    pods[2].is_going = true;
    let swept = steps(&settings, &wanted, &of(&[]), &pods);
    assert_eq!(
        ended(&swept),
        ["muster-placeholder-old-0", "muster-placeholder-gpu-0"]
    );
    assert_eq!(made(&swept), [("gpu", 2), ("gpu", 3)]);
}

fn host_names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn placeholders_without_a_required_exclusion_are_replaced() {
    let settings = settings();
    let mut pods = [
        there("gpu", 0, Some("new")),
        there("gpu", 1, None),
        there("gpu", 2, None),
    ];
    pods[1].away = host_names(&["old"]);
    // The exclusion of a deleted node does no harm.
    pods[2].away = host_names(&["new", "old", "older"]);
    let now = host_names(&["new", "old"]);
    let found = steps::steps(
        &settings,
        &of(&[("gpu", 3)]),
        &of(&[("gpu", 1)]),
        &pods,
        &now,
    );
    assert_eq!(
        ended(&found),
        ["muster-placeholder-gpu-1", "muster-placeholder-gpu-0"]
    );
    // The new pod has a name that is free at once.
    assert_eq!(made(&found), [("gpu", 3)]);
}

fn node(name: &str, host: Option<&str>) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels =
        host.map(|host| [("kubernetes.io/hostname".to_owned(), host.to_owned())].into());
    node
}

/// Placeholder of the pool `gpu` while these nodes are known.
fn pod_beside(settings: &PlaceholderSettings, known: &BTreeSet<String>) -> Pod {
    let pool = ("gpu", &settings.pools["gpu"]);
    placeholder(settings, pool, 3, known, None)
}

fn terms(pod: &Pod) -> Value {
    let spec = serde_json::to_value(pod).expect("JSON")["spec"].clone();
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        .clone()
}

fn pod_anti_affinity(settings: &PlaceholderSettings) -> Value {
    let pod = pod_beside(settings, &BTreeSet::new());
    let spec = json!(pod)["spec"].clone();
    spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone()
}

#[test]
fn placeholders_exclude_each_other_from_nodes() {
    let mut settings = settings();
    let each_other = json!({
        "labelSelector": { "matchLabels": { "muster.dev/placeholder": "muster" } }, "topologyKey": "kubernetes.io/hostname",
    });
    assert_eq!(pod_anti_affinity(&settings), json!([each_other]));
    // In addition to the anti-affinity of the pool's pods.
    let others = json!({ "labelSelector": {}, "topologyKey": "zone" });
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [others] } });
    let pool = settings.pools.get_mut("gpu").expect("a pool");
    let spec = pool.pod.spec.as_mut().expect("a spec");
    spec.affinity = serde_json::from_value(affinity).expect("an affinity");
    assert_eq!(pod_anti_affinity(&settings), json!([others, each_other]));
}

fn zone_term(zone: &str) -> Value {
    json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] })
}

#[test]
fn placeholder_excludes_all_known_nodes() {
    let mut settings = settings();
    let known = [node("b", Some("host-b")), node("a", None)];
    let known: BTreeSet<String> = known.iter().map(host).collect();
    let elsewhere =
        json!({ "key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "host-b"] });
    let pod = pod_beside(&settings, &known);
    assert_eq!(terms(&pod), json!([{ "matchExpressions": [elsewhere] }]));
    let labels = json!(pod.metadata.labels);
    assert_eq!(
        labels,
        json!({ "app.kubernetes.io/instance": "muster", "muster.dev/placeholder": "muster", "muster-pool": "gpu" })
    );
    assert_eq!(PlaceholderPod::of(&pod).name, "muster-placeholder-gpu-3");
    assert_eq!(PlaceholderPod::of(&pod).pool, "gpu");
    assert_eq!(PlaceholderPod::of(&pod).away, known);
    assert_eq!(terms(&pod_beside(&settings, &BTreeSet::new())), Value::Null);
    // In addition to the affinity of the pool's pods, in each of its terms.
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [zone_term("x"), zone_term("y")] } } });
    let pool = settings.pools.get_mut("gpu").expect("a pool");
    let spec = pool.pod.spec.as_mut().expect("a spec");
    spec.affinity = serde_json::from_value(affinity).expect("an affinity");
    let terms = terms(&pod_beside(&settings, &known));
    for (term, zone) in [(0, "x"), (1, "y")] {
        let expressions = &terms[term]["matchExpressions"];
        assert_eq!(expressions[0]["values"][0], zone);
        assert_eq!(expressions[1], elsewhere);
    }
}
