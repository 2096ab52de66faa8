//! Tests the requests of a reconciliation and their order, with stand-ins for Kubernetes and
//! Muster.

#[allow(dead_code, reason = "every test binary uses another part of it")]
mod world;

use futures::StreamExt as _;
use muster_operator::job::status::JobStatus;
use muster_operator::study::status::StudyStatus;
use muster_operator::tenant::TenantStatus;
use serde_json::{Value, json};
use std::sync::Arc;
use world::{UID, World, job, study};

const OURS: &str = "01890000-0000-7000-8000-000000000001";
const FOREIGN: &str = "01890000-0000-7000-8000-000000000002";

fn command() -> Value {
    json!({ "command": { "argv": ["true"] } })
}

fn search() -> Value {
    json!({ "search": {
        "objectives": [{ "metric": "loss", "goal": "minimize" }],
        "parameters": [{ "name": "width", "type": "int", "low": 1, "high": 8 }],
        "searcher": { "kind": "random" },
        "trials": 2,
    } })
}

/// The document as it was submitted for the object with this uid.
fn submitted(mut document: Value, kind: &str, uid: &str) -> Value {
    document["version"] = "muster/v1".into();
    if kind == "study" {
        document["kind"] = kind.into();
    }
    document["name"] = "mine".into();
    document["labels"] = json!({ "muster.dev/operator": "here", "muster.dev/namespace": "vision", "muster.dev/uid": uid });
    document
}

fn job_of(id: &str, tenant: &str, uid: &str) -> Value {
    job(id, tenant, &submitted(command(), "job", uid))
}

fn study_of(id: &str, tenant: &str, uid: &str) -> Value {
    study(id, tenant, &submitted(search(), "study", uid))
}

/// Object that already has a job, and its status.
async fn with_job() -> World {
    let world = World::with("TrainingJob", command()).await;
    world.state().jobs.push(job_of(OURS, "vision", UID));
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(world.status()["jobId"], OURS);
    world.told("");
    world
}

async fn with_study() -> World {
    let world = World::with("Study", search()).await;
    world.state().studies.push(study_of(OURS, "vision", UID));
    world.reconcile_study().await.expect("a reconciliation");
    assert_eq!(world.status()["studyId"], OURS);
    world.told("");
    world
}

#[tokio::test]
async fn object_is_submitted_once_for_its_namespaces_tenant() {
    let world = World::with("TrainingJob", command()).await;
    for _ in 0..3 {
        world.reconcile_job().await.expect("a reconciliation");
    }
    assert_eq!(world.told("vision "), ["vision POST /muster/api/v1/jobs"]);
    assert_eq!(world.status()["queue"], "vision");
    let applied = world.state().applied[0].clone();
    assert_eq!(applied["metadata"]["uid"], UID, "of no other object");
}

