//! Jobs by kubectl on a real API server, with Muster and the operator, which has the chart's role
//! and no other right.

use muster_e2e::cluster::{PATIENCE, TestClusterOptions};
use muster_e2e::kubernetes::{History, KubernetesTestbed, condition, sleeper, text};
use muster_e2e::story;
use muster_model::event::Event;
use muster_model::job::JobPhase;
use serde_json::Value;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);
const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 8 };

/// Every expected state either lasts until the story acts, or is searched in the history. The
/// operator polls every 0.7 s and never writes shorter states.
#[tokio::test]
async fn kubectl_operations_take_effect_and_are_shown() {
    let mut testbed = KubernetesTestbed::set(NODES, &[], "", &[]).await;
    let jobs = History::of(&testbed.kubernetes, "trainingjobs");
    runs_and_is_told_of(&testbed, &jobs).await;
    waits_with_a_reason(&testbed, &jobs).await;
    is_held_and_let_go(&testbed, &jobs).await;
    is_scaled(&testbed, &jobs).await;
    is_misconfigured_and_corrected(&testbed, &jobs).await;
    belongs_to_its_namespaces_tenant(&testbed).await;
    studies_go_the_same_way(&testbed).await;
    other_managers_are_set_right(&testbed).await;
    // The server logs a watch when it ends.
    testbed.operator.kill();
    testbed.api_proxy.cut();
    has_exactly_the_rights_that_it_uses(&testbed).await;
    testbed.cluster.down();
}

/// A job that ends when this story allows it; each of its phases is an event.
async fn runs_and_is_told_of(testbed: &KubernetesTestbed, jobs: &History) {
    let gate = testbed.kubernetes.folder().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.1; done", gate.display());
    let since = jobs.position();
    testbed
        .kubernetes
        .applied(&sleeper("hello", &format!("[sh, -c, '{script}']")));
    let running = jobs
        .until_seen("hello", since, |status| {
            status["phase"] == "Running" && status["workers"] == "1/1..1"
        })
        .await;
    std::fs::write(&gate, "").expect("our own folder");
    let done = jobs.until_phase("hello", since, "Succeeded").await;
    assert_eq!(done["queue"], "default");
    assert_eq!(done["jobId"], running["jobId"]);
    assert_eq!(condition(&done, "Finished")["status"], "True");
    assert_eq!(condition(&done, "Submitted")["observedGeneration"], 1);
    // The status is written before the event.
    for phase in ["Running", "Succeeded"] {
        let events = [
            "get",
            "events",
            "-o",
            "custom-columns=R:.reason,O:.involvedObject.name",
        ];
        testbed
            .until_it_says(&events, |told| {
                told.lines()
                    .any(|line| line.contains(phase) && line.contains("hello"))
            })
            .await;
    }
}

async fn waits_with_a_reason(testbed: &KubernetesTestbed, jobs: &History) {
    let big = sleeper("big", "[sleep, '1']") + "  scale: { workers: { min: 20, max: 20 } }\n";
    let since = jobs.position();
    testbed.kubernetes.applied(&big);
    jobs.until_seen("big", since, |status| {
        let admitted = condition(status, "Admitted");
        let message = admitted["message"].as_str().unwrap_or_default();
        status["reason"] == "ExceedsCluster"
            && status["workers"] == "0/20..20"
            && status["position"] == 1
            && admitted["status"] == "False"
            && admitted["reason"] == "ExceedsCluster"
            && message.contains("lower scale.workers.min to 16")
    })
    .await;
    testbed
        .until_it_says(&["get", "mj", "big", "-o", "wide"], |row| {
            row.contains("Queued") && row.contains("ExceedsCluster")
        })
        .await;
    let _ = testbed
        .kubernetes
        .says(&["delete", "mj", "big", "--wait=false"]);
    jobs.until_gone("big", since).await;
    let all = story::jobs(&testbed.cluster).await;
    let job = all
        .iter()
        .find(|job| job.name == "big")
        .expect("it is remembered");
    assert_eq!(job.phase, JobPhase::Cancelled, "deletion cancels");
}

