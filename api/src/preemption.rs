//! Checks at submission the `preemption` part of a document against the caps of the tenant.

use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use muster_model::spec::Preemption;
use muster_store::{PgConnection, tenant};

/// Checks in the caller's scope; no query if the part is left out. `field` is its position in the
/// document.
///
/// # Errors
/// A refusal with one error per value above a cap.
pub async fn allow(
    conn: &mut PgConnection,
    caller: &Caller,
    preemption: &Preemption,
    (field, kind): (&str, ProblemKind),
) -> Result<(), ApiError> {
    if preemption.is_default() {
        return Ok(());
    }
    let found = tenant::get(conn, caller.tenant_id).await?;
    let caps = found.map(|found| found.preemption).unwrap_or_default();
    caps.allow(preemption, &caller.tenant_name, field)
        .map_err(|errors| ApiError::of_fields(kind, errors))
}
