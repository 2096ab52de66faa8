//! Connections of HTTP clients: their number, and the time for a request's header and between
//! requests.
//!
//! HTTP/1.1 only. Every HTTP server of Muster's daemons serves through this crate. `axum::serve`
//! has no time limit of its own and sets none of hyper's, so clients could hold connections open
//! until the daemon has no file descriptors left.

#![deny(missing_docs)]

mod header_timeout;
mod keyed_semaphore;
mod upgrade;

pub use keyed_semaphore::{KeyedPermit, KeyedSemaphore, PermitError};
pub use upgrade::{PendingUpgrade, UpgradedStream};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use header_timeout::{HeaderTimeoutStream, Phases};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// Pause after an error of accept, for example because no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of open connections of all clients.
    pub connections: usize,
    /// Maximum number of open connections of one address.
    pub connections_per_address: usize,
    /// Longest time from the first byte of a request, or the start of the connection, to the end of
    /// the header.
    pub header_timeout: Duration,
    /// Longest time without a request.
    pub idle_timeout: Duration,
}

impl ConnectionLimits {
    /// Limits of a daemon's own server, for probes, metrics and the tasks of one node.
    pub const OF_A_DAEMON: Self = Self {
        connections: 512,
        connections_per_address: 512,
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
    };
}

/// Policy of a server for single connections, besides its bounds.
pub trait ConnectionPolicy {
    /// Whether only the limit of all connections applies to this address, because a proxy carries
    /// many clients.
    fn is_exempt(&self, _address: IpAddr) -> bool {
        false
    }

    /// Called when a connection was refused.
    fn refused(&self) {}
}

/// Treats all addresses alike, and counts nothing.
impl ConnectionPolicy for () {}

/// Serves connections until the future is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    serve_until(
        listener,
        router,
        ConnectionLimits::OF_A_DAEMON,
        (),
        CancellationToken::new(),
    )
    .await;
}

/// Serves connections until `stopping`, then waits for the requests in progress.
pub async fn serve_until(
    listener: TcpListener,
    router: Router,
    bounds: ConnectionLimits,
    policy: impl ConnectionPolicy,
    stopping: CancellationToken,
) {
    let permits = KeyedSemaphore::new(bounds.connections, bounds.connections_per_address);
    let tracker = TaskTracker::new();
    // If the future is dropped, its connections end too.
    let ends = stopping.child_token();
    let _ends = ends.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match take(&permits, &policy, peer) {
            Ok(permit) => {
                let connection = connection(stream, peer, router.clone(), bounds, ends.clone());
                tracker.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(full) => {
                policy.refused();
                refuse(&stream, full);
            }
        }
    }
    drop(listener);
    tracker.close();
    tracker.wait().await;
}

fn take(
    permits: &KeyedSemaphore<IpAddr>,
    policy: &impl ConnectionPolicy,
    peer: SocketAddr,
) -> Result<KeyedPermit<IpAddr>, PermitError> {
    let address = peer.ip().to_canonical();
    permits.take((!policy.is_exempt(address)).then_some(address))
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    bounds: ConnectionLimits,
    stopping: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Small answers must not wait for more data.
    let _ = stream.set_nodelay(true);
    let phases = Phases::default();
    let io = TokioIo::new(HeaderTimeoutStream::new(
        stream,
        phases.clone(),
        bounds.header_timeout,
    ));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        phases.busy();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let (answered, phases) = (router.clone().oneshot(request), phases.clone());
        async move {
            let response = answered.await?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                // No header follows on this connection.
                return Ok::<_, Infallible>(response);
            }
            Ok(response.map(|body| phases.idle_after(body)))
        }
    });
    let mut builder = http1::Builder::new();
    // hyper counts from the end of the last answer, so this is the time without a request.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.idle_timeout);
    async move {
        let mut served = pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            ended = served.as_mut() => return log(ended),
            () = stopping.cancelled() => served.as_mut().graceful_shutdown(),
        }
        log(served.await);
    }
}

/// Logs an error at debug level: clients may disconnect at any time.
fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(?error, "a connection ended");
    }
}

/// Sends the reason, if the socket accepts it without waiting, and closes the connection.
fn refuse(stream: &TcpStream, full: PermitError) {
    let (of_whom, most, limit) = match full {
        PermitError::All(most) => ("of all clients", most, "limits.connections"),
        PermitError::OfKey(most) => ("of this address", most, "limits.connections_per_address"),
    };
    tracing::debug!(limit, most, "a connection was refused");
    let body = format!(
        "{most} connections {of_whom} are open, which is {limit}; close some or try again later\n"
    );
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(answer.as_bytes());
}

#[cfg(test)]
mod tests;
