//! What is to become of what a tenant's pods may have: list by list, so that two administrators who change different ones lose nothing of each other's.

use super::TenantPods;
use crate::spec::FieldError;
use serde::{Deserialize, Deserializer, Serialize};

/// A list that is given takes the place of the whole list before; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantPodsChange {
    /// As which service account its tasks run; null is the cluster's own for tasks, and must be written, so that a forgotten field is not.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub service_account: Option<Option<String>>,
    /// Images that its jobs may name, as in `TenantPods`; any from now on when empty. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub images: Option<Vec<String>>,
    /// Claims of volumes that they may mount. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub claims: Option<Vec<String>>,
    /// Secrets that they may mount, take variables from and pull images by. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub secrets: Option<Vec<String>>,
    /// Objects of kind `ConfigMap` that they may mount. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub config_maps: Option<Vec<String>>,
}

fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl TenantPodsChange {
    /// Whether it changes nothing, whatever was before.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// What of it no object or image of Kubernetes can be called, below `field`.
    pub fn validate(&self, field: &str) -> Result<(), Vec<FieldError>> {
        let given = self.clone();
        let given = TenantPods {
            service_account: given.service_account.flatten(),
            images: given.images.unwrap_or_default(),
            claims: given.claims.unwrap_or_default(),
            secrets: given.secrets.unwrap_or_default(),
            config_maps: given.config_maps.unwrap_or_default(),
        };
        given.validate(field)
    }
}

/// All of it: what these do not name is nothing from now on.
impl From<TenantPods> for TenantPodsChange {
    fn from(whole: TenantPods) -> Self {
        Self {
            service_account: Some(whole.service_account),
            images: Some(whole.images),
            claims: Some(whole.claims),
            secrets: Some(whole.secrets),
            config_maps: Some(whole.config_maps),
        }
    }
}
