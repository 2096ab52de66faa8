//! Change of the cluster objects that a tenant's pods may use. Lists change one by one, so that
//! concurrent changes of different lists by two administrators do not overwrite each other.

use super::TenantPods;
use crate::spec::FieldError;
use serde::{Deserialize, Deserializer, Serialize};

/// Change of the cluster objects that a tenant's pods may use. A given list replaces the whole
/// earlier list; a list that is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantPodsChange {
    /// Service account of the tasks. Null selects the cluster's default for tasks; a field that is
    /// left out stays.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub service_account: Option<Option<String>>,
    /// Images that jobs may name, as in `TenantPods`; an empty list allows any image. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub images: Option<Vec<String>>,
    /// Volume claims that jobs may mount. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub claims: Option<Vec<String>>,
    /// Secrets that jobs may mount, read variables from and pull images with. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub secrets: Option<Vec<String>>,
    /// ConfigMaps that jobs may mount. At most 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub config_maps: Option<Vec<String>>,
}

fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl TenantPodsChange {
    /// Whether the change is empty.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the names; `field` is the position of this object in the document.
    ///
    /// # Errors
    /// One [`FieldError`] per name that no Kubernetes object or image can have.
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

/// Replaces everything: objects that `whole` does not name are no longer allowed.
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
