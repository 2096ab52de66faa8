//! Status of a `Tenant` object. Pure.

use crate::condition::{Conditions, StatusCondition};
use crate::rejection::ObjectRejection;
use crate::resource::{Object, ObjectStatus};
use kube::core::ClusterResourceScope;
use muster_model::id::TenantId;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

pub type TenantObject = Object<TenantStatus>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether `spec.pods` was applied. It is set before the permissions are applied and cleared
    /// after they were removed. Another writer of this field can therefore cause only a removal of
    /// permissions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pods: bool,
    pub conditions: Vec<StatusCondition>,
}

impl ObjectStatus for TenantStatus {
    const KIND: &'static str = "Tenant";
    const PLURAL: &'static str = "tenants";
    type Scope = ClusterResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<StatusCondition> {
        &mut self.conditions
    }
}

/// Returns the status of a tenant.
#[must_use]
pub fn status(
    before: &TenantStatus,
    generation: Option<i64>,
    id: Option<TenantId>,
    refused: Option<&ObjectRejection>,
    now: OffsetDateTime,
) -> TenantStatus {
    let mut conditions = Conditions::after(&before.conditions, generation, now);
    match refused {
        None => conditions.set("Ready", true, "Ready", ""),
        Some(refused) => conditions.set("Ready", false, refused.reason, &refused.message),
    }
    conditions.misconfigured(refused);
    TenantStatus {
        tenant_id: id,
        reason: refused.map(|refused| refused.reason.to_owned()),
        message: refused.map(|refused| refused.message.clone()),
        observed_generation: generation,
        pods: before.pods,
        conditions: conditions.done(),
    }
}
