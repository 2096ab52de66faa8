//! `GET /stream`: changes of the cluster that the tenant may see.

use crate::auth::Caller;
use crate::event_feed;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, Query};
use crate::state::ApiState;
use crate::stream::{self, StreamClient, StreamClosed};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use muster_model::id::JobId;
use muster_model::view::{Opened, ProgressMessage, name};
use muster_store::event::{EventCursor, EventFilter};
use muster_store::progress;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Shortest time between two queries of the jobs' samples by one stream.
const SAMPLES_APART: Duration = Duration::from_secs(1);

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// Begin after this cursor. Default: now.
    #[param(value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
    pub after: Option<EventCursor>,
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
/// Server-sent events. The first message is `opened` (Opened). Each entry of the history of the
/// tenant's jobs and of the nodes is an `event` (EventView). The `id:` of a message is a cursor. A
/// client that reconnects with it as `Last-Event-ID` receives each entry exactly once.
///
/// In between, `progress` (ProgressMessage) contains the newest sample of each running job, after
/// `opened` and after each change, at most once a second per job. The stream of a job contains its
/// whole series.
#[utoipa::path(
    get, path = "/stream", operation_id = "followCluster", tag = "streams",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received message; precedes `after`")),
    responses((status = 200, description = "A stream that does not end by itself", content_type = "text/event-stream", body = String)),
)]
pub async fn stream(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<StreamParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let from = match stream::position(&headers, params.after)? {
        Some(cursor) => cursor,
        None => event_feed::newest(&app, &caller).await?,
    };
    let forgotten = event_feed::forgotten(&app, &caller, from).await?;
    stream::answer(&app, &caller, move |client| follow(client, from, forgotten))
}

async fn follow(
    mut client: StreamClient,
    mut cursor: EventCursor,
    forgotten: Option<EventCursor>,
) -> Result<(), StreamClosed> {
    client
        .send(
            name::OPENED,
            &cursor,
            &Opened {
                cursor: cursor.to_string(),
                forgotten: forgotten.map(|newest| newest.to_string()),
            },
        )
        .await?;
    let mut newest = SentSamples::default();
    loop {
        let (events, more) = event_feed::next(&client, EventFilter::default(), cursor).await?;
        for event in events {
            cursor = event.cursor;
            client
                .send(name::EVENT, &cursor, &crate::job::wire::event(event))
                .await?;
        }
        if more {
            continue;
        }
        newest.send(&client, cursor).await?;
        client.woken().await?;
    }
}

/// Samples that one stream has sent. A reconnecting client starts without any: the cursor contains
/// no samples, and a repeated sample changes nothing.
#[derive(Debug, Default)]
struct SentSamples {
    /// Time and step of the last sample per job with tasks. The time distinguishes a sample from an
    /// earlier one of a repeated step.
    told: BTreeMap<JobId, (OffsetDateTime, u64)>,
    looked: Option<Instant>,
}

impl SentSamples {
    /// Sends new samples. Does nothing within [`SAMPLES_APART`] after the last query; streams are
    /// woken again a second after each event and send them then.
    async fn send(
        &mut self,
        client: &StreamClient,
        cursor: EventCursor,
    ) -> Result<(), StreamClosed> {
        let now = crate::clock::monotonic();
        if self
            .looked
            .is_some_and(|looked| now - looked < SAMPLES_APART)
        {
            return Ok(());
        }
        self.looked = Some(now);
        let samples = client
            .read(async || {
                let mut tx = client.app().begin(client.caller()).await?;
                progress::newest(&mut tx).await
            })
            .await?;
        let mut told = BTreeMap::new();
        for (job_id, at, sample) in samples {
            let before = self.told.get(&job_id).copied();
            told.insert(job_id, (at, sample.step));
            if before == Some((at, sample.step)) {
                continue;
            }
            let after_step = match before {
                Some((_, step)) if step < sample.step => step,
                // The first sample, or the job went back to a checkpoint.
                _ => 0,
            };
            let message = ProgressMessage {
                job_id,
                after_step,
                samples: vec![crate::job::wire::sample((at, sample))],
            };
            client.send(name::PROGRESS, &cursor, &message).await?;
        }
        self.told = told;
        Ok(())
    }
}
