//! Settings of a job for its pods: an image, variables from secrets, volumes and its tenant's
//! service account, on a real API server with the tests' kubelet. An administrator allows them per
//! tenant.

use muster_client::{Client, ClientError};
use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::kubernetes::NAMESPACE;
use muster_e2e::story::log;
use muster_model::job::JobPhase;
use muster_model::spec::JobSpec;
use muster_model::tenant::TenantPods;
use muster_model::view::TenantChange;
use std::path::Path;
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };
const STEP: Duration = Duration::from_millis(100);
/// Prints what it finds, one line each, and whether it can write.
const LOOKER: &str = r#"
echo "variable $SECRET_WORD"
echo "mounted $(cat "$1/secret/word") $(cat "$1/settings/colour") $(cat "$1/data/numbers")"
echo x > "$1/secret/other" || echo "secret read only"
echo x > "$1/data/other" || echo "data read only"
dd if=/dev/zero of="$1/shm/full" bs=1M count=8 2>/dev/null || echo "memory limited"
echo x > "$1/scratch/mine" && echo "scratch $(cat "$1/scratch/mine")"
echo "shim $(tr '\0' ' ' < /proc/1/cmdline | cut -d' ' -f1)"
"#;

#[tokio::test]
async fn job_gets_image_secrets_and_volumes_that_tenant_may_use() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let place = tempfile::tempdir().expect("a folder");
    offer(&cluster, place.path());
    let spec = looker(place.path());
    let refused = cluster
        .client()
        .submit(&spec, None)
        .await
        .expect_err("nothing is allowed");
    let ClientError::Problem(problem) = &refused else {
        panic!("{refused}");
    };
    let fields: Vec<&str> = problem
        .errors
        .iter()
        .map(|one| one.field.as_str())
        .collect();
    let expected = [
        "pod.pull_secrets[0]",
        "pod.secret_env.SECRET_WORD.secret",
        "pod.volumes[0].name",
        "pod.volumes[1].name",
        "pod.volumes[2].name",
    ];
    assert_eq!(fields, expected);
    let change = TenantChange {
        pods: Some(
            TenantPods {
                service_account: Some("trainers".to_owned()),
                images: vec!["registry.test/vision/*".to_owned()],
                claims: vec!["numbers".to_owned()],
                secrets: vec!["words".to_owned()],
                config_maps: vec!["settings".to_owned()],
            }
            .into(),
        ),
        ..TenantChange::default()
    };
    change_own_tenant(cluster.client(), &change).await;

    let job = cluster
        .client()
        .submit(&spec, None)
        .await
        .expect("it may now")
        .id;
    let pod = until_there(&cluster).await;
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.test/vision/looker:1");
    assert_eq!(pod["spec"]["serviceAccountName"], "trainers");
    assert_eq!(pod["spec"]["imagePullSecrets"][0]["name"], "words");
    // The pod contains no secret, because many users may read pods.
    assert!(!pod.to_string().contains("swordfish"), "{pod}");
    cluster
        .until(job, "its end", |job| job.phase.is_terminal())
        .await;
    let log = log(&cluster, job, "worker-0").await;
    for line in [
        "variable swordfish",
        "mounted swordfish blue 1 2 3",
        "secret read only",
        "data read only",
        "memory limited",
        "scratch x",
    ] {
        assert!(log.lines().any(|said| said == line), "{line}: {log}");
    }
    // The image contains no program of Muster.
    let shim = log
        .lines()
        .find(|line| line.starts_with("shim "))
        .expect("it looked");
    let data = cluster.data().display().to_string();
    assert!(
        shim.contains(&data) && shim.contains("/programs/"),
        "{shim}"
    );
    let done = cluster.client().job(job).await.expect("a job");
    assert_eq!(done.phase, JobPhase::Succeeded, "{done:?}");
    cluster.down();
}

/// A missing object is reported with Kubernetes' message. A mount that would hide Muster's folders
/// is reported with Muster's.
#[tokio::test]
async fn missing_pod_resources_are_reported_to_user() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let change = TenantChange {
        pods: Some(
            TenantPods {
                claims: vec!["late".to_owned()],
                secrets: vec!["missing".to_owned()],
                ..TenantPods::default()
            }
            .into(),
        ),
        ..TenantChange::default()
    };
    change_own_tenant(cluster.client(), &change).await;
    let own = "pod: { secret_env: { A: { secret: missing, key: k } } }";
    let failed = until_failed(&cluster, own).await;
    assert!(
        failed.contains("CreateContainerConfigError") && failed.contains("missing"),
        "{failed}"
    );
    let own = format!(
        "pod: {{ volumes: [{{ kind: scratch, path: {}, bytes: 1 }}] }}",
        cluster.data().display()
    );
    let failed = until_failed(&cluster, &own).await;
    assert!(
        failed.contains("pod.volumes[0].path") && failed.contains("which every task has"),
        "{failed}"
    );
    names_the_node_for_a_late_claim(&cluster).await;
    cluster.down();
}

