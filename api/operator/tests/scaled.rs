//! Tests `kubectl scale` and other changes of an object with a job, with stand-ins for Kubernetes
//! and Muster.

#[allow(dead_code, reason = "every test binary uses another part of it")]
mod world;

use serde_json::{Value, json};
use world::{UID, World, job};

const OURS: &str = "01890000-0000-7000-8000-000000000001";

/// Object with a job of one worker.
async fn with_job() -> World {
    let spec = json!({ "command": { "argv": ["true"] } });
    let world = World::with("TrainingJob", spec).await;
    let labels = json!({ "muster.dev/operator": "here", "muster.dev/namespace": "vision", "muster.dev/uid": UID });
    let document = json!({
        "version": "muster/v1", "name": "mine", "labels": labels, "command": { "argv": ["true"] },
    });
    world.state().jobs.push(job(OURS, "vision", &document));
    world.reconcile_job().await.expect("a reconciliation");
    world.told("");
    world
}

/// Changes the spec and increases the generation, as Kubernetes does.
fn write(world: &World, field: &str, value: Value) {
    world.change(|object| {
        object["spec"][field] = value;
        let metadata = &mut object["metadata"];
        let generation = metadata["generation"].as_i64().expect("it is there");
        metadata["generation"] = (generation + 1).into();
    });
}

fn misconfigured(world: &World) -> Option<Value> {
    let status = world.status();
    let conditions = status["conditions"].as_array().expect("conditions").iter();
    let mut found = conditions.filter(|one| one["type"] == "Misconfigured");
    found.next().filter(|one| one["status"] == "True").cloned()
}

#[tokio::test]
async fn replicas_are_passed_on_once_and_withdrawn() {
    let world = with_job().await;
    write(&world, "replicas", 3.into());
    for _ in 0..3 {
        world.reconcile_job().await.expect("a reconciliation");
    }
    let patch = format!("vision PATCH /muster/api/v1/jobs/{OURS}");
    assert_eq!(world.told("vision "), std::slice::from_ref(&patch));
    let exactly = json!({ "min": 3, "max": 3 });
    let workers = world.state().jobs[0]["spec"]["scale"]["workers"].clone();
    assert_eq!(workers, exactly);
    assert_eq!(world.status()["workers"], "1/3..3");
    assert_eq!(misconfigured(&world), None);

    world.change(|object| {
        let spec = object["spec"].as_object_mut().expect("a spec");
        spec.remove("replicas");
    });
    let range = json!({ "min": 1, "max": 4 });
    write(&world, "scale", json!({ "workers": range }));
    write(&world, "priority", 7.into());
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(world.told("vision "), [patch]);
    let spec = world.state().jobs[0]["spec"].clone();
    assert_eq!(spec["scale"]["workers"], range);
    assert_eq!(spec["priority"], 7);
}

#[tokio::test]
async fn object_is_submitted_with_its_replicas() {
    let spec = json!({ "command": { "argv": ["true"] }, "replicas": 2, "scale": { "power_of_two": true } });
    let world = World::with("TrainingJob", spec).await;
    world.reconcile_job().await.expect("a reconciliation");
    let spec = world.state().jobs[0]["spec"].clone();
    let workers = json!({ "min": 2, "max": 2 });
    assert_eq!(
        spec["scale"],
        json!({ "power_of_two": true, "workers": workers })
    );
    assert_eq!(spec.get("replicas"), None);
}

