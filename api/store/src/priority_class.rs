//! Priority classes. All callers read all of them; writing needs `tenant_scope::admin`.

use crate::error::StoreError;
use muster_model::priority::PriorityClass;
use muster_model::tenant::Access;
use sqlx::PgConnection;

/// Returns all classes, ordered by name. Roles that this release does not know are left out.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection) -> Result<Vec<PriorityClass>, StoreError> {
    let rows = sqlx::query!(
        "select name, description, lowest, highest, default_priority, roles, tenants from priority_class order by name"
    )
    .fetch_all(conn)
    .await?;
    let classes = rows.into_iter().map(|row| PriorityClass {
        name: row.name,
        description: row.description,
        lowest: row.lowest,
        highest: row.highest,
        default: row.default_priority,
        roles: row
            .roles
            .iter()
            .filter_map(|role| Access::of_name(role))
            .collect(),
        tenants: row.tenants.into_iter().collect(),
    });
    Ok(classes.collect())
}

/// Creates a class, or replaces the one of its name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set(conn: &mut PgConnection, class: &PriorityClass) -> Result<(), StoreError> {
    let roles: Vec<String> = class
        .roles
        .iter()
        .map(|role| role.as_str().to_owned())
        .collect();
    let tenants: Vec<String> = class.tenants.iter().cloned().collect();
    sqlx::query!(
        "insert into priority_class (name, description, lowest, highest, default_priority, roles, tenants)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (name) do update
            set description = excluded.description, lowest = excluded.lowest, highest = excluded.highest,
                default_priority = excluded.default_priority, roles = excluded.roles, tenants = excluded.tenants",
        class.name,
        class.description,
        class.lowest,
        class.highest,
        class.default,
        &roles,
        &tenants
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes a class. Returns `false` if it does not exist.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(conn: &mut PgConnection, name: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!("delete from priority_class where name = $1", name)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}
