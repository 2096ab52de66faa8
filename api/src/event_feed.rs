//! Pages of the history, as the streams read them.

use crate::auth::Caller;
use crate::problem::Refusal;
use crate::state::App;
use crate::stream::{Client, Gone, PAGE};
use muster_store::event::{self, Cursor, EventFilter, StoredEvent};

/// Where a stream begins that wants only what comes from now on.
///
/// # Errors
/// When the store does not answer.
pub async fn newest(app: &App, caller: &Caller) -> Result<Cursor, Refusal> {
    let mut tx = app.begin(caller).await?;
    Ok(event::newest(&mut tx).await?)
}

/// The newest event that was removed for its age, where a reader at `cursor` has missed it.
///
/// # Errors
/// When the store does not answer.
pub async fn forgotten(
    app: &App,
    caller: &Caller,
    cursor: Cursor,
) -> Result<Option<Cursor>, Refusal> {
    let mut tx = app.begin(caller).await?;
    let forgotten = event::forgotten(&mut tx).await?;
    Ok(forgotten.filter(|newest| *newest > cursor))
}

/// The next entries, and whether more are there already.
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
