//! Templates of tenants: job documents with parameters.

pub mod delete;
pub mod list;
pub mod set;
pub mod submit;

use crate::problem::ApiError;
use crate::suggestion::hint;
use muster_model::view::TemplateView;
use muster_store::{PgConnection, template};

/// Returns a template of the tenant in scope.
async fn found(conn: &mut PgConnection, name: &str) -> Result<TemplateView, ApiError> {
    ApiError::check_label(name)?;
    match template::get(conn, name).await? {
        Some(template) => Ok(template),
        None => Err(missing(conn, name).await?),
    }
}

/// Returns the refusal for a template that does not exist.
async fn missing(conn: &mut PgConnection, name: &str) -> Result<ApiError, ApiError> {
    let known = template::list(conn).await?;
    let known = known.iter().map(|known| known.name.as_str());
    let hint = hint(name, known, "muster template list");
    Ok(ApiError::not_found(format!("template {name}{hint}")))
}