#[tokio::test]
async fn object_deleted_before_reconciliation_is_not_submitted() {
    for kind in ["TrainingJob", "Study"] {
        let spec = if kind == "Study" { search() } else { command() };
        let world = World::with(kind, spec).await;
        let operator = world.operator();
        let done = if kind == "Study" {
            let seen = world.seen::<StudyStatus>();
            world.state().object = None;
            muster_operator::reconcile_flow::reconcile(seen, operator).await
        } else {
            let seen = world.seen::<JobStatus>();
            world.state().object = None;
            muster_operator::reconcile_flow::reconcile(seen, operator).await
        };
        done.expect("nothing is wrong with that");
        assert_eq!(world.told("vision "), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test]
async fn status_naming_another_job_or_study_is_ignored() {
    let world = with_job().await;
    world
        .state()
        .jobs
        .push(job_of(FOREIGN, "vision", "of-another"));
    world.change(|object| object["status"]["jobId"] = FOREIGN.into());
    world.suspend(true);
    world.reconcile_job().await.expect("a reconciliation");
    let pause = format!("vision POST /muster/api/v1/jobs/{OURS}/pause");
    assert_eq!(world.told("vision "), [pause]);

    for named in [FOREIGN, "01890000-0000-7000-8000-0000000000aa"] {
        let world = with_study().await;
        world
            .state()
            .studies
            .push(study_of(FOREIGN, "vision", "of-another"));
        world.change(|object| object["status"]["studyId"] = named.into());
        world.suspend(true);
        world.reconcile_study().await.expect("a reconciliation");
        let pause = format!("vision POST /muster/api/v1/studies/{OURS}/pause");
        assert_eq!(world.told("vision "), [pause]);
        assert_eq!(world.status()["studyId"], OURS);
    }
}

#[tokio::test]
async fn status_naming_another_tenant_is_ignored() {
    let world = with_job().await;
    world
        .state()
        .jobs
        .push(job_of(FOREIGN, "other", "of-another"));
    world.change(|object| {
        object["status"]["queue"] = "other".into();
        object["status"]["jobId"] = FOREIGN.into();
    });
    world.delete();
    world.reconcile_job().await.expect("a reconciliation");
    assert_eq!(world.told("other "), Vec::<String>::new());
    assert_eq!(world.status()["queue"], "vision");
    let job = world.state().jobs[0].clone();
    assert_eq!(job["intent"], "cancel", "its own is not lost by it");

    let world = with_study().await;
    world
        .state()
        .studies
        .push(study_of(FOREIGN, "other", "of-another"));
    world.change(|object| {
        object["status"]["queue"] = "other".into();
        object["status"]["studyId"] = FOREIGN.into();
    });
    world.delete();
    world.reconcile_study().await.expect("a reconciliation");
    let cancel = format!("vision POST /muster/api/v1/studies/{OURS}/cancel");
    assert_eq!(world.told("vision "), [cancel]);
    let finalizers = world.seen::<JobStatus>().metadata.finalizers.clone();
    assert_eq!(
        finalizers.map(|all| all.len()),
        Some(1),
        "it stays until they have ended"
    );
}

async fn reconcile(world: &World, kind: &str) {
    let done = match kind {
        "Study" => world.reconcile_study().await,
        _ => world.reconcile_job().await,
    };
    done.expect("a reconciliation");
}

/// Any writer of a status can claim a finished job. A job that was submitted and then removed from
/// Muster is not submitted again.
#[tokio::test]
async fn status_claiming_a_finished_job_does_not_stop_submission() {
    for (kind, id, path) in [
        ("TrainingJob", "jobId", "jobs"),
        ("Study", "studyId", "studies"),
    ] {
        let spec = if kind == "Study" { search() } else { command() };
        let world = World::with(kind, spec).await;
        for phase in ["Succeeded", "Queued"] {
            world.change(|object| {
                object["status"] =
                    json!({ "phase": phase, id: FOREIGN, "queue": "vision", "conditions": [] });
                // This happens when a manifest is copied from another namespace.
                object["metadata"]["annotations"] = json!({ "muster.dev/submitted": "of-another" });
            });
            for _ in 0..3 {
                reconcile(&world, kind).await;
            }
            let submission = format!("vision POST /muster/api/v1/{path}");
            assert_eq!(world.told("vision "), [submission], "{kind} {phase}");
            world.state().jobs.clear();
            world.state().studies.clear();
        }
        // The last round's job or study was the object's own, and was removed from Muster.
        for _ in 0..2 {
            reconcile(&world, kind).await;
        }
        assert_eq!(world.told("vision "), Vec::<String>::new(), "{kind}");
        assert_eq!(world.status()["reason"], "Removed", "{kind}");
    }
}

/// Record of the server that the manager has written the phase and the id into the status.
fn managed_fields(manager: &str, id: &str) -> Value {
    json!([{
        "manager": manager, "operation": "Apply", "apiVersion": "muster.dev/v1alpha1",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:phase": {}, format!("f:{id}"): {} } },
    }])
}

/// An earlier release recorded submissions only in the status. Its jobs and studies were removed
/// from Muster.
#[tokio::test]
async fn submission_of_an_older_release_is_not_repeated() {
    for (kind, id, phase) in [
        ("TrainingJob", "jobId", "Succeeded"),
        ("Study", "studyId", "Finished"),
    ] {
        let spec = if kind == "Study" { search() } else { command() };
        let world = World::with(kind, spec).await;
        world.change(|object| {
            let finished =
                json!({ "type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z" });
            object["status"] =
                json!({ "phase": phase, id: OURS, "queue": "vision", "conditions": [finished] });
            object["metadata"]["managedFields"] = managed_fields("muster-operator", id);
        });
        for _ in 0..2 {
            reconcile(&world, kind).await;
        }
        assert_eq!(world.told("vision "), Vec::<String>::new(), "{kind}");
        assert_eq!(world.status()["phase"], phase, "as it was");
        let annotations = world.seen::<JobStatus>().metadata.annotations.clone();
        let submitted = annotations.and_then(|all| all.get("muster.dev/submitted").cloned());
        assert_eq!(submitted.as_deref(), Some(UID));
        // Another writer of the same field has not submitted anything.
        world.change(|object| {
            object["metadata"]["annotations"] = json!({});
            object["metadata"]["managedFields"] = managed_fields("somebody", id);
        });
        reconcile(&world, kind).await;
        assert_eq!(world.told("vision ").len(), 1, "{kind}");
    }
}

/// The namespace was assigned to another tenant after the submission.
#[tokio::test]
async fn job_stays_with_its_tenant() {
    let world = with_job().await;
    world.state().tenant = "other".to_owned();
    world.delete();
    world.reconcile_job().await.expect("a reconciliation");
    let cancel = format!("vision POST /muster/api/v1/jobs/{OURS}/cancel");
    assert_eq!(world.told("vision "), [cancel]);
    // Neither tenant has the job any more.
    world.state().jobs.clear();
    world.reconcile_job().await.expect("a reconciliation");
    let finalizers = world.seen::<JobStatus>().metadata.finalizers.clone();
    assert_eq!(finalizers.map(|all| all.len()), Some(0));
}

fn study_order(verb: &str) -> String {
    format!("vision POST /muster/api/v1/studies/{OURS}/{verb}")
}

#[tokio::test]
async fn study_is_paused_once_and_resumed_before_it_has_paused() {
    let world = with_study().await;
    world.suspend(true);
    for _ in 0..4 {
        world.reconcile_study().await.expect("a reconciliation");
    }
    assert_eq!(
        world.told("vision "),
        [study_order("pause")],
        "no scheduler has taken it in yet"
    );
    assert_eq!(world.status()["phase"], "Running");
    world.suspend(false);
    for _ in 0..3 {
        world.reconcile_study().await.expect("a reconciliation");
    }
    assert_eq!(world.told("vision "), [study_order("resume")]);
    assert_eq!(world.status()["suspended"], false);

    // Paused by the operator, resumed by another user.
    world.suspend(true);
    world.reconcile_study().await.expect("a reconciliation");
    world.state().studies[0]["phase"] = "paused".into();
    world.reconcile_study().await.expect("a reconciliation");
    assert_eq!(world.told("vision "), [study_order("pause")]);
    world.state().studies[0]["phase"] = "running".into();
    for _ in 0..3 {
        world.reconcile_study().await.expect("a reconciliation");
    }
    assert_eq!(world.told("vision "), [study_order("pause")]);
}

#[tokio::test]
async fn pause_by_another_user_is_not_resumed() {
    let world = with_job().await;
    world.state().jobs[0]["intent"] = "pause".into();
    let study = with_study().await;
    study.state().studies[0]["phase"] = "paused".into();
    for held in [true, false] {
        world.suspend(held);
        world.reconcile_job().await.expect("a reconciliation");
        assert_eq!(world.status()["suspended"], false);
        study.suspend(held);
        study.reconcile_study().await.expect("a reconciliation");
        assert_eq!(study.status()["suspended"], false);
    }
    assert_eq!(world.told("vision "), Vec::<String>::new());
    assert_eq!(study.told("vision "), Vec::<String>::new());
}

fn place(told: &[String], end: &str) -> Option<usize> {
    told.iter().position(|one| one.ends_with(end))
}

#[tokio::test]
async fn pause_is_recorded_before_it_is_requested() {
    for kind in ["jobs", "studies"] {
        let world = match kind {
            "jobs" => with_job().await,
            _ => with_study().await,
        };
        world.suspend(true);
        let done = match kind {
            "jobs" => world.reconcile_job().await,
            _ => world.reconcile_study().await,
        };
        done.expect("a reconciliation");
        let told = world.told("");
        assert!(
            place(&told, "/status") < place(&told, "/pause") && place(&told, "/pause").is_some(),
            "{told:?}"
        );
        assert_eq!(world.state().applied[1]["status"]["suspended"], true);
        // Killed before the pause was requested: the next operator requests it.
        let written = world.state().applied[1]["status"].clone();
        world.change(|object| object["status"] = written);
        if kind == "jobs" {
            world.state().jobs[0]["intent"] = "run".into();
            world.reconcile_job().await.expect("a reconciliation");
        } else {
            world.reconcile_study().await.expect("a reconciliation");
        }
        let pause = format!("vision POST /muster/api/v1/{kind}/{OURS}/pause");
        assert_eq!(world.told("vision "), [pause]);
    }
}

#[tokio::test]
async fn revoked_token_is_replaced_before_a_status_names_the_tenant() {
    let world = World::with("TrainingJob", command()).await;
    let operator = world.operator();
    world.state().revoked.insert("vision/1".to_owned());
    let reconcile =
        || muster_operator::reconcile_flow::reconcile::<JobStatus>(world.seen(), operator.clone());
    reconcile()
        .await
        .expect_err("the token is good for nothing");
    reconcile().await.expect("there is another");
    assert_eq!(world.told("vision ").len(), 1, "it is submitted");
}

#[tokio::test]
async fn deleted_study_is_shown_while_it_ends() {
    let world = with_study().await;
    world.delete();
    world.state().studies[0]["phase"] = "closing".into();
    world.reconcile_study().await.expect("a reconciliation");
    assert_eq!(world.status()["phase"], "Closing");
    world.state().studies[0]["phase"] = "cancelled".into();
    world.reconcile_study().await.expect("a reconciliation");
    let finalizers = world.seen::<JobStatus>().metadata.finalizers.clone();
    assert_eq!(finalizers.map(|all| all.len()), Some(0));
}

fn secrets(world: &World) -> Value {
    world.state().tenant_pods["secrets"].clone()
}

async fn tenant_of(spec: Value) -> World {
    let world = World::with("Tenant", spec).await;
    world.change(|object| {
        let metadata = object["metadata"].as_object_mut().expect("an object");
        metadata.insert("name".to_owned(), "vision".into());
        metadata.remove("namespace");
    });
    world
}

/// Jobs of a namespace may be applied before its tenant. They must not wait for the end of their
/// back-off.
#[tokio::test]
async fn new_tenant_is_reported_once() {
    let world = tenant_of(json!({})).await;
    let operator = world.operator();
    let mut created = Box::pin(operator.tenants.created());
    for _ in 0..2 {
        let reconcile =
            muster_operator::tenant::reconcile(world.seen::<TenantStatus>(), Arc::clone(&operator));
        reconcile.await.expect("a reconciliation");
    }
    operator.tenants.was_created("last");
    let reported = [created.next().await, created.next().await];
    assert_eq!(
        reported,
        [Some("vision".to_owned()), Some("last".to_owned())]
    );
}

#[tokio::test]
async fn new_tenant_wakes_only_objects_that_wait_for_it() {
    let refused = json!({ "phase": "Misconfigured", "reason": "NoSuchTenant", "queue": "vision", "conditions": [] });
    let mut submitted = refused.clone();
    submitted["jobId"] = OURS.into();
    for (tenant, status, woken) in [
        ("vision", &refused, 1),
        ("other", &refused, 0),
        ("vision", &submitted, 0),
    ] {
        let world = World::with("TrainingJob", command()).await;
        world.change(|object| object["status"] = status.clone());
        let objects = [world.seen::<JobStatus>()];
        let found = muster_operator::controllers::wait_for_tenant(&objects, tenant);
        assert_eq!(found.len(), woken, "{tenant} {status}");
    }
}

/// Permissions are revoked by deleting the lines of the manifest that granted them.
#[tokio::test]
async fn removed_pod_permissions_of_a_tenant_object_are_revoked() {
    let spec = json!({ "pods": { "secrets": ["wandb"] } });
    let world = tenant_of(spec.clone()).await;
    // Nothing is granted before the status records that the object grants it.
    world.state().takes_no_status = true;
    assert!(world.reconcile_tenant().await.is_err());
    assert_eq!(secrets(&world), Value::Null);
    world.state().takes_no_status = false;
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(secrets(&world), json!(["wandb"]));
    assert_eq!(world.status()["pods"], true);

    world.change(|object| object["spec"] = json!({}));
    // Any operator revokes it, after any number of attempts.
    world.state().is_away = true;
    assert!(world.reconcile_tenant().await.is_err());
    assert_eq!(world.status()["pods"], true);
    world.state().is_away = false;
    world.state().takes_no_status = true;
    assert!(world.reconcile_tenant().await.is_err());
    assert_eq!(secrets(&world), json!([]));
    world.state().takes_no_status = false;
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.status().get("pods"), None);

    // The object then has no effect on permissions.
    world.state().tenant_pods = json!({ "secrets": ["by-hand"] });
    world.told("");
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.told("admin "), Vec::<String>::new());
    assert_eq!(secrets(&world), json!(["by-hand"]));
}

