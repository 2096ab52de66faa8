//! `PUT /priority-classes/{name}`.

use crate::auth::Admin;
use crate::body::ParsedBody;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::priority::{MAX_CLASSES, PriorityClass, PriorityClassDocument};
use muster_model::spec::FieldError;
use muster_store::{PgConnection, StoreError, priority_class, tenant, tenant_scope};

/// Create or replace a priority class
///
/// For administrators; at most 64 classes. While no class exists, any job may have any priority.
/// With the first class, a priority other than 0 must lie in the range of a class that the caller
/// may use. Open jobs and studies keep their numbers.
#[utoipa::path(
    put, path = "/priority-classes/{name}", operation_id = "setPriorityClass", tag = "priorities",
    params(("name" = String, Path, description = "Name of the class: 1 to 63 characters of a-z, 0-9 and '-'")),
    request_body = PriorityClassDocument,
    responses((status = 200, description = "Created or replaced", body = PriorityClass)),
)]
#[tracing::instrument(name = "api.priority.set", skip_all, fields(class = name))]
pub async fn set(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: ParsedBody<PriorityClassDocument>,
) -> Result<Json<PriorityClass>, ApiError> {
    let invalid = |errors| ApiError::of_fields(ProblemKind::InvalidBody, errors);
    let class = document.value.named(&name).map_err(invalid)?;
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let unknown = unknown_tenants(&mut tx, &class).await?;
    if !unknown.is_empty() {
        return Err(invalid(unknown));
    }
    let others = priority_class::list(&mut tx).await?;
    let others = others.iter().filter(|other| other.name != name).count();
    if others >= MAX_CLASSES {
        let detail =
            format!("there are {others} priority classes; at most {MAX_CLASSES} are allowed");
        return Err(ApiError::new(ProblemKind::LimitExceeded, detail));
    }
    priority_class::set(&mut tx, &class).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(class))
}

async fn unknown_tenants(
    conn: &mut PgConnection,
    class: &PriorityClass,
) -> Result<Vec<FieldError>, StoreError> {
    if class.tenants.is_empty() {
        return Ok(Vec::new());
    }
    let known = tenant::list(conn).await?;
    let unknown = class
        .tenants
        .iter()
        .filter(|name| known.iter().all(|tenant| tenant.name != **name));
    let errors = unknown.map(|name| FieldError {
        field: "tenants".to_owned(),
        value: format!("{name:?}"),
        expected: "the name of a tenant".to_owned(),
    });
    Ok(errors.collect())
}
