//! Answers requests until it is told to stop.

use crate::config::Settings;
use crate::{App, router};
use anyhow::Context as _;
use std::future::IntoFuture as _;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Answers that are under way may take so long after the signal to stop.
const GRACE: Duration = Duration::from_secs(10);

/// # Errors
/// When the address is taken, or the database's address is none.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let stopping = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let app = App::start(&settings, stopping.clone())?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listen on {}", settings.listen))?;
    tracing::info!(listen = %listener.local_addr()?, "serving");
    let stop = stopping.clone();
    let server = axum::serve(
        axum::serve::ListenerExt::tap_io(listener, |stream| {
            // Small answers must not wait for more to come.
            let _ = stream.set_nodelay(true);
        }),
        router(&app),
    )
    .with_graceful_shutdown(stop.cancelled_owned())
    .into_future();
    let mut server = tokio::spawn(server);
    tokio::select! {
        ended = &mut server => return Ok(ended??),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stopping.cancel();
    if tokio::time::timeout(GRACE, &mut server).await.is_err() {
        tracing::warn!("some answers were cut off");
        server.abort();
    }
    app.pool.close().await;
    Ok(())
}
