//! File system reads, bounded in number and time.
//!
//! A file system that does not answer blocks the reading thread. Without the bound it could block
//! all blocking threads of tokio, and with them the web page and name resolution for the database.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of threads that read at one time. tokio has 512 blocking threads.
const MAX_READS: usize = 16;
/// Maximum time of a read, including the wait for a thread. Shorter than the time-out of a request.
const READ_DEADLINE: Duration = Duration::from_secs(20);

/// Runs reads on blocking threads. All clones share the limit on threads.
#[derive(Debug, Clone)]
pub struct BlockingReads {
    threads: Arc<Semaphore>,
    deadline: Duration,
}

/// A read has not ended in time. Its thread may still be blocked, and counts until it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file system did not answer in time")]
pub struct ReadTimeout;

impl Default for BlockingReads {
    fn default() -> Self {
        Self::new(MAX_READS, READ_DEADLINE)
    }
}

impl BlockingReads {
    fn new(threads: usize, deadline: Duration) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            deadline,
        }
    }

    /// Runs `read` on a blocking thread.
    ///
    /// # Errors
    /// [`ReadTimeout`].
    pub async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadTimeout> {
        let answer = async {
            let permit = Arc::clone(&self.threads).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            // The permit belongs to the thread: the caller may give up before the thread returns.
            let read = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                read()
            });
            read.await.expect("a read does not panic")
        };
        tokio::time::timeout(self.deadline, answer)
            .await
            .map_err(|_| ReadTimeout)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockingReads, ReadTimeout};
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn stalled_read_holds_its_thread_until_it_returns() {
        let reads = BlockingReads::new(2, Duration::from_millis(100));
        let (release, blocked) = mpsc::channel::<()>();
        let (other_release, other_blocked) = mpsc::channel::<()>();
        let stalled = tokio::join!(
            reads.run(move || blocked.recv().ok()),
            reads.run(move || other_blocked.recv().ok()),
        );
        assert_eq!(stalled, (Err(ReadTimeout), Err(ReadTimeout)));
        // No thread is used beyond the two.
        assert_eq!(reads.threads.available_permits(), 0);
        assert_eq!(
            reads.run(|| panic!("no thread is free")).await,
            Err::<(), _>(ReadTimeout)
        );
        drop(release);
        while reads.run(|| 7).await != Ok(7) {}
        assert_eq!(reads.threads.available_permits(), 1);
        drop(other_release);
    }
}
