//! The part of the job document for the pods that carry its tasks, on nodes where each task is a pod of its own: the user's image, what is
//! mounted into it, and which variables come from secrets.
//!
//! It names objects of Kubernetes and knows nothing else of them; what a tenant may name is its administrators' to say
//! ([`TenantPods`](crate::tenant::TenantPods)).

use super::lenient;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the pods of a job's tasks have beyond what every task's pod has. A job that says anything here runs only on nodes whose tasks are
/// pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pod {
    /// The image in which the command runs, such as `registry.example.com/vision/trainer:3.2`; with `engine` it is Muster's own. At most
    /// 512 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Secrets by which the image is pulled, beside those that the cluster's administrator has given every task. At most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub pull_secrets: Vec<String>,
    /// Variables whose values are keys of secrets. At most 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, SecretKey>,
    /// What is mounted beside what every task has. At most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 32))]
    pub volumes: Vec<Volume>,
}

/// One value of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SecretKey {
    /// Name of the secret.
    pub secret: String,
    pub key: String,
}

/// Something that is mounted at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Volume {
    /// A volume that was claimed (`PersistentVolumeClaim`), the same for all tasks; it must be one that several nodes may mount.
    Claim {
        name: String,
        /// Where it is mounted: an absolute path.
        path: String,
        #[serde(default, skip_serializing_if = "super::is_false")]
        read_only: bool,
        /// A folder of the volume, by relative path; all of it when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sub_path: Option<String>,
    },
    /// The keys of a secret as files, which only read.
    Secret { name: String, path: String },
    /// The keys of a `ConfigMap` as files, which only read.
    ConfigMap { name: String, path: String },
    /// An empty folder on the node's disk that goes with the task.
    Scratch {
        path: String,
        /// What may lie in it: bytes, or a text with a unit such as 100Gi; above 0.
        #[serde(deserialize_with = "lenient::bytes")]
        #[cfg_attr(feature = "schema", schema(minimum = 1, extensions(("x-muster-quantity" = json!(true)))))]
        bytes: u64,
    },
    /// An empty folder in memory, as `/dev/shm` is, which data loaders of PyTorch need to be larger than the 64 MiB that containers have. What
    /// lies in it counts as the task's own memory.
    Memory {
        path: String,
        /// As of `scratch`.
        #[serde(deserialize_with = "lenient::bytes")]
        #[cfg_attr(feature = "schema", schema(minimum = 1, extensions(("x-muster-quantity" = json!(true)))))]
        bytes: u64,
    },
}

impl Pod {
    /// Whether nothing is said: the job runs on any node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Volume {
    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Claim { path, .. }
            | Self::Secret { path, .. }
            | Self::ConfigMap { path, .. }
            | Self::Scratch { path, .. }
            | Self::Memory { path, .. } => path,
        }
    }
}
