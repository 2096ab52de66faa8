//! `GET /stream`: what changes in the cluster, as far as the tenant may see it.

use crate::auth::Caller;
use crate::event_feed;
use crate::problem::Refusal;
use crate::query::{FromQuery, Params, Query};
use crate::state::App;
use crate::stream::{self, Client, Gone};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use muster_model::view::{Opened, name};
use muster_store::event::{Cursor, EventFilter};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// Begin after this cursor; from now on if left out.
    #[param(value_type = Option<String>)]
    pub after: Option<Cursor>,
}

impl FromQuery for StreamParams {
    const NAMES: &'static [&'static str] = &["after"];

    fn take(query: &mut Query) -> Self {
        Self {
            after: query.one("after", "the cursor of an event"),
        }
    }
}

/// Follow the cluster's changes
///
/// Server-sent events: first `opened` (Opened), then for each entry of the history of the tenant's jobs and of the nodes an
/// `event` (EventView). The `id:` of a message is a cursor; who connects again with it as `Last-Event-ID` misses and repeats
/// nothing.
#[utoipa::path(
    get, path = "/stream", tag = "streams",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last message seen; goes before `after`")),
    responses((status = 200, description = "A stream that does not end by itself", content_type = "text/event-stream", body = String)),
)]
pub async fn stream(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<StreamParams>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let from = match stream::position(&headers, params.after)? {
        Some(cursor) => cursor,
        None => event_feed::newest(&app, &caller).await?,
    };
    stream::answer(&app, &caller, |client| follow(client, from))
}

async fn follow(mut client: Client, mut cursor: Cursor) -> Result<(), Gone> {
    client
        .send(
            name::OPENED,
            &cursor,
            &Opened {
                cursor: cursor.to_string(),
            },
        )
        .await?;
    loop {
        let (events, more) = event_feed::next(&client, EventFilter::default(), cursor).await?;
        for event in events {
            cursor = event.cursor;
            client
                .send(name::EVENT, &cursor, &crate::job::wire::event(event))
                .await?;
        }
        if !more {
            client.woken().await?;
        }
    }
}
