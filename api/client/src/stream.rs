//! Event streams with reconnection: after a disconnect they continue at the same position, by
//! `Last-Event-ID`.

use crate::error::ClientError;
use crate::request::{Client, send};
use eventsource_stream::{Event, Eventsource as _};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use muster_model::id::{JobId, TaskId};
use muster_model::view::{EventView, LogEnd, LogPiece, Opened, ProgressMessage, name};
use reqwest::Method;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Pauses between attempts to reconnect; the last one repeats.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// Attempts after which a stream fails, about a minute and a half.
const ATTEMPTS: usize = 20;

/// A message of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// The stream is open, again after each disconnect. What is read from now on is not older than
    /// the stream's next messages.
    Opened(Opened),
    Event(Box<EventView>),
    Progress(ProgressMessage),
    Log(LogPiece),
    /// The followed task has ended; later messages belong to its successor.
    TaskEnd(LogEnd),
    /// The stream ends.
    End(LogEnd),
}

/// Messages in order, each exactly once. Ends after `End`, or after the first error.
pub struct Messages {
    inner: BoxStream<'static, Result<StreamItem, ClientError>>,
}

#[derive(Clone)]
struct StreamRequest {
    client: Client,
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
}

struct EventStreamReader {
    source: StreamRequest,
    connection: Option<BoxStream<'static, Result<Event, ()>>>,
    last_id: Option<String>,
    failed: usize,
    was_connected: bool,
    done: bool,
}

impl Client {
    /// Follows the history and samples of a job. The history begins after `after`, by default now.
    #[must_use]
    pub fn watch_job(&self, id: JobId, after: Option<String>) -> Messages {
        let query = after.into_iter().map(|after| ("after", after)).collect();
        self.messages(
            vec!["jobs".to_owned(), id.to_string(), "stream".to_owned()],
            query,
        )
    }

    /// Follows the history of the tenant's jobs and of the nodes after `after`, by default from now
    /// on.
    #[must_use]
    pub fn watch(&self, after: Option<String>) -> Messages {
        let query = after.into_iter().map(|after| ("after", after)).collect();
        self.messages(vec!["stream".to_owned()], query)
    }

    /// Follows the output of one task from `offset` on, by default from its last 64 KiB.
    #[must_use]
    pub fn follow_logs(&self, id: JobId, task: TaskId, offset: Option<u64>) -> Messages {
        let from = offset.map(|offset| (task, offset));
        self.follow(id, task.to_string(), from)
    }

    /// Follows the output of all later tasks of one name (`worker-0`, `ps-1`) of the job. It begins
    /// after this byte of this task, by default at the end of the newest one.
    #[must_use]
    pub fn follow_place(&self, id: JobId, place: &str, from: Option<(TaskId, u64)>) -> Messages {
        self.follow(id, place.to_owned(), from)
    }

    fn follow(&self, id: JobId, task: String, from: Option<(TaskId, u64)>) -> Messages {
        let segments = ["jobs", &id.to_string(), "logs", "stream"];
        let segments = segments.map(str::to_owned).to_vec();
        let last_id = from.map(|(task, offset)| format!("{task}@{offset}"));
        self.messages_after(last_id, segments, vec![("task", task)])
    }

    fn messages(&self, segments: Vec<String>, query: Vec<(&'static str, String)>) -> Messages {
        self.messages_after(None, segments, query)
    }

    fn messages_after(
        &self,
        last_id: Option<String>,
        segments: Vec<String>,
        query: Vec<(&'static str, String)>,
    ) -> Messages {
        let reader = EventStreamReader {
            source: StreamRequest {
                client: self.clone(),
                segments,
                query,
            },
            connection: None,
            last_id,
            failed: 0,
            was_connected: false,
            done: false,
        };
        let inner = futures::stream::unfold(reader, |mut reader| async move {
            Some((reader.next().await?, reader))
        });
        Messages {
            inner: inner.boxed(),
        }
    }
}

impl EventStreamReader {
    async fn next(&mut self) -> Option<Result<StreamItem, ClientError>> {
        while !self.done {
            let Some(connection) = &mut self.connection else {
                match self.source.connect(self.last_id.as_deref()).await {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        self.was_connected = true;
                    }
                    Err(error) => {
                        if !self.may_try_again(&error) {
                            self.done = true;
                            return Some(Err(error));
                        }
                        self.pause().await;
                    }
                }
                continue;
            };
            let Some(Ok(event)) = connection.next().await else {
                // The server has exited, or closed an old connection.
                self.connection = None;
                self.pause().await;
                continue;
            };
            self.failed = 0;
            if !event.id.is_empty() {
                self.last_id = Some(event.id.clone());
            }
            if let Some(item) = item(&event).transpose() {
                self.done = !matches!(&item, Ok(item) if !matches!(item, StreamItem::End(_)));
                return Some(item.map_err(|source| self.source.undecodable(source)));
            }
        }
        None
    }

    /// Whether to reconnect. A stream that never worked fails at once; otherwise the server may be
    /// restarting.
    fn may_try_again(&self, error: &ClientError) -> bool {
        let passing = match error {
            ClientError::Unreachable { .. } => true,
            ClientError::Problem(problem) => matches!(problem.status, 429 | 502 | 503 | 504),
            ClientError::Decode { status, .. } => matches!(status, 502..=504),
            ClientError::Address { .. } => false,
        };
        passing && self.was_connected && self.failed < ATTEMPTS
    }

    async fn pause(&mut self) {
        let pause = PAUSES[self.failed.min(PAUSES.len() - 1)];
        self.failed += 1;
        tokio::time::sleep(pause).await;
    }
}

impl StreamRequest {
    async fn connect(
        &self,
        last_id: Option<&str>,
    ) -> Result<BoxStream<'static, Result<Event, ()>>, ClientError> {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        let mut request = self
            .client
            .request(Method::GET, &segments)
            .query(&self.query)
            .header("Accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = send(request).await?;
        Ok(response
            .bytes_stream()
            .eventsource()
            .map(|event| event.map_err(|_| ()))
            .boxed())
    }

    fn undecodable(&self, source: serde_json::Error) -> ClientError {
        ClientError::Decode {
            url: self.segments.join("/"),
            status: 200,
            source: source.into(),
        }
    }
}

/// Returns `None` for messages of a later version.
fn item(event: &Event) -> Result<Option<StreamItem>, serde_json::Error> {
    fn read<T: DeserializeOwned>(event: &Event) -> Result<T, serde_json::Error> {
        serde_json::from_str(&event.data)
    }
    Ok(Some(match event.event.as_str() {
        name::OPENED => StreamItem::Opened(read(event)?),
        name::EVENT => StreamItem::Event(Box::new(read(event)?)),
        name::PROGRESS => StreamItem::Progress(read(event)?),
        name::LOG => StreamItem::Log(read(event)?),
        name::TASK_END => StreamItem::TaskEnd(read(event)?),
        name::END => StreamItem::End(read(event)?),
        _ => return Ok(None),
    }))
}

impl Stream for Messages {
    type Item = Result<StreamItem, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_next_unpin(cx)
    }
}