#[tokio::test]
async fn priority_class_is_submitted_and_passed_on_once() {
    let spec = json!({ "command": { "argv": ["true"] }, "priority_class": "urgent" });
    let world = World::with("TrainingJob", spec).await;
    world.reconcile_job().await.expect("a reconciliation");
    let submitted = world.state().jobs[0]["spec"].clone();
    assert_eq!(submitted["priority_class"], "urgent");
    // The default of the class, which Muster fills in, is no change of the object.
    world.state().jobs[0]["spec"]["priority"] = 10.into();
    world.told("");
    let both = [
        ("replicas", json!(2), json!(["urgent", 10])),
        ("priority_class", json!("batch"), json!(["batch", 10])),
        ("priority", json!(-7), json!(["batch", -7])),
    ];
    for (field, value, expected) in both {
        write(&world, field, value);
        for _ in 0..2 {
            world.reconcile_job().await.expect("a reconciliation");
        }
        assert_eq!(world.told("vision PATCH").len(), 1, "{field}");
        let spec = world.state().jobs[0]["spec"].clone();
        assert_eq!(json!([spec["priority_class"], spec["priority"]]), expected);
        assert_eq!(misconfigured(&world), None);
    }
}

#[tokio::test]
async fn change_in_muster_stays_until_the_object_changes() {
    let world = with_job().await;
    let changed = json!({ "workers": { "min": 5, "max": 5 } });
    world.state().jobs[0]["spec"]["scale"] = changed;
    for _ in 0..2 {
        world.reconcile_job().await.expect("a reconciliation");
    }
    assert_eq!(world.told("vision "), Vec::<String>::new());
    write(&world, "priority", 1.into());
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(world.told("vision ").len(), 1);
    let workers = world.state().jobs[0]["spec"]["scale"]["workers"].clone();
    assert_eq!(workers, json!({ "min": 1, "max": 1 }));
}

#[tokio::test]
async fn rejected_change_is_requested_once_and_shown() {
    let world = with_job().await;
    world.state().unwilling = Some("workers.min");
    write(&world, "replicas", 3.into());
    for _ in 0..4 {
        world.reconcile_job().await.expect("a reconciliation");
        let shown = misconfigured(&world).expect("it is shown");
        assert_eq!(shown["reason"], "ChangeRefused");
        let message = shown["message"].as_str().expect("a message");
        assert!(message.contains("spec.scale.workers.min"), "{message}");
    }
    assert_eq!(world.told("vision PATCH").len(), 1);
    world.state().unwilling = None;
    write(&world, "replicas", 2.into());
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(world.told("vision PATCH").len(), 1, "another is tried");
    assert_eq!(misconfigured(&world), None);
}

#[tokio::test]
async fn immutable_change_is_shown_and_others_are_carried_out() {
    let world = with_job().await;
    write(&world, "retries", 9.into());
    write(&world, "replicas", 2.into());
    world.reconcile_job().await.expect("a reconciliation");
    let shown = misconfigured(&world).expect("it is shown");
    assert_eq!(shown["reason"], "SpecChanged");
    assert_eq!(world.told("vision PATCH").len(), 1);
}

#[tokio::test]
async fn spec_shown_as_changed_does_not_undo_changes_in_muster() {
    let world = with_job().await;
    write(&world, "retries", 9.into());
    world.reconcile_job().await.expect("a reconciliation");
    let changed = json!({ "workers": { "min": 5, "max": 5 } });
    world.state().jobs[0]["spec"]["scale"] = changed.clone();
    for _ in 0..3 {
        world.reconcile_job().await.expect("a reconciliation");
        assert!(misconfigured(&world).is_some());
    }
    assert_eq!(world.told("vision PATCH").len(), 0);
    assert_eq!(world.state().jobs[0]["spec"]["scale"], changed);
}

#[tokio::test]
async fn step_filled_in_by_muster_is_no_change() {
    let world = with_job().await;
    let from = json!({ "job": OURS, "step": 7 });
    world.state().jobs[0]["spec"]["from"] = from;
    write(&world, "from", json!({ "job": OURS }));
    write(&world, "replicas", 2.into());
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(misconfigured(&world), None);
    write(&world, "from", json!({ "job": OURS, "step": 8 }));
    world.reconcile_job().await.expect("a reconciliation");
    let shown = misconfigured(&world).expect("another step");
    assert_eq!(shown["reason"], "SpecChanged");
}
