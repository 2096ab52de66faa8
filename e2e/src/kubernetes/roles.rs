//! Installs the chart's roles in a real server, which forbids everything else.

use super::{Kubernetes, NAMESPACE, STEP, text};
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

impl Kubernetes {
    /// Gives the operator exactly the chart's role, and waits until the server has applied it.
    /// Returns its rights: API group, resource, verb.
    ///
    /// # Panics
    /// If the chart cannot be rendered, its objects are refused, or a right stays forbidden.
    pub fn admit_operator(&self) -> BTreeSet<(String, String, String)> {
        self.admit_operator_with("")
    }

    /// As [`Self::admit_operator`], with further values for the chart.
    ///
    /// # Panics
    /// If the chart cannot be rendered, its objects are refused, or a right stays forbidden.
    pub fn admit_operator_with(&self, values: &str) -> BTreeSet<(String, String, String)> {
        let values = format!("operator.enabled=true,{values}");
        let setting = values.trim_end_matches(',');
        let role = self.rendered("operator-role", setting);
        self.admit("operator", &role, &["--all-namespaces"])
    }

    /// Gives the operator the chart's additional rights for placeholders. Returns the content of
    /// its file and its rights.
    ///
    /// # Panics
    /// If the chart cannot be rendered, or its objects are refused.
    pub fn admit_placeholders(&self, values: &str) -> (String, BTreeSet<(String, String, String)>) {
        let setting =
            format!("operator.enabled=true,operator.nodes.placeholders.enabled=true,{values}");
        let objects = self.rendered("placeholders", &setting);
        let file = objects.split("\n---\n").find_map(|document| {
            let object: Value = serde_norway::from_str(document).expect("YAML");
            let file = object["data"]["placeholders.json"].as_str();
            file.map(str::to_owned)
        });
        let allowed = self.admit("operator", &objects, &["--namespace", NAMESPACE]);
        (file.expect("the operator's file"), allowed)
    }

    /// As [`Self::admit_operator`], for executors with tasks as pods.
    ///
    /// # Panics
    /// If the chart cannot be rendered, or its objects are refused.
    pub fn admit_executors(&self) -> BTreeSet<(String, String, String)> {
        let role = self.rendered(
            "executor-role",
            "executor.runtime=pod,executor.data.kind=hostPath",
        );
        self.admit("executor", &role, &["--namespace", NAMESPACE])
    }

    /// Objects of one template of the chart.
    fn rendered(&self, template: &str, setting: &str) -> String {
        let helm = std::env::var_os("MUSTER_HELM")
            .map(PathBuf::from)
            .expect("MUSTER_HELM is not set: it names the folder that scripts/ensure-helm prints");
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/muster");
        let output = Command::new(helm.join("bin/helm"))
            .args(["template", "muster", chart])
            .args(["--namespace", NAMESPACE, "--set", setting])
            .args(["--show-only", &format!("templates/{template}.yaml")])
            .env("HOME", self.folder())
            .output()
            .expect("helm runs");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn admit(
        &self,
        component: &str,
        objects: &str,
        scope: &[&str],
    ) -> BTreeSet<(String, String, String)> {
        self.applied(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
        ));
        self.applied(objects);
        let allowed: BTreeSet<_> = objects.split("\n---\n").flat_map(allowed).collect();
        let mut waited = Duration::ZERO;
        for right in &allowed {
            while !self.may(component, right, scope) {
                assert!(waited < PATIENCE, "the {component} may not {right:?}");
                std::thread::sleep(STEP);
                waited += STEP;
            }
        }
        allowed
    }

    fn may(
        &self,
        component: &str,
        (group, resource, verb): &(String, String, String),
        scope: &[&str],
    ) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let resource = format!("{resource}.{group}");
        let output = self
            .kubectl(&["auth", "can-i", verb, resource.trim_end_matches('.')])
            .args(scope)
            .args([
                "--quiet",
                "--subresource",
                subresource,
                "--as",
                &account(component),
            ])
            .output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// User name of a component of the chart.
pub(super) fn account(component: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:muster-{component}")
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Rights of a role; empty if the document is not a role.
fn allowed(document: &str) -> Vec<(String, String, String)> {
    let role: Value = serde_norway::from_str(document).expect("YAML");
    let mut allowed = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    allowed.push((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    allowed
}
