//! Tasks as pods on a real API server with the tests' kubelet. They train, outlive their executor
//! and are restarted after a deletion. Ends by Kubernetes are reported, and no pod is left behind.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::story::{document, log, no_gpu_was_held_twice, training_is_continuous};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use std::path::Path;
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };
const STEPS: u64 = 1_500;
const STEP: Duration = Duration::from_millis(100);

#[tokio::test]
async fn job_in_pods_survives_loss_of_executor_and_of_pod() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let job = cluster
        .submit(&document("carried", (2, 2), (2, 2), STEPS))
        .await
        .id;
    until_step(&cluster, job, 60).await;
    are_told_apart(&cluster, job).await;

    let executor = cluster.running("muster-executor").remove(0);
    cluster.kill(&executor);
    until_step(&cluster, job, 160).await;
    let running = cluster.running("muster-executor");
    assert!(
        running.len() == 2 && running.iter().all(|process| process.pid != executor.pid),
        "the next executor is there: {running:?}"
    );
    assert_eq!(
        cluster.resumed_at(job).await,
        [0_u64; 0],
        "it adopted its tasks: nothing was started again"
    );

    let pod = cluster.pods().of_role("worker-1").expect("it runs");
    cluster.pods().delete(&pod);
    let done = cluster.succeeded(job).await;
    let resumed = cluster.resumed_at(job).await;
    assert!(
        resumed.first().is_some_and(|step| *step >= 100),
        "it went on from its checkpoint: {resumed:?}"
    );
    assert_eq!(done.failures, 0, "the job was not to blame");
    let history = format!("{:?}", cluster.history(job).await);
    assert!(
        history.contains("its pod was deleted from outside Muster"),
        "{history}"
    );
    training_is_continuous(&cluster, job, STEPS).await;
    no_gpu_was_held_twice(&cluster, &[job]).await;
    until_no_pod_is_left(&cluster).await;
    cluster.down();
}

/// The next executor finds its tasks in its folder and has a session before the API server can
/// report any pod. Reports and ends of tasks arrive meanwhile.
#[tokio::test]
async fn executor_adopts_pods_while_api_server_is_unavailable() {
    let mut cluster = TestCluster::start_pods(TestClusterOptions { nodes: 2, slots: 2 }).await;
    let over = cluster.data().join("over");
    let kept = cluster.submit(&stepper("kept", &over)).await.id;
    let done = cluster.submit(&stepper("done", &over)).await.id;
    for job in [kept, done] {
        until_step(&cluster, job, 1).await;
    }
    cluster.pods_mut().kubernetes.kill_server();
    for executor in cluster.running("muster-executor") {
        cluster.kill(&executor);
    }
    until_nodes_speak(&cluster).await;
    // A new task waits for the API server; running tasks continue and end.
    let late = cluster.submit(&sleeper("late", 0)).await.id;
    cluster
        .until(late, "its start", |job| job.phase == JobPhase::Starting)
        .await;
    for job in [kept, done] {
        let view = cluster.client().job(job).await.expect("a job");
        let step = view.progress.map_or(0, |progress| progress.step);
        until_step(&cluster, job, step + 10).await;
    }
    std::fs::write(&over, "done").expect("our own folder");
    until_said(&cluster, done, "over").await;
    cluster.pods_mut().kubernetes.restart_server().await;
    until_running(&cluster, late).await;
    let ended = cluster.succeeded(done).await;
    assert_eq!((ended.revision, ended.failures), (1, 0));
    let after = cluster.client().job(kept).await.expect("a job");
    assert_eq!(
        (after.phase, after.revision, after.failures),
        (JobPhase::Running, 1, 0)
    );
    for job in [kept, late] {
        cluster.client().cancel(job).await.expect("cancelled");
        cluster
            .until(job, "its end", |job| job.phase == JobPhase::Cancelled)
            .await;
    }
    until_no_pod_is_left(&cluster).await;
    cluster.down();
}

