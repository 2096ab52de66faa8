//! Computations off the runtime's threads, which serve node sessions.

use muster_sim::Cancel;
use tokio::task::JoinError;

/// Runs `work` on a blocking thread. Dropping the future cancels the computation at its next poll
/// of the flag.
///
/// # Errors
/// [`JoinError`] if `work` panics.
pub async fn try_apart<T: Send + 'static>(
    work: impl FnOnce(&Cancel) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let cancel = Cancel::default();
    let given_up = CancelOnDrop(cancel.clone());
    let done = tokio::task::spawn_blocking(move || work(&cancel)).await;
    drop(given_up);
    match done {
        // The runtime shuts down, and the caller with it.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        done => done,
    }
}

/// Runs `work` on a blocking thread.
///
/// # Panics
/// If `work` panics.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match try_apart(|_| work()).await {
        Ok(made) => made,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::try_apart;
    use std::sync::mpsc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn dropped_future_cancels_computation() {
        let (began, begins) = tokio::sync::oneshot::channel();
        let (ended, ends) = mpsc::channel();
        let computation = try_apart(move |cancel| {
            began.send(()).expect("the test waits");
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test waits");
        });
        tokio::select! {
            _ = computation => panic!("it ends only once it is cancelled"),
            begun = begins => begun.expect("it begins"),
        }
        ends.recv_timeout(PATIENCE).expect("it is cancelled");
    }
}