async fn is_held_and_let_go(testbed: &KubernetesTestbed, jobs: &History) {
    let held = sleeper("held", "[sleep, '600']") + "  suspend: true\n";
    let since = jobs.position();
    testbed.kubernetes.applied(&held);
    let status = jobs.until_phase("held", since, "Held").await;
    assert!(
        status.get("jobId").is_none(),
        "nothing was submitted: {status}"
    );
    testbed.patch("held", r#"{"spec":{"suspend":false}}"#, &[]);
    let id = jobs.until_phase("held", since, "Running").await["jobId"].clone();
    testbed.patch("held", r#"{"spec":{"suspend":true}}"#, &[]);
    let status = jobs.until_phase("held", since, "Paused").await;
    assert_eq!(condition(&status, "Suspended")["status"], "True");
    assert_eq!(status["suspended"], true);
    let since = jobs.position();
    testbed.patch("held", r#"{"spec":{"suspend":false}}"#, &[]);
    let again = jobs.until_phase("held", since, "Running").await;
    assert_eq!(again["jobId"], id, "the same job goes on");

    // The operator does not resume a job that a user of Muster paused, even if the object requests
    // it.
    let since = jobs.position();
    let client = testbed.cluster.client();
    let id = id.as_str().expect("an id").parse().expect("an id");
    client.pause(id).await.expect("paused");
    jobs.until_phase("held", since, "Paused").await;
    for suspend in [true, false] {
        let generation =
            testbed.statuses("mj").expect("the server answers")["held"]["observedGeneration"]
                .as_i64();
        let since = jobs.position();
        testbed.patch(
            "held",
            &format!(r#"{{"spec":{{"suspend":{suspend}}}}}"#),
            &[],
        );
        let looked = jobs
            .until_seen("held", since, |status| {
                status["observedGeneration"].as_i64() > generation
            })
            .await;
        assert_eq!(looked["suspended"], false);
    }
    assert_eq!(client.job(id).await.expect("a job").phase, JobPhase::Paused);

    // Training fields cannot change after the submission; the object's condition says so.
    let since = jobs.position();
    testbed.patch("held", r#"{"spec":{"retries":9}}"#, &[]);
    let status = jobs
        .until_seen("held", since, is_misconfigured("True"))
        .await;
    assert_eq!(condition(&status, "Misconfigured")["reason"], "SpecChanged");
    let since = jobs.position();
    testbed.patch("held", r#"{"spec":{"retries":null}}"#, &[]);
    jobs.until_seen("held", since, is_misconfigured("False"))
        .await;
    let _ = testbed
        .kubernetes
        .says(&["delete", "mj", "held", "--wait=false"]);
    jobs.until_gone("held", since).await;
}

fn is_misconfigured(status: &'static str) -> impl Fn(&Value) -> bool {
    move |object| condition(object, "Misconfigured")["status"] == status
}

fn runs_with(workers: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["phase"] == "Running" && status["workers"] == workers
}

/// Sets the field `suspend` of the study `outside`.
fn set_suspend(testbed: &KubernetesTestbed, held: bool) {
    let patch = format!(r#"{{"spec":{{"suspend":{held}}}}}"#);
    let words = ["patch", "study", "outside", "--type=merge", "-p", &patch];
    let _ = testbed.kubernetes.says(&words);
}

/// `kubectl scale` changes the number of workers of a running job, and so does a change of the
/// object's range.
async fn is_scaled(testbed: &KubernetesTestbed, jobs: &History) {
    let since = jobs.position();
    testbed
        .kubernetes
        .applied(&sleeper("sized", "[sleep, '600']"));
    let status = jobs.until_seen("sized", since, runs_with("1/1..1")).await;
    let id = status["jobId"]
        .as_str()
        .expect("an id")
        .parse()
        .expect("an id");
    let _ = testbed
        .kubernetes
        .says(&["scale", "mj", "sized", "--replicas=3"]);
    jobs.until_seen("sized", since, runs_with("3/3..3")).await;
    let twice = [
        "scale",
        "mj",
        "sized",
        "--current-replicas=3",
        "--replicas=2",
    ];
    let _ = testbed.kubernetes.says(&twice);
    jobs.until_seen("sized", since, runs_with("2/2..2")).await;
    let range = r#"{"spec":{"replicas":null,"priority":5,"scale":{"workers":{"min":1,"max":2}}}}"#;
    testbed.patch("sized", range, &[]);
    jobs.until_seen("sized", since, runs_with("2/1..2")).await;
    let too_many = testbed
        .kubernetes
        .kubectl(&["scale", "mj", "sized", "--replicas=2000"])
        .output()
        .expect("kubectl runs");
    assert!(!too_many.status.success());
    assert!(text(&too_many).contains("replicas"), "{}", text(&too_many));

    let client = testbed.cluster.client();
    let job = client.job(id).await.expect("a job");
    assert_eq!((job.priority, job.failures, job.edits), (5, 0, 3));
    let history = testbed.cluster.history(id).await;
    let edits = history.iter().filter_map(|entry| match entry.event {
        Event::JobEdited { workers, .. } => Some((workers.min, workers.max)),
        _ => None,
    });
    assert_eq!(edits.collect::<Vec<_>>(), [(3, 3), (2, 2), (1, 2)]);
    let since = jobs.position();
    let _ = testbed
        .kubernetes
        .says(&["delete", "mj", "sized", "--wait=false"]);
    jobs.until_gone("sized", since).await;
}

/// An error that only the server detects, and its correction.
async fn is_misconfigured_and_corrected(testbed: &KubernetesTestbed, jobs: &History) {
    let document = sleeper("relative", "['true']").replace("argv:", "working_dir: here, argv:");
    let since = jobs.position();
    testbed.kubernetes.applied(&document);
    let status = jobs.until_phase("relative", since, "Misconfigured").await;
    let found = condition(&status, "Misconfigured");
    assert_eq!(found["reason"], "InvalidDocument");
    assert!(
        found["message"]
            .as_str()
            .expect("words")
            .contains("spec.command.working_dir"),
        "{found}"
    );
    testbed.patch(
        "relative",
        r#"{"spec":{"command":{"working_dir":"/tmp"}}}"#,
        &[],
    );
    jobs.until_phase("relative", since, "Succeeded").await;
}

async fn belongs_to_its_namespaces_tenant(testbed: &KubernetesTestbed) {
    testbed.kubernetes.applied(
        "
apiVersion: v1
kind: Namespace
metadata: { name: vision, labels: { muster.dev/tenant: research } }
",
    );
    let job = sleeper("seen", "['true']").replace("name: seen", "name: seen, namespace: vision");
    testbed.kubernetes.applied(&job);
    let reason = [
        "get",
        "mj",
        "seen",
        "-n",
        "vision",
        "-o",
        "jsonpath={.status.reason}",
    ];
    testbed.says_in_the_end(&reason, "NoSuchTenant").await;
    let tenant = "{apiVersion: muster.dev/v1alpha1, kind: Tenant, metadata: {name: research}, spec: {quota: {gpus: 3}, weight: 2}}";
    testbed.kubernetes.applied(tenant);
    let ready = [
        "get",
        "mt",
        "research",
        "-o",
        "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}",
    ];
    testbed.says_in_the_end(&ready, "True").await;
    let phase = [
        "get",
        "mj",
        "seen",
        "-n",
        "vision",
        "-o",
        "jsonpath={.status.phase} {.status.queue}",
    ];
    testbed.says_in_the_end(&phase, "Succeeded research").await;
    let _ = testbed.kubernetes.says(&[
        "patch",
        "mt",
        "research",
        "--type=merge",
        "-p",
        r#"{"spec":{"quota":{"gpus":5},"pods":{"secrets":["words"]}}}"#,
    ]);
    let mut waited = Duration::ZERO;
    loop {
        let tenants = testbed.cluster.client().tenants().await.expect("tenants");
        let research = tenants
            .iter()
            .find(|tenant| tenant.name == "research")
            .expect("it was made");
        if research.gpu_quota == Some(5) && research.pods.secrets == ["words"] {
            return;
        }
        assert!(waited < PATIENCE, "{research:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

async fn studies_go_the_same_way(testbed: &KubernetesTestbed) {
    let study = "
apiVersion: muster.dev/v1alpha1
kind: Study
metadata: { name: outside }
spec:
  suspend: true
  search:
    objectives: [{ metric: loss, goal: minimize }]
    parameters: [{ name: width, type: int, low: 1, high: 8 }]
    searcher: { kind: random }
    trials: 2
";
    let studies = History::of(&testbed.kubernetes, "studies");
    let since = studies.position();
    testbed.kubernetes.applied(study);
    let held = studies.until_phase("outside", since, "Held").await;
    assert!(held.get("studyId").is_none(), "{held}");
    set_suspend(testbed, false);
    let status = studies.until_phase("outside", since, "Running").await;
    assert_eq!(status["trials"], "0/2");
    set_suspend(testbed, true);
    studies.until_phase("outside", since, "Paused").await;
    let since = studies.position();
    set_suspend(testbed, false);
    let again = studies.until_phase("outside", since, "Running").await;
    assert_eq!(again["studyId"], status["studyId"]);
    let _ = testbed
        .kubernetes
        .says(&["delete", "study", "outside", "--wait=false"]);
    studies.until_gone("outside", since).await;
    let page = testbed
        .cluster
        .client()
        .studies(Some("outside"), 10, None)
        .await
        .expect("studies");
    assert_eq!(page.items.len(), 1, "it was created once");
    assert!(page.items[0].phase.is_over(), "deletion cancels");
}

/// The operator restores a status that another manager changed, and removes added fields.
async fn other_managers_are_set_right(testbed: &KubernetesTestbed) {
    let meddler = ["--subresource=status", "--field-manager=meddler"];
    let wrong = r#"{"status":{"phase":"Nonsense","jobId":"01890000-0000-7000-8000-000000000000","position":7,"reason":"Because"}}"#;
    let before = testbed.until_phase("hello", "Succeeded").await;
    testbed.patch("hello", wrong, &meddler);
    let after = testbed
        .until("mj", "hello", |status| {
            status["phase"] == "Succeeded" && status.get("reason").is_none()
        })
        .await;
    assert_eq!(after, before);
    // A faked end in the status does not prevent the object's own job.
    let claimed = sleeper("claimed", "['true']") + "  suspend: true\n";
    testbed.kubernetes.applied(&claimed);
    testbed.until_phase("claimed", "Held").await;
    let wrong =
        r#"{"status":{"phase":"Succeeded","jobId":"01890000-0000-7000-8000-000000000000"}}"#;
    testbed.patch("claimed", wrong, &meddler);
    testbed.patch("claimed", r#"{"spec":{"suspend":false}}"#, &[]);
    testbed
        .until("mj", "claimed", |status| {
            let id = status["jobId"].as_str().unwrap_or_default();
            status["phase"] == "Succeeded" && !id.is_empty() && !id.ends_with("-000000000000")
        })
        .await;
}

/// Checks the use of the chart's rights: nothing was forbidden, and every right was used. The
/// exception is patching an event, which happens for a repeated event of an object
/// (`api/operator/tests/followed.rs`).
async fn has_exactly_the_rights_that_it_uses(testbed: &KubernetesTestbed) {
    let repeated = ["events.k8s.io", "events", "patch"];
    testbed
        .kubernetes
        .used_exactly(&testbed.allowed, &[repeated])
        .await;
}
