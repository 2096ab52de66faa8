//! Further requests of a whole operator: lists and watches of Kubernetes' API, nodes and pods, and
//! Muster's nodes and tenants.

use super::{State, problem};
use muster_model::tenant::{LimitsChange, TenantPreemptionChange};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

pub const NODE: &str = "gpu-1";
const ID: &str = "01890000-0000-7000-8000-0000000000aa";
const STEP: Duration = Duration::from_millis(20);

impl State {
    /// Answers a request about the cluster.
    pub(super) fn cluster(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let last = path.rsplit('/').next().unwrap_or_default();
        match (method, path) {
            ("GET", "/apis/muster.dev/v1alpha1/trainingjobs") => {
                Some(list("TrainingJob", self.object.iter().cloned().collect()))
            }
            ("GET", "/apis/muster.dev/v1alpha1/studies") => Some(list("Study", vec![])),
            ("GET", "/apis/muster.dev/v1alpha1/tenants") => Some(list("Tenant", vec![])),
            ("GET", "/api/v1/nodes") => Some(list("Node", vec![node()])),
            ("GET", "/api/v1/pods") => Some(list("Pod", self.pods.clone())),
            ("GET", "/api/v1/namespaces/muster/pods") => {
                Some(list("Pod", self.placeholders.clone()))
            }
            ("POST", "/api/v1/namespaces/muster/pods") => {
                self.placeholders.push(body.clone());
                Some((201, body.clone()))
            }
            ("DELETE", path) if path.starts_with("/api/v1/namespaces/muster/pods/") => {
                self.placeholders
                    .retain(|pod| pod["metadata"]["name"] != last);
                Some((
                    200,
                    json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }),
                ))
            }
            ("GET", "/muster/api/v1/nodes") => {
                Some((200, json!({ "items": [self.view_of_node()], "next": null })))
            }
            ("PUT", path) if path.starts_with("/muster/api/v1/nodes/") => {
                self.notice = body.clone();
                Some((200, self.view_of_node()))
            }
            ("GET", "/muster/api/v1/tenants") => Some((
                200,
                json!({ "items": [self.view_of_tenant()], "next": null }),
            )),
            _ if self.takes_no_status && path.ends_with("/status") => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "busy", "reason": "ServiceUnavailable", "code": 503,
                });
                Some((503, status))
            }
            _ if self.is_away && path.starts_with("/muster/") => Some(problem(503, "")),
            ("PATCH", "/muster/api/v1/tenants/vision") => {
                if self.tenant_pods.is_null() {
                    self.tenant_pods = json!({});
                }
                for (list, given) in body["pods"].as_object().into_iter().flatten() {
                    self.tenant_pods[list] = given.clone();
                }
                let limits: LimitsChange = match &body["limits"] {
                    Value::Null => LimitsChange::default(),
                    limits => serde_json::from_value(limits.clone()).expect("limits"),
                };
                let caps = body.get("preemption").cloned().unwrap_or(json!({}));
                let caps: TenantPreemptionChange = serde_json::from_value(caps).expect("caps");
                self.tenant_preemption = caps.of(self.tenant_preemption);
                let shares = body["shares_families"].as_bool();
                self.tenant_shares_families = shares.unwrap_or(self.tenant_shares_families);
                let interactive = body["interactive"].as_bool();
                self.tenant_interactive = interactive.unwrap_or(self.tenant_interactive);
                self.tenant_limits = limits.of(self.tenant_limits.into()).or_default();
                Some((200, self.view_of_tenant()))
            }
            _ => None,
        }
    }

    fn view_of_tenant(&self) -> Value {
        let pods = match &self.tenant_pods {
            Value::Null => json!({}),
            pods => pods.clone(),
        };
        json!({
            "id": ID, "name": "vision", "gpu_quota": null, "weight": 1.0, "pods": pods, "limits": self.tenant_limits,
            "preemption": self.tenant_preemption, "shares_families": self.tenant_shares_families,
            "interactive": self.tenant_interactive,
        })
    }

    fn view_of_node(&self) -> Value {
        let gpu = json!({ "index": 0, "kind": "cuda", "model": "h100", "memory_bytes": 1 });
        json!({
            "id": ID, "name": NODE, "state": "up", "drained": false, "notice": self.notice, "generation": 1, "gpus": [],
            "last_seen_at": "2026-01-01T00:00:00Z", "capacity": { "gpus": [gpu], "cpu_milli": 1, "memory_bytes": 1 },
        })
    }
}

fn list(kind: &str, items: Vec<Value>) -> (u16, Value) {
    let version = match kind {
        "Node" | "Pod" => "v1",
        _ => "muster.dev/v1alpha1",
    };
    let metadata = json!({ "resourceVersion": "1" });
    let kind = format!("{kind}List");
    (
        200,
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "items": items }),
    )
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE, "uid": "uid-of-the-node", "resourceVersion": "1" },
        "spec": {}, "status": { "allocatable": { "nvidia.com/gpu": "4" } },
    })
}

/// Pod outside Muster that holds `gpus` GPUs of the node.
pub fn stranger(gpus: u32) -> Value {
    let limits = json!({ "nvidia.com/gpu": gpus.to_string() });
    let container = json!({ "name": "c", "image": "x", "resources": { "limits": limits } });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "secret-project", "namespace": "web" },
        "spec": { "nodeName": NODE, "containers": [container] },
    })
}

/// Streams the changes of the object until the client disconnects.
pub(super) async fn watch(
    to: &mut TcpStream,
    path: &str,
    state: &Mutex<State>,
) -> std::io::Result<()> {
    to.write_all(b"HTTP/1.1 200 Said\r\ncontent-type: application/json\r\n\r\n")
        .await?;
    let (mut told, mut version) = (watched_object(path, state), 1);
    loop {
        let now = watched_object(path, state);
        if now != told {
            told.clone_from(&now);
            version += 1;
            if let Some(mut object) = now {
                object["metadata"]["resourceVersion"] = version.to_string().into();
                let event = json!({ "type": "MODIFIED", "object": object });
                to.write_all(format!("{event}\n").as_bytes()).await?;
            }
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Object of the test, if the watch is for its kind.
fn watched_object(path: &str, state: &Mutex<State>) -> Option<Value> {
    let state = state.lock().expect("no test panics with it");
    let is_watched = path.contains("/trainingjobs");
    state.object.clone().filter(|_| is_watched)
}
