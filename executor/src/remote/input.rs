//! Input of a session. It is always read, so that the end of the client is noticed while the
//! program takes nothing. The window bounds what waits for the program.

use super::attach::{FrameReceiver, FrameSender};
use muster_model::remote::{INPUT_WINDOW_BYTES, RemoteEnd, RemoteFrame, TerminalSize};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

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

enum Order {
    Write(Vec<u8>),
    End,
    Resize(TerminalSize),
}

/// Passes input on until the client leaves, and returns how the session ends by that. With
/// `ends_with_input`, also returns once all input was written.
pub async fn pass(
    mut sink: impl InputSink,
    sender: &FrameSender,
    receiver: &mut FrameReceiver,
    ends_with_input: bool,
) -> RemoteEnd {
    let waiting_bytes = AtomicUsize::new(0);
    let (orders, mut taken) = mpsc::unbounded_channel();
    let writes = async {
        while let Some(order) = taken.recv().await {
            match order {
                Order::Write(data) => {
                    // A program that reads no more ends by itself; its input is discarded.
                    let _ = sink.write(&data).await;
                    waiting_bytes.fetch_sub(data.len(), Ordering::Relaxed);
                    let bytes = u32::try_from(data.len()).expect("frames are small");
                    sender.send(RemoteFrame::InputTaken(bytes)).await;
                }
                Order::End => {
                    sink.end().await;
                    if ends_with_input {
                        return RemoteEnd::Closed;
                    }
                }
                Order::Resize(size) => sink.resize(size),
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        end = writes => end,
        end = read(receiver, &orders, &waiting_bytes) => end,
    }
}

async fn read(
    receiver: &mut FrameReceiver,
    orders: &mpsc::UnboundedSender<Order>,
    waiting_bytes: &AtomicUsize,
) -> RemoteEnd {
    loop {
        let order = match receiver.next().await {
            Ok(RemoteFrame::Input(data)) => {
                let before = waiting_bytes.fetch_add(data.len(), Ordering::Relaxed);
                if before + data.len() > INPUT_WINDOW_BYTES {
                    let message = "the client sent more input than it may";
                    return RemoteEnd::Failed {
                        message: message.to_owned(),
                    };
                }
                Order::Write(data)
            }
            Ok(RemoteFrame::InputEnd) => Order::End,
            Ok(RemoteFrame::Resize(size)) => Order::Resize(size),
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!(%error, "no further frames of the client");
                return RemoteEnd::ClientGone;
            }
        };
        let _ = orders.send(order);
    }
}
