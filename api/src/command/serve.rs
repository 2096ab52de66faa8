//! Answers requests until a signal.

use crate::config::ApiSettings;
use crate::{ApiState, connection, router, schedule};
use anyhow::Context as _;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time after the signal for requests in progress.
const GRACE: Duration = Duration::from_secs(3);
/// Time after that for closing the connections to the database.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs the daemon.
///
/// # Errors
/// If the listen address is in use, or the address of the database is invalid.
pub async fn serve(settings: ApiSettings) -> anyhow::Result<()> {
    let stopping = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let app = ApiState::start(&settings, stopping.clone())?;
    app.secret_keys.check().await;
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listen on {}", settings.listen))?;
    if let Some(warning) = muster_clock::warning() {
        tracing::warn!("{warning}");
    }
    tracing::info!(listen = %listener.local_addr()?, "serving");
    tokio::spawn(schedule::submit_all(app.clone()));
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
