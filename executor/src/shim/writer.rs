//! Writes files of the task's folder on a separate thread. A disk that hangs must not prevent the
//! shim from ending a task whose lease has expired.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Longest wait for one write.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

type ShimFileWrite = Box<dyn FnOnce() + Send>;

/// Handle of the thread. The thread ends with the last handle.
#[derive(Clone)]
pub(super) struct ShimFileWriter {
    queue: mpsc::Sender<ShimFileWrite>,
    /// Number of unfinished works.
    pending: Arc<AtomicUsize>,
    limit: Duration,
}

impl ShimFileWriter {
    /// # Errors
    /// If the thread cannot be started.
    pub fn start() -> io::Result<Self> {
        Self::waiting(WRITE_LIMIT)
    }

    fn waiting(limit: Duration) -> io::Result<Self> {
        let (queue, works) = mpsc::channel::<ShimFileWrite>();
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || works.into_iter().for_each(|work| work()))?;
        Ok(Self {
            queue,
            pending: Arc::default(),
            limit,
        })
    }

    /// Runs `work` after all earlier work and returns when it has ended or the limit has passed.
    /// Late work is still done. Behind late work there is no wait, so several writes take no longer
    /// than one.
    pub fn write(&self, work: impl FnOnce() + Send + 'static) {
        let _ = self.answer(work);
    }

    /// Returns the result of `work`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if `work` has not ended within the limit.
    pub fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, ended) = mpsc::channel();
        let pending = Arc::clone(&self.pending);
        let limit = match self.pending.fetch_add(1, Ordering::Relaxed) {
            0 => self.limit,
            _ => Duration::ZERO,
        };
        let work = move || {
            let answer = work();
            pending.fetch_sub(1, Ordering::Relaxed);
            // The caller may have stopped waiting.
            let _ = done.send(answer);
        };
        let sent = self.queue.send(Box::new(work));
        let answer = sent.ok().and_then(|()| ended.recv_timeout(limit).ok());
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer"))
    }
}

#[cfg(test)]
mod tests {
    use super::ShimFileWriter;
    use std::io;
    use std::sync::mpsc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn hanging_write_times_out_and_is_done_later() -> io::Result<()> {
        let writer = ShimFileWriter::waiting(Duration::from_millis(20))?;
        let (release, hangs) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let second = ended.clone();
        writer.write(move || {
            let _ = hangs.recv();
            let _ = ended.send(1);
        });
        let patient = ShimFileWriter {
            limit: PATIENCE,
            ..writer
        };
        let answer = patient.answer(move || second.send(2));
        assert_eq!(
            answer.map_err(|error| error.kind()).err(),
            Some(io::ErrorKind::TimedOut),
            "behind a late write there is no wait"
        );
        assert!(end.try_recv().is_err(), "it still hangs");
        drop(release);
        assert_eq!(end.recv_timeout(PATIENCE), Ok(1));
        assert_eq!(end.recv_timeout(PATIENCE), Ok(2), "in the order given");
        Ok(())
    }

    #[test]
    fn write_is_done_on_return() -> io::Result<()> {
        let writer = ShimFileWriter::waiting(PATIENCE)?;
        let (written, found) = mpsc::channel();
        writer.write(move || {
            let _ = written.send(7);
        });
        assert_eq!(found.try_recv(), Ok(7));
        Ok(())
    }
}
