//! Server-sent events. One LISTEN connection of the process wakes all streams. Each stream reads
//! pages by its own cursor, so even a slow client receives each entry exactly once.

pub mod notifications;

use crate::auth::Caller;
use crate::metrics::OpenStream;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use muster_connections::PermitError;
use muster_model::error_chain::chain;
use muster_store::StoreError;
use notifications::PAUSE;
use serde::Serialize;
use std::convert::Infallible;
use std::future::Future;
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Interval of comments, which keep idle connections open and detect dead ones.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Shortest time between two polls of one stream, to bound its queries on a busy cluster.
const APART: Duration = Duration::from_millis(50);
/// Maximum number of messages that wait for a slow client; its stream reads no further page
/// meanwhile.
const BUFFERED: usize = 64;
/// Entries per page.
pub const PAGE: u32 = 200;

/// The client's end of one stream.
pub struct StreamClient {
    app: ApiState,
    caller: Caller,
    sender: mpsc::Sender<Event>,
    turn: watch::Receiver<u64>,
}

/// The stream has ended: the client has left, the daemon stops, or the token is no longer valid.
#[derive(Debug)]
pub struct StreamClosed;

impl StreamClient {
    #[must_use]
    pub fn app(&self) -> &ApiState {
        &self.app
    }

    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Sends one message; waits if the client reads too slowly.
    ///
    /// # Errors
    /// [`StreamClosed`].
    pub async fn send(
        &self,
        name: &str,
        id: &impl ToString,
        data: &impl Serialize,
    ) -> Result<(), StreamClosed> {
        let event = Event::default()
            .event(name)
            .id(id.to_string())
            .json_data(data)
            .expect("views are JSON");
        tokio::select! {
            sent = self.sender.send(event) => sent.map_err(|_| StreamClosed),
            () = self.app.stopping.cancelled() => Err(StreamClosed),
        }
    }

    /// Returns when new entries may exist.
    ///
    /// # Errors
    /// [`StreamClosed`].
    pub async fn woken(&mut self) -> Result<(), StreamClosed> {
        tokio::select! {
            () = tokio::time::sleep(APART) => {}
            () = self.sender.closed() => return Err(StreamClosed),
            () = self.app.stopping.cancelled() => return Err(StreamClosed),
        }
        tokio::select! {
            turned = self.turn.changed() => turned.map_err(|_| StreamClosed)?,
            () = self.sender.closed() => return Err(StreamClosed),
            () = self.app.stopping.cancelled() => return Err(StreamClosed),
        }
        match self.caller.is_valid(&self.app.tokens, &self.app.pool).await {
            Ok(false) => Err(StreamClosed),
            // A database outage refuses no client; the next page detects it.
            Ok(true) | Err(_) => Ok(()),
        }
    }

    /// Returns the result of a read of the store. Waits while the store is not available, so that a
    /// restart of Postgres ends no stream.
    ///
    /// # Errors
    /// [`StreamClosed`], also if the store fails permanently.
    pub async fn read<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> Result<T, StreamClosed> {
        loop {
            match read().await {
                Ok(read) => return Ok(read),
                Err(error) if error.is_unavailable() || error.is_retryable() => {
                    tracing::debug!(error = chain(&error), "a stream waits for the store");
                }
                Err(error) => {
                    tracing::error!(error = chain(&error), "a stream ends");
                    return Err(StreamClosed);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.sender.closed() => return Err(StreamClosed),
                () = self.app.stopping.cancelled() => return Err(StreamClosed),
            }
        }
    }
}

/// Answers with a stream that `follow` writes; it ends when `follow` returns.
///
/// # Errors
/// If too many streams are open, of the tenant or in total.
pub fn answer<F>(
    app: &ApiState,
    caller: &Caller,
    follow: impl FnOnce(StreamClient) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<(), StreamClosed>> + Send + 'static,
{
    // Streams of an administrator for other tenants count for its own tenant.
    let permit = app.streams.take(Some(caller.home())).map_err(full)?;
    let open = OpenStream::count(&app.metrics);
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let mut turn = app.event_notifications.follow();
    turn.mark_unchanged();
    let followed = follow(StreamClient {
        app: app.clone(),
        caller: caller.clone(),
        sender,
        turn,
    });
    tokio::spawn(async move {
        let _ = followed.await;
        drop((permit, open));
    });
    let messages = ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    let alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    // Buffering proxies would delay messages.
    Ok((
        [("x-accel-buffering", "no")],
        Sse::new(messages).keep_alive(alive),
    )
        .into_response())
}

fn full(full: PermitError) -> ApiError {
    let (most, whose) = match full {
        PermitError::All(most) => (most, ""),
        PermitError::OfKey(most) => (most, " of your tenant"),
    };
    let detail =
        format!("{most} event streams{whose} are open already; close one or try again later");
    ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(5)
}

/// Returns the position of the client: `Last-Event-ID`, which a reconnecting client sends, precedes
/// the parameter `after`.
///
/// # Errors
/// If it is not a position.
pub fn position<T: FromStr>(headers: &HeaderMap, after: Option<T>) -> Result<Option<T>, ApiError> {
    let Some(value) = headers
        .get("last-event-id")
        .filter(|value| !value.is_empty())
    else {
        return Ok(after);
    };
    let text = value.to_str().unwrap_or_default();
    text.parse().map(Some).map_err(|_| {
        ApiError::parameter("Last-Event-ID", text, "the id of a message of this stream")
    })
}
