//! Connections of clients, within their limits.

use crate::state::ApiState;
use axum::Router;
use muster_connections::{ConnectionPolicy, serve_until};
use std::net::IpAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Exempts trusted proxies, which carry many clients, and counts refused connections.
struct Clients(ApiState);

impl ConnectionPolicy for Clients {
    fn is_exempt(&self, address: IpAddr) -> bool {
        self.0.limits.trusted_proxies.contains(address)
    }

    fn refused(&self) {
        self.0.metrics.connection_refused();
    }
}

/// Serves connections until `stopping`, then waits for the requests in progress.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    app: ApiState,
    stopping: CancellationToken,
) {
    let bounds = app.limits.bounds();
    serve_until(listener, router, bounds, Clients(app), stopping).await;
}