#[tokio::test]
async fn ends_of_pods_by_kubernetes_are_reported_to_user() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let cancelled = cluster.submit(&sleeper("cancelled", 3)).await.id;
    until_running(&cluster, cancelled).await;
    cluster.client().cancel(cancelled).await.expect("cancelled");
    cluster
        .until(cancelled, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    until_no_pod_is_left(&cluster).await;

    let greedy = cluster.submit(&sleeper("greedy", 0)).await.id;
    until_running(&cluster, greedy).await;
    let pod = cluster.pods().of_role("worker-0").expect("it runs");
    cluster.pods().kubelet.kill_for_memory(&pod);
    let failed = until_failed(&cluster, greedy).await;
    assert!(
        failed.contains("killed for more memory than it was given"),
        "{failed}"
    );

    cluster.pods().kubelet.has_images(false);
    let imageless = cluster.submit(&sleeper("imageless", 0)).await.id;
    let failed = until_failed(&cluster, imageless).await;
    assert!(
        failed.contains("its pod does not start: ImagePullBackOff"),
        "{failed}"
    );
    cluster.pods().kubelet.makes_containers(false);
    cluster.pods().kubelet.has_images(true);
    let unmade = cluster.submit(&sleeper("unmade", 0)).await.id;
    let failed = until_failed(&cluster, unmade).await;
    assert!(
        failed.contains("its pod did not start within 40 s: ContainerCreating"),
        "{failed}"
    );
    cluster.pods().kubelet.makes_containers(true);
    cluster.pods().kubelet.has_images(false);
    until_no_pod_is_left(&cluster).await;
    let unpulled = cluster.submit(&sleeper("unpulled", 3)).await.id;
    until_pods(&cluster, 1).await;
    cluster.client().cancel(unpulled).await.expect("cancelled");
    cluster
        .until(unpulled, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    cluster.pods().kubelet.has_images(true);
    until_no_pod_is_left(&cluster).await;

    cluster.down();
    // With exactly the chart's role: nothing was forbidden, and every right was used. The server
    // logs a watch when it ends.
    let allowed = &cluster.pods().allowed;
    // Rights on claims are used by jobs with a claim (`kubernetes_own.rs`).
    let of_claims = ["get", "patch"].map(|verb| ["", "persistentvolumeclaims", verb]);
    let kubernetes = &cluster.pods().kubernetes;
    kubernetes.used_exactly(allowed, &of_claims).await;
}

/// Four pods, one per task of the job, on the chosen node; their processes see only themselves.
async fn are_told_apart(cluster: &TestCluster, job: JobId) {
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let pods = cluster.pods().list();
    assert_eq!((tasks.len(), pods.len()), (4, 4), "{pods:?}");
    for task in tasks {
        let name = format!("muster-{}", task.id);
        let pod = pods
            .iter()
            .find(|pod| pod["metadata"]["name"] == name.as_str())
            .unwrap_or_else(|| panic!("{name} is not among {pods:?}"));
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["muster.dev/job"], job.to_string());
        assert_eq!(labels["muster.dev/role"], task.name);
        assert_eq!(pod["spec"]["nodeName"], task.node);
        assert_eq!(pod["status"]["phase"], "Running");
        let said = pod.to_string();
        assert!(!said.contains("MUSTER_TASK_ID"), "{said}");
        let shim = cluster
            .data()
            .join(format!("nodes/{}/tasks/{}/shim.json", task.node, task.id));
        let shim = std::fs::read_to_string(&shim).expect("it runs");
        assert!(
            shim.contains(r#""shim":{"pid":1,"#),
            "its number is of its pod: {shim}"
        );
    }
}

/// Program of a user without output.
fn sleeper(name: &str, retries: u32) -> String {
    format!(
        "version: muster/v1\nname: {name}\nretries: {retries}\ncommand: {{ argv: [sleep, '600'] }}\n"
    )
}

/// Program of a user that reports steps until the file contains its name.
fn stepper(name: &str, over: &Path) -> String {
    let over = over.display();
    format!(
        "version: muster/v1\nname: {name}\nretries: 0\ncommand:\n  argv: [sh, -c, 'i=0; until grep -qs {name} {over}; do i=$((i+1)); echo \"muster: step=$i loss=1\"; sleep 0.1; done; echo over']\n"
    )
}

/// Waits until the task's log contains these words.
async fn until_said(cluster: &TestCluster, job: JobId, words: &str) {
    let mut waited = Duration::ZERO;
    while !log(cluster, job, "worker-0").await.contains(words) {
        assert!(waited < PATIENCE, "{job} has not said {words:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

async fn until_step(cluster: &TestCluster, job: JobId, step: u64) -> JobView {
    cluster
        .until(job, &format!("step {step}"), |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= step)
        })
        .await
}

async fn until_running(cluster: &TestCluster, job: JobId) {
    cluster
        .until(job, "its start", |job| job.phase == JobPhase::Running)
        .await;
}

/// View of the failed job.
async fn until_failed(cluster: &TestCluster, job: JobId) -> String {
    let view = cluster
        .until(job, "its failure", |job| job.phase == JobPhase::Failed)
        .await;
    format!("{view:?}")
}

/// Waits until every executor has a session, according to their leases.
async fn until_nodes_speak(cluster: &TestCluster) {
    let mut since = None;
    let mut waited = Duration::ZERO;
    loop {
        let nodes = cluster.client().nodes().await.expect("nodes");
        let seen: Vec<_> = nodes.iter().map(|node| node.last_seen_at).collect();
        let before = *since.get_or_insert_with(|| seen.iter().max().copied());
        if seen.iter().min().copied() > before {
            return;
        }
        assert!(waited < PATIENCE, "{nodes:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

async fn until_no_pod_is_left(cluster: &TestCluster) {
    until_pods(cluster, 0).await;
}

async fn until_pods(cluster: &TestCluster, count: usize) {
    let mut waited = Duration::ZERO;
    loop {
        let pods = cluster.pods().list();
        if pods.len() == count {
            return;
        }
        assert!(waited < PATIENCE, "{count} pods were expected: {pods:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}
