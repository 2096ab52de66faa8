//! One machine with GPUs in two MIG profiles: an executor for each, two kinds of GPU in Muster, and
//! one node in Kubernetes. A real API server, tasks as pods, executors and operator with exactly
//! the chart's rights.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions, program};
use muster_e2e::kubernetes::Operator;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::node::Closed;
use muster_model::view::NodeView;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);
const MACHINE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };
/// Part, profile and number of instances.
const PARTS: [(&str, &str, u32); 2] = [("1g", "1g.10gb", 3), ("3g", "3g.40gb", 2)];

struct Story {
    cluster: TestCluster,
    operator: Operator,
    executors: Vec<Child>,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.end_parts();
    }
}

impl Story {
    async fn set() -> Self {
        let cluster = TestCluster::start_pods(MACHINE).await;
        let kubernetes = &cluster.pods().kubernetes;
        kubernetes.define();
        let _ = kubernetes
            .admit_operator_with("operator.nodes.cordon=true,operator.nodes.foreignPods=true");
        let operator = Operator::start_with(
            kubernetes.operator_config(kubernetes.port()),
            kubernetes.folder().join("operator.log"),
            cluster.server(),
            &cluster.token().expect("the first user's token"),
            &[
                "--cordon-nodes",
                "true",
                "--node-parts",
                "1g,3g",
                "--foreign-pods",
                "true",
            ],
        );
        let executors = PARTS.map(|part| executor(&cluster, part)).into();
        Self {
            cluster,
            operator,
            executors,
        }
    }

