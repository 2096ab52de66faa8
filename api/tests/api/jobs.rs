//! A job from submission to its end, as its user reads it.

use crate::world::{RED, World, document, request, sample};
use axum::body::Body;
use axum::http::Method;
use muster_model::assignment::TaskReport;
use muster_model::job::AfterStop;
use muster_model::plan::Action;
use muster_model::progress::{Evaluation, Sample, Split};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[tokio::test(flavor = "multi_thread")]
async fn job_is_submitted_read_steered_and_deleted() {
    let world = World::new().await;
    let answer = world.post(RED, "/api/v1/jobs", &document("whole")).await;
    let place = answer.header("location").to_owned();
    let job: Value = world.get(RED, &place).await.json();
    assert_eq!(
        answer.json::<Value>(),
        job,
        "what was answered is what is kept"
    );
    assert_eq!(job["waiting"]["reason"], "NotConsidered");
    assert_eq!(
        (&job["tenant"], &job["submitted_by"]),
        (&json!("red"), &json!("rob"))
    );
    for (verb, intent) in [
        ("pause", "pause"),
        ("pause", "pause"),
        ("resume", "run"),
        ("cancel", "cancel"),
        ("cancel", "cancel"),
    ] {
        let answer = world
            .send(request(
                Method::POST,
                RED,
                &format!("{place}/{verb}"),
                Body::empty(),
            ))
            .await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json::<Value>()["intent"]),
            (202, &json!(intent)),
            "{verb}"
        );
    }
    let late = world
        .send(request(
            Method::POST,
            RED,
            &format!("{place}/resume"),
            Body::empty(),
        ))
        .await;
    assert!(late.problem().detail.contains("being cancelled"));
    let id = job["id"].as_str().expect("an id").parse().expect("a UUID");
    world.step(id, 0, Action::Cancel).await;
    assert_eq!(world.delete(RED, &place).await.status, 204);
    assert_eq!(world.get(RED, &place).await.status, 404);
    assert_eq!(world.delete(RED, &place).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_and_json_documents_give_the_same_job() {
    let world = World::new().await;
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/fashion-cnn.yaml"
    ))
    .expect("an example");
    let mut yaml = request(Method::POST, RED, "/api/v1/jobs", text.into());
    yaml.headers_mut().insert(
        "content-type",
        "application/yaml; charset=utf-8".parse().expect("a header"),
    );
    let answer = world.send(yaml).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job: Value = answer.json();
    assert_eq!(
        (&job["name"], &job["spec"]["engine"]["batch"]),
        (&json!("fashion-cnn"), &json!(128))
    );
    let again = world.post(RED, "/api/v1/jobs", &job["spec"]).await;
    assert_eq!(
        again.json::<Value>()["spec"],
        job["spec"],
        "what is answered can be submitted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn running_job_shows_tasks_progress_eta_and_model() {
    let world = World::new().await;
    let id = world.submit("runs").await;
    let (worker, shard) = world.run(id, 0, 1).await;
    let place = format!("/api/v1/jobs/{id}");
    world
        .tell(
            worker,
            1,
            0,
            vec![
                TaskReport::Progress {
                    sample: sample(100),
                },
                TaskReport::Progress {
                    sample: sample(200),
                },
            ],
        )
        .await;
    let evaluation = Evaluation {
        step: 200,
        epoch: 0.2,
        split: Split::Validation,
        loss: None,
        accuracy: Some(0.75),
    };
    world
        .tell(worker, 1, 2, vec![TaskReport::Evaluated { evaluation }])
        .await;
    let job: Value = world.get(RED, &place).await.json();
    assert_eq!(
        (
            &job["phase"],
            &job["workers"]["running"],
            &job["ps_shards"]["running"]
        ),
        (&json!("running"), &json!(1), &json!(1))
    );
    // 60,000 examples in batches of 64 are 937 steps; three epochs, at 10 steps a second.
    let progress = &job["progress"];
    assert_eq!(
        (
            &progress["step"],
            &progress["total_steps"],
            &progress["test_accuracy"]
        ),
        (&json!(200), &json!(2811), &json!(0.75))
    );
    assert_eq!(
        (&progress["test_loss"], &progress["evaluated_on"]),
        (&Value::Null, &json!("validation"))
    );
    assert_eq!(progress["eta_s"], 261.1);
    let tasks: Value = world.get(RED, &format!("{place}/tasks")).await.json();
    let names: Vec<_> = tasks["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| (task["name"].clone(), task["node"].clone()))
        .collect();
    assert_eq!(
        names,
        [
            (json!("ps-0"), json!("node-a")),
            (json!("worker-0"), json!("node-a"))
        ]
    );
    let series: Value = world
        .get(RED, &format!("{place}/progress?after_step=100"))
        .await
        .json();
    assert_eq!(series["samples"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (
            &series["samples"][0]["step"],
            &series["evaluations"][0]["accuracy"]
        ),
        (&json!(200), &json!(0.75))
    );
    let finished = TaskReport::Finished {
        step: 300,
        reason: "epochs".to_owned(),
        model_path: "x/model.safetensors".to_owned(),
    };
    world.tell(worker, 1, 3, vec![finished]).await;
    world
        .step(
            id,
            1,
            Action::Stop {
                then: AfterStop::Succeed,
                why: "done".to_owned(),
                charge: muster_model::job::Charge::None,
                not_before_ms: None,
            },
        )
        .await;
    world.gone(&[worker, shard], 1).await;
    world.step(id, 1, Action::Release).await;
    let job: Value = world.get(RED, &place).await.json();
    assert_eq!(
        (&job["phase"], &job["model_path"]),
        (&json!("succeeded"), &json!("x/model.safetensors"))
    );
    assert_eq!(job["progress"]["eta_s"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_is_read_by_its_tail_and_by_offset() {
    let world = World::new().await;
    let id = world.submit("talks").await;
    let (worker, _) = world.run(id, 0, 1).await;
    world.write_log(worker, 0, b"one\ntwo\n").await;
    world.write_log(worker, 8, "drei € \n".as_bytes()).await;
    let logs = format!("/api/v1/jobs/{id}/logs");
    let all = world.get(RED, &logs).await;
    assert_eq!(all.text(), "one\ntwo\ndrei € \n");
    assert_eq!(
        (
            all.header("muster-log-offset"),
            all.header("muster-log-next-offset")
        ),
        ("0", "18")
    );
    assert_eq!(all.header("muster-log-task"), worker.to_string());
    assert_eq!(
        world
            .get(RED, &format!("{logs}?tail_bytes=10"))
            .await
            .text(),
        "drei € \n"
    );
    let rest = world
        .get(RED, &format!("{logs}?task=worker-0&offset=4"))
        .await;
    assert_eq!(
        (rest.text().as_str(), rest.header("muster-log-offset")),
        ("two\ndrei € \n", "4")
    );
    assert_eq!(
        world.get(RED, &format!("{logs}?task=ps-0")).await.text(),
        ""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_is_read_by_time_and_with_times() {
    let world = World::new().await;
    let id = world.submit("talks").await;
    let (worker, _) = world.run(id, 0, 1).await;
    world.write_log(worker, 0, b"one\ntw").await;
    world.write_log(worker, 6, b"o\nthree").await;
    let logs = format!("/api/v1/jobs/{id}/logs");
    let timed = world.get(RED, &format!("{logs}?timestamps=true")).await;
    assert_eq!(timed.header("muster-log-next-offset"), "13");
    let text = timed.text();
    let lines: Vec<_> = text.lines().map(|line| line.split_once(' ')).collect();
    let words: Vec<_> = lines.iter().flatten().map(|(_, word)| *word).collect();
    assert_eq!(words, ["one", "two", "three"], "{text}");
    for (time, _) in lines.iter().flatten() {
        assert!(OffsetDateTime::parse(time, &Rfc3339).is_ok(), "{time}");
    }
    // A part that begins within a line has no time at its start.
    let rest = world
        .get(RED, &format!("{logs}?timestamps=true&offset=5"))
        .await;
    assert!(rest.text().starts_with("wo\n"), "{}", rest.text());
    for (since, expected) in [
        ("2000-01-01T00:00:00Z", "one\ntwo\nthree"),
        ("2999-01-01T00:00:00Z", ""),
    ] {
        let read = world.get(RED, &format!("{logs}?since={since}")).await;
        assert_eq!(read.text(), expected, "{since}");
    }
    for wrong in [
        "since=yesterday",
        "since=2000-01-01T00:00:00Z&offset=1",
        "timestamps=maybe",
    ] {
        let refused = world.get(RED, &format!("{logs}?{wrong}")).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_counters_need_no_token() {
    let world = World::new().await;
    assert_eq!(world.get("", "/healthz").await.status, 200);
    assert_eq!(world.get("", "/readyz").await.status, 200);
    let _ = world.get(RED, "/api/v1/me").await;
    let metrics = world.get("", "/metrics").await.text();
    assert!(
        metrics.contains(
            "muster_api_request_seconds_count{method=\"GET\",route=\"/api/v1/me\",status=\"200\"} 1"
        ),
        "{metrics}"
    );
    // The text contains no names, and a second request within seconds gets the cached answer.
    for gauge in [
        "muster_gpus ",
        "muster_gpus_held 0",
        "muster_gpus_closed 0",
        "# TYPE muster_api_request_seconds histogram",
    ] {
        assert!(metrics.contains(gauge), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_are_counted_by_reason() {
    let world = World::new().await;
    let document = json!({
        "version": "muster/v1", "name": "large", "command": {"argv": ["true"]},
        "scale": {"workers": {"min": 3, "max": 8}}, "resources": {"worker": {"gpus": 2}},
    });
    let made = world.post(RED, "/api/v1/jobs", &document).await;
    assert_eq!(made.status, 201);
    let metrics = world.get("", "/metrics").await.text();
    for line in [
        "# TYPE muster_waiting_gpus gauge",
        "muster_waiting_jobs{reason=\"not_considered\"} 1",
        "muster_waiting_gpus{reason=\"not_considered\"} 6",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(!metrics.contains("large"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreported_numbers_of_a_program_are_null() {
    let world = World::new().await;
    let program =
        json!({ "version": "muster/v1", "name": "quiet", "command": { "argv": ["true"] } });
    let made = world.post(RED, "/api/v1/jobs", &program).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json::<Value>()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let job = id.parse().expect("a UUID");
    let (worker, _) = world.run(job, 0, 0).await;
    let told = Sample {
        epoch: 0.0,
        accuracy: None,
        examples_per_s: None,
        compute_ms: None,
        exchange_ms: None,
        data_ms: None,
        ..sample(5)
    };
    let told = TaskReport::Progress { sample: told };
    world.tell(worker, 1, 0, vec![told]).await;
    let shown: Value = world.get(RED, &format!("/api/v1/jobs/{id}")).await.json();
    let progress = &shown["progress"];
    assert_eq!(progress["step"], 5);
    for field in ["epoch", "accuracy", "examples_per_s"] {
        assert_eq!(progress[field], Value::Null, "{field}");
    }
    let series = format!("/api/v1/jobs/{id}/progress");
    let series: Value = world.get(RED, &series).await.json();
    for field in [
        "accuracy",
        "examples_per_s",
        "compute_ms",
        "exchange_ms",
        "data_ms",
    ] {
        assert_eq!(series["samples"][0][field], Value::Null, "{field}");
    }
    let told = TaskReport::Progress { sample: sample(6) };
    world.tell(worker, 1, 1, vec![told]).await;
    let shown: Value = world.get(RED, &format!("/api/v1/jobs/{id}")).await.json();
    assert!(shown["progress"]["accuracy"].is_number(), "{shown}");
}
