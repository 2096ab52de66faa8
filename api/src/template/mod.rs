//! Templates of tenants: job documents with parameters.

pub mod delete;
pub mod list;
pub mod set;
pub mod submit;

use crate::problem::ApiError;
use muster_model::spec::is_dns_label;
use muster_model::text::similar;
use muster_model::view::TemplateView;
use muster_store::{PgConnection, template};

/// Checks the name of a template in a path.
fn named(name: &str) -> Result<(), ApiError> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(ApiError::parameter(
        "name",
        &format!("{name:?}"),
        "1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    ))
}

/// Returns a template of the tenant in scope.
async fn found(conn: &mut PgConnection, name: &str) -> Result<TemplateView, ApiError> {
    named(name)?;
    match template::get(conn, name).await? {
        Some(template) => Ok(template),
        None => Err(missing(conn, name).await?),
    }
}

/// Returns the refusal for a template that does not exist.
async fn missing(conn: &mut PgConnection, name: &str) -> Result<ApiError, ApiError> {
    let known = template::list(conn).await?;
    let hint = similar(name, known.iter().map(|known| known.name.as_str())).map_or_else(
        || "; `muster template list` lists all".to_owned(),
        |other| format!("; did you mean {other}?"),
    );
    Ok(ApiError::not_found(format!("template {name}{hint}")))
}
