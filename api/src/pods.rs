//! Whether a tenant may have what a document says of its tasks' pods: asked of whoever submits, before anything is kept.

use crate::auth::Caller;
use crate::problem::{Kind, Refusal};
use muster_model::spec::Pod;
use muster_store::{PgConnection, tenant};

/// In the caller's scope. Costs nothing where nothing is said.
///
/// # Errors
/// What is not the tenant's to have, each by its field; `field` is where the document says it.
pub async fn allow(
    conn: &mut PgConnection,
    caller: &Caller,
    pod: &Pod,
    (field, kind): (&str, Kind),
) -> Result<(), Refusal> {
    if pod.is_empty() {
        return Ok(());
    }
    let found = tenant::get(conn, caller.tenant_id).await?;
    let pods = found.map(|found| found.pods).unwrap_or_default();
    pods.allow(pod, &caller.tenant_name, field)
        .map_err(|errors| Refusal::of_fields(kind, errors))
}
