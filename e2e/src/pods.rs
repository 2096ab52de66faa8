//! Environment of tasks that run as pods: an API server, a stand-in kubelet for the nodes of the
//! cluster, and the settings of executors with the chart's role and no other right.

use crate::kubelet::Kubelet;
use crate::kubernetes::{Kubernetes, NAMESPACE};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Stands for the executors' own pod, whose name the chart passes to them.
const OWN_POD: &str = "executor";
/// Time for which a pod may wait for an image, in milliseconds; far less than in production.
const STUCK_MS: u32 = 2_000;
/// Time for the start of a pod: more than a busy machine needs, less than a story waits.
const START_MS: u32 = 40_000;

#[derive(Debug)]
pub struct Carriers {
    pub kubelet: Kubelet,
    pub kubernetes: Kubernetes,
    /// Rights of the executors: API group, resource, verb.
    pub allowed: BTreeSet<(String, String, String)>,
    template: PathBuf,
}

impl Carriers {
    /// Starts it for nodes `node-1` to `node-<nodes>`, whose tasks use these two folders.
    ///
    /// # Panics
    /// If a part does not come up.
    pub async fn start(data: &Path, datasets: &Path, nodes: u32) -> Self {
        let kubernetes = Kubernetes::start().await;
        let allowed = kubernetes.admit_executors();
        for number in 1..=nodes {
            kubernetes.add_node(&format!("node-{number}"));
        }
        // Bound to no node: this Kubernetes has no scheduler, so the pod never starts.
        kubernetes.applied(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {OWN_POD}, namespace: {NAMESPACE}}}, spec: {{containers: [{{name: executor, image: none}}]}}}}"
        ));
        let kubelet = Kubelet::start(&kubernetes.admin_config(), kubernetes.folder());
        let template = kubernetes.folder().join("template.yaml");
        std::fs::write(&template, of_tasks(data, datasets).to_string()).expect("our own folder");
        Self {
            kubelet,
            kubernetes,
            allowed,
            template,
        }
    }

    /// Environment of the executors.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "KUBECONFIG",
                self.kubernetes.executor_config().display().to_string(),
            ),
            ("MUSTER_EXECUTOR_RUNTIME", "pod".to_owned()),
            (
                "MUSTER_EXECUTOR_POD_TEMPLATE",
                self.template.display().to_string(),
            ),
            ("MUSTER_EXECUTOR_POD_NAMESPACE", NAMESPACE.to_owned()),
            ("MUSTER_EXECUTOR_POD_NAME", OWN_POD.to_owned()),
            ("MUSTER_EXECUTOR_POD_STUCK_MS", STUCK_MS.to_string()),
            ("MUSTER_EXECUTOR_POD_START_MS", START_MS.to_string()),
        ]
    }

    /// Existing pods of tasks.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn list(&self) -> Vec<Value> {
        let text = self.kubernetes.says(&[
            "get",
            "pods",
            "--namespace",
            NAMESPACE,
            "--selector",
            "muster.dev/task",
            "-o",
            "json",
        ]);
        let mut list: Value = serde_json::from_str(&text).expect("JSON");
        list["items"]
            .as_array_mut()
            .map(std::mem::take)
            .expect("a list")
    }

    /// Name of the pod of this task, for example `worker-1`, if it exists and is not being deleted.
    #[must_use]
    pub fn of_role(&self, role: &str) -> Option<String> {
        let pod = self.list().into_iter().find(|pod| {
            let metadata = &pod["metadata"];
            metadata["labels"]["muster.dev/role"] == role
                && metadata.get("deletionTimestamp").is_none()
        })?;
        pod["metadata"]["name"].as_str().map(str::to_owned)
    }

    /// Deletes a pod as a user with that right.
    ///
    /// # Panics
    /// If it is refused.
    pub fn delete(&self, pod: &str) {
        let _ = self.kubernetes.says(&[
            "delete",
            "pod",
            pod,
            "--namespace",
            NAMESPACE,
            "--wait=false",
        ]);
    }
}

fn volume(name: &str, path: &Path) -> Value {
    json!({ "name": name, "hostPath": { "path": path } })
}

fn mount(name: &str, path: &Path) -> Value {
    json!({ "name": name, "mountPath": path })
}

/// Every path is the same inside and outside of the pod.
fn of_tasks(data: &Path, datasets: &Path) -> Value {
    json!({ "spec": {
        "containers": [{
            "name": "task",
            "image": "muster-executor:test",
            "volumeMounts": [mount("data", data), mount("datasets", datasets)],
        }],
        "volumes": [volume("data", data), volume("datasets", datasets)],
    }})
}
