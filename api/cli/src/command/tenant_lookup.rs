//! Search for a tenant by its name.

use super::{CliSession, NotFound};
use muster_model::view::TenantView;

/// Returns the tenant with this name.
///
/// # Errors
/// [`NotFound`] if there is none, or an error of the request.
pub(super) async fn find(session: &CliSession, name: &str) -> anyhow::Result<TenantView> {
    let mut all = session.client.tenants().await?.into_iter();
    let found = all.find(|tenant| tenant.name == name);
    Ok(found.ok_or_else(|| NotFound(format!("no tenant has the name {name:?}")))?)
}
