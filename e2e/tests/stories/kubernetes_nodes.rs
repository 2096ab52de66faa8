//! Nodes that Kubernetes and Muster share. Closing one on either side has effect on the other, and
//! labels give the location. Whole GPUs that other pods hold are not used. A real API server, a
//! real Muster, and the operator with the chart's role and no other right.

use muster_e2e::cluster::{PATIENCE, TestClusterOptions};
use muster_e2e::kubernetes::KubernetesTestbed;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::node::{Closed, NodeState};
use muster_model::view::NodeView;
use muster_proto::session as proto;
use muster_proto::session::from_node::Message as From;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinHandle;

const STEP: Duration = Duration::from_millis(200);
const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };
const VALUES: &str =
    "operator.nodes.cordon=true,operator.nodes.foreignPods=true,operator.tenants=true";
const FLAGS: [&str; 8] = [
    "--rack-labels=topology.kubernetes.io/zone,example.com/rack",
    "--tolerated=nvidia.com/gpu",
    "--cordon-nodes",
    "true",
    "--foreign-pods",
    "true",
    "--node-parts",
    "whole",
];

/// The testbed with checks of nodes.
struct Story {
    testbed: KubernetesTestbed,
}

impl Story {
    async fn set() -> Self {
        let testbed = KubernetesTestbed::set(NODES, &["node-1", "node-2"], VALUES, &FLAGS).await;
        Self { testbed }
    }

