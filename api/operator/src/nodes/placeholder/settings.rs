//! What the chart says of placeholders: one file, with the pod of each pool of executors. What it does not name is an error.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Where the pods are.
    pub namespace: String,
    /// By what they are known among those of other releases.
    pub group: String,
    /// How long a job has waited before its pods are made.
    pub after_seconds: u32,
    /// Pods at once, of all pools together.
    pub most: u32,
    pub pools: BTreeMap<String, Pool>,
}

/// What one node of a pool gives out to tasks, and the pod that stands for it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Pool {
    /// Or CPU slots.
    pub gpus: u32,
    /// They are parts of GPUs, of which a task has one.
    pub parts: bool,
    /// Tasks there are pods of their own, as some jobs need.
    pub pods: bool,
    /// What the pool's nodes in Muster have behind the machine's name, where several pools share machines; empty where they do not.
    pub part: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub pod: Pod,
}

/// Why the file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("read {path}")]
    Unreadable {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} does not say what placeholders are")]
    Malformed {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("nodes is false, but placeholders stand for nodes; expected --nodes true")]
    WithoutNodes,
    #[error("{path}: pools.{pool}.{field} is {value}; expected {expected}")]
    Unfit {
        path: String,
        pool: String,
        field: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl Settings {
    /// # Errors
    /// When it cannot be read, or says something that cannot be.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|source| SettingsError::Unreadable {
            path: name.clone(),
            source,
        })?;
        let settings: Self =
            serde_json::from_slice(&text).map_err(|source| SettingsError::Malformed {
                path: name.clone(),
                source,
            })?;
        for (pool, of) in &settings.pools {
            let unfit = |field, value: String, expected| SettingsError::Unfit {
                path: name.clone(),
                pool: pool.clone(),
                field,
                value,
                expected,
            };
            if of.gpus == 0 {
                return Err(unfit("gpus", "0".to_owned(), "1 or more"));
            }
            if of.pod.spec.is_none() {
                return Err(unfit("pod.spec", "absent".to_owned(), "that of a pod"));
            }
        }
        Ok(settings)
    }
}
