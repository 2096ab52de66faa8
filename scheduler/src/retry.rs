//! Transactions that are begun anew when Postgres made them the victim of a deadlock or of a conflict.

use muster_store::StoreError;
use muster_store::pool::in_time;

/// Attempts in all. Who loses thrice meets a load that another attempt only adds to.
const ATTEMPTS: u32 = 3;

/// Carries `transaction` out, from its beginning to its commit; again when another may succeed. It must do nothing that a rollback
/// does not undo. Each attempt has the time limit of [`in_time`].
///
/// It opens and commits the transaction itself, rather than being lent one: an async closure with an argument makes a future that
/// cannot be spawned.
///
/// # Errors
/// What the last attempt failed with.
pub async fn on_conflict<T, F>(mut transaction: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut attempt = 1;
    loop {
        match in_time(transaction()).await {
            Err(error) if error.is_retryable() && attempt < ATTEMPTS => {
                tracing::debug!(%error, attempt, "begun anew after a conflict");
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}
