//! Time limit of a request's header.
//!
//! hyper has one timer for the time without a request and for the time of a header. Proxies keep
//! connections idle for a minute, but a header never takes that long. The shorter limit of headers
//! is therefore implemented here, below hyper.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Waits for a header; counted from the start of the connection or the first byte of the header.
const HEADER: u8 = 0;
/// A request is read or answered.
const BUSY: u8 = 1;
/// The answer has been sent, and no byte of the next request has arrived.
const IDLE: u8 = 2;

/// Phase of one connection, shared between its socket and its service.
#[derive(Debug, Clone, Default)]
pub struct Phases(Arc<AtomicU8>);

impl Phases {
    /// Sets the phase after the header has arrived.
    pub fn busy(&self) {
        self.set(BUSY);
    }

    /// Sets the phase to idle when the body has been sent or dropped.
    pub fn idle_after(&self, body: Body) -> Body {
        Body::new(TrackedResponseBody {
            body,
            phases: self.clone(),
        })
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

struct TrackedResponseBody {
    body: Body,
    phases: Phases,
}

impl Drop for TrackedResponseBody {
    fn drop(&mut self) {
        self.phases.set(IDLE);
    }
}

impl HttpBody for TrackedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket whose reads fail when a header takes too long.
pub struct HeaderTimeoutStream {
    stream: TcpStream,
    phases: Phases,
    limit: Duration,
    /// Deadline of the header; `None` outside of one.
    header: Option<Pin<Box<Sleep>>>,
}

impl HeaderTimeoutStream {
    pub fn new(stream: TcpStream, phases: Phases, limit: Duration) -> Self {
        Self {
            stream,
            phases,
            limit,
            header: None,
        }
    }
}

impl AsyncRead for HeaderTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.phases.get() != HEADER {
            self.header = None;
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if self.phases.get() == IDLE && buffer.filled().len() > before {
                self.phases.set(HEADER);
            }
            return Poll::Ready(Ok(()));
        }
        let limit = self.limit;
        let header = self
            .header
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if header.as_mut().poll(context).is_ready() {
            let late = format!("no whole header within {} s", limit.as_secs_f64());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for HeaderTimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
