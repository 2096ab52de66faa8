//! Server-sent events: a client that reconnects with the id of the last message receives each
//! message exactly once.

use crate::world::{ADMIN, BLUE, RED, World, progress, request};
use axum::body::{Body, BodyDataStream};
use axum::http::Method;
use axum::response::Response;
use futures::StreamExt as _;
use muster_model::assignment::TaskReport;
use muster_model::event::Event;
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::plan::Action;
use muster_store::event::{EventFilter, NewEvent};
use muster_store::{event, pool, retention};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use time::OffsetDateTime;
use tower::ServiceExt as _;

/// Far above the time of any message; a test that waits this long fails.
const PATIENCE: Duration = Duration::from_secs(20);

struct Stream {
    body: BodyDataStream,
    text: String,
    ready: VecDeque<Message>,
}

#[derive(Debug, Clone)]
struct Message {
    name: String,
    id: String,
    data: Value,
}

impl Stream {
    async fn open(world: &World, token: &str, path: &str, last_id: &str) -> Self {
        let mut request = request(Method::GET, token, path, Body::empty());
        if !last_id.is_empty() {
            request
                .headers_mut()
                .insert("last-event-id", last_id.parse().expect("a header"));
        }
        let response = world
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body().into_data_stream(),
            text: String::new(),
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<Message> {
        while self.ready.is_empty() {
            let piece = tokio::time::timeout(PATIENCE, self.body.next())
                .await
                .expect("a message in time")?;
            self.text
                .push_str(std::str::from_utf8(&piece.expect("a piece")).expect("text"));
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let message = Message {
                    name: field(block, "event:"),
                    id: field(block, "id:"),
                    data: serde_json::from_str(&field(block, "data:")).unwrap_or_default(),
                };
                let rest = rest.to_owned();
                if !message.name.is_empty() {
                    self.ready.push_back(message);
                }
                self.text = rest;
            }
        }
        self.ready.pop_front()
    }

    /// Returns the next message of this name.
    async fn next_of(&mut self, name: &str) -> Message {
        loop {
            let message = self.next().await.expect("the stream goes on");
            if message.name == name {
                return message;
            }
        }
    }
}