    /// Ends the executors that `muster up` does not manage.
    fn end_parts(&mut self) {
        for mut executor in self.executors.drain(..) {
            let _ = executor.kill();
            let _ = executor.wait();
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.pods().kubernetes.says(arguments)
    }

    async fn until(&self, node: &str, what: &str, right: impl Fn(&NodeView) -> bool) {
        let mut waited = Duration::ZERO;
        loop {
            let view = self.cluster.client().node(node).await;
            if view.as_ref().is_ok_and(&right) {
                return;
            }
            if waited > PATIENCE {
                self.operator.print_log();
                panic!("{node}: waiting for {what:?} was in vain: {view:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    async fn until_cordoned(&self, expected: &str) {
        let path = "jsonpath={.spec.unschedulable}";
        let mut waited = Duration::ZERO;
        while self.kubectl(&["get", "node", "node-1", "-o", path]) != expected {
            if waited > PATIENCE {
                self.operator.print_log();
                panic!("whether it is cordoned is not {expected:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    async fn submitted(&self, name: &str, workers: u32, gpus: u32) -> JobId {
        let document = format!(
            "version: muster/v1\nname: {name}\ncommand: {{ argv: [sleep, '600'] }}\nscale: {{ workers: {{ min: {workers}, max: {workers} }} }}\n\
             resources: {{ worker: {{ gpus: {gpus}, cpu_milli: 100, memory_bytes: 67108864 }} }}\n"
        );
        self.cluster.submit(&document).await.id
    }
}

/// Starts an executor as the chart's pool of this part does, with the environment of the machine's
/// other executor except for these variables.
fn executor(cluster: &TestCluster, (part, profile, count): (&str, &str, u32)) -> Child {
    let first = cluster.running("muster-executor").remove(0);
    let told = first
        .environment
        .iter()
        .filter_map(|one| one.split_once('='));
    let log = std::fs::File::create(cluster.data().join(format!("{part}.log")));
    Command::new(program("muster-executor"))
        .env_clear()
        .envs(told.filter(|(name, _)| *name != "MUSTER_EXECUTOR_CPU_SLOTS"))
        .env("MUSTER_EXECUTOR_NODE_NAME", format!("node-1--{part}"))
        .env(
            "MUSTER_EXECUTOR_DATA_DIR",
            cluster.data().join("nodes").join(part),
        )
        .env("MUSTER_EXECUTOR_POD_NODE", "node-1")
        .env("MUSTER_EXECUTOR_POD_GROUP", format!("muster-{part}"))
        .env(
            "MUSTER_EXECUTOR_POD_GPU_RESOURCE",
            format!("nvidia.com/mig-{profile}"),
        )
        .env("MUSTER_EXECUTOR_POD_GPUS", count.to_string())
        .env("MUSTER_EXECUTOR_MEMORY_BYTES", (1_u64 << 30).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("our own folder"))
        .spawn()
        .expect("muster-executor starts")
}

#[tokio::test]
async fn mig_profiles_of_one_machine_are_two_gpu_kinds() {
    let mut story = Story::set().await;
    labels_tell_each_what_its_gpus_are(&story).await;
    let gang = a_gang_is_on_the_profile_that_holds_it(&story).await;
    a_task_of_two_is_told_that_a_process_sees_one(&story).await;
    what_is_done_to_the_machine_holds_for_all_of_it(&story).await;
    story
        .cluster
        .client()
        .cancel(gang)
        .await
        .expect("cancelled");
    story
        .cluster
        .until(gang, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    what_others_hold_of_a_profile_is_taken_from_that_profile(&story).await;
    others_first_have_what_no_executor_gives_out(&story).await;
    story.operator.kill();
    story.end_parts();
    story.cluster.down();
}

async fn labels_tell_each_what_its_gpus_are(story: &Story) {
    for (part, profile, count) in PARTS {
        let product = format!("NVIDIA-H100-80GB-HBM3-MIG-{profile}");
        let _ = story.kubectl(&[
            "label",
            "node",
            "node-1",
            &format!("nvidia.com/mig-{profile}.product={product}"),
            &format!("nvidia.com/mig-{profile}.memory=9856"),
        ]);
        story
            .until(&format!("node-1--{part}"), &product, |view| {
                view.gpus.len() == count as usize
                    && view.gpus.iter().all(|gpu| {
                        (gpu.model.as_str(), gpu.memory_bytes) == (product.as_str(), 9_856 << 20)
                    })
            })
            .await;
    }
}

/// Only one profile has three instances; each task gets one, which Kubernetes counts.
async fn a_gang_is_on_the_profile_that_holds_it(story: &Story) -> JobId {
    let gang = story.submitted("gang", 3, 1).await;
    story
        .cluster
        .until(gang, "its start", |job| job.phase == JobPhase::Running)
        .await;
    let tasks = story.cluster.client().tasks(gang).await.expect("tasks");
    let nodes: BTreeSet<&str> = tasks.iter().map(|task| task.node.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["node-1--1g"]));
    let pods = story.cluster.pods().list();
    assert_eq!(pods.len(), 3);
    for pod in pods {
        assert_eq!(pod["spec"]["nodeName"], "node-1");
        let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(limits["nvidia.com/mig-1g.10gb"], "1", "{pod}");
        assert!(limits.get("nvidia.com/mig-3g.40gb").is_none(), "{pod}");
    }
    gang
}

async fn a_task_of_two_is_told_that_a_process_sees_one(story: &Story) {
    let greedy = story.submitted("greedy", 1, 2).await;
    let told = story
        .cluster
        .until(greedy, "a reason", |job| {
            let waiting = job.waiting.as_ref();
            waiting.is_some_and(|waiting| waiting.reason == "NoMatchingNodes")
        })
        .await;
    let waiting = told.waiting.expect("it waits");
    assert!(
        waiting.message.contains("of which a process sees one"),
        "{waiting:?}"
    );
    assert_eq!(
        waiting.smallest_change.as_deref(),
        Some("lower resources.worker.gpus to 1")
    );
    story
        .cluster
        .client()
        .cancel(greedy)
        .await
        .expect("cancelled");
}

fn closed(view: &NodeView) -> Option<Closed> {
    view.notice.as_ref().map(|notice| notice.closed)
}

async fn what_is_done_to_the_machine_holds_for_all_of_it(story: &Story) {
    let names = ["node-1", "node-1--1g", "node-1--3g"];
    let _ = story.kubectl(&["cordon", "node-1"]);
    for name in names {
        story
            .until(name, "its cordon", |view| {
                closed(view) == Some(Closed::ToNew)
            })
            .await;
    }
    let _ = story.kubectl(&["uncordon", "node-1"]);
    for name in names {
        story
            .until(name, "no cordon", |view| closed(view) == Some(Closed::Open))
            .await;
    }
    // In the other direction, a drained part does not cordon the machine for all pods.
    let client = story.cluster.client();
    client.drain("node-1").await.expect("drained");
    client.drain("node-1--3g").await.expect("drained");
    tokio::time::sleep(Duration::from_secs(8)).await;
    story.until_cordoned("").await;
    client.drain("node-1--1g").await.expect("drained");
    story.until_cordoned("true").await;
    client.uncordon("node-1--3g").await.expect("uncordoned");
    story.until_cordoned("").await;
    for name in ["node-1", "node-1--1g"] {
        client.uncordon(name).await.expect("uncordoned");
    }
}

/// Pod of another workload on the machine that holds `count` instances of a profile.
fn foreign_pod(story: &Story, name: &str, profile: &str, count: u32) {
    let limits = format!("{{limits: {{nvidia.com/mig-{profile}: {count}}}}}");
    story.cluster.pods().kubernetes.applied(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, \
          spec: {{nodeName: node-1, containers: [{{name: a, image: b, command: [sleep, '600'], resources: {limits}}}]}}}}"
    ));
}

fn end_foreign_pod(story: &Story, name: &str) {
    let _ = story.kubectl(&[
        "delete",
        "pod",
        name,
        "--namespace=default",
        "--force",
        "--grace-period=0",
    ]);
}

impl Story {
    /// Waits until `taken` GPUs of the node are used externally while the node is open.
    async fn until_taken(&self, node: &str, taken: u32, why: &str) {
        self.until(node, &format!("{taken} taken"), |view| {
            let notice = view.notice.as_ref();
            notice.is_some_and(|notice| {
                (notice.closed, notice.taken, notice.why.as_str()) == (Closed::Open, taken, why)
            })
        })
        .await;
    }

    async fn until_running(&self, job: JobId) {
        let _ = self
            .cluster
            .until(job, "its start", |job| job.phase == JobPhase::Running)
            .await;
    }

    async fn ended(&self, job: JobId) {
        let client = self.cluster.client();
        client.cancel(job).await.expect("cancelled");
        let _ = self
            .cluster
            .until(job, "its end", |job| job.phase == JobPhase::Cancelled)
            .await;
    }
}

async fn what_others_hold_of_a_profile_is_taken_from_that_profile(story: &Story) {
    foreign_pod(story, "theirs", "1g.10gb", 2);
    let why = "2 nvidia.com/mig-1g.10gb held by a pod that is not Muster's";
    story.until_taken("node-1--1g", 2, why).await;
    for other in ["node-1", "node-1--3g"] {
        story.until_taken(other, 0, "").await;
    }
    // Only that profile has three instances, and only one of them is left.
    let gang = story.submitted("beside", 3, 1).await;
    let _ = story
        .cluster
        .until(gang, "a reason", |job| {
            let waiting = job.waiting.as_ref();
            waiting.is_some_and(|waiting| waiting.reason != "NotConsidered")
        })
        .await;
    let two = story.submitted("two", 2, 1).await;
    story.until_running(two).await;
    let tasks = story.cluster.client().tasks(two).await.expect("tasks");
    let nodes: BTreeSet<&str> = tasks.iter().map(|task| task.node.as_str()).collect();
    let only = BTreeSet::from(["node-1--3g"]);
    assert_eq!(nodes, only, "of which none is taken");
    let phase = story.cluster.client().job(gang).await.expect("a job").phase;
    assert_eq!(phase, JobPhase::Queued);
    story.ended(two).await;
    end_foreign_pod(story, "theirs");
    story.until_taken("node-1--1g", 0, "").await;
    story.until_running(gang).await;
    story.ended(gang).await;
}

/// The machine has six instances of the profile, and Muster's executor offers three.
async fn others_first_have_what_no_executor_gives_out(story: &Story) {
    let node = story.kubectl(&["get", "node", "node-1", "-o", "json"]);
    let mut node: serde_json::Value = serde_json::from_str(&node).expect("JSON");
    let there = serde_json::json!({ "nvidia.com/mig-1g.10gb": "6" });
    node["status"]["capacity"] = there.clone();
    node["status"]["allocatable"] = there;
    let file = story.cluster.data().join("node-1.json");
    std::fs::write(&file, node.to_string()).expect("our own folder");
    let file = file.to_string_lossy();
    let status = "/api/v1/nodes/node-1/status";
    let _ = story.kubectl(&["replace", "--raw", status, "-f", &file]);
    foreign_pod(story, "first", "1g.10gb", 3);
    foreign_pod(story, "second", "1g.10gb", 1);
    let why = "4 nvidia.com/mig-1g.10gb held by 2 pods that are not Muster's";
    story.until_taken("node-1--1g", 1, why).await;
    end_foreign_pod(story, "second");
    story.until_taken("node-1--1g", 0, "").await;
    end_foreign_pod(story, "first");
}
