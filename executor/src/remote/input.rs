//! Input of a session. It is always read, so that the end of the client is noticed while the
//! program takes nothing. The window bounds what waits for the program.

use super::attach::{FrameReceiver, FrameSender};
use muster_model::remote::{INPUT_WINDOW_BYTES, RemoteEnd, RemoteFrame, TerminalSize};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most bytes of one write to the program.
const BLOCK_BYTES: usize = 32 << 10;

/// Receiver of the client's input.
pub trait InputSink: Send {
    /// Writes all bytes, and waits as long as the program takes none.
    ///
    /// # Errors
    /// If the program takes no more.
    fn write(&mut self, data: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// No more input follows.
    fn end(&mut self) -> impl Future<Output = ()> + Send;

    /// The client's terminal has another size.
    fn resize(&self, size: TerminalSize);
}

/// Input that waits for the program. Its size does not depend on the number of frames.
#[derive(Default)]
struct Waiting {
    data: Vec<u8>,
    /// Bytes of `data`, and of the block that is written now.
    untaken_bytes: usize,
    has_ended: bool,
    /// Newest size of the terminal that the program does not have yet.
    size: Option<TerminalSize>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

enum Next {
    Resize(TerminalSize),
    Write(Vec<u8>),
    End,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.lock().next() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    /// # Errors
    /// How the session ends if the client may not send this frame now.
    fn add(&self, frame: RemoteFrame) -> Result<(), RemoteEnd> {
        self.lock()
            .add(frame)
            .map_err(|message| RemoteEnd::Failed {
                message: message.to_owned(),
            })?;
        self.changed.notify_one();
        Ok(())
    }
}

impl Waiting {
    /// [`Next::End`] is returned again and again.
    fn next(&mut self) -> Option<Next> {
        if let Some(size) = self.size.take() {
            return Some(Next::Resize(size));
        }
        if self.data.is_empty() {
            return self.has_ended.then_some(Next::End);
        }
        let rest = self.data.split_off(self.data.len().min(BLOCK_BYTES));
        Some(Next::Write(std::mem::replace(&mut self.data, rest)))
    }

    fn add(&mut self, frame: RemoteFrame) -> Result<(), &'static str> {
        match frame {
            RemoteFrame::Input(_) | RemoteFrame::InputEnd if self.has_ended => {
                return Err("the client sent input after its end");
            }
            RemoteFrame::Input(data) => {
                if self.untaken_bytes + data.len() > INPUT_WINDOW_BYTES {
                    return Err("the client sent more input than it may");
                }
                self.untaken_bytes += data.len();
                self.data.extend(data);
            }
            RemoteFrame::InputEnd => self.has_ended = true,
            RemoteFrame::Resize(size) => self.size = Some(size),
            _ => {}
        }
        Ok(())
    }
}

/// Passes input on until the client leaves, and returns how the session ends by that. With
/// `ends_with_input`, also returns once all input was written.
pub async fn pass(
    sink: impl InputSink,
    sender: &FrameSender,
    receiver: &mut FrameReceiver,
    ends_with_input: bool,
) -> RemoteEnd {
    let queue = Queue::default();
    tokio::select! {
        end = write(sink, sender, &queue, ends_with_input) => end,
        end = read(receiver, &queue) => end,
    }
}

async fn write(
    mut sink: impl InputSink,
    sender: &FrameSender,
    queue: &Queue,
    ends_with_input: bool,
) -> RemoteEnd {
    let mut has_ended = false;
    loop {
        match queue.next().await {
            Next::Write(data) => {
                // A program that reads no more ends by itself; its input is discarded.
                let _ = sink.write(&data).await;
                queue.lock().untaken_bytes -= data.len();
                let bytes = u32::try_from(data.len()).expect("blocks are small");
                sender.send(RemoteFrame::InputTaken(bytes)).await;
            }
            Next::Resize(size) => sink.resize(size),
            Next::End if has_ended => queue.changed.notified().await,
            Next::End => {
                has_ended = true;
                sink.end().await;
                if ends_with_input {
                    return RemoteEnd::Closed;
                }
            }
        }
    }
}

async fn read(receiver: &mut FrameReceiver, queue: &Queue) -> RemoteEnd {
    loop {
        match receiver.next().await {
            Ok(frame) => {
                if let Err(end) = queue.add(frame) {
                    return end;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "no further frames of the client");
                return RemoteEnd::ClientGone;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_frames_wait_as_one_block() {
        let mut waiting = Waiting::default();
        for _ in 0..INPUT_WINDOW_BYTES {
            waiting
                .add(RemoteFrame::Input(vec![1]))
                .expect("within the window");
            waiting.add(RemoteFrame::Input(Vec::new())).expect("empty");
        }
        waiting
            .add(RemoteFrame::Input(vec![1]))
            .expect_err("over the window");
        let mut blocks = 0;
        while let Some(Next::Write(data)) = waiting.next() {
            assert_eq!(data.len(), BLOCK_BYTES);
            blocks += 1;
        }
        assert_eq!(blocks, INPUT_WINDOW_BYTES / BLOCK_BYTES);
    }

    #[test]
    fn newest_size_counts_and_nothing_follows_the_end() {
        let mut waiting = Waiting::default();
        for rows in 1..=3 {
            let size = TerminalSize { rows, columns: 80 };
            waiting.add(RemoteFrame::Resize(size)).expect("a size");
        }
        assert!(matches!(waiting.next(), Some(Next::Resize(size)) if size.rows == 3));
        assert!(waiting.next().is_none());
        waiting.add(RemoteFrame::InputEnd).expect("the first end");
        assert!(matches!(waiting.next(), Some(Next::End)));
        for late in [RemoteFrame::InputEnd, RemoteFrame::Input(vec![1])] {
            waiting.add(late).expect_err("after the end");
        }
    }
}
