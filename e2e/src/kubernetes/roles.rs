//! The roles that the chart gives, in a real server: who may what, and nothing else.

use super::{Kubernetes, NAMESPACE, STEP, text};
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

impl Kubernetes {
    /// Gives the operator the role that the chart gives it, and no more, and waits until the server knows it: until then it forbids.
    /// Returns what the operator may: API group, resource, verb.
    ///
    /// # Panics
    /// When the chart cannot be rendered, its objects are refused, or what they allow stays forbidden.
    pub fn admit_operator(&self) -> BTreeSet<(String, String, String)> {
        self.admit_operator_with("")
    }

    /// As [`Self::admit_operator`], with further values for the chart.
    ///
    /// # Panics
    /// When the chart cannot be rendered, its objects are refused, or what they allow stays forbidden.
    pub fn admit_operator_with(&self, values: &str) -> BTreeSet<(String, String, String)> {
        let values = format!("operator.enabled=true,{values}");
        let setting = values.trim_end_matches(',');
        let role = self.rendered("operator-role", setting);
        self.admit("operator", &role, &["--all-namespaces"])
    }

    /// Gives the operator what the chart gives it for placeholders besides. Returns the file that it reads of them, and what it may.
    ///
    /// # Panics
    /// When the chart cannot be rendered, or its objects are refused.
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

    /// As [`Self::admit_operator`], for executors whose tasks are pods.
    ///
    /// # Panics
    /// When the chart cannot be rendered, or its objects are refused.
    pub fn admit_executors(&self) -> BTreeSet<(String, String, String)> {
        let role = self.rendered(
            "executor-role",
            "executor.runtime=pod,executor.data.kind=hostPath",
        );
        self.admit("executor", &role, &["--namespace", NAMESPACE])
    }

    /// The objects of one of the chart's templates.
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

/// As whom a component of the chart is known.
pub(super) fn account(component: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:muster-{component}")
}

/// What the rules of a role allow, if the document is one.
fn allowed(document: &str) -> Vec<(String, String, String)> {
    let role: Value = serde_norway::from_str(document).expect("YAML");
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let mut allowed = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    allowed.push((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    allowed
}
