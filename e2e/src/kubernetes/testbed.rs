//! Muster, a Kubernetes and the operator between them, with the chart's role and no other right.

use super::{ApiServerProxy, Kubernetes, Operator};
use crate::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct KubernetesTestbed {
    pub cluster: TestCluster,
    pub kubernetes: Kubernetes,
    /// Connection of the operator to Kubernetes.
    pub api_proxy: ApiServerProxy,
    pub operator: Operator,
    /// Rights of the chart's role: API group, resource, verb.
    pub allowed: BTreeSet<(String, String, String)>,
}

#[allow(clippy::missing_panics_doc, reason = "a failing story panics")]
impl KubernetesTestbed {
    /// Starts everything with nodes of these names. `values` are for the chart, `flags` for the
    /// operator.
    pub async fn set(
        options: TestClusterOptions,
        nodes: &[&str],
        values: &str,
        flags: &[&str],
    ) -> Self {
        let cluster = TestCluster::start(options).await;
        let kubernetes = Kubernetes::start().await;
        kubernetes.define();
        for name in nodes {
            kubernetes.add_node(name);
        }
        let allowed = kubernetes.admit_operator_with(values);
        let api_proxy = ApiServerProxy::to(kubernetes.port()).await;
        let operator = Operator::start_with(
            kubernetes.operator_config(api_proxy.port),
            kubernetes.folder().join("operator.log"),
            cluster.server(),
            &cluster.token().expect("the first user's token"),
            flags,
        );
        Self {
            cluster,
            kubernetes,
            api_proxy,
            operator,
            allowed,
        }
    }

    /// Status of every object of a kind, by name; `None` while the server is unavailable.
    #[must_use]
    pub fn statuses(&self, kind: &str) -> Option<BTreeMap<String, Value>> {
        let output = self
            .kubernetes
            .kubectl(&["get", kind, "-o", "json"])
            .output()
            .ok()?;
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        let items = list["items"].as_array()?;
        let named = items.iter().map(|item| {
            let name = item["metadata"]["name"]
                .as_str()
                .expect("a name")
                .to_owned();
            (name, item["status"].clone())
        });
        Some(named.collect())
    }

    /// Waits until `right` is true of the object's status.
    pub async fn until(&self, kind: &str, name: &str, right: impl Fn(&Value) -> bool) -> Value {
        let mut waited = Duration::ZERO;
        loop {
            let status = self.statuses(kind).and_then(|mut all| all.remove(name));
            match status {
                Some(status) if right(&status) => return status,
                other if waited > PATIENCE => {
                    self.operator.print_log();
                    panic!("{kind} {name} is {other:?}");
                }
                _ => {}
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }

    pub async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until("mj", name, |status| status["phase"] == phase)
            .await
    }

    pub fn patch(&self, name: &str, patch: &str, further: &[&str]) {
        let mut arguments = vec!["patch", "mj", name, "--type=merge", "-p", patch];
        arguments.extend(further);
        let _ = self.kubernetes.says(&arguments);
    }

    pub async fn says_in_the_end(&self, arguments: &[&str], expected: &str) {
        self.until_it_says(arguments, |said| said == expected).await;
    }

    pub async fn until_it_says(&self, arguments: &[&str], right: impl Fn(&str) -> bool) {
        let mut waited = Duration::ZERO;
        loop {
            let said = self.kubernetes.says(arguments);
            if right(&said) {
                return;
            }
            if waited > PATIENCE {
                self.operator.print_log();
                panic!("kubectl {arguments:?} says {said:?}");
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
}

/// `TrainingJob` that runs a command, as one document of several.
#[must_use]
pub fn sleeper(name: &str, argv: &str) -> String {
    format!(
        "---
apiVersion: muster.dev/v1alpha1
kind: TrainingJob
metadata: {{ name: {name} }}
spec:
  command: {{ argv: {argv} }}
"
    )
}

/// Condition of a status; null if it is missing.
#[must_use]
pub fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == kind);
    found.next().cloned().unwrap_or_default()
}