/// Returns the value of a field of a message.
fn field(block: &str, name: &str) -> String {
    block
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default()
        .trim_start()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_stream_has_no_gap_and_no_duplicate() {
    let world = World::new().await;
    let begin = Stream::open(&world, RED, "/api/v1/stream", "")
        .await
        .next_of("opened")
        .await
        .id;
    let submit = async |from: usize| {
        for number in from..from + 5 {
            world.submit(&format!("job-{number}")).await;
        }
    };
    submit(0).await;
    let mut seen = Vec::new();
    let mut last = begin;
    // Half of them arrive while no reader is connected, the others while one is.
    for round in 0..10 {
        let mut stream = Stream::open(&world, RED, "/api/v1/stream", &last).await;
        if round == 5 {
            submit(5).await;
        }
        let message = stream.next_of("event").await;
        assert_eq!(
            message.id,
            message.data["cursor"].as_str().expect("a cursor")
        );
        seen.push(
            message.data["event"]["name"]
                .as_str()
                .expect("a name")
                .to_owned(),
        );
        last = message.id;
    }
    let expected: Vec<_> = (0..10).map(|number| format!("job-{number}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_does_not_skip_an_overtaken_commit() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, RED, "/api/v1/stream", "").await;
    stream.next_of("opened").await;
    // A slow transaction has written its event first and commits last.
    let mut slow = muster_store::pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("a transaction");
    let spec = serde_json::from_value(crate::world::document("slow")).expect("a document");
    let who = muster_store::user::by_name(&mut slow, world.red, "rob")
        .await
        .expect("a user")
        .expect("rob")
        .id;
    let new = muster_store::job::NewJob {
        id: crate::world::id(),
        tenant_id: world.red,
        submitted_by: who,
        spec,
    };
    muster_store::job::insert(&mut slow, &new, crate::world::at(0))
        .await
        .expect("a job");
    world.submit("quick").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    slow.commit().await.expect("commit");
    let mut names = Vec::new();
    for _ in 0..2 {
        names.push(
            stream.next_of("event").await.data["event"]["name"]
                .as_str()
                .expect("a name")
                .to_owned(),
        );
    }
    assert_eq!(names, ["slow", "quick"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shows_own_jobs_and_all_nodes() {
    let world = World::new().await;
    let mut blue = Stream::open(&world, BLUE, "/api/v1/stream", "").await;
    blue.next_of("opened").await;
    world.submit("reds").await;
    let drain = request(
        Method::POST,
        crate::world::ADMIN,
        "/api/v1/nodes/node-a/drain",
        Body::empty(),
    );
    assert_eq!(world.send(drain).await.status, 202);
    let first = blue.next_of("event").await;
    assert_eq!(first.data["event"]["kind"], "node_drained", "{first:?}");
}

/// Returns the steps of the samples.
fn steps(message: &Message) -> Vec<u64> {
    message.data["samples"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| s["step"].as_u64().expect("a step"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_sent_once_and_again_after_a_restart() {
    let world = World::new().await;
    let job = world.submit("trains").await;
    let (worker, shard) = world.run(job, 0, 0).await;
    let path = format!("/api/v1/jobs/{job}/stream");
    let mut stream = Stream::open(&world, RED, &path, "").await;
    stream.next_of("opened").await;
    world
        .tell(worker, 1, 0, vec![progress(10), progress(20)])
        .await;
    let message = stream.next_of("progress").await;
    assert_eq!(
        (message.data["after_step"].as_u64(), steps(&message)),
        (Some(0), vec![10, 20])
    );
    drop(stream);
    // While no reader is connected.
    world.tell(worker, 1, 2, vec![progress(30)]).await;
    let mut stream = Stream::open(&world, RED, &path, &message.id).await;
    let message = stream.next_of("progress").await;
    assert_eq!(
        (message.data["after_step"].as_u64(), steps(&message)),
        (Some(20), vec![30])
    );
    // A new revision continues from step 10.
    let then = AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    };
    world
        .step(
            job,
            1,
            Action::Stop {
                then,
                why: "a task failed".to_owned(),
                charge: muster_model::job::Charge::Failure,
                not_before_ms: None,
            },
        )
        .await;
    world.gone(&[worker, shard], 1).await;
    world.step(job, 1, Action::Release).await;
    let (worker, _) = world.run(job, 1, 0).await;
    world
        .tell(
            worker,
            2,
            0,
            vec![TaskReport::Ready { from_step: 10 }, progress(20)],
        )
        .await;
    let message = stream.next_of("progress").await;
    let after = message.data["after_step"].as_u64().expect("a step");
    assert!(after <= 10, "{message:?}");
    assert_eq!(
        steps(&message)
            .into_iter()
            .filter(|step| *step > 10)
            .collect::<Vec<_>>(),
        [20]
    );
}

/// Returns the job, the step before the sample, and the step of the only sample.
fn newest(message: &Message) -> (String, u64, u64) {
    let samples = message.data["samples"].as_array().expect("samples");
    assert_eq!(samples.len(), 1, "only the newest: {message:?}");
    (
        message.data["job_id"].as_str().expect("a job").to_owned(),
        message.data["after_step"].as_u64().expect("a step"),
        samples[0]["step"].as_u64().expect("a step"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_stream_has_the_newest_sample_of_running_jobs() {
    let world = World::new().await;
    let (first, second) = (world.submit("first").await, world.submit("second").await);
    let (one, shard) = world.run(first, 0, 0).await;
    let (two, _) = world.run(second, 0, 1).await;
    world
        .tell(one, 1, 0, vec![progress(10), progress(20)])
        .await;
    let mut stream = Stream::open(&world, RED, "/api/v1/stream", "").await;
    let mut others = Stream::open(&world, BLUE, "/api/v1/stream", "").await;
    others.next_of("opened").await;
    // A new reader gets the present step of each job, and then only those of jobs with progress.
    let message = stream.next_of("progress").await;
    assert_eq!(newest(&message), (first.to_string(), 0, 20));
    assert!(message.id.contains('-'), "a cursor to resume from");
    world.tell(two, 1, 0, vec![progress(5)]).await;
    let message = stream.next_of("progress").await;
    assert_eq!(newest(&message), (second.to_string(), 0, 5));
    world
        .tell(one, 1, 2, vec![progress(30), progress(40)])
        .await;
    let message = stream.next_of("progress").await;
    assert_eq!(newest(&message), (first.to_string(), 20, 40));
    // A job that went back to a checkpoint is followed there.
    let then = AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    };
    let stop = Action::Stop {
        then,
        why: "a task failed".to_owned(),
        charge: muster_model::job::Charge::Failure,
        not_before_ms: None,
    };
    world.step(first, 1, stop).await;
    world.gone(&[one, shard], 1).await;
    world.step(first, 1, Action::Release).await;
    let (one, _) = world.run(first, 1, 0).await;
    let again = vec![TaskReport::Ready { from_step: 10 }, progress(15)];
    world.tell(one, 2, 0, again).await;
    // Its earlier samples may be repeated once, because its tasks run again.
    let mut message = stream.next_of("progress").await;
    while newest(&message).2 == 40 {
        message = stream.next_of("progress").await;
    }
    assert_eq!(newest(&message), (first.to_string(), 0, 15));
    // The other tenant's stream contains only what it may see: its next message is about a node.
    let drain = request(
        Method::POST,
        crate::world::ADMIN,
        "/api/v1/nodes/node-a/drain",
        Body::empty(),
    );
    assert_eq!(world.send(drain).await.status, 202);
    let message = others.next().await.expect("the stream goes on");
    assert_eq!(message.data["event"]["kind"], "node_drained", "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_stream_follows_revisions_and_ends_with_the_job() {
    let world = World::new().await;
    let job = world.submit("talks").await;
    let (worker, shard) = world.run(job, 0, 0).await;
    let path = format!("/api/v1/jobs/{job}/logs/stream");
    world.write_log(worker, 0, b"first\n").await;
    let mut stream = Stream::open(&world, RED, &path, "").await;
    let first = stream.next_of("log").await;
    assert_eq!(
        (
            first.data["text"].as_str(),
            first.data["next_offset"].as_u64()
        ),
        (Some("first\n"), Some(6))
    );
    // Half a character waits for its other half.
    let euro = "€".as_bytes();
    world
        .write_log(worker, 6, &[b"a", &euro[..1]].concat())
        .await;
    assert_eq!(stream.next_of("log").await.data["text"], "a");
    world.write_log(worker, 8, &euro[1..]).await;
    assert_eq!(stream.next_of("log").await.data["text"], "€");
    drop(stream);
    let mut stream = Stream::open(&world, RED, &path, &first.id).await;
    assert_eq!(
        stream.next_of("log").await.data["text"],
        "a€",
        "from where the first message ended"
    );
    let then = AfterStop::Requeue {
        cause: RequeueCause::Resize,
    };
    world
        .step(
            job,
            1,
            Action::Stop {
                then,
                why: "room".to_owned(),
                charge: muster_model::job::Charge::None,
                not_before_ms: None,
            },
        )
        .await;
    world.gone(&[worker, shard], 1).await;
    world.step(job, 1, Action::Release).await;
    let (worker, shard) = world.run(job, 1, 0).await;
    let between = stream.next_of("task_end").await;
    assert_eq!(between.data["reason"], "worker-0 exited with code 0");
    world.write_log(worker, 0, b"second\n").await;
    let second = stream.next_of("log").await;
    assert_eq!(
        (
            second.data["text"].as_str(),
            second.data["revision"].as_u64()
        ),
        (Some("second\n"), Some(2))
    );
    world
        .step(
            job,
            2,
            Action::Stop {
                then: AfterStop::Cancel,
                why: "asked".to_owned(),
                charge: muster_model::job::Charge::None,
                not_before_ms: None,
            },
        )
        .await;
    world.gone(&[worker, shard], 2).await;
    world.step(job, 2, Action::Release).await;
    assert!(
        stream.next_of("end").await.data["reason"]
            .as_str()
            .expect("a reason")
            .contains("worker-0")
    );
    assert!(stream.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_outlives_a_crash_of_postgres() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, RED, "/api/v1/stream", "").await;
    stream.next_of("opened").await;
    world.db.crash_and_restart();
    let mut tries = 0;
    while world
        .post(RED, "/api/v1/jobs", &crate::world::document("after"))
        .await
        .status
        != 201
    {
        tries += 1;
        assert!(tries < 40, "the api never found the database again");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(stream.next_of("event").await.data["event"]["name"], "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_stream_reports_every_start_and_not_only_the_newest() {
    let world = World::new().await;
    let job = world.submit("fails").await;
    let path = format!("/api/v1/jobs/{job}/logs/stream");
    let (worker, shard) = world.run(job, 0, 0).await;
    world.write_log(worker, 0, b"try 1\n").await;
    let mut stream = Stream::open(&world, RED, &path, "").await;
    assert_eq!(stream.next_of("log").await.data["text"], "try 1\n");
    // A reader that is slow or was disconnected returns to a job that has started twice since.
    drop(stream);
    let (mut before, mut revision) = ((worker, shard), 1);
    for text in [b"try 2\n", b"try 3\n"] {
        world.fail(job, revision, &[before.0, before.1]).await;
        before = world.run(job, revision, 0).await;
        revision += 1;
        world.write_log(before.0, 0, text).await;
    }
    let mut stream = Stream::open(&world, RED, &path, &format!("{worker}@6")).await;
    for text in ["try 2\n", "try 3\n"] {
        let end = stream.next_of("task_end").await;
        assert_eq!(
            end.data["reason"],
            "worker-0 exited with code 1, saying \"no luck\""
        );
        assert_eq!(stream.next_of("log").await.data["text"], text);
    }
    let shown = world.get(RED, &format!("/api/v1/jobs/{job}")).await;
    let shown: Value = shown.json();
    assert_eq!(
        shown["last_failure"],
        "worker-0 exited with code 1, saying \"no luck\""
    );
    assert_eq!(shown["failure"], Value::Null);
}

async fn opened(world: &World, token: &str) -> Stream {
    let mut stream = Stream::open(world, token, "/api/v1/stream", "").await;
    stream.next_of("opened").await;
    stream
}

async fn ask(world: &World, token: &str) -> Response {
    let request = request(Method::GET, token, "/api/v1/stream", Body::empty());
    let answer = world.router.clone().oneshot(request).await;
    answer.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_with_all_its_streams_leaves_others_theirs() {
    let limits = muster_api::config::ClientLimits {
        streams: 4,
        streams_per_tenant: 2,
        ..Default::default()
    };
    let world = World::with(limits).await;
    let mut red = vec![opened(&world, RED).await, opened(&world, RED).await];
    let refused = ask(&world, RED).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "5");
    let body = axum::body::to_bytes(refused.into_body(), 1 << 20).await;
    let problem: Value = serde_json::from_slice(&body.expect("a body")).expect("a problem");
    let detail = problem["detail"].as_str().expect("words");
    assert!(
        detail.contains("2 event streams of your tenant"),
        "{detail}"
    );
    // An administrator's streams count for its own tenant, also those for another one.
    assert_eq!(ask(&world, ADMIN).await.status(), 429);
    let mut blue = vec![opened(&world, BLUE).await, opened(&world, BLUE).await];
    assert_eq!(ask(&world, BLUE).await.status(), 429);
    // A place is free again once a stream ends.
    drop((red.pop(), blue.pop()));
    let again = async {
        while ask(&world, RED).await.status() == 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again)
        .await
        .expect("a place in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_after_a_removed_event_reports_it() {
    let world = World::new().await;
    let old = OffsetDateTime::UNIX_EPOCH;
    let told = |text: &str, at| NewEvent {
        at,
        tenant_id: Some(world.red),
        job_id: None,
        node_id: None,
        event: Event::Note {
            message: text.to_owned(),
        },
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let events = [
        told("one", old),
        told("two", old),
        told("three", crate::world::at(0)),
    ];
    event::append(&mut tx, &events).await.expect("appended");
    tx.commit().await.expect("committed");
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let page = event::page(&mut tx, EventFilter::default(), None, 100).await;
    let page = page.expect("a page");
    let cursor = |text: &str| {
        let mut found = page
            .iter()
            .filter(|stored| matches!(&stored.event, Event::Note { message } if message == text));
        found.next().expect("it is there").cursor.to_string()
    };
    let (one, two) = (cursor("one"), cursor("two"));
    let before = Stream::open(&world, RED, "/api/v1/stream", &one).await;
    assert_eq!(forgotten(before).await, Value::Null);
    let removed = retention::forget_events(&mut tx, old + Duration::from_secs(1)).await;
    assert_eq!(removed.expect("removed"), 2);
    tx.commit().await.expect("committed");
    let missed = Stream::open(&world, RED, "/api/v1/stream", &one).await;
    assert_eq!(forgotten(missed).await, two.as_str());
    let whole = Stream::open(&world, RED, "/api/v1/stream", &two).await;
    assert_eq!(forgotten(whole).await, Value::Null);
    let job = world.submit("job").await;
    let path = format!("/api/v1/jobs/{job}/stream");
    let missed = Stream::open(&world, RED, &path, &one).await;
    assert_eq!(forgotten(missed).await, two.as_str());
}

/// Returns what the first message reports about removed events.
async fn forgotten(mut stream: Stream) -> Value {
    let opened = stream.next_of("opened").await;
    opened.data["forgotten"].clone()
}
