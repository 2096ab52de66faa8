//! Requests of the operator and the executors, from the API server's audit log.

use super::Kubernetes;
use crate::cluster::PATIENCE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

impl Kubernetes {
    /// Distinct requests of the operator and the executors: API group, resource (with subresource),
    /// verb, and whether it was forbidden.
    ///
    /// # Panics
    /// If there is no audit log.
    #[must_use]
    pub fn asked(&self) -> BTreeSet<(String, String, String, bool)> {
        let log = std::fs::read_to_string(self.audit_log()).expect("the server keeps an account");
        let mut asked = BTreeSet::new();
        // A killed server may have left half a line.
        for entry in log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            let object = &entry["objectRef"];
            let mut resource = text_of(&object["resource"]);
            if let Some(subresource) = object["subresource"].as_str() {
                resource = format!("{resource}/{subresource}");
            }
            let forbidden = entry["responseStatus"]["code"] == 403;
            asked.insert((
                text_of(&object["apiGroup"]),
                resource,
                text_of(&entry["verb"]),
                forbidden,
            ));
        }
        asked
    }

    /// Number of requests with this verb on this resource, by object.
    ///
    /// # Panics
    /// If there is no audit log.
    #[must_use]
    pub fn times_asked(&self, resource: &str, verb: &str) -> BTreeMap<String, u64> {
        let log = std::fs::read_to_string(self.audit_log()).expect("the server keeps an account");
        let mut times = BTreeMap::new();
        let entries = log.lines();
        for entry in entries.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let object = &entry["objectRef"];
            if object["resource"] == resource && entry["verb"] == verb {
                let name = object["name"].as_str().unwrap_or_default().to_owned();
                *times.entry(name).or_default() += 1;
            }
        }
        times
    }

    /// Waits until every right has been used. `but` lists the rights that no story needs.
    ///
    /// # Panics
    /// If a right is not used, or a request was forbidden.
    pub async fn used_exactly(
        &self,
        allowed: &BTreeSet<(String, String, String)>,
        but: &[[&str; 3]],
    ) {
        let mut waited = Duration::ZERO;
        loop {
            let asked = self.asked();
            let forbidden: Vec<_> = asked.iter().filter(|(.., forbidden)| *forbidden).collect();
            assert!(forbidden.is_empty(), "{forbidden:?}");
            let is_used = |(group, resource, verb): &(String, String, String)| {
                let used = (group.clone(), resource.clone(), verb.clone(), false);
                asked.contains(&used) || but.contains(&[group, resource, verb])
            };
            let unused: Vec<_> = allowed.iter().filter(|right| !is_used(right)).collect();
            if unused.is_empty() {
                return;
            }
            assert!(waited < PATIENCE, "never used: {unused:?}");
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
}

/// Text of a value; empty if it is none.
fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