#[tokio::test]
async fn tenant_object_without_pods_keeps_permissions() {
    let world = tenant_of(json!({ "weight": 1.0 })).await;
    world.state().tenant_pods = json!({ "secrets": ["by-hand"] });
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.told("admin "), Vec::<String>::new());
    assert_eq!(secrets(&world), json!(["by-hand"]));
    assert_eq!(world.status().get("pods"), None);
}

#[tokio::test]
async fn named_limits_of_a_tenant_object_apply_and_others_stay() {
    let world = tenant_of(json!({ "limits": { "open_jobs": 100 } })).await;
    world.state().tenant_limits.tokens = 7;
    world.reconcile_tenant().await.expect("a reconciliation");
    let limits = world.state().tenant_limits;
    assert_eq!((limits.open_jobs, limits.tokens), (100, 7));

    world.told("");
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.told("admin "), Vec::<String>::new(), "nothing is new");

    world.state().tenant_limits.open_jobs = 5;
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.state().tenant_limits.open_jobs, 100);

    world.change(|object| object["spec"]["limits"] = json!({ "open_job": 3 }));
    world.reconcile_tenant().await.expect("a reconciliation");
    let status = world.status();
    assert_eq!(status["reason"], "InvalidDocument");
    let message = status["message"].as_str().expect("a message");
    assert!(
        message.contains("spec.limits: unknown field `open_job`"),
        "{message}"
    );
}

