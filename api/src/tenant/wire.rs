//! How tenants are shown, and what a quota and a weight may be.

use crate::problem::{Kind, Refusal};
use muster_model::spec::FieldError;
use muster_model::tenant::{Tenant, TenantPods, WEIGHT_RANGE};
use muster_model::view::TenantView;
use muster_store::tenant::InUse;

/// Above any cluster, and within what the store's column takes.
const QUOTA_MAX: u32 = 1_000_000;

pub fn tenant(tenant: Tenant, in_use: InUse) -> TenantView {
    TenantView {
        gpus_in_use: in_use.gpus,
        jobs_in_use: in_use.jobs,
        id: tenant.id,
        name: tenant.name,
        gpu_quota: tenant.gpu_quota,
        weight: tenant.weight,
        pods: tenant.pods,
    }
}

/// # Errors
/// When it is more than any cluster has.
pub fn check_quota(gpu_quota: Option<u32>) -> Result<(), Refusal> {
    let Some(quota) = gpu_quota.filter(|quota| *quota > QUOTA_MAX) else {
        return Ok(());
    };
    Err(invalid(
        "gpu_quota",
        &quota.to_string(),
        &format!("0 to {QUOTA_MAX}, or null for no limit"),
    ))
}

/// # Errors
/// When it is not within [`WEIGHT_RANGE`].
pub fn check_weight(weight: Option<f64>) -> Result<(), Refusal> {
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

/// # Errors
/// When something of it can be no name in Kubernetes.
pub fn check_pods(pods: Option<&TenantPods>) -> Result<(), Refusal> {
    let broken = pods.and_then(|pods| pods.validate("pods").err());
    match broken {
        Some(errors) => Err(Refusal::of_fields(Kind::InvalidBody, errors)),
        None => Ok(()),
    }
}

pub fn invalid(field: &str, value: &str, expected: &str) -> Refusal {
    let error = FieldError {
        field: field.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    Refusal::with_errors(Kind::InvalidBody, error.to_string(), vec![error])
}
