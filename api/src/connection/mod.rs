//! Connections of clients: how many there may be, and how long they may take for a request's header or stay without one.
//!
//! HTTP/1.1 only. `axum::serve` has no time limit of its own and sets none of hyper's.

mod address;
mod patience;

pub use address::{Client, Networks, NetworksError};

use crate::config::Limits;
use crate::metrics::Metrics;
use crate::places::{Full, Place, Places};
use crate::state::App;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use patience::{Patient, Phases};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// Until the next attempt where connections cannot be accepted, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `stopping`, then waits until the requests under way are answered.
pub async fn serve(listener: TcpListener, router: Router, app: App, stopping: CancellationToken) {
    let limits = &app.limits;
    let places = Places::new(limits.connections, limits.connections_per_address);
    let tracker = TaskTracker::new();
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
        match take(&places, limits, peer) {
            Ok(place) => {
                let connection = connection(stream, peer, router.clone(), limits, &stopping);
                tracker.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(full) => refuse(&stream, full, &app.metrics),
        }
    }
    drop(listener);
    tracker.close();
    tracker.wait().await;
}

/// A trusted proxy carries many clients, so only the limit of all connections binds it.
fn take(places: &Places<IpAddr>, limits: &Limits, peer: SocketAddr) -> Result<Place<IpAddr>, Full> {
    let address = peer.ip().to_canonical();
    let is_proxy = limits.trusted_proxies.contains(address);
    places.take((!is_proxy).then_some(address))
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: &Limits,
    stopping: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Small answers must not wait for more to come.
    let _ = stream.set_nodelay(true);
    let phases = Phases::default();
    let io = TokioIo::new(Patient::new(
        stream,
        phases.clone(),
        limits.header_timeout(),
    ));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        phases.busy();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let (answered, phases) = (router.clone().oneshot(request), phases.clone());
        async move {
            let response = answered.await?;
            Ok::<_, Infallible>(response.map(|body| phases.idle_after(body)))
        }
    });
    let mut builder = http1::Builder::new();
    // hyper counts it from the end of the answer before, so it is the time without a request.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout());
    let stopping = stopping.clone();
    async move {
        let mut served = pin!(builder.serve_connection(io, service));
        tokio::select! {
            ended = served.as_mut() => return log(ended),
            () = stopping.cancelled() => served.as_mut().graceful_shutdown(),
        }
        log(served.await);
    }
}

/// Clients hang up as they like.
fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(error = crate::problem::chain(&error), "a connection ended");
    }
}

/// Says why, as far as the socket takes it at once, and hangs up.
fn refuse(stream: &TcpStream, full: Full, metrics: &Metrics) {
    let (of_whom, most, limit) = match full {
        Full::All(most) => ("of all clients", most, "limits.connections"),
        Full::OfKey(most) => ("of this address", most, "limits.connections_per_address"),
    };
    metrics.connection_refused();
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
