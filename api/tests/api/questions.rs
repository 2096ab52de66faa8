//! Plans and what-ifs: stored as questions, answered by the test in place of the scheduler, and
//! refused with the field's name.

use crate::world::{ADMIN, BLUE, RED, World, at, document};
use muster_model::question::{Answer, Question};
use muster_model::view::{PlanView, ShiftedJobs, WhatIfView};
use muster_store::pool::{self, StorePool};
use muster_store::question;
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;

/// Answers one question in place of the scheduler and returns the question.
pub async fn scheduler(pool: StorePool, answer: Answer) -> Question {
    loop {
        let mut tx = pool::begin(&pool).await.expect("begun");
        let open = question::next(&mut tx, &[], OffsetDateTime::UNIX_EPOCH)
            .await
            .expect("read");
        if let Some(open) = open {
            let answered = question::answer(&mut tx, open.id, &answer).await;
            answered.expect("written");
            tx.commit().await.expect("committed");
            return open.question;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn planned() -> PlanView {
    PlanView {
        made_at: at(1),
        start: None,
        finish: None,
        gpu_hours: 2.5,
        unforeseen: None,
        own_jobs: Vec::new(),
        other_jobs: ShiftedJobs {
            displaced: 1,
            later: 2,
            earlier: 0,
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_predicts_a_job_without_submitting_it() {
    let world = World::new().await;
    let answer = Answer::Plan { plan: planned() };
    let scheduler = tokio::spawn(scheduler(world.scheduler.clone(), answer));
    let answer = world.post(RED, "/api/v1/plan", &document("imagined")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told: Value = answer.json();
    assert_eq!(told["gpu_hours"], 2.5);
    assert_eq!(
        told["other_jobs"],
        json!({"displaced": 1, "later": 2, "earlier": 0})
    );
    let Question::Plan { job, .. } = scheduler.await.expect("answered") else {
        panic!("another question");
    };
    assert_eq!(job.name, "imagined");
    let jobs: Value = world.get(RED, "/api/v1/jobs").await.json();
    assert_eq!(jobs["items"], json!([]));
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let left = question::prune(&mut tx, at(u64::from(u32::MAX))).await;
    assert_eq!(left.expect("pruned"), 0, "the question is forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_answer_of_the_scheduler_is_reported_at_once() {
    let world = World::new().await;
    let why = "run the core forward".to_owned();
    let scheduler = tokio::spawn(scheduler(world.scheduler.clone(), Answer::Failed { why }));
    let answer = world.post(RED, "/api/v1/plan", &document("x")).await;
    assert_eq!(answer.status, 500);
    let text = answer.text();
    assert!(text.contains("run the core forward"), "{text}");
    scheduler.await.expect("answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_if_is_for_administrators_and_names_wrong_fields() {
    let world = World::new().await;
    let nodes = json!({"add_nodes": [{"nodes": 2, "gpus": 8}]});
    for token in [RED, BLUE] {
        assert_eq!(
            world.post(token, "/api/v1/what-if", &nodes).await.status,
            403
        );
    }
    let mut bad_job = document("x");
    bad_job["priority"] = json!(101);
    let cases = [
        (json!({}), "the document"),
        (
            json!({"add_nodes": [{"nodes": 0, "gpus": 8}]}),
            "add_nodes[0].nodes",
        ),
        (
            json!({"add_nodes": [{"nodes": 1, "gpus": 65}]}),
            "add_nodes[0].gpus",
        ),
        (
            json!({"quotas": [{"tenant": "nobody", "gpu_quota": null}]}),
            "quotas[0].tenant",
        ),
        // A default would remove the limit by mistake.
        (
            json!({"quotas": [{"tenant": "red"}]}),
            "quotas[0].gpu_quota",
        ),
        (json!({"jobs": [{"job": bad_job}]}), "jobs[0].job.priority"),
        (
            json!({"jobs": [{"tenant": "x", "job": document("x")}]}),
            "jobs[0].tenant",
        ),
        (json!({"quota": []}), "quota"),
    ];
    for (body, field) in cases {
        let answer = world.post(ADMIN, "/api/v1/what-if", &body).await;
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
        let problem: Value = answer.json();
        assert_eq!(problem["errors"][0]["field"], field, "{body}");
    }
    bad_job["priority"] = json!("high");
    let answer = world.post(RED, "/api/v1/plan", &bad_job).await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.json::<Value>()["errors"][0]["field"], "priority");

    let comparison = WhatIfView {
        made_at: at(1),
        tenants: Vec::new(),
        jobs: Vec::new(),
    };
    let answer = Answer::WhatIf { comparison };
    let scheduler = tokio::spawn(scheduler(world.scheduler.clone(), answer));
    let answer = world.post(ADMIN, "/api/v1/what-if", &nodes).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let asked = scheduler.await.expect("answered");
    assert!(matches!(asked, Question::WhatIf { changes } if changes.add_nodes[0].gpus == 8));
}

/// Whether a question is open.
async fn is_asked(world: &World) -> bool {
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let open = question::next(&mut tx, &[], OffsetDateTime::UNIX_EPOCH).await;
    open.expect("read").is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn question_is_withdrawn_when_its_client_disconnects() {
    let world = World::new().await;
    let asked = async {
        while !is_asked(&world).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let body = document("imagined");
    tokio::select! {
        answer = world.post(RED, "/api/v1/plan", &body) => panic!("no scheduler runs: {}", answer.text()),
        () = asked => {}
    }
    let withdrawn = async {
        while is_asked(&world).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let withdrawn = tokio::time::timeout(Duration::from_secs(30), withdrawn).await;
    withdrawn.expect("it is withdrawn");
}