/// A provisioner creates the volume of such a claim only when the claim names a node.
async fn names_the_node_for_a_late_claim(cluster: &TestCluster) {
    let kubernetes = &cluster.pods().kubernetes;
    kubernetes.applied(&format!(
        "
{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: late}}, provisioner: example.com/none, volumeBindingMode: WaitForFirstConsumer}}
---
{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: late, namespace: {NAMESPACE}}}, spec: {{accessModes: [ReadWriteMany], storageClassName: late, resources: {{requests: {{storage: 1Gi}}}}}}}}
"
    ));
    let document = "version: muster/v1\nname: late\nretries: 0\ncommand: { argv: ['true'] }\npod: { volumes: [{ kind: claim, name: late, path: /late }] }\n";
    let job = cluster.submit(document).await.id;
    let pod = until_there(cluster).await;
    let selected = r"jsonpath={.metadata.annotations.volume\.kubernetes\.io/selected-node}";
    let claim = ["get", "pvc", "late", "-n", NAMESPACE, "-o", selected];
    assert_eq!(pod["spec"]["nodeName"], kubernetes.says(&claim));
    cluster.client().cancel(job).await.expect("it runs");
}

/// Objects that the cluster's administrator creates; the files of the volume are in `place`.
fn offer(cluster: &TestCluster, place: &Path) {
    let files = place.join("files");
    std::fs::create_dir_all(files.join("small")).expect("our own folder");
    std::fs::write(files.join("small/numbers"), "1 2 3").expect("our own folder");
    let objects = format!(
        r#"
{{apiVersion: v1, kind: Secret, metadata: {{name: words, namespace: {NAMESPACE}}}, stringData: {{word: swordfish}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: {NAMESPACE}}}, data: {{colour: blue}}}}
---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: trainers, namespace: {NAMESPACE}}}}}
---
{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: numbers}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], storageClassName: "", hostPath: {{path: {}}}}}}}
---
{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: numbers, namespace: {NAMESPACE}}}, spec: {{accessModes: [ReadWriteMany], storageClassName: "", volumeName: numbers, resources: {{requests: {{storage: 1Gi}}}}}}}}
"#,
        files.display()
    );
    cluster.pods().kubernetes.applied(&objects);
}

fn looker(place: &Path) -> JobSpec {
    let at = place.join("in").display().to_string();
    let document = serde_json::json!({
        "version": "muster/v1",
        "name": "looker",
        "retries": 0,
        "command": { "argv": ["sh", "-c", LOOKER, "looker", at] },
        "pod": {
            "image": "registry.test/vision/looker:1",
            "pull_secrets": ["words"],
            "secret_env": { "SECRET_WORD": { "secret": "words", "key": "word" } },
            "volumes": [
                { "kind": "secret", "name": "words", "path": format!("{at}/secret") },
                { "kind": "config_map", "name": "settings", "path": format!("{at}/settings") },
                { "kind": "claim", "name": "numbers", "path": format!("{at}/data"), "read_only": true, "sub_path": "small" },
                { "kind": "memory", "path": format!("{at}/shm"), "bytes": "4Mi" },
                { "kind": "scratch", "path": format!("{at}/scratch"), "bytes": "1Gi" },
            ],
        },
    });
    serde_json::from_value(document).expect("a document")
}

async fn change_own_tenant(client: &Client, change: &TenantChange) {
    let name = client.me().await.expect("an answer").tenant;
    client
        .change_tenant(&name, change)
        .await
        .expect("an administrator may");
}

async fn until_there(cluster: &TestCluster) -> serde_json::Value {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(pod) = cluster.pods().list().into_iter().next() {
            return pod;
        }
        assert!(waited < PATIENCE, "there is no pod");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

/// Runs a program with these pod settings and returns the view of its failed job.
async fn until_failed(cluster: &TestCluster, pod: &str) -> String {
    let document = format!(
        "version: muster/v1\nname: without\nretries: 0\ncommand: {{ argv: ['true'] }}\n{pod}\n"
    );
    let job = cluster.submit(&document).await.id;
    let view = cluster
        .until(job, "its failure", |job| job.phase == JobPhase::Failed)
        .await;
    format!("{view:?}")
}
