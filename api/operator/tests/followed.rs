//! Tests when changes of jobs wake reconciliations, and which writes are throttled, with stand-ins
//! for Kubernetes and Muster.

#![expect(
    clippy::disallowed_methods,
    reason = "the throttle takes the time as an argument"
)]

#[allow(dead_code, reason = "every test binary uses another part of it")]
mod world;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::reflector::ObjectRef;
use muster_operator::context::OperatorContext;
use muster_operator::job::status::JobStatus;
use muster_operator::job::status::TrainingJob;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use world::{UID, World, job};

const OURS: &str = "01890000-0000-7000-8000-000000000001";
/// Longer than two lists take.
const LONG: Duration = Duration::from_secs(20);

/// One operator that follows one job, and the objects that it wakes.
struct Story {
    world: World,
    operator: Arc<OperatorContext>,
    woken: BoxStream<'static, ObjectRef<TrainingJob>>,
}

impl Story {
    async fn begin(prepare: impl FnOnce(&World)) -> Self {
        let world = World::with("TrainingJob", json!({ "command": { "argv": ["true"] } })).await;
        let labels = json!({ "muster.dev/operator": "here", "muster.dev/namespace": "vision", "muster.dev/uid": UID });
        let document = json!({
            "version": "muster/v1", "name": "mine", "labels": labels, "command": { "argv": ["true"] },
        });
        let mut job = job(OURS, "vision", &document);
        wait(&mut job, 4);
        world.state().jobs.push(job);
        prepare(&world);
        let operator = world.operator();
        let woken = operator
            .jobs
            .change_notifier()
            .subscribe(Some("vision".to_owned()))
            .boxed();
        let story = Self {
            world,
            operator,
            woken,
        };
        // The first reconciliation finds the job by its uid, the second by its id; then it is
        // followed.
        story.reconcile().await;
        story.reconcile().await;
        assert_eq!(story.world.status()["jobId"], OURS);
        story
    }

    async fn reconcile(&self) {
        let reconcile = muster_operator::reconcile_flow::reconcile::<JobStatus>(
            self.world.seen(),
            Arc::clone(&self.operator),
        );
        reconcile.await.expect("a reconciliation");
    }

    /// Waits until the object is woken.
    async fn is_woken(&mut self) {
        let woken = tokio::time::timeout(LONG, self.woken.next()).await;
        let object = woken.expect("it is woken in time").expect("no end");
        assert_eq!(
            (object.name.as_str(), object.namespace.as_deref()),
            ("mine", Some("vision"))
        );
    }

