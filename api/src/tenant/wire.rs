//! How tenants are shown, and what a quota may be.

use crate::problem::{Kind, Refusal};
use muster_model::spec::FieldError;
use muster_model::tenant::Tenant;
use muster_model::view::TenantView;

/// Above any cluster, and within what the store's column takes.
const QUOTA_MAX: u32 = 1_000_000;

pub fn tenant(tenant: Tenant) -> TenantView {
    TenantView {
        id: tenant.id,
        name: tenant.name,
        gpu_quota: tenant.gpu_quota,
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

pub fn invalid(field: &str, value: &str, expected: &str) -> Refusal {
    let error = FieldError {
        field: field.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    Refusal::with_errors(Kind::InvalidBody, error.to_string(), vec![error])
}
