//! Settings of placeholders: a file of the chart with the pod of each executor pool. Unknown fields
//! are an error.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlaceholderSettings {
    /// Namespace of the pods.
    pub namespace: String,
    /// Name that distinguishes the pods from those of other releases.
    pub group: String,
    /// Time that a job must have waited before placeholders are created for it, in seconds.
    pub after_seconds: u32,
    /// Maximum number of placeholders over all pools.
    pub most: u32,
    pub pools: BTreeMap<String, PlaceholderPool>,
}

/// Capacity of one node of a pool, and its placeholder pod.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlaceholderPool {
    /// Number of GPUs or CPU slots.
    pub gpus: u32,
    /// Whether the GPUs are parts, of which a task can have only one.
    pub parts: bool,
    /// Whether tasks run as pods of their own, as some jobs require.
    pub pods: bool,
    /// Suffix of the pool's nodes in Muster after the machine's name, if several pools share
    /// machines; else empty.
    pub part: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub pod: Pod,
}

/// Reason why the file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum PlaceholderSettingsError {
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

impl PlaceholderSettings {
    /// # Errors
    /// If the file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, PlaceholderSettingsError> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|source| PlaceholderSettingsError::Unreadable {
            path: name.clone(),
            source,
        })?;
        let settings: Self = serde_json::from_slice(&text).map_err(|source| {
            PlaceholderSettingsError::Malformed {
                path: name.clone(),
                source,
            }
        })?;
        for (pool, of) in &settings.pools {
            let unfit = |field, value: String, expected| PlaceholderSettingsError::Unfit {
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
