//! Conversion of tenants to response types, and the allowed quotas and weights.

use crate::problem::{ApiError, ProblemKind};
use muster_model::id::TenantId;
use muster_model::spec::FieldError;
use muster_model::tenant::{
    LimitsChange, LimitsSet, LimitsUse, Tenant, TenantLimits, TenantPods, TenantPodsChange,
    TenantPreemption, TenantPreemptionChange, WEIGHT_RANGE,
};
use muster_model::view::TenantView;
use muster_store::tenant::InUse;
use muster_store::{PgConnection, StoreError, limit, tenant};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// Larger than any cluster, and within the range of the store's column.
const QUOTA_MAX: u32 = 1_000_000;

/// GPU use and open work of tenants, and their limits.
#[derive(Debug, Default)]
pub struct TenantUsage {
    in_use: BTreeMap<TenantId, InUse>,
    limits: BTreeMap<TenantId, LimitsSet>,
    used: BTreeMap<TenantId, LimitsUse>,
}

impl TenantUsage {
    /// Reads the tenant in scope; with `tenant_scope::admin` all tenants.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn read(conn: &mut PgConnection, now: OffsetDateTime) -> Result<Self, StoreError> {
        Ok(Self {
            in_use: tenant::in_use(conn).await?,
            limits: limit::all(conn).await?,
            used: limit::used(conn, now).await?,
        })
    }

    pub fn in_use(&self, id: TenantId) -> InUse {
        self.in_use.get(&id).copied().unwrap_or_default()
    }

    pub fn limits(&self, id: TenantId) -> TenantLimits {
        let set = self.limits.get(&id).copied();
        set.unwrap_or_default().or_default()
    }

    pub fn used(&self, id: TenantId) -> LimitsUse {
        self.used.get(&id).copied().unwrap_or_default()
    }

    pub fn tenant(&self, tenant: Tenant) -> TenantView {
        let in_use = self.in_use(tenant.id);
        TenantView {
            gpus_in_use: in_use.gpus,
            jobs_in_use: in_use.jobs,
            limits: self.limits(tenant.id),
            used: self.used(tenant.id),
            id: tenant.id,
            name: tenant.name,
            gpu_quota: tenant.gpu_quota,
            weight: tenant.weight,
            pods: tenant.pods,
            preemption: tenant.preemption,
            shares_families: tenant.shares_families,
            interactive: tenant.interactive,
        }
    }
}

/// Checks a change of limits.
///
/// # Errors
/// If a limit exceeds the range of the store, or the change is empty.
pub fn check_limits_change(change: Option<&LimitsChange>) -> Result<(), ApiError> {
    let Some(change) = change else {
        return Ok(());
    };
    if change.is_nothing() {
        let names = TenantLimits::DEFAULT.named();
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let expected = format!("one or more of {}; null is the default", names.join(", "));
        return Err(invalid("limits", "{}", &expected));
    }
    let checked = change.validate("limits");
    checked.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))
}

/// Checks a quota.
///
/// # Errors
/// If it exceeds `QUOTA_MAX`.
pub fn check_quota(gpu_quota: Option<u32>) -> Result<(), ApiError> {
    let Some(quota) = gpu_quota.filter(|quota| *quota > QUOTA_MAX) else {
        return Ok(());
    };
    Err(invalid(
        "gpu_quota",
        &quota.to_string(),
        &format!("0 to {QUOTA_MAX}, or null for no limit"),
    ))
}

/// Checks a weight.
///
/// # Errors
/// If it is not within [`WEIGHT_RANGE`].
pub fn check_weight(weight: Option<f64>) -> Result<(), ApiError> {
    let Some(weight) = weight.filter(|weight| !WEIGHT_RANGE.contains(weight)) else {
        return Ok(());
    };
    let (least, most) = (WEIGHT_RANGE.start(), WEIGHT_RANGE.end());
    Err(invalid(
        "weight",
        &weight.to_string(),
        &format!("{least} to {most}"),
    ))
}

/// Checks names of cluster objects.
///
/// # Errors
/// If one of them cannot be a name in Kubernetes.
pub fn check_pods(pods: &TenantPods) -> Result<(), ApiError> {
    let checked = pods.validate("pods");
    checked.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))
}

/// Checks a change of cluster objects.
///
/// # Errors
/// If a name cannot be one in Kubernetes, or the change is empty.
pub fn check_pods_change(change: Option<&TenantPodsChange>) -> Result<(), ApiError> {
    let Some(change) = change else {
        return Ok(());
    };
    if change.is_nothing() {
        let expected = "one or more of service_account, images, claims, secrets and config_maps; [] empties a list";
        return Err(invalid("pods", "{}", expected));
    }
    let checked = change.validate("pods");
    checked.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))
}

/// Checks caps on preemption.
///
/// # Errors
/// If a cap is a value that no job document may have.
pub fn check_preemption(caps: &TenantPreemption) -> Result<(), ApiError> {
    let checked = caps.validate("preemption");
    checked.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))
}

/// Checks a change of caps on preemption.
///
/// # Errors
/// If a cap is a value that no job document may have, or the change is empty.
pub fn check_preemption_change(change: Option<&TenantPreemptionChange>) -> Result<(), ApiError> {
    let Some(change) = change else {
        return Ok(());
    };
    if change.is_nothing() {
        let expected = "one or more of allowed, min_runtime, grace_s and timeout_s; null is no cap";
        return Err(invalid("preemption", "{}", expected));
    }
    check_preemption(&change.of(TenantPreemption::default()))
}

pub fn invalid(field: &str, value: &str, expected: &str) -> ApiError {
    let error = FieldError {
        field: field.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    ApiError::with_errors(ProblemKind::InvalidBody, error.to_string(), vec![error])
}
