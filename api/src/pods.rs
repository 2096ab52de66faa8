//! Checks at submission whether a tenant may use the cluster objects of a document's `pod`.

use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use muster_model::spec::Pod;
use muster_store::{PgConnection, tenant};

/// Checks in the caller's scope; no query if `pod` is empty. `field` is the position of `pod` in
/// the document.
///
/// # Errors
/// A refusal with one error per object that the tenant may not use.
pub async fn allow(
    conn: &mut PgConnection,
    caller: &Caller,
    pod: &Pod,
    (field, kind): (&str, ProblemKind),
) -> Result<(), ApiError> {
    if pod.is_empty() {
        return Ok(());
    }
    let found = tenant::get(conn, caller.tenant_id).await?;
    let pods = found.map(|found| found.pods).unwrap_or_default();
    pods.allow(pod, &caller.tenant_name, field)
        .map_err(|errors| ApiError::of_fields(kind, errors))
}
