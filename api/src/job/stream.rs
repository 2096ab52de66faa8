//! `GET /jobs/{id}/stream`: history and training series of a job as they grow.

use super::wire;
use crate::auth::Caller;
use crate::event_feed;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use crate::stream::{self, StreamClient, StreamClosed};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::view::{Opened, ProgressMessage, name};
use muster_store::event::{EventCursor, EventFilter};
use muster_store::{job, progress};
use std::fmt;
use std::str::FromStr;

/// Maximum number of samples in one message.
const POINTS: u32 = 500;

/// Position of a reader: `cursor`, or `cursor/step`. A cursor alone does not suffice: a reader that
/// disconnects between two entries would miss the samples in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStreamPosition {
    pub cursor: EventCursor,
    /// Step of the newest sample that the reader has; `None` if the stream may choose.
    pub step: Option<u64>,
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct JobStreamParams {
    /// Begin after this cursor or id of a message. Default: now.
    #[param(value_type = Option<String>, pattern = "^[0-9]+-[0-9]+(/[0-9]+)?$")]
    pub after: Option<JobStreamPosition>,
    /// Begin the series after this step. Default: now.
    pub after_step: Option<u64>,
}

impl FromQuery for JobStreamParams {
    const NAMES: &'static [&'static str] = &["after", "after_step"];

    fn take(query: &mut Query) -> Self {
        Self {
            after: query.one(
                "after",
                "the cursor of an event, or the id of a message of this stream",
            ),
            after_step: query.count("after_step"),
        }
    }
}

/// Follow a job
///
/// Server-sent events. The first message is `opened` (Opened). Each entry of the job's history is
/// an `event` (EventView), and new samples are `progress` (ProgressMessage). The `id:` of a message
/// is the position of the reader in both. A client that reconnects with it as `Last-Event-ID`
/// receives each entry and sample exactly once.
#[utoipa::path(
    get, path = "/jobs/{id}/stream", operation_id = "followJob", tag = "streams",
    params(
        ("id" = JobId, Path, description = "The job"), JobStreamParams,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received message; precedes `after`"),
    ),
    responses((status = 200, description = "A stream that ends only when the job is deleted", content_type = "text/event-stream", body = String)),
)]
pub async fn stream(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<JobStreamParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    drop(tx);
    let from = stream::position(&headers, params.after)?;
    let cursor = match from {
        Some(position) => position.cursor,
        None => event_feed::newest(&app, &caller).await?,
    };
    let now = row.latest.map_or(0, |latest| latest.step);
    let step = from
        .and_then(|position| position.step)
        .or(params.after_step)
        .unwrap_or(now);
    let forgotten = event_feed::forgotten(&app, &caller, cursor).await?;
    let opened = Opened {
        cursor: cursor.to_string(),
        forgotten: forgotten.map(|newest| newest.to_string()),
    };
    stream::answer(&app, &caller, move |client| {
        follow(client, id, (cursor, opened), step)
    })
}

async fn follow(
    mut client: StreamClient,
    id: JobId,
    (cursor, opened): (EventCursor, Opened),
    mut step: u64,
) -> Result<(), StreamClosed> {
    let mut at = JobStreamPosition {
        cursor,
        step: Some(step),
    };
    client.send(name::OPENED, &at, &opened).await?;
    let filter = EventFilter {
        job_id: Some(id),
        node_id: None,
    };
    loop {
        let (events, more) = event_feed::next(&client, filter, at.cursor).await?;
        for event in events {
            if let Event::Resumed { from_step } = event.event {
                step = step.min(from_step);
            }
            let ended = matches!(event.event, Event::JobDeleted { .. });
            at = JobStreamPosition {
                cursor: event.cursor,
                step: Some(step),
            };
            client.send(name::EVENT, &at, &wire::event(event)).await?;
            if ended {
                return Ok(());
            }
        }
        if more {
            continue;
        }
        step = samples(&client, id, at.cursor, step).await?;
        at.step = Some(step);
        client.woken().await?;
    }
}

/// Sends the samples after `step` and returns the newest step.
async fn samples(
    client: &StreamClient,
    id: JobId,
    cursor: EventCursor,
    step: u64,
) -> Result<u64, StreamClosed> {
    let (after_step, samples) = client
        .read(async || {
            let mut tx = client.app().begin(client.caller()).await?;
            let latest = job::get(&mut tx, id)
                .await?
                .and_then(|row| row.latest)
                .map_or(step, |latest| latest.step);
            // The job went back to a checkpoint before the client's step; the client gets the whole
            // series again.
            let after = if latest < step { 0 } else { step };
            if latest == after {
                return Ok((after, Vec::new()));
            }
            progress::samples(&mut tx, id, Some(after), POINTS)
                .await
                .map(|samples| (after, samples))
        })
        .await?;
    let Some(newest) = samples.last().map(|(_, sample)| sample.step) else {
        return Ok(step);
    };
    let at = JobStreamPosition {
        cursor,
        step: Some(newest),
    };
    let message = ProgressMessage {
        job_id: id,
        after_step,
        samples: samples.into_iter().map(wire::sample).collect(),
    };
    client.send(name::PROGRESS, &at, &message).await?;
    Ok(newest)
}

impl fmt::Display for JobStreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cursor)?;
        match self.step {
            Some(step) => write!(f, "/{step}"),
            None => Ok(()),
        }
    }
}

impl FromStr for JobStreamPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (cursor, step) = match text.split_once('/') {
            Some((cursor, step)) => (
                cursor,
                Some(
                    step.parse::<i64>()
                        .ok()
                        .and_then(|step| step.try_into().ok())
                        .ok_or(())?,
                ),
            ),
            None => (text, None),
        };
        Ok(Self {
            cursor: cursor.parse().map_err(|_| ())?,
            step,
        })
    }
}
