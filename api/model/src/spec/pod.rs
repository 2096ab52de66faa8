//! The `pod` part of the job document: image, mounts and secrets of tasks. Nodes whose tasks are
//! processes honour the image, scratch folders and folders in memory.
//!
//! It names Kubernetes objects and knows nothing else about them. Administrators list what a tenant
//! may name ([`TenantPods`](crate::tenant::TenantPods)).

use super::lenient;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of the pods of a job's tasks. With `image` alone, or with volumes of the kinds
/// `scratch` and `memory` beside it, the job also runs on nodes that start processes in images.
/// With anything else it runs only on nodes whose tasks are pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pod {
    /// Image in which the command runs, such as `registry.example.com/vision/trainer:3.2`. With
    /// `engine` the image is Muster's. At most 512 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Secrets with which the image is pulled, in addition to those of every task. At most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub pull_secrets: Vec<String>,
    /// Variables whose values are keys of secrets. At most 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, SecretKey>,
    /// Additional mounts. At most 32.
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

/// A mount at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Volume {
    /// A claimed volume (`PersistentVolumeClaim`), the same for all tasks. Several nodes must be
    /// able to mount it.
    Claim {
        name: String,
        /// Absolute path of the mount.
        path: String,
        #[serde(default, skip_serializing_if = "super::is_false")]
        read_only: bool,
        /// Folder of the volume, as a relative path. Default: the whole volume.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sub_path: Option<String>,
    },
    /// The keys of a secret as read-only files.
    Secret { name: String, path: String },
    /// The keys of a `ConfigMap` as read-only files.
    ConfigMap { name: String, path: String },
    /// An empty folder on the node's disk, removed with the task.
    Scratch {
        path: String,
        /// Limit in bytes, or a text with a unit such as 100Gi; above 0.
        #[serde(deserialize_with = "lenient::bytes")]
        #[cfg_attr(feature = "schema", schema(minimum = 1, extensions(("x-muster-quantity" = json!(true)))))]
        bytes: u64,
    },
    /// An empty folder in memory, such as a larger `/dev/shm` for data loaders of PyTorch
    /// (containers have 64 MiB). Its content counts as the task's own memory.
    Memory {
        path: String,
        /// Limit in bytes, or a text with a unit such as 100Gi; above 0.
        #[serde(deserialize_with = "lenient::bytes")]
        #[cfg_attr(feature = "schema", schema(minimum = 1, extensions(("x-muster-quantity" = json!(true)))))]
        bytes: u64,
    },
}

impl Pod {
    /// Whether it is empty, so that the job runs on any node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the job runs only on nodes whose tasks are pods.
    #[must_use]
    pub fn needs_pods(&self) -> bool {
        let is_kept = |volume: &Volume| {
            self.image.is_some() && matches!(volume, Volume::Scratch { .. } | Volume::Memory { .. })
        };
        !self.pull_secrets.is_empty()
            || !self.secret_env.is_empty()
            || !self.volumes.iter().all(is_kept)
    }
}

impl Volume {
    /// Returns the path of the mount.
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
