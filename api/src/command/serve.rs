//! Answers requests until it is told to stop.

use crate::config::Settings;
use crate::{App, connection, router};
use anyhow::Context as _;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time after the signal to stop for the answers that are under way.
const GRACE: Duration = Duration::from_secs(3);
/// Time after that for the connections to the database to close.
const CLOSING: Duration = Duration::from_secs(1);

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
    let served = connection::serve(listener, router(&app), app.clone(), stopping.clone());
    let mut server = tokio::spawn(served);
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stopping.cancel();
    if tokio::time::timeout(GRACE, &mut server).await.is_err() {
        tracing::warn!("some answers were cut off");
        server.abort();
    }
    if tokio::time::timeout(CLOSING, app.pool.close())
        .await
        .is_err()
    {
        tracing::warn!("some connections to the database are still in use");
    }
    Ok(())
}
