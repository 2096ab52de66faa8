//! Schedules: the document, the rules for due times, and refusals.

use crate::world::{ADMIN, Answer, BLUE, RED, World, document, json_request};
use axum::http::Method;
use muster_api::schedule::submit_due;
use muster_model::plan::Action;
use muster_model::schedule::{SchedulePause, ScheduleResult};
use muster_model::view::{EventView, JobView, Page, Problem, ScheduleView};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

const PATH: &str = "/api/v1/schedules/nightly";

async fn put(world: &World, token: &str, change: Value) -> Answer {
    let mut body =
        json!({ "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "job": document("train") });
    for (field, value) in change.as_object().expect("an object") {
        body[field] = value.clone();
    }
    world
        .send(json_request(Method::PUT, token, PATH, &body))
        .await
}

async fn stored(world: &World, change: Value) -> ScheduleView {
    let answer = put(world, RED, change).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn shown(world: &World) -> ScheduleView {
    world.get(RED, PATH).await.json()
}

async fn jobs(world: &World) -> Vec<JobView> {
    let path = "/api/v1/jobs?label=schedule=nightly";
    world.get(RED, path).await.json::<Page<JobView>>().items
}

async fn due(world: &World, at: OffsetDateTime) -> ScheduleView {
    submit_due(&world.app, at).await.expect("the store answers");
    shown(world).await
}

fn reason(schedule: &ScheduleView) -> &str {
    match &schedule.last.as_ref().expect("a result").result {
        ScheduleResult::Submitted { .. } => "submitted",
        ScheduleResult::Skipped { reason } | ScheduleResult::Refused { reason } => reason,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn due_schedule_submits_one_job_of_its_owner() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    assert_eq!(schedule.next.len(), 5);
    assert!(schedule.next[0].local.contains(" 03:00 CE"), "{schedule:?}");
    let planned = schedule.next[0].at;
    let early = due(&world, planned - Duration::SECOND).await;
    assert_eq!((early.last, jobs(&world).await.len()), (None, 0));
    let after = due(&world, planned).await;
    let again = due(&world, planned + Duration::SECOND).await;
    assert_eq!(again.last, after.last);
    let all = jobs(&world).await;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].labels["schedule"], "nightly");
    assert_eq!(all[0].labels["team"], "train");
    assert_eq!(all[0].submitted_by, schedule.owner);
    assert_eq!(after.last_job, Some(all[0].id));
    assert_eq!(after.next[0].at, schedule.next[1].at);
    let events = format!("/api/v1/jobs/{}/events", all[0].id);
    let events: Page<EventView> = world.get(RED, &events).await.json();
    let said = events.items.iter().any(|event| {
        event
            .message
            .starts_with("Submitted by schedule nightly for ")
    });
    assert!(said, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_times_are_skipped_or_caught_up_once() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    let late = schedule.next[2].at + Duration::HOUR;
    let skipped = due(&world, late).await;
    assert!(reason(&skipped).contains("within 10 minutes"));
    assert_eq!(jobs(&world).await.len(), 0);
    assert_eq!(skipped.next[0].at, schedule.next[3].at);
    let schedule = stored(&world, json!({ "catch_up": "latest" })).await;
    let caught = due(&world, schedule.next[2].at + Duration::HOUR).await;
    let last = caught.last.clone().expect("a result");
    assert_eq!(last.planned_at, schedule.next[2].at, "the newest one");
    assert_eq!(
        (reason(&caught), jobs(&world).await.len()),
        ("submitted", 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn short_delay_of_a_planned_time_is_no_miss() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    let late = due(&world, schedule.next[0].at + Duration::minutes(9)).await;
    assert_eq!(reason(&late), "submitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_a_user_does_not_end_an_overlap() {
    let world = World::new().await;
    let schedule = stored(&world, json!({ "overlap": "skip" })).await;
    let planned = due(&world, schedule.next[0].at).await.last_job;
    let run = world
        .post(RED, &format!("{PATH}/run"), &json!({}))
        .await
        .json::<JobView>();
    assert_eq!(shown(&world).await.last_job, planned);
    world.step(run.id, 0, Action::Cancel).await;
    let skipped = due(&world, schedule.next[1].at).await;
    assert!(reason(&skipped).contains("has not ended"), "{skipped:?}");
    // An ended job is replaced.
    world.step(planned.expect("a job"), 0, Action::Cancel).await;
    let again = world.post(RED, &format!("{PATH}/run"), &json!({})).await;
    let again = again.json::<JobView>();
    assert_eq!(shown(&world).await.last_job, Some(again.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_due_schedules_are_submitted_in_one_search() {
    let world = World::new().await;
    let body = json!({ "cron": "0 3 * * *", "job": document("train") });
    let mut planned = OffsetDateTime::UNIX_EPOCH;
    for number in 0..20 {
        let path = format!("/api/v1/schedules/s{number}");
        let answer = world
            .send(json_request(Method::PUT, RED, &path, &body))
            .await;
        planned = answer.json::<ScheduleView>().next[0].at;
    }
    let done = submit_due(&world.app, planned).await;
    assert_eq!(done.expect("the store answers"), 20);
    let jobs: Page<JobView> = world.get(RED, "/api/v1/jobs").await.json();
    assert_eq!(jobs.items.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn interactive_schedule_is_stored_above_the_limit() {
    let world = World::new().await;
    let limits = json!({ "limits": { "interactive_gpus": 0 } });
    let patch = json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &limits);
    assert_eq!(world.send(patch).await.status, 200);
    let job = json!({
        "version": "muster/v1", "name": "lab", "command": { "argv": ["sleep", "60"] },
        "resources": { "worker": { "gpus": 1 } }, "interactive": { "idle_minutes": 5 },
    });
    let schedule = stored(&world, json!({ "job": job })).await;
    assert!(schedule.document.job.interactive.is_some());
    let refused = due(&world, schedule.next[0].at).await;
    assert!(reason(&refused).contains("interactive_gpus"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn overlap_skips_while_the_last_job_is_open() {
    let world = World::new().await;
    let schedule = stored(&world, json!({ "overlap": "skip" })).await;
    due(&world, schedule.next[0].at).await;
    let skipped = due(&world, schedule.next[1].at).await;
    assert!(reason(&skipped).contains("has not ended"), "{skipped:?}");
    assert_eq!(jobs(&world).await.len(), 1);
    stored(&world, json!({ "overlap": "allow" })).await;
    due(&world, schedule.next[2].at).await;
    assert_eq!(jobs(&world).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_recorded_and_later_times_are_submitted() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    let limits = |jobs: Value| json!({ "limits": { "open_jobs": jobs } });
    let path = "/api/v1/tenants/red";
    let patch = |limits: Value| json_request(Method::PATCH, ADMIN, path, &limits);
    assert_eq!(world.send(patch(limits(json!(0)))).await.status, 200);
    let refused = due(&world, schedule.next[0].at).await;
    let result = &refused.last.as_ref().expect("a result").result;
    assert!(matches!(result, ScheduleResult::Refused { .. }));
    assert!(reason(&refused).contains("open_jobs"), "{refused:?}");
    assert_eq!(world.send(patch(limits(Value::Null))).await.status, 200);
    let submitted = due(&world, schedule.next[1].at).await;
    assert_eq!(reason(&submitted), "submitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_without_a_token_pauses_the_schedule() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    let me: Value = world.get(RED, "/api/v1/me").await.json();
    let user = me["user"].as_str().expect("a name");
    let path = format!("/api/v1/tokens?user={user}&tenant=red");
    assert_eq!(world.delete(ADMIN, &path).await.status, 200);
    submit_due(&world.app, schedule.next[0].at)
        .await
        .expect("the store answers");
    let paused: ScheduleView = world.get(ADMIN, PATH).await.json();
    assert_eq!(paused.paused, Some(SchedulePause::OwnerWithoutToken));
    assert_eq!((paused.next.len(), paused.last_job), (0, None));
    // Another user takes it over.
    let taken = put(&world, ADMIN, json!({})).await;
    let taken: ScheduleView = taken.json();
    assert_eq!(taken.paused, None);
    assert_ne!(taken.owner, schedule.owner);
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_resume_run_and_delete() {
    let world = World::new().await;
    let schedule = stored(&world, json!({})).await;
    let post = |verb: &str| {
        let path = format!("{PATH}/{verb}");
        let world = &world;
        async move { world.post(RED, &path, &json!({})).await }
    };
    assert_eq!(post("pause").await.status, 200);
    due(&world, schedule.next[0].at).await;
    assert_eq!(jobs(&world).await.len(), 0);
    let kept = stored(&world, json!({ "cron": "0 4 * * *" })).await;
    assert_eq!(kept.paused, Some(SchedulePause::ByUser));
    let run = post("run").await;
    assert_eq!(run.status, 201, "{}", run.text());
    let job: JobView = run.json();
    assert_eq!(shown(&world).await.last_job, Some(job.id));
    let resumed: ScheduleView = post("resume").await.json();
    assert_eq!((resumed.paused, resumed.next.len()), (None, 5));
    assert_eq!(world.delete(BLUE, PATH).await.status, 404);
    assert_eq!(world.delete(RED, PATH).await.status, 204);
    assert_eq!(world.get(RED, PATH).await.status, 404);
    assert_eq!(jobs(&world).await.len(), 1, "its jobs stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_documents_are_refused_by_field() {
    let world = World::new().await;
    for (change, kind, field) in [
        (json!({ "cron": "61 * * * *" }), "invalid-body", "cron"),
        (json!({ "cron": "0 0 31 2 *" }), "invalid-body", "cron"),
        (
            json!({ "time_zone": "Berlin" }),
            "invalid-body",
            "time_zone",
        ),
        (json!({ "crom": "@daily" }), "invalid-body", "crom"),
        (json!({ "job": document("UPPER") }), "invalid-job", "name"),
    ] {
        let refused = put(&world, RED, change).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        let problem: Problem = refused.json();
        assert_eq!(problem.kind, format!("urn:muster:problem:{kind}"));
        assert_eq!(problem.errors[0].field, field);
    }
    let mut secret = document("train");
    for part in ["engine", "scale", "stop"] {
        secret.as_object_mut().expect("an object").remove(part);
    }
    secret["command"] = json!({ "argv": ["true"], "secrets": [{ "name": "HF_TOKEN" }] });
    let refused = put(&world, RED, json!({ "job": secret })).await;
    let problem: Problem = refused.json();
    assert_eq!(problem.errors[0].field, "command.secrets[0].name");
    // The jobs would belong to no user of the tenant.
    let body = json!({ "cron": "@daily", "job": document("train") });
    let mut request = json_request(Method::PUT, ADMIN, PATH, &body);
    let blue = "blue".parse().expect("a value");
    request.headers_mut().insert("muster-tenant", blue);
    assert_eq!(world.send(request).await.status, 403);
}
