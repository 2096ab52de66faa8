//! What a job brings for its pods: an image, variables from secrets, volumes and its tenant's service account, on a real API server with a
//! kubelet of the tests' own. Who may have what is its administrator's to say.

use muster_client::{Client, ClientError};
use muster_e2e::cluster::{Cluster, Options, PATIENCE};
use muster_e2e::kubernetes::NAMESPACE;
use muster_e2e::story::log;
use muster_model::job::JobPhase;
use muster_model::spec::JobSpec;
use muster_model::tenant::TenantPods;
use muster_model::view::TenantChange;
use std::path::Path;
use std::time::Duration;

const NODES: Options = Options { nodes: 1, slots: 1 };
const STEP: Duration = Duration::from_millis(100);
/// Says what it finds and where, one line each, and whether it may write.
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
async fn a_job_has_an_image_secrets_and_volumes_of_its_own_once_its_tenant_may() {
    let mut cluster = Cluster::start_pods(NODES).await;
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
    // Nothing of a secret is in the pod, which many may read.
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
    // The image has no program of Muster's in it.
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

/// What is named and not there is told in Kubernetes' words, and what would hide Muster's own folders in ours.
#[tokio::test]
async fn what_cannot_be_had_is_told_to_the_owner_of_the_job() {
    let mut cluster = Cluster::start_pods(NODES).await;
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

/// A provisioner makes the volume of such a claim only once the claim names a node.
async fn names_the_node_for_a_late_claim(cluster: &Cluster) {
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

/// Objects of the cluster that its administrator has made, the files of the volume in `place`.
fn offer(cluster: &Cluster, place: &Path) {
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

async fn until_there(cluster: &Cluster) -> serde_json::Value {
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

/// A program with this said of its pod; all that is told of its failure.
async fn until_failed(cluster: &Cluster, pod: &str) -> String {
    let document = format!(
        "version: muster/v1\nname: without\nretries: 0\ncommand: {{ argv: ['true'] }}\n{pod}\n"
    );
    let job = cluster.submit(&document).await.id;
    let view = cluster
        .until(job, "its failure", |job| job.phase == JobPhase::Failed)
        .await;
    format!("{view:?}")
}
