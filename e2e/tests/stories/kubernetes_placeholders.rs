//! Placeholder pods for missing nodes: created for waiting jobs, and deleted when a node has come
//! or no job waits. A real API server, a real Muster, and the operator with the chart's rights and
//! its file of placeholders.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::kubernetes::{Kubernetes, NAMESPACE, Operator};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use serde_json::Value;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);
/// Longer than two polls of the operator.
const LOOKS: Duration = Duration::from_secs(8);
const MACHINE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };
const VALUES: &str = "executor.pools.gpu=null,executor.pools.cpu.gpus=none,executor.pools.cpu.cpuSlots=2,\
    executor.pools.cpu.resources.requests.cpu=8000m,executor.pools.cpu.resources.requests.memory=32Gi,\
    operator.nodes.placeholders.afterSeconds=2,operator.nodes.placeholders.most=3";

struct Story {
    cluster: TestCluster,
    kubernetes: Kubernetes,
    operator: Operator,
}

impl Story {
    async fn submit(&self, name: &str, workers: u32) -> JobId {
        let document = format!(
            "version: muster/v1\nname: {name}\ncommand: {{ argv: [sleep, '600'] }}\nscale: {{ workers: {{ min: {workers}, max: {workers} }} }}\n\
             resources: {{ worker: {{ gpus: 2 }} }}\n"
        );
        self.cluster.submit(&document).await.id
    }

    async fn cancel(&self, job: JobId) {
        let client = self.cluster.client();
        client.cancel(job).await.expect("cancelled");
        self.cluster
            .until(job, "its end", |job| job.phase == JobPhase::Cancelled)
            .await;
    }

    fn pods(&self) -> Vec<Value> {
        let list = self
            .kubernetes
            .says(&["get", "pods", "-n", NAMESPACE, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }

    async fn until_there_are(&self, count: usize) -> Vec<Value> {
        let mut waited = Duration::ZERO;
        loop {
            let pods = self.pods();
            if pods.len() == count {
                return pods;
            }
            if waited > PATIENCE {
                self.operator.print_log();
                panic!("there are not {count} but {pods:#?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    /// Checks that the number stays for two polls.
    async fn there_stay(&self, count: usize) {
        let mut waited = Duration::ZERO;
        while waited < LOOKS {
            let pods = self.pods();
            assert_eq!(pods.len(), count, "{pods:#?}");
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    /// Binds a pod as Kubernetes' scheduler does.
    fn bind(&self, pod: &str, node: &str) {
        let binding = serde_json::json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
        let done = self
            .kubernetes
            .apply(&binding.to_string(), &["create", "--raw", &path, "-f", "-"]);
        assert!(done.status.success(), "{done:?}");
    }
}

#[tokio::test]
async fn placeholder_exists_until_node_comes_or_no_job_waits() {
    let cluster = TestCluster::start(MACHINE).await;
    let kubernetes = Kubernetes::start().await;
    kubernetes.define();
    kubernetes.add_node("node-1");
    let _ = kubernetes.admit_operator_with("");
    let (file, allowed) = kubernetes.admit_placeholders(VALUES);
    let path = kubernetes.folder().join("placeholders.json");
    std::fs::write(&path, file).expect("our own folder");
    let operator = Operator::start_with(
        kubernetes.operator_config(kubernetes.port()),
        kubernetes.folder().join("operator.log"),
        cluster.server(),
        &cluster.token().expect("the first user's token"),
        &[
            "--placeholders",
            path.to_str().expect("UTF-8"),
            "--pod-name",
            "muster-operator-1",
            "--pod-uid",
            "uid-of-the-operator",
        ],
    );
    let mut story = Story {
        cluster,
        kubernetes,
        operator,
    };
    // A job that fits needs no placeholder.
    let narrow = "version: muster/v1\nname: narrow\ncommand: { argv: [sleep, '600'] }\n";
    let narrow = story.cluster.submit(narrow).await.id;
    story
        .cluster
        .until(narrow, "its start", |job| job.phase == JobPhase::Running)
        .await;
    story.there_stay(0).await;

    let wide = story.submit("wide", 1).await;
    let made = story.until_there_are(1).await;
    is_right(&made[0]);
    assert_eq!(keeps_away_from(&made[0]), ["node-1"]);
    story.there_stay(1).await;
    // The autoscaler has created a node whose executor is not up yet.
    story.kubernetes.add_node("node-2");
    story.bind("muster-placeholder-cpu-0", "node-2");
    let _ = story.until_there_are(0).await;
    story.there_stay(0).await;
    // A job larger than that node needs another one.
    story.cancel(wide).await;
    let wider = story.submit("wider", 2).await;
    let made = story.until_there_are(1).await;
    assert_eq!(keeps_away_from(&made[0]), ["node-1", "node-2"]);
    story.there_stay(1).await;
    story.cancel(wider).await;
    let _ = story.until_there_are(0).await;

    story.operator.kill();
    story.cluster.down();
    assert_eq!(allowed.len(), 3, "list, create and delete pods");
    story.kubernetes.used_exactly(&allowed, &[]).await;
}

fn is_right(pod: &Value) {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    assert_eq!(metadata["name"], "muster-placeholder-cpu-0");
    assert_eq!(metadata["ownerReferences"][0]["name"], "muster-operator-1");
    assert_eq!(metadata["labels"]["muster-pool"], "cpu");
    assert_eq!(spec["priority"], -10);
    assert_eq!(spec["preemptionPolicy"], "Never");
    let apart =
        &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    let other = &apart["labelSelector"]["matchLabels"]["muster.dev/placeholder"];
    assert_eq!(*other, metadata["labels"]["muster.dev/placeholder"]);
}

fn keeps_away_from(pod: &Value) -> Vec<&str> {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let elsewhere = &terms[0]["matchExpressions"][0];
    assert_eq!(elsewhere["operator"], "NotIn");
    let hosts = elsewhere["values"].as_array().expect("a list");
    hosts.iter().filter_map(Value::as_str).collect()
}