#[tokio::test]
async fn tenant_object_sets_sharing_and_remote_sessions() {
    let world = tenant_of(json!({ "sharesFamilies": true, "interactive": true })).await;
    world.reconcile_tenant().await.expect("a reconciliation");
    assert!(world.state().tenant_shares_families && world.state().tenant_interactive);
    // Without the field, the setting in Muster stays.
    world.change(|object| object["spec"] = json!({}));
    world.told("");
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.told("admin "), Vec::<String>::new(), "nothing is new");
    world
        .change(|object| object["spec"] = json!({ "sharesFamilies": false, "interactive": false }));
    world.reconcile_tenant().await.expect("a reconciliation");
    assert!(!world.state().tenant_shares_families && !world.state().tenant_interactive);
}

#[tokio::test]
async fn named_caps_of_a_tenant_object_apply_and_others_stay() {
    let world = tenant_of(json!({ "preemption": { "allowed": "restart" } })).await;
    world.state().tenant_preemption.grace_s = Some(30);
    world.reconcile_tenant().await.expect("a reconciliation");
    let caps = json!({ "allowed": "restart", "grace_s": 30 });
    assert_eq!(json!(world.state().tenant_preemption), caps);

    world.told("");
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.told("admin "), Vec::<String>::new(), "nothing is new");

    world.change(|object| object["spec"]["preemption"] = json!({ "grace": 3 }));
    world.reconcile_tenant().await.expect("a reconciliation");
    assert_eq!(world.status()["reason"], "InvalidDocument");
}