    /// Shows the operator's own writes as the watch does, and waits until nothing is woken any
    /// more.
    async fn settle(&mut self) {
        self.world.change(|object| {
            let version = object["metadata"]["resourceVersion"].as_str();
            let version: u64 = version.expect("a version").parse().expect("a number");
            object["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        });
        while tokio::time::timeout(Duration::from_millis(50), self.woken.next())
            .await
            .is_ok()
        {}
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.world.state().jobs[0]);
    }

    fn was_read_by_id(&self) -> bool {
        let by_id = format!("/muster/api/v1/jobs?id={OURS}&limit=500");
        self.world.state().read.contains(&by_id)
    }

    fn reads(&self, path: &str) -> usize {
        let state = self.world.state();
        state.read.iter().filter(|read| *read == path).count()
    }

    fn patches(&self) -> usize {
        self.world.state().applied.len()
    }
}

fn wait(job: &mut Value, position: u32) {
    enter(job, "queued");
    let why = json!({ "reason": "not_considered" });
    job["waiting"] = json!({
        "reason": "NotConsidered", "message": "no round has looked at it", "smallest_change": null, "position": position,
        "detail": { "why": why, "smallest_change": null, "position": position },
    });
}

fn enter(job: &mut Value, phase: &str) {
    job["phase"] = phase.into();
    job["state"] = json!({ "phase": phase });
    job["waiting"] = Value::Null;
}

#[tokio::test]
async fn stream_event_wakes_the_reconciliation_of_its_object() {
    let mut story = Story::begin(|_| {}).await;
    story.settle().await;
    // Only the stream can report the change.
    story.world.state().lists_nothing = true;
    story.change(|job| enter(job, "running"));
    story.world.tell(OURS);
    story.is_woken().await;
    story.reconcile().await;
    assert_eq!(story.world.status()["phase"], "Running");
    assert!(story.was_read_by_id());
}

#[tokio::test]
async fn lists_without_a_stream_find_changed_and_ended_jobs() {
    let mut story = Story::begin(|world| world.state().is_mute = true).await;
    story.settle().await;
    story.change(|job| enter(job, "running"));
    story.is_woken().await;
    story.reconcile().await;
    assert_eq!(story.world.status()["phase"], "Running");
    story.settle().await;
    // Lists of unfinished jobs do not contain it any more.
    story.change(|job| enter(job, "succeeded"));
    story.is_woken().await;
    story.reconcile().await;
    assert_eq!(story.world.status()["phase"], "Succeeded");
    // The final state is cached: the reconciliation after the last write sends no request for the
    // job.
    let of_it = format!("/muster/api/v1/jobs/{OURS}");
    let before = story.reads(&of_it);
    story.reconcile().await;
    assert_eq!(story.reads(&of_it), before);
}

#[tokio::test]
async fn position_write_is_throttled_and_a_change_is_not() {
    let mut story = Story::begin(|_| {}).await;
    story.settle().await;
    story.change(|job| wait(job, 3));
    story.world.tell(OURS);
    story.is_woken().await;
    let before = story.patches();
    story.reconcile().await;
    // A status was written a moment ago.
    assert_eq!(story.world.status()["position"], 4);
    assert_eq!(story.patches(), before);
    story.change(|job| enter(job, "starting"));
    story.world.tell(OURS);
    story.is_woken().await;
    story.reconcile().await;
    assert_eq!(story.world.status()["phase"], "Starting");
    assert_eq!(story.patches(), before + 1);
}

#[tokio::test]
async fn position_is_written_after_the_throttle() {
    let mut story = Story::begin(|_| {}).await;
    story.settle().await;
    story.change(|job| wait(job, 3));
    story.world.tell(OURS);
    story.is_woken().await;
    let mut reconciliations = 0;
    while story.world.status()["position"] != 3 {
        assert!(reconciliations < 100, "it is not written");
        story.reconcile().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        reconciliations += 1;
    }
    assert!(reconciliations > 1, "not at once");
}

/// During a rolling update the API server may have the previous release.
#[tokio::test]
async fn api_without_id_lists_is_asked_for_each_job() {
    let mut story = Story::begin(|world| world.state().knows_no_ids = true).await;
    story.settle().await;
    story.change(|job| enter(job, "succeeded"));
    story.world.tell(OURS);
    let mut reconciliations = 0;
    while story.world.status()["phase"] != "Succeeded" {
        assert!(reconciliations < 40, "it is not shown");
        story.reconcile().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        reconciliations += 1;
    }
}

/// Covers the one right of the operator's role that no e2e story uses, because the watch must lag
/// behind the operator's own writes.
#[tokio::test]
async fn repeated_event_increments_its_count() {
    let mut story = Story::begin(|_| {}).await;
    story.world.state().noted.clear();
    for (before, phase) in ["running", "paused", "running"].into_iter().enumerate() {
        story.change(|job| enter(job, phase));
        story.world.tell(OURS);
        while story.world.state().noted.len() == before {
            story.is_woken().await;
            story.reconcile().await;
        }
    }
    let noted = std::mem::take(&mut story.world.state().noted);
    assert_eq!(
        noted,
        ["POST Running 1", "POST Paused 1", "PATCH Running 2"]
    );
}

/// An ended job is in no list of unfinished jobs, so only this read finds it.
#[tokio::test]
async fn failed_read_is_retried() {
    let mut story = Story::begin(|_| {}).await;
    story.settle().await;
    story.world.state().read.clear();
    story.world.state().is_away_for_ids = true;
    story.change(|job| enter(job, "succeeded"));
    story.world.tell(OURS);
    while !story.was_read_by_id() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    story.world.state().is_away_for_ids = false;
    story.is_woken().await;
    story.reconcile().await;
    assert_eq!(story.world.status()["phase"], "Succeeded");
}

/// The stream may have reported a change before the answer to the submission arrived, when the job
/// was not cached.
#[tokio::test]
async fn job_is_read_again_after_its_submission() {
    let world = World::with("TrainingJob", json!({ "command": { "argv": ["true"] } })).await;
    let operator = world.operator();
    while world.status()["jobId"].is_null() {
        let reconcile = muster_operator::reconcile_flow::reconcile::<JobStatus>(
            world.seen(),
            Arc::clone(&operator),
        );
        reconcile.await.expect("a reconciliation");
    }
    let is_read = async {
        while !world
            .state()
            .read
            .iter()
            .any(|path| path.starts_with("/muster/api/v1/jobs?id="))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, is_read)
        .await
        .expect("it is read");
}

/// Many objects wait for the throttle after a round has moved all positions; changes without an
/// event must be found nevertheless.
#[tokio::test]
async fn distant_write_time_does_not_delay_reconciliation() {
    let mut story = Story::begin(|_| {}).await;
    story.settle().await;
    for _ in 0..200 {
        story.operator.status_throttle.took(Duration::from_secs(1));
    }
    for other in 0..40 {
        let now = std::time::Instant::now();
        story
            .operator
            .status_throttle
            .reserve(&format!("other-{other}"), now);
    }
    story.change(|job| wait(job, 3));
    story.world.tell(OURS);
    story.is_woken().await;
    // Positions are written at most once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let reconcile = muster_operator::reconcile_flow::reconcile::<JobStatus>(
        story.world.seen(),
        Arc::clone(&story.operator),
    );
    let living = kube::runtime::controller::Action::requeue(Duration::from_secs(5));
    assert_eq!(reconcile.await.expect("a reconciliation"), living);
}
