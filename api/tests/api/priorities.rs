//! Priority classes: administrators set them, documents and edits are checked against them, and
//! jobs keep their numbers.

use crate::questions::{planned, scheduler};
use crate::world::{ADMIN, Answer, BLUE, RED, World, document, json_request, study_of};
use axum::http::Method;
use muster_model::question::{self, Question};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/priority-classes";

async fn set(world: &World, token: &str, name: &str, class: &Value) -> Answer {
    let path = format!("{PATH}/{name}");
    let request = json_request(Method::PUT, token, &path, class);
    world.send(request).await
}

/// Returns a world with two classes for members, of which one is for tenant red alone, and one for
/// administrators.
async fn with_classes() -> World {
    let world = World::new().await;
    for (name, class) in [
        (
            "batch",
            json!({ "lowest": -50, "highest": -1, "default": -20 }),
        ),
        (
            "urgent",
            json!({ "lowest": 10, "highest": 50, "tenants": ["red", "blue"] }),
        ),
        (
            "urgent",
            json!({ "lowest": 10, "highest": 50, "tenants": ["red"] }),
        ),
        (
            "repair",
            json!({ "lowest": 90, "highest": 100, "roles": ["admin"] }),
        ),
    ] {
        let made = set(&world, ADMIN, name, &class).await;
        assert_eq!(made.status, 200, "{}", made.text());
    }
    world
}

/// Returns a document with this priority and class, unless they are null.
fn stating(priority: &Value, class: &Value) -> Value {
    let mut stating = document("stating");
    for (field, value) in [("priority", priority), ("priority_class", class)] {
        if !value.is_null() {
            stating[field] = value.clone();
        }
    }
    stating
}

async fn submit(world: &World, token: &str, priority: Value, class: Value) -> Answer {
    let stating = stating(&priority, &class);
    world.post(token, "/api/v1/jobs", &stating).await
}

fn errors(answer: &Answer) -> Vec<String> {
    let problem = answer.problem();
    let errors = problem.errors.iter();
    errors.map(ToString::to_string).collect()
}

