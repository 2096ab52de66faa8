//! Retries transactions that Postgres aborted because of a deadlock or a serialisation conflict.

use muster_store::StoreError;
use muster_store::pool::in_time;

/// Maximum number of attempts. After three failures another attempt would only add load.
const ATTEMPTS: u32 = 3;

/// Runs `transaction` from its beginning to its commit, and again if another attempt may succeed. A
/// rollback must undo all its effects. Each attempt has the time limit of [`in_time`].
///
/// `transaction` opens and commits its own transaction. An async closure with an argument would
/// give a future that cannot be spawned.
///
/// # Errors
/// The error of the last attempt.
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
