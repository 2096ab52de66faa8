//! Computations away from the runtime's threads, which serve node sessions.

use tokio::task::JoinError;

/// Runs `work` on a blocking thread.
///
/// # Errors
/// [`JoinError`] when `work` panics.
pub async fn try_apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match tokio::task::spawn_blocking(work).await {
        // The runtime ends, and the caller with it.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        done => done,
    }
}

/// Runs `work` on a blocking thread.
///
/// # Panics
/// With the panic of `work`.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match try_apart(work).await {
        Ok(made) => made,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}