async fn names(world: &World, token: &str) -> Vec<String> {
    let page: Value = world.get(token, PATH).await.json();
    let items = page["items"].as_array().expect("classes").iter();
    items
        .map(|class| class["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_set_classes_and_members_see_theirs() {
    let world = with_classes().await;
    assert_eq!(names(&world, ADMIN).await, ["batch", "repair", "urgent"]);
    assert_eq!(names(&world, RED).await, ["batch", "urgent"]);
    assert_eq!(names(&world, BLUE).await, ["batch"]);
    let page: Value = world.get(ADMIN, &format!("{PATH}?limit=1")).await.json();
    let expected = json!([{
        "name": "batch", "description": "", "lowest": -50, "highest": -1, "default": -20,
        "roles": ["member"], "tenants": [],
    }]);
    assert_eq!(page["items"], expected);
    assert_eq!(page["continue"], "batch");
    let class = json!({ "lowest": 0, "highest": 100, "tenants": ["blue", "red"] });
    assert_eq!(set(&world, RED, "mine", &class).await.status, 403);
    assert_eq!(set(&world, ADMIN, "mine", &class).await.status, 200);
    // A member does not learn the names of other tenants.
    let page: Value = world.get(BLUE, PATH).await.json();
    assert_eq!(page["items"][1]["tenants"], json!(["blue"]));
    for (name, class, field) in [
        ("Bad", json!({ "lowest": 0, "highest": 1 }), "name"),
        ("bad", json!({ "lowest": 2, "highest": 1 }), "highest"),
        (
            "bad",
            json!({ "lowest": 0, "highest": 1, "tenants": ["green"] }),
            "tenants",
        ),
        (
            "bad",
            json!({ "lowest": 0, "highest": 1, "roles": ["owner"] }),
            "roles",
        ),
    ] {
        let refused = set(&world, ADMIN, name, &class).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        let named = errors(&refused);
        assert!(named[0].starts_with(field), "{named:?}");
    }
    let path = format!("{PATH}/mine");
    assert_eq!(world.delete(RED, &path).await.status, 403);
    assert_eq!(world.delete(ADMIN, &path).await.status, 204);
    assert_eq!(world.delete(ADMIN, &path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_classes_is_limited() {
    let world = World::new().await;
    let class = json!({ "lowest": 0, "highest": 1 });
    for number in 0..muster_model::priority::MAX_CLASSES {
        let made = set(&world, ADMIN, &format!("c{number}"), &class).await;
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let refused = set(&world, ADMIN, "more", &class).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(set(&world, ADMIN, "c0", &class).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn submission_resolves_class_and_number() {
    let world = with_classes().await;
    for (token, priority, class, number) in [
        (RED, json!(null), json!(null), 0),
        (RED, json!(0), json!(null), 0),
        (RED, json!(30), json!(null), 30),
        (RED, json!(null), json!("urgent"), 10),
        (RED, json!(50), json!("urgent"), 50),
        (BLUE, json!(null), json!("batch"), -20),
        (ADMIN, json!(null), json!("repair"), 90),
    ] {
        let made = submit(&world, token, priority, class.clone()).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let job: Value = made.json();
        let path = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
        let shown: Value = world.get(token, &path).await.json();
        assert_eq!(shown["priority"], number);
        assert_eq!(shown["spec"]["priority"], number);
        assert_eq!(shown["priority_class"], class);
    }
    let path = "/api/v1/jobs?dry_run=true";
    let dry = world
        .post(RED, path, &stating(&json!(null), &json!("urgent")))
        .await;
    assert_eq!(dry.json::<Value>()["priority"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_outside_of_usable_classes_is_refused() {
    let world = with_classes().await;
    let of_red = "batch (-50 to -1), urgent (10 to 50)";
    for (token, priority, class, expected) in [
        (
            RED,
            json!(100),
            json!(null),
            format!(
                "priority is 100; expected 0, or a number of a priority class that members of tenant red may use: {of_red}"
            ),
        ),
        (
            BLUE,
            json!(20),
            json!(null),
            "priority is 20; expected 0, or a number of a priority class that members of tenant blue may use: batch (-50 to -1)".to_owned(),
        ),
        (
            RED,
            json!(0),
            json!("urgent"),
            "priority is 0; expected 10 to 50, the range of priority class urgent".to_owned(),
        ),
        (
            RED,
            json!(null),
            json!("repair"),
            format!(
                "priority_class is \"repair\"; expected a priority class that members of tenant red may use: {of_red}"
            ),
        ),
    ] {
        let stating = stating(&priority, &class);
        for path in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true", "/api/v1/plan"] {
            let refused = world.post(token, path, &stating).await;
            assert_eq!(refused.status, 422, "{path}: {}", refused.text());
            assert_eq!(errors(&refused), [expected.as_str()], "{path}");
        }
    }
    // The rule needs no class to be usable, only one to exist.
    for name in ["batch", "urgent"] {
        world.delete(ADMIN, &format!("{PATH}/{name}")).await;
    }
    assert_eq!(submit(&world, RED, json!(1), json!(null)).await.status, 422);
    world.delete(ADMIN, &format!("{PATH}/repair")).await;
    let highest = submit(&world, RED, json!(100), json!(null)).await;
    assert_eq!(highest.status, 201, "{}", highest.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_edits_name_changed_classes() {
    let world = with_classes().await;
    let job: Value = submit(&world, RED, json!(null), json!(null)).await.json();
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
    for change in [
        json!({ "priority_class": "urgent" }),
        json!({ "priority": 40 }),
        json!({ "priority_class": "batch" }),
    ] {
        let request = json_request(Method::PATCH, RED, &path, &change);
        assert_eq!(world.send(request).await.status, 202);
    }
    let events: Value = world.get(RED, &format!("{path}/events")).await.json();
    let events = events["items"].as_array().expect("events").iter();
    let edits = events.filter(|one| one["event"]["kind"] == "job_edited");
    let texts = edits.map(|one| one["message"].as_str().expect("a text").to_owned());
    let said: Vec<String> = texts
        .map(|text| {
            text.split_once("priority")
                .expect("a priority")
                .1
                .to_owned()
        })
        .collect();
    let expected = [
        " 10 (priority class urgent)",
        " 40 (priority class urgent)",
        " -20 (priority class batch instead of urgent)",
    ];
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_stays_within_the_class() {
    let world = with_classes().await;
    let job: Value = submit(&world, RED, json!(null), json!("urgent"))
        .await
        .json();
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
    let edit = async |token: &str, change: Value| {
        let request = json_request(Method::PATCH, token, &path, &change);
        world.send(request).await
    };
    let changed = edit(RED, json!({ "priority": 40 })).await;
    assert_eq!(changed.json::<Value>()["priority"], 40);
    let refused = edit(RED, json!({ "priority": 60 })).await;
    assert_eq!(
        errors(&refused),
        ["priority is 60; expected 10 to 50, the range of priority class urgent"]
    );
    let refused = edit(RED, json!({ "priority_class": "repair" })).await;
    assert!(errors(&refused)[0].starts_with("priority_class is \"repair\""));
    let changed: Value = edit(ADMIN, json!({ "priority_class": "repair" }))
        .await
        .json();
    assert_eq!(
        (&changed["priority"], &changed["priority_class"]),
        (&json!(90), &json!("repair"))
    );
    let back = json!({ "priority_class": "urgent", "priority": 50 });
    let changed: Value = edit(RED, back).await.json();
    assert_eq!(changed["priority"], 50);
    // The job keeps its number when the class is narrowed, and also while other fields change.
    let narrow = json!({ "lowest": 10, "highest": 20 });
    assert_eq!(set(&world, ADMIN, "urgent", &narrow).await.status, 200);
    let sized = json!({ "workers": { "min": 1, "max": 1 }, "priority": 50 });
    let changed: Value = edit(RED, sized).await.json();
    assert_eq!(changed["priority"], 50);
    assert_eq!(edit(RED, json!({ "priority": 49 })).await.status, 422);
    // A number alone removes a class that was deleted.
    world.delete(ADMIN, &format!("{PATH}/urgent")).await;
    let shown: Value = world.get(RED, &path).await.json();
    assert_eq!(
        (&shown["priority"], &shown["priority_class"]),
        (&json!(50), &json!("urgent"))
    );
    let changed: Value = edit(RED, json!({ "priority": -5 })).await.json();
    assert_eq!(
        (&changed["priority"], &changed["priority_class"]),
        (&json!(-5), &json!(null))
    );
}

fn study(priority: &Value, class: &Value) -> Value {
    study_of("of-classes", stating(priority, class))
}

#[tokio::test(flavor = "multi_thread")]
async fn trials_get_the_number_of_the_class() {
    let world = with_classes().await;
    for path in ["/api/v1/studies?dry_run=true", "/api/v1/studies"] {
        let class = study(&json!(null), &json!("urgent"));
        let made = world.post(RED, path, &class).await;
        assert!(made.status.is_success(), "{}", made.text());
        let job = &made.json::<Value>()["document"]["job"];
        assert_eq!(
            (&job["priority"], &job["priority_class"]),
            (&json!(10), &json!("urgent"))
        );
        let refused = world
            .post(RED, path, &study(&json!(99), &json!(null)))
            .await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(errors(&refused)[0].starts_with("job.priority is 99"));
    }
    // A search cannot choose the priority of a trial.
    let mut chosen = study(&json!(null), &json!(null));
    chosen["search"]["parameters"][0]["field"] = "priority".into();
    let refused = world.post(RED, "/api/v1/studies", &chosen).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_asked_with_the_number_of_the_class() {
    let world = with_classes().await;
    let answer = question::Answer::Plan { plan: planned() };
    let answering = tokio::spawn(scheduler(world.scheduler.clone(), answer));
    let class = stating(&json!(null), &json!("urgent"));
    let answer = world.post(RED, "/api/v1/plan", &class).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let Question::Plan { job, .. } = answering.await.expect("answered") else {
        panic!("another question");
    };
    assert_eq!(job.priority(), 10);
    for (tenant, class, field) in [
        ("blue", "urgent", "jobs[0].job.priority_class"),
        ("red", "none", "jobs[0].job.priority_class"),
    ] {
        let job = stating(&json!(null), &json!(class));
        let changes = json!({ "jobs": [{ "tenant": tenant, "job": job }] });
        let refused = world.post(ADMIN, "/api/v1/what-if", &changes).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(errors(&refused)[0].starts_with(field));
    }
    let why = "not now".to_owned();
    let answer = question::Answer::Failed { why };
    let answering = tokio::spawn(scheduler(world.scheduler.clone(), answer));
    let changes = json!({ "jobs": [{ "job": class }] });
    world.post(ADMIN, "/api/v1/what-if", &changes).await;
    let Question::WhatIf { changes } = answering.await.expect("answered") else {
        panic!("another question");
    };
    assert_eq!(changes.jobs[0].job.priority(), 10);
}