    /// Waits until `right` is true of Muster's view of the node.
    async fn until(&self, node: &str, what: &str, right: impl Fn(&NodeView) -> bool) {
        let mut waited = Duration::ZERO;
        loop {
            let view = self
                .testbed
                .cluster
                .client()
                .node(node)
                .await
                .expect("a node");
            if right(&view) {
                return;
            }
            if waited > PATIENCE {
                self.testbed.operator.print_log();
                panic!("{node}: waiting for {what:?} was in vain: {view:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    async fn until_closed(&self, node: &str, closed: Closed, why: &str) {
        self.until(node, &format!("{closed:?} {why}"), |view| {
            let notice = view.notice.as_ref();
            notice.is_some_and(|notice| notice.closed == closed && notice.why.contains(why))
        })
        .await;
    }

    /// Waits until a field of `kubectl get node` has a value.
    async fn until_kubernetes_says(&self, node: &str, field: &str, expected: &str) {
        let path = format!("jsonpath={{{field}}}");
        let mut waited = Duration::ZERO;
        loop {
            let said = self.kubectl(&["get", "node", node, "-o", &path]);
            if said == expected {
                return;
            }
            if waited > PATIENCE {
                self.testbed.operator.print_log();
                panic!("{node} {field} is {said:?}, not {expected:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.testbed.kubernetes.says(arguments)
    }

    /// Submits a job for CPU slots on nodes that meet the conditions. It names the slots, because
    /// the cluster has GPUs too for a while.
    async fn sleeper(&self, name: &str, conditions: &str) -> JobId {
        let worker = format!("{{ gpu_kinds: [cpu], node_selector: [{conditions}] }}");
        let document = format!(
            "version: muster/v1\nname: {name}\ncommand: {{ argv: [sleep, '600'] }}\nresources: {{ worker: {worker} }}\n"
        );
        self.testbed.cluster.submit(&document).await.id
    }

    async fn until_on(&self, job: JobId, node: &str) {
        let mut waited = Duration::ZERO;
        loop {
            let tasks = self
                .testbed
                .cluster
                .client()
                .tasks(job)
                .await
                .expect("tasks");
            let newest = tasks.iter().max_by_key(|task| task.revision);
            let phase = self
                .testbed
                .cluster
                .client()
                .job(job)
                .await
                .expect("a job")
                .phase;
            if phase == JobPhase::Running && newest.is_some_and(|task| task.node == node) {
                return;
            }
            assert!(waited < PATIENCE, "{phase:?} {tasks:?}");
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
}

#[tokio::test]
async fn node_state_of_each_side_has_effect_on_other() {
    let mut story = Story::set().await;
    labels_say_where_it_stands(&story).await;
    a_cordon_lets_stay_and_a_taint_moves_away(&story).await;
    what_is_drained_in_muster_is_cordoned_and_no_more(&story).await;
    pods_of_others_close_the_kind_that_they_hold_and_no_other(&story).await;
    a_deleted_node_is_left(&story).await;
    story.testbed.operator.kill();
    story.testbed.api_proxy.cut();
    story.testbed.cluster.down();
    let of_nodes = story.testbed.allowed.iter().filter(|(group, resource, _)| {
        group.is_empty() && (resource == "nodes" || resource == "pods")
    });
    let of_nodes: BTreeSet<_> = of_nodes.cloned().collect();
    assert_eq!(of_nodes.len(), 4, "list, watch and patch nodes; list pods");
    story.testbed.kubernetes.used_exactly(&of_nodes, &[]).await;
}

async fn labels_say_where_it_stands(story: &Story) {
    let _ = story.kubectl(&[
        "label",
        "node",
        "node-1",
        "topology.kubernetes.io/zone=eu-1",
        "example.com/rack=r7",
    ]);
    story
        .until("node-1", "its rack", |view| {
            let rack = view
                .notice
                .as_ref()
                .and_then(|notice| notice.rack.as_deref());
            rack == Some("eu-1/r7")
        })
        .await;
    story.until_closed("node-2", Closed::Open, "").await;
    // Jobs can refer to the same labels.
    for (operator, node) in [("in", "node-1"), ("not_in", "node-2")] {
        let condition = format!("{{ key: example.com/rack, operator: {operator}, values: [r7] }}");
        let job = story.sleeper(&format!("on-{node}"), &condition).await;
        story.until_on(job, node).await;
        let client = story.testbed.cluster.client();
        client.cancel(job).await.expect("cancelled");
        story
            .testbed
            .cluster
            .until(job, "its end", |job| job.phase == JobPhase::Cancelled)
            .await;
    }
}

async fn a_cordon_lets_stay_and_a_taint_moves_away(story: &Story) {
    let _ = story.kubectl(&["cordon", "node-2"]);
    story
        .until_closed("node-2", Closed::ToNew, "cordoned in Kubernetes")
        .await;
    let first = story.sleeper("first", "").await;
    story.until_on(first, "node-1").await;
    let second = story.sleeper("second", "").await;
    story
        .testbed
        .cluster
        .until(second, "a reason to wait", |job| job.waiting.is_some())
        .await;
    let _ = story.kubectl(&["uncordon", "node-2"]);
    story.until_on(second, "node-2").await;
    // A cordon keeps running tasks.
    let _ = story.kubectl(&["cordon", "node-1"]);
    story
        .until_closed("node-1", Closed::ToNew, "cordoned in Kubernetes")
        .await;
    let client = story.testbed.cluster.client();
    client.cancel(second).await.expect("cancelled");
    story
        .testbed
        .cluster
        .until(second, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    // A round has passed since.
    let third = story.sleeper("third", "").await;
    story.until_on(third, "node-2").await;
    let tasks = client.tasks(first).await.expect("tasks");
    assert!(tasks.iter().all(|task| task.node == "node-1"), "{tasks:?}");
    client.cancel(third).await.expect("cancelled");
    story
        .testbed
        .cluster
        .until(third, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    // The executors tolerate the taint of GPU nodes, and no other.
    let _ = story.kubectl(&["uncordon", "node-1"]);
    let _ = story.kubectl(&["taint", "node", "node-1", "nvidia.com/gpu=:NoSchedule"]);
    let _ = story.kubectl(&["taint", "node", "node-1", "maintenance=now:NoExecute"]);
    story
        .until_closed("node-1", Closed::ToAll, "tainted maintenance=now:NoExecute")
        .await;
    story.until_on(first, "node-2").await;
    let moved = client.job(first).await.expect("a job");
    assert_eq!(moved.failures, 0, "nobody is to blame");
    let _ = story.kubectl(&["taint", "node", "node-1", "maintenance-"]);
    story.until_closed("node-1", Closed::Open, "").await;
    client.cancel(first).await.expect("cancelled");
}

async fn what_is_drained_in_muster_is_cordoned_and_no_more(story: &Story) {
    let client = story.testbed.cluster.client();
    let ours = r".metadata.annotations.muster\.dev/cordoned";
    client.drain("node-2").await.expect("drained");
    story
        .until_kubernetes_says("node-2", ".spec.unschedulable", "true")
        .await;
    story
        .until_kubernetes_says("node-2", ours, "kubernetes")
        .await;
    // The operator must not read its own cordon as one of Kubernetes, because it would never end.
    client.uncordon("node-2").await.expect("uncordoned");
    story.until_kubernetes_says("node-2", ours, "").await;
    story
        .until_kubernetes_says("node-2", ".spec.unschedulable", "")
        .await;
    story.until_closed("node-2", Closed::Open, "").await;

    // A node that a user has cordoned in Kubernetes stays cordoned after an uncordon in Muster.
    let _ = story.kubectl(&["cordon", "node-2"]);
    story
        .until_closed("node-2", Closed::ToNew, "cordoned in Kubernetes")
        .await;
    client.drain("node-2").await.expect("drained");
    let yielded = "kubernetes:yielded";
    story.until_kubernetes_says("node-2", ours, yielded).await;
    let view = client.uncordon("node-2").await.expect("uncordoned");
    assert!(
        !view.drained
            && view
                .notice
                .is_some_and(|notice| notice.closed == Closed::ToNew)
    );
    story.until_kubernetes_says("node-2", ours, "").await;
    story
        .until_kubernetes_says("node-2", ".spec.unschedulable", "true")
        .await;
    let _ = story.kubectl(&["uncordon", "node-2"]);
    story.until_closed("node-2", Closed::Open, "").await;
}

/// One machine with two executors: one offers CPU slots, the other whole GPUs.
async fn pods_of_others_close_the_kind_that_they_hold_and_no_other(story: &Story) {
    let whole = "node-1--whole";
    let speaking = whole_gpus(story, whole, 2).await;
    story.until_closed(whole, Closed::Open, "").await;
    let limits = "{limits: {nvidia.com/gpu: 1}}";
    story.testbed.kubernetes.applied(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: theirs}}, spec: {{nodeName: node-1, containers: [{{name: a, image: b, resources: {limits}}}]}}}}"
    ));
    let why = "1 nvidia.com/gpu held by a pod that is not Muster's";
    story.until_closed(whole, Closed::ToNew, why).await;
    // The poll that reported this has reported the slots before.
    let slots = story.testbed.cluster.client().node("node-1").await;
    let notice = slots.expect("a node").notice.expect("it is known");
    assert_eq!(
        (notice.closed, notice.taken, notice.why.as_str()),
        (Closed::Open, 0, "")
    );
    let _ = story.kubectl(&["delete", "pod", "theirs", "--force", "--grace-period=0"]);
    story.until_closed(whole, Closed::Open, "").await;
    speaking.abort();
    story
        .until(whole, "its loss", |view| view.state == NodeState::Lost)
        .await;
}

/// Simulates an executor with `count` GPUs found by the driver, which this machine does not have.
/// It keeps its session until it is aborted.
async fn whole_gpus(story: &Story, name: &str, count: u32) -> JoinHandle<()> {
    let executor = story.testbed.cluster.running("muster-executor").remove(0);
    let told = |name: &str| {
        let mut all = executor.environment.iter();
        let value = all.find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        value.expect("executors are told by it").to_owned()
    };
    let gpus: Vec<_> = (0..count)
        .map(|index| json!({ "index": index, "kind": "cuda", "model": "NVIDIA H100 80GB HBM3", "memory_bytes": 80_u64 << 30 }))
        .collect();
    let capacity = json!({ "gpus": gpus, "cpu_milli": 1_000, "memory_bytes": 1 << 30 });
    let hello = From::Hello(proto::Hello {
        node_name: name.to_owned(),
        join_token: told("MUSTER_EXECUTOR_JOIN_TOKEN"),
        capacity_json: capacity.to_string(),
        version: "test".to_owned(),
        generation: 0,
        boot_id: "test".to_owned(),
        identity: "test".to_owned(),
        unfit: String::new(),
        takes_parts: true,
        erases: false,
        opens_remote: false,
        credential: String::new(),
    });
    let (outbox, messages) = futures::channel::mpsc::unbounded();
    let say = move |message| {
        let message = Some(message);
        let said = outbox.unbounded_send(proto::FromNode { message });
        said.is_ok()
    };
    assert!(say(hello));
    let scheduler = told("MUSTER_EXECUTOR_SCHEDULER_URL");
    let mut sessions = NodeSessionsClient::connect(scheduler)
        .await
        .expect("it listens");
    let inbox = sessions.session(messages).await.expect("it is welcome");
    let mut inbox = inbox.into_inner();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep(STEP) => {
                    number += 1;
                    let beat = proto::Heartbeat { number, ..proto::Heartbeat::default() };
                    assert!(say(From::Heartbeat(beat)));
                }
                message = inbox.message() => assert!(matches!(message, Ok(Some(_)))),
            }
        }
    })
}

/// Its executor still has a session, as during the removal of a machine.
async fn a_deleted_node_is_left(story: &Story) {
    let _ = story.kubectl(&["cordon", "node-2"]);
    story
        .until_closed("node-2", Closed::ToNew, "cordoned in Kubernetes")
        .await;
    let job = story.sleeper("left", "").await;
    story.until_on(job, "node-1").await;
    let _ = story.kubectl(&["uncordon", "node-2"]);
    let _ = story.kubectl(&["delete", "node", "node-1"]);
    story
        .until_closed(
            "node-1",
            Closed::ToAll,
            "its node was deleted in Kubernetes",
        )
        .await;
    story.until_on(job, "node-2").await;
    story.testbed.kubernetes.add_node("node-1");
    story.until_closed("node-1", Closed::Open, "").await;
    story
        .testbed
        .cluster
        .client()
        .cancel(job)
        .await
        .expect("cancelled");
}
