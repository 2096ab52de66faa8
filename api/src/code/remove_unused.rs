//! Removal of code archives that are unused. An upload of the tenant starts it.

use super::files;
use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::state::ApiState;
use muster_store::StoreError;
use muster_store::code;
use time::Duration;

/// Time after the last use of an archive that no job or study names.
const KEPT: Duration = Duration::WEEK;

/// Removes the caller's unused archives, and files without a row.
pub async fn remove(app: ApiState, caller: Caller) {
    if let Err(error) = carry_out(&app, &caller).await {
        tracing::warn!(
            tenant = caller.tenant_name,
            ?error,
            "unused code archives are left"
        );
    }
}

async fn carry_out(app: &ApiState, caller: &Caller) -> Result<(), ApiError> {
    let mut tx = app.begin(caller).await?;
    code::hold(&mut tx, caller.tenant_id).await?;
    code::remove_unused(&mut tx, clock::now() - KEPT).await?;
    tx.commit().await.map_err(StoreError::from)?;
    // A file is removed after the commit that removes its row. Uploads wait meanwhile.
    let mut tx = app.begin(caller).await?;
    code::hold(&mut tx, caller.tenant_id).await?;
    let names = code::names(&mut tx).await?;
    files(app)?
        .remove_code_except(caller.tenant_id, &names)
        .await
}
