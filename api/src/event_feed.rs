//! Pages of the history for streams.

use crate::auth::Caller;
use crate::problem::Refusal;
use crate::state::App;
use crate::stream::{Client, Gone, PAGE};
use muster_store::event::{self, Cursor, EventFilter, StoredEvent};

/// Returns the cursor of a stream that begins now.
///
/// # Errors
/// If the store does not answer.
pub async fn newest(app: &App, caller: &Caller) -> Result<Cursor, Refusal> {
    let mut tx = app.begin(caller).await?;
    Ok(event::newest(&mut tx).await?)
}

/// Returns the cursor of the newest event that retention has removed, if a reader at `cursor` has
/// missed it.
///
/// # Errors
/// If the store does not answer.
pub async fn forgotten(
    app: &App,
    caller: &Caller,
    cursor: Cursor,
) -> Result<Option<Cursor>, Refusal> {
    let mut tx = app.begin(caller).await?;
    let forgotten = event::forgotten(&mut tx).await?;
    Ok(forgotten.filter(|newest| *newest > cursor))
}

/// Returns the next entries, and whether more are available.
///
/// # Errors
/// [`Gone`].
pub async fn next(
    client: &Client,
    filter: EventFilter,
    after: Cursor,
) -> Result<(Vec<StoredEvent>, bool), Gone> {
    let page = client
        .read(async || {
            let mut tx = client.app().begin(client.caller()).await?;
            event::page(&mut tx, filter, Some(after), PAGE).await
        })
        .await?;
    Ok((page.rows, page.more))
}
