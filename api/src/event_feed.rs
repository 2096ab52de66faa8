//! Pages of the history for streams.

use crate::auth::Caller;
use crate::problem::ApiError;
use crate::state::ApiState;
use crate::stream::{PAGE, StreamClient, StreamClosed};
use muster_store::event::{self, EventCursor, EventFilter, StoredEvent};

/// Returns the cursor of a stream that begins now.
///
/// # Errors
/// If the store does not answer.
pub async fn newest(app: &ApiState, caller: &Caller) -> Result<EventCursor, ApiError> {
    let mut tx = app.begin(caller).await?;
    Ok(event::newest(&mut tx).await?)
}

/// Returns the cursor of the newest event that retention has removed, if a reader at `cursor` has
/// missed it.
///
/// # Errors
/// If the store does not answer.
pub async fn forgotten(
    app: &ApiState,
    caller: &Caller,
    cursor: EventCursor,
) -> Result<Option<EventCursor>, ApiError> {
    let mut tx = app.begin(caller).await?;
    let forgotten = event::forgotten(&mut tx).await?;
    Ok(forgotten.filter(|newest| *newest > cursor))
}

/// Returns the next entries, and whether more are available.
///
/// # Errors
/// [`StreamClosed`].
pub async fn next(
    client: &StreamClient,
    filter: EventFilter,
    after: EventCursor,
) -> Result<(Vec<StoredEvent>, bool), StreamClosed> {
    let page = client
        .read(async || {
            let mut tx = client.app().begin(client.caller()).await?;
            event::page(&mut tx, filter, Some(after), PAGE).await
        })
        .await?;
    Ok((page.rows, page.more))
}
