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
use muster_model::id::JobId;
use muster_model::view::{Opened, ProgressMessage, name};
use muster_store::event::{Cursor, EventFilter};
use muster_store::progress;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Between two looks at the jobs' samples at least: what they bring is for people to look at.
const SAMPLES_APART: Duration = Duration::from_secs(1);

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// Begin after this cursor; from now on if left out.
    #[param(value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
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
/// none of them. Between them comes `progress` (ProgressMessage) with the newest sample of each running job, after `opened` and
/// whenever it has changed, at most once a second for a job. The whole series is in the job's own stream.
#[utoipa::path(
    get, path = "/stream", operation_id = "followCluster", tag = "streams",
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
    let forgotten = event_feed::forgotten(&app, &caller, from).await?;
    stream::answer(&app, &caller, move |client| follow(client, from, forgotten))
}

async fn follow(
    mut client: Client,
    mut cursor: Cursor,
    forgotten: Option<Cursor>,
) -> Result<(), Gone> {
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
    let mut newest = Newest::default();
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

/// What one stream has told of the jobs' samples. A client begins without any, also one that connects again: the cursor says
/// nothing of samples, and a sample that comes twice changes nothing.
#[derive(Debug, Default)]
struct Newest {
    /// Jobs that have tasks; the time tells a sample from that of a step that is trained again.
    told: BTreeMap<JobId, (OffsetDateTime, u64)>,
    looked: Option<Instant>,
}

impl Newest {
    /// Sends the samples that are new. Too soon after the last look it does nothing: streams are woken once more a second after
    /// anything happened, so what waits comes then.
    async fn send(&mut self, client: &Client, cursor: Cursor) -> Result<(), Gone> {
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
                // The first, or the job went back.
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
