//! The chart's objects in a real API server. Every object of every golden file passes a server-side
//! dry run. Then one release is installed and upgraded. Nothing runs, because there is no kubelet.

use muster_e2e::kubernetes::{Kubernetes, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tests/golden");
const NAMESPACE: &str = "training";
/// Custom resources of other projects.
const MONITORS: [&str; 2] = ["ServiceMonitor", "PodMonitor"];

/// Objects of a golden file for a server of Kubernetes 1.20, whose disruption budgets are `v1beta1`
/// with equal fields.
fn objects(path: &Path) -> Vec<Value> {
    let golden = fs::read_to_string(path).expect("a golden file");
    let documents = golden.split("\n---\n").map(|document| {
        let document = document.replace("(random)", "cmFuZG9t");
        let mut object: Value = serde_norway::from_str(&document).expect("YAML");
        if object["kind"] == "PodDisruptionBudget" {
            object["apiVersion"] = "policy/v1beta1".into();
        }
        object
    });
    documents
        .filter(|object| !MONITORS.contains(&object["kind"].as_str().expect("an object")))
        .collect()
}

fn golden(name: &str) -> Vec<Value> {
    objects(&Path::new(GOLDEN).join(name))
}

fn list(objects: &[Value]) -> String {
    serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()
}

#[tokio::test]
async fn server_accepts_every_object_of_chart() {
    let kubernetes = Kubernetes::start().await;
    kubernetes.define();
    for name in [NAMESPACE, "vision", "speech"] {
        kubernetes.applied(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
        ));
    }
    let mut files: Vec<_> = fs::read_dir(GOLDEN)
        .expect("the golden files")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    let mut taken = 0;
    for path in &files {
        let objects = objects(path);
        // As helm 3: server-side apply of this server requires a protocol for every port.
        let dry = ["apply", "--dry-run=server", "-f", "-"];
        let output = kubernetes.apply(&list(&objects), &dry);
        let words = text(&output);
        assert!(output.status.success(), "{}: {words}", path.display());
        let answered = words.matches("(server dry run)").count();
        assert_eq!(answered, objects.len(), "{}: {words}", path.display());
        taken += answered;
    }
    println!("{taken} objects of {} files were taken", files.len());
    let nothing = kubernetes.says(&["get", "deployments", "--all-namespaces", "-o", "name"]);
    assert_eq!(nothing, "", "it was a dry run");

    // A release and its upgrade, before which helm deletes the previous hook.
    let install = ["apply", "-f", "-"];
    for name in ["trial.yaml", "trial-upgrade.yaml"] {
        let _ = kubernetes.says(&["delete", "jobs", "--all", "-n", NAMESPACE]);
        let output = kubernetes.apply(&list(&golden(name)), &install);
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
    let there = kubernetes.says(&[
        "get",
        "deployments,daemonsets",
        "-n",
        NAMESPACE,
        "-o",
        "name",
    ]);
    for workload in golden("trial-upgrade.yaml") {
        let kind = workload["kind"].as_str().expect("an object").to_lowercase();
        if ["deployment", "daemonset"].contains(&kind.as_str()) {
            let name = workload["metadata"]["name"].as_str().expect("a name");
            let line = format!("{kind}.apps/{name}\n");
            assert!(there.contains(&line), "{line:?} is not in {there}");
        }
    }
}
